//! Sets of ids: sent as runs, since an id in a list costs 8–14 µs in the server's optimiser and a run 4 (measured).
//!
//! The lengths of lists are padded to powers of two, so that a session prepares few distinct statements.

use crate::error::{Error, Result};
use crate::value::{Statement, Value};
use std::fmt::Write;

/// Ids at most in one statement.
pub(crate) const CHUNK: usize = 1_000;

/// Distinct ids in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ids(Vec<i64>);

impl FromIterator<i64> for Ids {
    fn from_iter<I: IntoIterator<Item = i64>>(ids: I) -> Self {
        let mut ids: Vec<i64> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Ids(ids)
    }
}

impl Ids {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.0.iter().copied()
    }

    /// Parts of at most [`CHUNK`] ids.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Ids> + '_ {
        self.0.chunks(CHUNK).map(|part| Ids(part.to_vec()))
    }

    fn runs(&self) -> Vec<(i64, i64)> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for &id in &self.0 {
            match runs.last_mut() {
                Some((_, end)) if *end + 1 == id => *end = id,
                _ => runs.push((id, id)),
            }
        }
        runs
    }

    /// The stored form: `1-100,105`.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (start, end) in self.runs() {
            if !text.is_empty() {
                text.push(',');
            }
            let _ = if start == end { write!(text, "{start}") } else { write!(text, "{start}-{end}") };
        }
        text
    }

    /// Reads the stored form.
    pub(crate) fn from_text(text: &str) -> Result<Self> {
        let broken = || Error::decode("the claim's job_ids are not runs of numbers");
        let mut ids = Vec::new();
        for run in text.split(',').filter(|run| !run.is_empty()) {
            let (start, end) = run.split_once('-').unwrap_or((run, run));
            let start: i64 = start.parse().map_err(|_| broken())?;
            let end: i64 = end.parse().map_err(|_| broken())?;
            if start > end || end - start > 10_000_000 {
                return Err(broken());
            }
            ids.extend(start..=end);
        }
        Ok(ids.into_iter().collect())
    }

    /// `sql` with `{ids}` filled in, its values standing between `before` and `after`.
    pub(crate) fn statement(&self, sql: &str, before: Vec<Value>, after: Vec<Value>) -> Statement {
        let (condition, ids) = self.condition("id");
        let values = before.into_iter().chain(ids).chain(after).collect();
        Statement { sql: sql.replace("{ids}", &condition), values }
    }

    /// That a column is one of the ids, and the values to bind. An empty set makes a condition that is never true.
    pub(crate) fn condition(&self, column: &str) -> (String, Vec<Value>) {
        let (mut long, short): (Vec<_>, Vec<_>) = self.runs().into_iter().partition(|(start, end)| end - start >= 2);
        let mut single: Vec<i64> = short.into_iter().flat_map(|(start, end)| start..=end).collect();
        pad(&mut long);
        pad(&mut single);
        let mut parts: Vec<String> = Vec::with_capacity(long.len() + 1);
        let mut values = Vec::with_capacity(long.len() * 2 + single.len());
        for (start, end) in long {
            parts.push(format!("{column} BETWEEN ? AND ?"));
            values.extend([Value::Int(start), Value::Int(end)]);
        }
        if !single.is_empty() || parts.is_empty() {
            parts.push(if single.is_empty() {
                "1 = 0".to_owned()
            } else {
                format!("{column} IN ({})", super::spread("{list}", "{list}", "?", single.len()))
            });
            values.extend(single.into_iter().map(Value::Int));
        }
        (format!("({})", parts.join(" OR ")), values)
    }
}

/// Repeats the last item up to the next power of two.
pub(crate) fn pad<T: Clone>(items: &mut Vec<T>) {
    if let Some(last) = items.last().cloned() {
        items.resize(items.len().next_power_of_two(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_survive_the_stored_form() {
        let ids: Ids = [7, 1, 2, 3, 3, 9, 10].into_iter().collect();
        assert_eq!(ids.to_text(), "1-3,7,9-10");
        assert_eq!(Ids::from_text("1-3,7,9-10").unwrap(), ids);
        assert_eq!(Ids::from_text("").unwrap(), Ids::default());
        for broken in ["x", "3-1", "1-", "1-99999999999"] {
            assert!(Ids::from_text(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn lists_are_padded_to_powers_of_two() {
        let ids: Ids = [1, 2, 3, 10, 20, 30].into_iter().collect();
        let statement = ids.statement("WHERE {ids} AND x = ?", vec![], vec![Value::Int(5)]);
        assert_eq!(statement.sql, "WHERE (id BETWEEN ? AND ? OR id IN (?,?,?,?)) AND x = ?");
        let values: Vec<i64> = vec![1, 3, 10, 20, 30, 30, 5];
        assert_eq!(statement.values, values.into_iter().map(Value::Int).collect::<Vec<_>>());
        assert_eq!(Ids::default().statement("WHERE {ids}", vec![], vec![]).sql, "WHERE (1 = 0)");
    }
}
