//! How the rows of a claim are found: by an index that gives exactly them in order, or by a read that takes no locks.
//!
//! A locking read locks what it looks at. It is used only where an index holds every condition as an equality and then
//! the order, so that it looks at the rows it takes; everywhere else candidates are read without locks and then locked
//! by key. So the number of locked rows is bounded whatever indexes a table has.

use super::Table;
use super::layout::{Column, Index};
use crate::error::{Error, Result};
use crate::value::Value;

/// One condition of a claim beside the status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub column: Column,
    /// One for an equality, several for any of them.
    pub values: Vec<Value>,
}

/// One column of the order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub column: Column,
    pub is_descending: bool,
}

/// The way to the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A locking read by this index.
    Index {
        name: String,
        /// The index leads by the token: only rows whose token is free are found.
        by_free_token: bool,
    },
    /// A read without locks, then locks by key.
    Candidates,
}

/// What a claim looks for.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub conditions: Vec<Condition>,
    pub order: Vec<Order>,
    pub partition: Option<(i64, i64)>,
    pub access: Access,
}

/// What the caller gives for one column.
pub(crate) type Filter<'a> = (&'a str, &'a [Value]);

impl Search {
    /// # Errors
    /// `Invalid` for a column that is not there, a value that does not fit, an empty list.
    pub(crate) fn new(table: &Table, filters: &[Filter<'_>], order: &[String], partition: Option<(i64, i64)>) -> Result<Self> {
        let conditions = conditions(table, filters)?;
        let order = orders(table, order)?;
        if partition.is_some() && !matches!(table.key.kind, super::layout::Kind::Int { .. }) {
            return Err(Error::invalid("partition needs a key that is a whole number"));
        }
        let access = match partition {
            Some(_) => Access::Candidates,
            None => choose(table, &conditions, &order),
        };
        Ok(Search { conditions, order, partition, access })
    }
}

pub(crate) fn conditions(table: &Table, filters: &[Filter<'_>]) -> Result<Vec<Condition>> {
    let fit = |(name, values): &Filter<'_>| {
        let column = table.column(name)?;
        if values.is_empty() {
            return Err(Error::invalid(format!("where: the list of {name} is empty")));
        }
        if column.name == table.status.name || column.name == table.token.name {
            return Err(Error::invalid(format!("where: {name} is the engine's to look at; leave it out")));
        }
        let values = values.iter().map(|value| table.fit(column, value)).collect::<Result<_>>()?;
        Ok(Condition { column: column.clone(), values })
    };
    filters.iter().map(fit).collect()
}

/// The order of a claim: what the caller says, or priority and then since when rows wait. The key always comes last.
fn orders(table: &Table, order: &[String]) -> Result<Vec<Order>> {
    if order.is_empty() {
        let usual = [&table.priority, &table.available_at];
        return Ok(usual.into_iter().flatten().map(|column| Order { column: column.clone(), is_descending: false }).collect());
    }
    let parse = |text: &String| {
        let (name, is_descending) = text.strip_prefix('-').map_or((text.as_str(), false), |name| (name, true));
        Ok(Order { column: table.column(name)?.clone(), is_descending })
    };
    order.iter().map(parse).collect()
}

fn choose(table: &Table, conditions: &[Condition], order: &[Order]) -> Access {
    let is_equal = conditions.iter().all(|condition| condition.values.len() == 1);
    let is_rising = order.iter().all(|order| !order.is_descending);
    // A range on the time and an order that does not begin with it never come from one index.
    let ranges_first = table.available_at.as_ref().is_none_or(|at| order.first().is_some_and(|first| first.column == *at));
    if !is_equal || !is_rising || !ranges_first || !table.key_is_primary {
        return Access::Candidates;
    }
    let mut equal: Vec<&str> = vec![&table.status.name];
    equal.extend(table.scope.iter().map(|(column, _)| column.name.as_str()));
    equal.extend(conditions.iter().map(|condition| condition.column.name.as_str()));
    let order: Vec<&str> = order.iter().map(|order| order.column.name.as_str()).collect();
    let by =
        |equal: &[&str]| table.layout.indexes.iter().find(|index| gives(index, equal, &order)).map(|index| index.name.clone());
    if let Some(name) = by(&equal) {
        return Access::Index { name, by_free_token: false };
    }
    // Rows that wait have a free token; where finished ones keep theirs, an index on the token finds the waiting ones too,
    // and the status needs not be in it.
    equal.retain(|column| *column != table.status.name);
    equal.push(&table.token.name);
    match by(&equal) {
        Some(name) => Access::Index { name, by_free_token: true },
        None => Access::Candidates,
    }
}

/// Whether `index` holds the equalities in front and then exactly the order (and the primary key, as every index does).
fn gives(index: &Index, equal: &[&str], order: &[&str]) -> bool {
    let is_equal = |column: &String| equal.iter().any(|name| name.eq_ignore_ascii_case(column));
    let (front, rest) = index.columns.split_at(index.columns.iter().take_while(|column| is_equal(column)).count());
    let holds_all = equal.iter().all(|name| front.iter().any(|column| column.eq_ignore_ascii_case(name)));
    index.is_whole && holds_all && rest.len() == order.len() && rest.iter().zip(order).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_used_only_where_it_gives_exactly_the_rows_in_order() {
        let index = |columns: &[&str]| Index {
            name: "i".into(),
            is_unique: false,
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            is_whole: true,
        };
        for (columns, equal, order, is_good) in [
            (&["task_id", "status"][..], &["status", "task_id"][..], &[][..], true),
            (&["status", "task_id"], &["status", "task_id"], &[], true),
            (&["status"], &["status", "task_id"], &[], false),
            (&["status", "task_id", "name"], &["status", "task_id"], &[], false),
            (&["status", "next_run_at"], &["status"], &["next_run_at"], true),
            (&["status", "type", "next_run_at"], &["status", "type"], &["next_run_at"], true),
            (&["status", "next_run_at"], &["status", "type"], &["next_run_at"], false),
            (&["status"], &["status"], &["next_run_at"], false),
            (&["next_run_at", "status"], &["status"], &["next_run_at"], false),
        ] {
            assert_eq!(gives(&index(columns), equal, order), is_good, "{columns:?} for {equal:?} by {order:?}");
        }
        let partial = Index { is_whole: false, ..index(&["status"]) };
        assert!(!gives(&partial, &["status"], &[]));
    }
}
