//! Looks at a mapped table for the doctor: bounded by a number of keys from each end of the table, without locks.

use super::{Rows, Sql};
use crate::plan::table::layout::{Column, Kind};
use crate::time::micros;
use crate::value::{Statement, Value};
use rowclaim_migrations::Flavor;
use std::time::Duration;

/// Keys in a sample from each end of a table.
pub(crate) const SAMPLE: i64 = 10_000;

/// Which rows are looked at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Window {
    /// The first [`SAMPLE`] keys.
    First,
    /// The last [`SAMPLE`] keys above one.
    Last { after: Value },
    /// The whole table: only where an index leads to the rows.
    Whole,
}

impl Rows<'_> {
    /// The key at a place in their order, counted from 0: a table with fewer rows gives none. By the key's index.
    pub(crate) fn key_at(&self, place: i64) -> Statement {
        let key = self.q(&self.table.key);
        let mut sql = Sql::new(format!("SELECT {key} FROM {} ORDER BY {key} LIMIT 1 OFFSET ?", self.name()));
        sql.bind(place);
        sql.end()
    }

    /// Values of `columns` in one row, a waiting one if the sample has one: what a claim might ask for.
    pub(crate) fn example(&self, columns: &[Column]) -> Statement {
        let table = self.table;
        let mut needed = vec![&table.key, &table.status];
        needed.extend(columns);
        let names: Vec<String> = columns.iter().map(|column| self.q(column)).collect();
        let mut sql = Sql::new(format!("SELECT {} FROM ", names.join(", ")));
        self.window(&mut sql, &Window::First, &needed);
        sql.push(&format!(" ORDER BY CASE WHEN {} = ? THEN 0 ELSE 1 END LIMIT 1", self.q(&table.status)));
        sql.bind(table.pending.clone());
        sql.end()
    }

    /// The statuses of a sample: status, rows, most attempts, then for each of `times` the rows with a zero date in it and
    /// the first of their keys.
    pub(crate) fn statuses(&self, window: &Window, times: &[&Column]) -> Statement {
        let table = self.table;
        let (status, key) = (self.q(&table.status), self.q(&table.key));
        let attempts = table.attempts.as_ref().map_or("0".to_owned(), |column| format!("MAX({})", self.q(column)));
        let mut sql = Sql::new(format!("SELECT {status}, COUNT(*), {attempts}"));
        for column in times {
            let is_zero = format!("{} < '1970-01-02 00:00:00'", self.q(column));
            sql.push(&format!(", COUNT(CASE WHEN {is_zero} THEN 1 END), MIN(CASE WHEN {is_zero} THEN {key} END)"));
        }
        sql.push(" FROM ");
        let mut needed = vec![&table.key, &table.status];
        needed.extend(&table.attempts);
        needed.extend(times.iter().copied());
        needed.extend(table.scope.iter().map(|(column, _)| column));
        self.window(&mut sql, window, &needed);
        sql.push(" WHERE 1 = 1");
        self.scope(&mut sql);
        sql.push(&format!(" GROUP BY {status}"));
        sql.end()
    }

    /// The highest counter: only where an index leads by it.
    pub(crate) fn most_attempts(&self, column: &Column) -> Statement {
        Sql::new(format!("SELECT MAX({}) FROM {}", self.q(column), self.name())).end()
    }

    /// Held rows in the order of their keys: key, token, whether they were claimed before `claimed_for`, at no known time,
    /// or are a minute past the lease they carry.
    pub(crate) fn held_rows(&self, window: &Window, claimed_for: Duration, limit: i64) -> Statement {
        let table = self.table;
        let mut sql = Sql::new(format!("SELECT {}, {}, ", self.q(&table.key), self.q(&table.token)));
        let age = match (&table.lease_until, &table.claimed_at) {
            (Some(column), _) => Some((column, Duration::from_secs(60))),
            (None, Some(column)) => Some((column, claimed_for)),
            _ => None,
        };
        match age {
            None => sql.push("0"),
            Some((column, age)) => {
                let name = self.q(column);
                let zero = match (self.flavor(), &column.kind) {
                    (Flavor::MySql, Kind::DateTime { .. } | Kind::Timestamp { .. }) => "< '1970-01-02 00:00:00'",
                    _ => "= 0",
                };
                sql.push(&format!(
                    "CASE WHEN {name} IS NULL OR {name} {zero} OR {name} < {} THEN 1 ELSE 0 END",
                    self.clock(column)
                ));
                sql.bind(self.span(column, micros(age).saturating_neg()))
            }
        };
        sql.push(" FROM ");
        let mut needed = vec![&table.key, &table.status, &table.token];
        needed.extend(age.map(|(column, _)| column));
        needed.extend(table.scope.iter().map(|(column, _)| column));
        self.window(&mut sql, window, &needed);
        sql.push(&format!(" WHERE {} = ?", self.q(&table.status))).bind(table.processing.clone());
        self.scope(&mut sql);
        sql.push(&format!(" ORDER BY {} LIMIT ?", self.q(&table.key))).bind(limit);
        sql.end()
    }

    /// The statement that takes zero dates out of a column, for a person to run.
    pub(crate) fn without_zero_dates(&self, column: &Column) -> String {
        let (table, column, value) =
            (self.name(), self.q(column), if column.is_nullable { "NULL" } else { "'1970-01-02 00:00:00'" });
        format!("UPDATE {table} SET {column} = {value} WHERE {column} = 0")
    }

    /// A table, or the part of it that is looked at, with the columns that are needed.
    fn window(&self, sql: &mut Sql, window: &Window, needed: &[&Column]) {
        let mut columns: Vec<String> = needed.iter().map(|column| self.q(column)).collect();
        columns.sort();
        columns.dedup();
        let (columns, key) = (columns.join(", "), self.q(&self.table.key));
        match window {
            Window::Whole => sql.push(&self.name()),
            Window::First => sql.push(&format!("(SELECT {columns} FROM {} ORDER BY {key} LIMIT ?) s", self.name())).bind(SAMPLE),
            Window::Last { after } => {
                sql.push(&format!("(SELECT {columns} FROM {} WHERE {key} > ? ORDER BY {key} DESC LIMIT ?) s", self.name()));
                sql.bind(after.clone()).bind(SAMPLE)
            }
        };
    }
}
