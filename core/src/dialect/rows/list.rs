//! Looking at rows, and what a person may do with them.

use super::{Back, Rows, Sql};
use crate::claim::Resolution;
use crate::config::ClaimShape;
use crate::plan::keys::Keys;
use crate::plan::table::access::Condition;
use crate::value::{Statement, Value};
use std::time::Duration;

impl Rows<'_> {
    /// Whether any row waits or is held: two index look-ups that stop at the first row.
    pub(crate) fn remaining(&self, conditions: &[Condition]) -> Statement {
        let mut sql = Sql::new("SELECT ");
        for (position, status) in [&self.table.pending, &self.table.processing].into_iter().enumerate() {
            let or = if position == 0 { "" } else { " OR " };
            sql.push(&format!("{or}EXISTS (SELECT 1 FROM {} WHERE {} = ?", self.name(), self.q(&self.table.status)));
            sql.bind(status.clone());
            self.scope(&mut sql);
            self.conditions(&mut sql, conditions);
            sql.push(")");
        }
        sql.end()
    }

    /// Rows in the order of their keys: the columns asked for, then key, attempts, most attempts, fence.
    pub(crate) fn list(&self, conditions: &[Condition], status: Option<&Value>, after: Option<&Value>, limit: i64) -> Statement {
        let columns: Vec<String> = self.table.columns.iter().map(|column| self.q(column)).collect();
        let mut sql = Sql::new(format!("SELECT {}, {} FROM {} WHERE 1 = 1", columns.join(", "), self.control(), self.name()));
        if let Some(status) = status {
            self.equal(&mut sql, &self.table.status, status);
        }
        self.scope(&mut sql);
        self.conditions(&mut sql, conditions);
        if let Some(after) = after {
            sql.push(&format!(" AND {} > ?", self.q(&self.table.key))).bind(after.clone());
        }
        sql.push(&format!(" ORDER BY {} LIMIT ?", self.q(&self.table.key))).bind(limit);
        sql.end()
    }

    /// Locks those of the keys whose rows wait for a person; `None` where the mapping has no such status.
    pub(crate) fn aside_of(&self, keys: &Keys) -> Option<Statement> {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.q(&self.table.key), self.name()));
        self.waits_for_a_person(&mut sql, keys)?;
        sql.push(&format!(" ORDER BY {}", self.q(&self.table.key)));
        sql.push(if self.shape == ClaimShape::Exclusive { "" } else { " FOR UPDATE" });
        Some(sql.end())
    }

    /// Ends rows that wait for a person as done, or puts them back without counting the attempt.
    pub(crate) fn resolve(&self, keys: &Keys, resolution: Resolution) -> Option<Statement> {
        let table = self.table;
        let mut sql = match resolution {
            Resolution::NotSent => self.back(&Back { delay: None, error: None, uncount: true }),
            Resolution::Sent => {
                let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
                sql.bind(table.done.clone());
                self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
                sql
            }
        };
        self.waits_for_a_person(&mut sql, keys)?;
        Some(sql.end())
    }

    fn waits_for_a_person(&self, sql: &mut Sql, keys: &Keys) -> Option<()> {
        let held = self.table.held.as_ref()?;
        sql.push(" WHERE ").then(keys.condition(&self.q(&self.table.key)));
        self.equal(sql, &self.table.status, held);
        self.scope(sql);
        Some(())
    }

    /// Puts failed rows back with all their attempts, or takes held ones away from their owners: by key and status.
    pub(crate) fn retry(&self, keys: &Keys, from: &Value) -> Statement {
        let table = self.table;
        let mut sql = self.back(&Back { delay: None, error: None, uncount: false });
        if let Some(column) = table.attempts.as_ref().filter(|_| table.failed.as_ref() == Some(from)) {
            sql.push(&format!(", {} = 0", self.q(column)));
        }
        self.clear(&mut sql, table.finished_at.as_ref());
        sql.push(" WHERE ").then(keys.condition(&self.q(&table.key)));
        self.equal(&mut sql, &table.status, from);
        self.scope(&mut sql);
        sql.end()
    }
}
