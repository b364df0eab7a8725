//! What a table is made of, and what time it is there.

use crate::value::{Statement, Value};
use rowclaim_migrations::Flavor;

/// The database's clock and nothing else, by which the offset of a zone is found.
pub(crate) fn clock(flavor: Flavor) -> Statement {
    Statement { sql: format!("SELECT {}", super::super::clock(flavor)), values: vec![] }
}

/// What a table is made of, one statement an answer: engine and kind, columns, indexes.
pub(crate) struct Catalog {
    pub table: Statement,
    pub columns: Statement,
    pub indexes: Statement,
}

/// Reads the description of a table; no locks.
pub(crate) fn catalog(flavor: Flavor, schema: Option<&str>, name: &str, quoted: &str) -> Catalog {
    let plain = |sql: &str, values: Vec<Value>| Statement { sql: sql.to_owned(), values };
    let named = || vec![Value::from(schema), Value::from(name)];
    match flavor {
        Flavor::MySql => Catalog {
            table: plain(
                "SELECT COALESCE(ENGINE, ''), TABLE_TYPE FROM information_schema.TABLES \
                 WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?",
                named(),
            ),
            columns: plain(
                "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, CHARACTER_SET_NAME, \
                 DATETIME_PRECISION FROM information_schema.COLUMNS \
                 WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION",
                named(),
            ),
            // Says of an index, other than information_schema on both servers, whether it may be used.
            indexes: plain(&format!("SHOW INDEX FROM {quoted}"), vec![]),
        },
        Flavor::Sqlite => Catalog {
            table: plain("SELECT '', type FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?", vec![name.into()]),
            columns: plain("SELECT name, type, \"notnull\" = 0, pk FROM pragma_table_xinfo(?) ORDER BY cid", vec![name.into()]),
            indexes: plain(
                "SELECT l.name, l.\"unique\", x.name, x.\"desc\", l.partial FROM pragma_index_list(?) l, pragma_index_xinfo(l.name) x \
                 WHERE x.key = 1 ORDER BY l.seq, x.seqno",
                vec![name.into()],
            ),
        },
    }
}
