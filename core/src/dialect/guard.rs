//! The statements of fenced writes.

use crate::plan::guard::Fitted;
use crate::plan::table::layout::Column;
use crate::value::{Statement, Value};
use rowclaim_migrations::Flavor;

fn list(flavor: Flavor, pairs: &[(Column, Value)], between: &str) -> String {
    let parts: Vec<String> = pairs.iter().map(|(column, _)| format!("{} = ?", flavor.quote(&column.name))).collect();
    parts.join(between)
}

fn values(pairs: &[(Column, Value)]) -> Vec<Value> {
    pairs.iter().map(|(_, value)| value.clone()).collect()
}

/// By a unique key: locks one row for one statement. A newer fence makes it match nothing.
pub(crate) fn update(flavor: Flavor, write: &Fitted) -> Statement {
    let (column, fence) = &write.fence;
    let name = flavor.quote(&column.name);
    let sql = format!(
        "UPDATE {} SET {}, {name} = ? WHERE {} AND ({name} IS NULL OR {name} <= ?)",
        write.table,
        list(flavor, &write.set, ", "),
        list(flavor, &write.key, " AND ")
    );
    let values = [values(&write.set), vec![fence.clone()], values(&write.key), vec![fence.clone()]].concat();
    Statement { sql, values }
}

/// Whether the row is there; no locks.
pub(crate) fn exists(flavor: Flavor, write: &Fitted) -> Statement {
    let sql = format!("SELECT 1 FROM {} WHERE {}", write.table, list(flavor, &write.key, " AND "));
    Statement { sql, values: values(&write.key) }
}

/// Creates the row with its fence; a row that is there already makes it a duplicate.
pub(crate) fn insert(flavor: Flavor, write: &Fitted) -> Statement {
    let fence = std::slice::from_ref(&write.fence);
    let pairs = [write.key.as_slice(), write.set.as_slice(), fence].concat();
    let names: Vec<String> = pairs.iter().map(|(column, _)| flavor.quote(&column.name)).collect();
    let places = crate::plan::spread("{list}", "{list}", "?", pairs.len());
    Statement { sql: format!("INSERT INTO {} ({}) VALUES ({places})", write.table, names.join(", ")), values: values(&pairs) }
}
