//! Rows leaving a claim, and what they say of it afterwards.

use super::{Back, Rows, Sql};
use crate::config::ClaimShape;
use crate::plan::keys::Keys;
use crate::plan::table::layout::Column;
use crate::time::micros;
use crate::value::{Statement, Value};
use std::time::Duration;
use uuid::Uuid;

impl Rows<'_> {
    /// Done, and what else the caller sets in the same row. Of rows that recur the next time is set, `delay` from now
    /// unless the caller sets it.
    pub(crate) fn complete(&self, keys: &Keys, token: Uuid, set: &[(Column, Value)], delay: Option<Duration>) -> Statement {
        let table = self.table;
        let mut sql = Sql::new(format!("UPDATE {} SET {} = ?", self.name(), self.q(&table.status)));
        sql.bind(table.done.clone());
        let is_set = |column: Option<&Column>| column.is_some_and(|column| set.iter().any(|(other, _)| other == column));
        if table.recurs() {
            self.free(&mut sql);
            if !is_set(table.available_at.as_ref()) {
                self.set_clock(&mut sql, table.available_at.as_ref(), delay.unwrap_or_default());
            }
            if let Some(column) = table.attempts.as_ref().filter(|column| !is_set(Some(column))) {
                sql.push(&format!(", {} = 0", self.q(column)));
            }
        } else {
            self.clear(&mut sql, table.lease_until.as_ref());
            self.clear(&mut sql, table.locked_by.as_ref());
        }
        if !is_set(table.finished_at.as_ref()) {
            self.set_clock(&mut sql, table.finished_at.as_ref(), Duration::ZERO);
        }
        for (column, value) in set {
            sql.push(&format!(", {} = ?", self.q(column))).bind(value.clone());
        }
        self.held(&mut sql, keys, token);
        sql.end()
    }

    /// Puts held rows back: after a failure, a release, or a lease that ran out.
    pub(crate) fn put_back(&self, keys: &Keys, token: Uuid, back: &Back<'_>) -> Statement {
        let mut sql = self.back(back);
        self.held(&mut sql, keys, token);
        sql.end()
    }

    /// Ends held rows as failed; `None` where the mapping has no such status.
    pub(crate) fn fail(&self, keys: &Keys, token: Uuid, error: &str) -> Option<Statement> {
        let mut sql = self.end(error)?;
        self.held(&mut sql, keys, token);
        Some(sql.end())
    }

    /// Puts held rows aside for a person; `None` where the mapping has no such status.
    pub(crate) fn hold(&self, keys: &Keys, token: Uuid, error: &str) -> Option<Statement> {
        let mut sql = self.aside(error)?;
        self.held(&mut sql, keys, token);
        Some(sql.end())
    }

    /// Writes a longer lease, or a fresh sign of life, into held rows; `None` where others go by neither.
    pub(crate) fn touch(&self, keys: &Keys, token: Uuid, lease: Duration) -> Option<Statement> {
        let table = self.table;
        let (column, span) = match (&table.lease_until, &table.claimed_at) {
            (Some(column), _) => (column, lease),
            (None, Some(column)) if table.mapping.recover_after.is_some() => (column, Duration::ZERO),
            _ => return None,
        };
        let mut sql = Sql::new(format!("UPDATE {} SET {} = {}", self.name(), self.q(column), self.clock(column)));
        sql.bind(self.span(column, micros(span)));
        self.held(&mut sql, keys, token);
        Some(sql.end())
    }

    /// Which of the keys are held by the token.
    pub(crate) fn still_held(&self, keys: &Keys, token: Uuid) -> Statement {
        let mut sql = Sql::new(format!("SELECT {} FROM {}", self.control(), self.name()));
        self.held(&mut sql, keys, token);
        sql.push(&format!(" ORDER BY {}", self.q(&self.table.key)));
        sql.push(if self.shape == ClaimShape::Exclusive { "" } else { " FOR UPDATE" });
        sql.end()
    }

    /// Where rows stand: key, is processing, done, failed, pending, carries the token, token is free.
    pub(crate) fn inspect(&self, keys: &Keys, token: Uuid) -> Statement {
        let table = self.table;
        let (status, column) = (self.q(&table.status), self.q(&table.token));
        let mut sql =
            Sql::new(format!("SELECT {}, {status} = ?, {status} = ?, {status} = ?, {status} = ?, ", self.q(&table.key)));
        sql.bind(table.processing.clone()).bind(table.done.clone());
        sql.bind(table.failed.clone().unwrap_or(Value::Null)).bind(table.pending.clone());
        sql.push(&format!("{column} = ?, ")).bind(table.token_form.value(token));
        sql.push(&match &table.token_free {
            Value::Null => format!("{column} IS NULL"),
            _ => format!("{column} = ''"),
        });
        sql.push(&format!(" FROM {} WHERE ", self.name())).then(keys.condition(&self.q(&table.key)));
        sql.end()
    }
}
