//! Pure: which statements a verb sends and what their answers mean. No I/O and no async here.

pub(crate) mod claim;
pub(crate) mod create;
pub(crate) mod effect;
pub(crate) mod finish;
pub(crate) mod guard;
pub(crate) mod ids;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod runs;
pub(crate) mod slots;
pub(crate) mod table;

use crate::value::{Statement, Value};

/// A statement whose text is complete.
pub(crate) fn plain(sql: &str, values: Vec<Value>) -> Statement {
    Statement { sql: sql.to_owned(), values }
}

/// Puts `{list}` or `{rows}` places into a text: `count` times `item`.
pub(crate) fn spread(sql: &str, place: &str, item: &str, count: usize) -> String {
    let mut places = String::with_capacity((item.len() + 1) * count);
    for position in 0..count {
        if position > 0 {
            places.push(',');
        }
        places.push_str(item);
    }
    sql.replace(place, &places)
}
