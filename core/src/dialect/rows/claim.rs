//! Finding rows that wait, and handing them to a claim.

use super::{Bound, Lane, Position, Rows, Sql, fitting};
use crate::config::ClaimShape;
use crate::plan::keys::Keys;
use crate::plan::table::access::{Access, Search};
use crate::plan::table::layout::Column;
use crate::value::Statement;
use rowclaim_migrations::Flavor;
use std::time::Duration;
use uuid::Uuid;

impl Rows<'_> {
    /// A column that is NULL in every row of the lane is left out: MariaDB sorts by it, and locks all rows to do so.
    fn order_by(&self, search: &Search, lane: Lane) -> String {
        let is_constant = |column: &Column| lane == Lane::Untimed && self.table.available_at.as_ref() == Some(column);
        let mut order: Vec<String> = search
            .order
            .iter()
            .filter(|order| !is_constant(&order.column))
            .map(|order| format!("{}{}", self.q(&order.column), if order.is_descending { " DESC" } else { "" }))
            .collect();
        order.push(self.q(&self.table.key));
        format!(" ORDER BY {} LIMIT ?", order.join(", "))
    }

    fn search(&self, lane: Lane, search: &Search, by_free_token: bool) -> Sql {
        let mut sql = Sql::new(format!(" WHERE {} = ?", self.q(&self.table.status)));
        sql.bind(self.table.pending.clone());
        if by_free_token {
            self.equal(&mut sql, &self.table.token, &self.table.token_free);
        }
        self.scope(&mut sql);
        self.conditions(&mut sql, &search.conditions);
        self.due(&mut sql, lane);
        if let Some((k, n)) = search.partition {
            let rest = match self.flavor() {
                Flavor::MySql => format!(" AND MOD({}, ?) = ?", self.q(&self.table.key)),
                Flavor::Sqlite => format!(" AND {} % ? = ?", self.q(&self.table.key)),
            };
            sql.push(&rest).bind(n).bind(k);
        }
        sql
    }

    /// The column that the rows of a lane are ordered by, where the search says nothing else.
    fn leading(&self, lane: Lane) -> &Column {
        match (lane, &self.table.available_at) {
            (Lane::Due, Some(column)) => column,
            _ => &self.table.key,
        }
    }

    /// The lanes of an index read, in the order of the rows.
    pub(crate) fn lanes(&self) -> &'static [Lane] {
        match &self.table.available_at {
            None => &[Lane::All],
            Some(column) if column.is_nullable => &[Lane::Untimed, Lane::Due],
            Some(_) => &[Lane::Due],
        }
    }

    /// Locks the first waiting rows by an index that holds them in order: n entries and n rows until COMMIT; rows others
    /// hold are stepped over.
    ///
    /// The last column is the one the lane is ordered by, on which `bound` lies.
    pub(crate) fn pick(
        &self,
        search: &Search,
        index: &str,
        by_free_token: bool,
        lane: Lane,
        bound: Option<Bound<'_>>,
        limit: usize,
    ) -> Statement {
        let index = self.flavor().quote(index);
        let (hint, lock) = match self.flavor() {
            Flavor::MySql => (format!(" FORCE INDEX ({index})"), " FOR UPDATE SKIP LOCKED"),
            Flavor::Sqlite => (format!(" INDEXED BY {index}"), ""),
        };
        let leading = self.q(self.leading(lane));
        let mut sql = Sql::new(format!("SELECT {}, {leading} FROM {}{hint}", self.control(), self.name()));
        let found = self.search(lane, search, by_free_token);
        sql.then((found.text, found.values));
        match bound {
            Some(Bound::From(position)) => {
                sql.push(&format!(" AND {leading} >= ?")).bind(position.leading.clone());
            }
            Some(Bound::After(position)) => self.after(&mut sql, &leading, position),
            Some(Bound::Until(position)) => {
                sql.push(&format!(" AND {leading} <= ?")).bind(position.leading.clone());
            }
            None => {}
        }
        sql.push(&self.order_by(search, lane)).bind(limit as i64);
        sql.push(lock);
        sql.end()
    }

    /// As two ranges of the index: `leading > ? OR key > ?` walks and locks all rows of one instant.
    fn after(&self, sql: &mut Sql, leading: &str, position: &Position) {
        let key = self.q(&self.table.key);
        let condition = match self.flavor() {
            Flavor::MySql => format!(" AND ({leading} = ? AND {key} > ? OR {leading} > ?)"),
            Flavor::Sqlite => format!(" AND ({leading}, {key}) > (?, ?) AND {leading} >= ?"),
        };
        sql.push(&condition).bind(position.leading.clone()).bind(position.key.clone()).bind(position.leading.clone());
    }

    /// Reads the first waiting rows without locks; whoever locks them tests again.
    pub(crate) fn candidates(&self, search: &Search, limit: usize) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        let found = self.search(Lane::All, search, false);
        sql.then((found.text, found.values)).push(&self.order_by(search, Lane::All)).bind(limit as i64);
        sql.end()
    }

    /// Locks candidates by key that still wait; rows others hold are stepped over.
    pub(crate) fn lock(&self, search: &Search, keys: &Keys) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        self.waiting(&mut sql, search, keys);
        sql.push(&format!(" ORDER BY {}", self.q(&self.table.key)));
        sql.push(match self.shape {
            ClaimShape::SkipLocked => " FOR UPDATE SKIP LOCKED",
            ClaimShape::TokenUpdate => " FOR UPDATE",
            ClaimShape::Exclusive => "",
        });
        sql.end()
    }

    /// By key, with everything that makes a row one that waits.
    fn waiting(&self, sql: &mut Sql, search: &Search, keys: &Keys) {
        sql.push(" WHERE ").then(keys.condition(&self.q(&self.table.key)));
        self.equal(sql, &self.table.status, &self.table.pending);
        self.scope(sql);
        self.conditions(sql, &search.conditions);
        self.due(sql, Lane::All);
    }

    /// Hands rows to a claim: by key, with the state in the condition, so a stale candidate changes nothing.
    pub(crate) fn mark(&self, search: &Search, keys: &Keys, token: Uuid, worker: &str, lease: Duration) -> Statement {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?, {} = ?", self.name(), self.q(&table.status), self.q(&table.token)));
        sql.bind(table.processing.clone()).bind(table.token_form.value(token));
        self.set_clock(&mut sql, table.claimed_at.as_ref(), Duration::ZERO);
        self.set_clock(&mut sql, table.lease_until.as_ref(), lease);
        if let Some(column) = &table.locked_by {
            sql.push(&format!(", {} = ?", self.q(column))).bind(fitting(worker, column));
        }
        if let Some(column) = &table.attempts {
            let name = self.q(column);
            // A counter that nobody has set is 0.
            sql.push(&format!(", {name} = CASE WHEN COALESCE({name}, 0) < ? THEN COALESCE({name}, 0) + 1 ELSE {name} END"));
            sql.bind(table.attempts_column_max());
        }
        if let Some(column) = &table.fence {
            sql.push(&format!(", {0} = COALESCE({0}, 0) + 1", self.q(column)));
        }
        self.waiting(&mut sql, search, keys);
        sql.end()
    }

    /// Ends waiting rows that have no attempt left; tested again, since they may not be locked.
    pub(crate) fn exhaust(&self, keys: &Keys, error: &str) -> Option<Statement> {
        let table = self.table;
        let failed = table.failed.clone()?;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(failed);
        self.set_error(&mut sql, Some(error));
        self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.status, &table.pending);
        self.scope(&mut sql);
        if let Some(attempts) = table.attempts.as_ref().map(|column| self.q(column)) {
            sql.push(&format!(" AND ({attempts} >= ?")).bind(table.attempts_column_max());
            match &table.max_attempts {
                Some(column) => sql.push(&format!(" OR ({0} > 0 AND {attempts} >= {0}))", self.q(column))),
                None => sql.push(&format!(" OR {attempts} >= {})", self.stated_limit())),
            };
        }
        Some(sql.end())
    }

    /// The rows a claim holds, in no order: the columns asked for, then key, attempts, most attempts, fence.
    pub(crate) fn claimed(&self, keys: &Keys, token: Uuid) -> Statement {
        let columns: Vec<String> = self.table.columns.iter().map(|column| self.q(column)).collect();
        let mut sql = Sql::new(format!("SELECT {}, {} FROM {}", columns.join(", "), self.control(), self.name()));
        self.held(&mut sql, keys, token);
        sql.end()
    }

    /// The statements of a claim by this search, for EXPLAIN.
    pub(crate) fn finding(&self, search: &Search, limit: usize) -> Vec<Statement> {
        match &search.access {
            Access::Candidates => vec![self.candidates(search, limit)],
            Access::Index { name, by_free_token } => {
                self.lanes().iter().map(|lane| self.pick(search, name, *by_free_token, *lane, None, limit)).collect()
            }
        }
    }
}
