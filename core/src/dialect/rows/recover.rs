//! Rows that other code, or a claim without a record, holds for too long.

use super::{Back, Gone, Rows, Sql};
use crate::plan::keys::Keys;
use crate::plan::table::layout::{Column, Kind};
use crate::time::micros;
use crate::value::{Statement, Value};
use rowclaim_migrations::Flavor;

impl Rows<'_> {
    /// That a held row is old enough to be nobody's: past its lease, or claimed before `recover_after`, or claimed at no
    /// known time. `None` where the mapping cannot tell.
    fn stale(&self) -> Option<(String, Vec<Value>)> {
        let table = self.table;
        let zero = |column: &Column| match (self.flavor(), &column.kind) {
            (Flavor::MySql, Kind::DateTime { .. } | Kind::Timestamp { .. }) => {
                format!("{0} IS NULL OR {0} < '1970-01-02 00:00:00' OR ", self.q(column))
            }
            _ => format!("{0} IS NULL OR {0} = 0 OR ", self.q(column)),
        };
        let (column, age) = match (&table.lease_until, &table.claimed_at, table.mapping.recover_after) {
            (Some(column), _, after) => (column, after.unwrap_or_default()),
            (None, Some(column), Some(after)) => (column, after),
            _ => return None,
        };
        let text = format!(" AND ({}{} < {})", zero(column), self.q(column), self.clock(column));
        Some((text, vec![self.span(column, micros(age).saturating_neg())]))
    }

    /// Rows that are held for too long: key, attempts, most attempts, fence, token, holder.
    pub(crate) fn stale_rows(&self, limit: i64) -> Option<Statement> {
        let table = self.table;
        let holder = table.locked_by.as_ref().map_or("NULL".to_owned(), |column| self.q(column));
        let mut sql = Sql::new(format!("SELECT {}, {}, {holder} FROM {}", self.control(), self.q(&table.token), self.name()));
        sql.push(&format!(" WHERE {} = ?", self.q(&table.status))).bind(table.processing.clone());
        self.scope(&mut sql);
        sql.then(self.stale()?);
        sql.push(&format!(" ORDER BY {} LIMIT ?", self.q(&table.key))).bind(limit);
        Some(sql.end())
    }

    /// Takes stale rows of one token back, ends them as failed or puts them aside: by key, with the token that was seen and the age tested
    /// again, so that a row that was claimed anew meanwhile does not match.
    pub(crate) fn take_stale(&self, keys: &Keys, token: &Value, gone: Gone, error: &str) -> Option<Statement> {
        let table = self.table;
        let mut sql = match gone {
            Gone::Back(delay) => self.back(&Back { delay, error: Some(error), uncount: false }),
            Gone::Failed => self.end(error)?,
            Gone::Held => self.aside(error)?,
        };
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.token, token);
        self.equal(&mut sql, &table.status, &table.processing);
        self.scope(&mut sql);
        sql.then(self.stale()?);
        Some(sql.end())
    }
}
