//! What the answers of the statements on mapped tables mean.

use super::Table;
use crate::claim::{Finish, Outcome};
use crate::error::{Error, Result};
use crate::plan::finish::Stands;
use crate::row::{ClaimedRow, Columns};
use crate::value::{Row, Value};

/// A waiting row before it is claimed.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub key: Value,
    /// Attempts so far, without the one to come.
    pub attempts: i64,
    pub max_attempts: i64,
    pub fence: i64,
}

impl Candidate {
    /// Whether the attempt to come is allowed: the limit, and room in the column.
    pub(crate) fn is_spent(&self, table: &Table) -> bool {
        let is_counted = table.attempts.is_some() && table.failed.is_some();
        is_counted && (self.attempts >= self.max_attempts || self.attempts >= table.attempts_column_max())
    }

    /// Why a spent row is ended.
    pub(crate) fn ending(&self) -> &'static str {
        if self.attempts >= self.max_attempts { "no attempts left" } else { "attempt counter full" }
    }
}

/// Reads key, attempts, most attempts and fence from `from` on.
pub(crate) fn candidate(row: &mut Row, from: usize) -> Result<Candidate> {
    let number = |row: &Row, column: usize| match row.0.get(column) {
        Some(Value::Null) | None => 0,
        Some(Value::Int(number)) => *number,
        // Over 63 bits, or, on SQLite, no number at all: such a row is out of attempts, and does not keep the others.
        Some(_) => i64::MAX,
    };
    let (attempts, max, fence) = (number(row, from + 1), number(row, from + 2), number(row, from + 3));
    // A limit of NULL or 0 in a column is none.
    let max_attempts = if max <= 0 { i64::MAX } else { max };
    match row.take(from) {
        Value::UInt(_) => Err(Error::decode("a key is over 63 bits")),
        key => Ok(Candidate { key, attempts, max_attempts, fence }),
    }
}

/// Reads a row of `claimed` or `list`.
pub(crate) fn claimed(table: &Table, columns: &Columns, mut row: Row) -> Result<ClaimedRow> {
    let count = table.columns.len();
    let control = candidate(&mut row, count)?;
    let values =
        row.0.drain(..count).zip(&table.columns).map(|(value, column)| column.read(value, table.zone.as_ref())).collect();
    Ok(ClaimedRow {
        key: control.key,
        attempts: if table.attempts.is_some() { control.attempts } else { 1 },
        max_attempts: (control.max_attempts < i64::MAX).then_some(control.max_attempts),
        fence: control.fence,
        columns: columns.clone(),
        values,
        position: 0,
    })
}

/// The names of the columns that rows come with.
pub(crate) fn columns(table: &Table) -> Columns {
    Columns(table.columns.iter().map(|column| column.name.clone()).collect())
}

/// Reads a row of `inspect`: the key, and where it stands for a claim, seen from a repeated `outcome`.
pub(crate) fn stands(table: &Table, row: &mut Row, outcome: &Outcome) -> Result<(Value, Stands)> {
    let is_so = |column| row.opt(column, Row::int).map(|number| number == Some(1));
    let (is_processing, is_done, is_failed, is_pending) = (is_so(1)?, is_so(2)?, is_so(3)?, is_so(4)?);
    let (is_ours, is_free) = (is_so(5)?, is_so(6)?);
    let stands = match outcome {
        _ if is_ours && is_processing => Stands::Held,
        Outcome::Complete | Outcome::CompleteWith { .. } if is_ours && is_done => Stands::Answer(Finish::Accepted),
        Outcome::Fail { .. } | Outcome::Reject { .. } if is_ours && is_failed => Stands::Answer(Finish::Accepted),
        Outcome::Reject { .. } => Stands::Answer(Finish::Lost),
        // Its token is gone with its owner: the ledger knows who that was.
        _ if is_pending && is_free && table.mapping.registry => Stands::PutBack,
        _ => Stands::Answer(Finish::Lost),
    };
    Ok((row.take(0), stands))
}

/// An outcome as the table takes it: values converted to their columns.
///
/// # Errors
/// `Invalid`, naming the column.
pub(crate) fn outcome(table: &Table, outcome: &Outcome) -> Result<Outcome> {
    let no_time = |what: &str| Err(Error::invalid(format!("{what} needs available_at in the mapping, the row's next time")));
    match outcome {
        Outcome::CompleteWith { set, delay } => {
            let mut fitted = Vec::with_capacity(set.len());
            for (name, value) in set {
                let column = table.column(name)?;
                if [&table.key.name, &table.status.name, &table.token.name].contains(&&column.name) {
                    return Err(Error::invalid(format!("set: {name} is the engine's to write")));
                }
                fitted.push((column.name.clone(), table.fit(column, value)?));
            }
            if delay.is_some() && !table.recurs() {
                return Err(Error::invalid("a completed row does not come back; delay is for rows that recur (done is pending)"));
            }
            let sets_time = table.available_at.as_ref().is_some_and(|at| fitted.iter().any(|(name, _)| *name == at.name));
            if table.recurs() && delay.is_none() && !sets_time {
                return Err(next_time(table));
            }
            Ok(Outcome::CompleteWith { set: fitted, delay: *delay })
        }
        Outcome::Complete if table.recurs() => Err(next_time(table)),
        Outcome::Fail { delay: Some(_), .. } if table.available_at.is_none() => no_time("fail with a delay"),
        Outcome::Reject { .. } if table.failed.is_none() => {
            Err(Error::invalid("reject needs failed in the mapping, the status of a row that is not tried again"))
        }
        Outcome::Release { delay } if !delay.is_zero() && table.available_at.is_none() => no_time("release with a delay"),
        other => Ok(other.clone()),
    }
}

fn next_time(table: &Table) -> Error {
    let column = table.available_at.as_ref().map_or("available_at", |column| column.name.as_str());
    Error::invalid(format!("the row recurs: complete it with a delay, or set {column}, its next time"))
}
