//! Fenced writes on any table: a write that carries a fence older than the stored one changes nothing.
//!
//! One conditional UPDATE by a unique key; a row that is not there yet is created with the fence. A write with the same
//! fence as the stored one is accepted: fences are never given out twice, so it is the same holder's.

use super::table::read_layout;
use super::{Engine, Shared, lock};
use crate::dialect::guard as dialect;
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::mapping::Unit;
use crate::plan::create::{Binding, PlannedStatement};
use crate::plan::guard::Fitted;
use crate::plan::table::TableName;
use crate::plan::table::layout::{Kind, Layout};
use crate::value::{Statement, Value};
use std::sync::Arc;

/// A fenced write.
#[derive(Clone, Debug)]
pub struct GuardedWrite {
    /// `table` or `database.table`.
    pub table: String,
    /// The columns of a primary or unique key, and their values.
    pub key: Vec<(String, Value)>,
    /// What is written.
    pub set: Vec<(String, Value)>,
    /// The whole-number column that keeps the fence.
    pub fence_column: String,
    /// The writer's fence.
    pub fence: i64,
}

impl Engine {
    /// Makes a fenced write; false when a newer fence has written before, and nothing was changed.
    ///
    /// # Errors
    /// `Invalid`, naming the column, for values that do not fit and for a key that is not unique; `Schema` without the table;
    /// `Duplicate` when the new row violates another unique key; `Unavailable`.
    pub async fn guard(&self, write: &GuardedWrite) -> Result<bool> {
        self.run_without_tables("guard", async |shared, session, _| {
            let fitted = match fit(shared, session, write, true).await {
                // The table may have changed since it was looked at.
                Err(error) if error.kind() == ErrorKind::Invalid => fit(shared, session, write, false).await?,
                other => other?,
            };
            let update = dialect::update(shared.flavor(), &fitted);
            if session.execute(&update).await?.matched > 0 {
                return Ok(true);
            }
            if !session.query(&dialect::exists(shared.flavor(), &fitted)).await?.is_empty() {
                return Ok(false);
            }
            match session.execute(&dialect::insert(shared.flavor(), &fitted)).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::Duplicate => {
                    // Somebody created it meanwhile: theirs or ours is newer.
                    if session.execute(&update).await?.matched > 0 {
                        return Ok(true);
                    }
                    let is_there = !session.query(&dialect::exists(shared.flavor(), &fitted)).await?.is_empty();
                    if is_there { Ok(false) } else { Err(error) }
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The conditional UPDATE as SQL and values for a connection the application has open. It was accepted when it matched a
    /// row; a connection that counts only changed rows answers 0 for a repeat with the same values.
    ///
    /// # Errors
    /// As [`Engine::guard`].
    pub async fn plan_guard(&self, write: &GuardedWrite) -> Result<PlannedStatement> {
        self.run_without_tables("plan_guard", async |shared, session, _| {
            let fitted = fit(shared, session, write, false).await?;
            planned(dialect::update(shared.flavor(), &fitted))
        })
        .await
    }
}

fn planned(statement: Statement) -> Result<PlannedStatement> {
    let binding = |value: Value| match value {
        Value::Null => Ok(Binding::Null),
        Value::Int(number) => Ok(Binding::Int(number)),
        Value::Float(number) => Ok(Binding::Text(number.to_string())),
        Value::UInt(number) => Ok(Binding::Text(number.to_string())),
        Value::Text(text) | Value::Decimal(text) | Value::Moment(text) => Ok(Binding::Text(text)),
        Value::Bytes(_) | Value::At(_) => Err(Error::new(ErrorKind::Unsupported, "bytes cannot be planned; use guard")),
    };
    let bindings = statement.values.into_iter().map(binding).collect::<Result<_>>()?;
    Ok(PlannedStatement { sql: statement.sql, bindings })
}

async fn layout(shared: &Shared, session: &mut Session, name: &TableName, may_be_kept: bool) -> Result<Arc<Layout>> {
    if may_be_kept && let Some(known) = lock(&shared.layouts).get(name) {
        return Ok(Arc::clone(known));
    }
    let layout = Arc::new(read_layout(shared, session, name).await?);
    lock(&shared.layouts).insert(name.clone(), Arc::clone(&layout));
    Ok(layout)
}

async fn fit(shared: &Shared, session: &mut Session, write: &GuardedWrite, may_be_kept: bool) -> Result<Fitted> {
    let name = TableName::parse(&write.table)?;
    let layout = layout(shared, session, &name, may_be_kept).await?;
    if layout.columns.is_empty() {
        return Err(Error::new(ErrorKind::Schema, format!("there is no table {}", name.shown())));
    }
    let column = |column: &str| {
        let found = layout.column(column).cloned();
        found.ok_or_else(|| Error::invalid(format!("table {} has no column {column:?}", name.shown())))
    };
    let fitted = |pairs: &[(String, Value)]| {
        let fit = |(name, value): &(String, Value)| {
            let column = column(name)?;
            let value = column.fit(value, None, Unit::Seconds)?;
            Ok((column, value))
        };
        pairs.iter().map(fit).collect::<Result<Vec<_>>>()
    };
    let (key, set) = (fitted(&write.key)?, fitted(&write.set)?);
    let names: Vec<&str> = key.iter().map(|(column, _)| column.name.as_str()).collect();
    let is_all = |columns: &[String]| !columns.is_empty() && columns.iter().all(|column| names.contains(&column.as_str()));
    let is_unique =
        is_all(&layout.primary) || layout.indexes.iter().any(|index| index.is_unique && index.is_whole && is_all(&index.columns));
    if !is_unique {
        return Err(Error::invalid(format!("key: ({}) is no primary or unique key of {}", names.join(", "), name.shown())));
    }
    if set.is_empty() {
        return Err(Error::invalid("set: there is nothing to write"));
    }
    let fence = column(&write.fence_column)?;
    if !matches!(fence.kind, Kind::Int { .. }) {
        return Err(Error::invalid(format!("fence_column: column {} is no whole number", fence.name)));
    }
    if let Some((twice, _)) = set.iter().find(|(column, _)| *column == fence || names.contains(&column.name.as_str())) {
        return Err(Error::invalid(format!("set: column {} is the key's or the fence's", twice.name)));
    }
    let value = fence.fit(&Value::Int(write.fence), None, Unit::Seconds)?;
    Ok(Fitted { table: name.quoted(shared.flavor()), key, set, fence: (fence, value) })
}
