//! Verbs on a user's own table: the same as on jobs, with the lease in the claims table or, without a registry, in the row.
//!
//! A [`Mapped`] is a mapping in use: it is checked against the table when it is first used and again after the table has
//! changed. The one thing to know: claims on mapped tables are the same claims as those on jobs; heartbeat, group finish,
//! recovery and the ledger treat both alike and come here only for the rows themselves.

mod claim;
pub(super) mod finish;
mod list;
pub(super) mod recover;
pub(super) mod renew;
mod resolve;

pub use list::TableRecord;

use super::{Engine, Shared, lock};
use crate::config::ClaimShape;
use crate::dialect::Statements;
use crate::dialect::rows::{self as dialect, Lane, Rows};
use crate::driver::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::mapping::Mapping;
use crate::plan::keys::{Keys, shown};
use crate::plan::plain;
use crate::plan::table::layout::{Index, Layout, mysql_column, sqlite_column};
use crate::plan::table::{Table, TableName};
use crate::value::{Row, Statement};
use rowclaim_migrations::Flavor;
use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::OnceCell;
use uuid::Uuid;

/// A mapping in use by an engine.
pub(crate) struct Mapped {
    pub name: TableName,
    pub mapping: Mapping,
    /// Its record in the registry.
    record: OnceCell<i64>,
    bound: Mutex<Option<Arc<Table>>>,
    /// On CLOCK_BOOTTIME: when stale rows of other code were last looked for.
    swept_at: AtomicI64,
    cursors: Mutex<HashMap<(Lane, String), claim::Cursor>>,
    /// On CLOCK_BOOTTIME: when a claim last met others at the same rows.
    crowded_at: AtomicI64,
}

/// Verbs on a mapped table of one engine; cheap to clone.
#[derive(Clone)]
pub struct MappedTable {
    pub(crate) engine: Engine,
    pub(crate) mapped: Arc<Mapped>,
}

impl Engine {
    /// Verbs on the table `name` (or `database.name`) by `mapping`, checked against the table at once.
    ///
    /// # Errors
    /// `Config`, naming the entry and the column, for what does not fit, with the DDL that mends it; `Schema` when the table
    /// is not there; `Unavailable`.
    pub async fn table(&self, name: &str, mapping: &Mapping) -> Result<MappedTable> {
        let work = async {
            let table = MappedTable { engine: self.clone(), mapped: mapped(&self.shared, name, mapping)? };
            self.run_without_tables("table", async |shared, session, _| {
                let bound = table.mapped.bind(shared, session).await?;
                // The shape is found out and, with a registry, the own tables are seen to be there.
                if bound.mapping.registry {
                    shared.statements(session).await?;
                }
                Ok(())
            })
            .await?;
            Ok(table)
        };
        work.await.map_err(|e: Error| e.during("table"))
    }
}

impl MappedTable {
    /// As the verbs of an engine: a step with the table and its statements, again where that is safe.
    ///
    /// When the table has changed under the mapping, it is looked at anew, once.
    async fn run<T>(
        &self,
        operation: &'static str,
        mut step: impl AsyncFnMut(&Shared, &mut Session, &Arc<Table>, super::run::Tries) -> Result<T>,
    ) -> Result<T> {
        let mut is_known_anew = false;
        loop {
            let answer = self
                .engine
                .run_without_tables(operation, async |shared, session, tries| {
                    let table = self.mapped.bind(shared, session).await?;
                    step(shared, session, &table, tries).await
                })
                .await;
            match answer {
                Err(error) if error.kind() == ErrorKind::Schema && !is_known_anew => {
                    log::debug!("{operation}: {error}; looking at the table again");
                    self.mapped.forget();
                    is_known_anew = true;
                }
                other => return other,
            }
        }
    }

    /// The table's name as it was given.
    pub fn name(&self) -> String {
        self.mapped.name.shown()
    }

    /// The lease of claims that name none.
    pub(crate) fn default_lease(&self) -> Duration {
        self.mapped.mapping.lease.unwrap_or(self.engine.shared.config.lease)
    }
}

/// The one `Mapped` of this engine for a name and a mapping.
fn mapped(shared: &Shared, name: &str, mapping: &Mapping) -> Result<Arc<Mapped>> {
    let name = TableName::parse(name)?;
    let identity = format!("{}\0{}", name.shown(), mapping.to_json());
    let mut tables = lock(&shared.tables);
    let made = || {
        Arc::new(Mapped {
            name,
            mapping: mapping.clone(),
            record: OnceCell::new(),
            bound: Mutex::default(),
            swept_at: AtomicI64::new(0),
            cursors: Mutex::default(),
            crowded_at: AtomicI64::new(-1_000_000_000),
        })
    };
    Ok(Arc::clone(tables.entry(identity).or_insert_with(made)))
}

impl Mapped {
    /// The mapping checked against the table.
    pub(super) async fn bind(&self, shared: &Shared, session: &mut Session) -> Result<Arc<Table>> {
        if let Some(bound) = &*lock(&self.bound) {
            return Ok(Arc::clone(bound));
        }
        let layout = read_layout(shared, session, &self.name).await?;
        let bound = Arc::new(Table::bind(self.name.clone(), shared.flavor(), self.mapping.clone(), layout)?);
        *lock(&self.bound) = Some(Arc::clone(&bound));
        Ok(bound)
    }

    fn forget(&self) {
        *lock(&self.bound) = None;
    }

    /// The id of the mapping's record in the registry, written when it is first needed.
    async fn record(&self, statements: &Statements, session: &mut Session) -> Result<i64> {
        let record = async {
            let mapping = self.mapping.to_json();
            let name = self.name.shown();
            let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{name}\0{mapping}").as_bytes());
            let find = plain(&statements.find_table, vec![digest.as_bytes().as_slice().into()]);
            if let Some(row) = session.query(&find).await?.first() {
                return row.int(0);
            }
            let values = vec![digest.as_bytes().as_slice().into(), name.into(), mapping.into()];
            match session.execute(&plain(&statements.insert_table, values)).await {
                Ok(executed) => Ok(executed.last_id),
                // Another process was faster.
                Err(error) if error.kind() == ErrorKind::Duplicate => {
                    let rows = session.query(&find).await?;
                    rows.first()
                        .map_or_else(|| Err(Error::new(ErrorKind::Contention, "the mapping is being recorded")), |row| row.int(0))
                }
                Err(error) => Err(error),
            }
        };
        self.record.get_or_try_init(|| record).await.copied()
    }
}

/// Seconds from UTC of a table's zone now, on the database's clock.
async fn offset(session: &mut Session, table: &Table) -> Result<i32> {
    if let Some(known) = table.known_offset() {
        return Ok(known);
    }
    let rows = session.query(&dialect::clock(table.flavor)).await?;
    let now = rows.first().ok_or_else(|| Error::new(ErrorKind::Unexpected, "the database does not tell the time"))?.time(0)?;
    Ok(table.know_offset(now))
}

/// The statements of a table now.
pub(super) async fn statements_of<'a>(shared: &Shared, session: &mut Session, table: &'a Table) -> Result<Rows<'a>> {
    Ok(Rows { table, shape: shared.shape(session).await?, offset: offset(session, table).await? })
}

/// The table of a record in the registry, for recovery by an engine that does not use it itself.
pub(super) async fn of_record(shared: &Shared, statements: &Statements, session: &mut Session, id: i64) -> Result<Arc<Table>> {
    let rows = session.query(&plain(&statements.table_by_id, vec![id.into()])).await?;
    let Some(row) = rows.first() else {
        return Err(Error::new(ErrorKind::Schema, format!("the mapping {id} is not recorded any more")));
    };
    let mapping = Mapping::from_json(&row.text(1)?)?;
    let mapped = mapped(shared, &row.text(0)?, &mapping)?;
    // Recovery is rare, and the table may have changed since it was last looked at.
    mapped.forget();
    mapped.bind(shared, session).await
}

/// What the rows of a claim say of it: held, completed or failed under its token.
pub(super) async fn ends(
    shared: &Shared,
    statements: &Statements,
    session: &mut Session,
    record: i64,
    token: Uuid,
    keys: &Keys,
) -> Result<HashMap<String, &'static str>> {
    let table = of_record(shared, statements, session, record).await?;
    let rows = statements_of(shared, session, &table).await?;
    let mut found = HashMap::new();
    for chunk in keys.chunks() {
        for mut row in session.query_typed(&rows.inspect(&chunk, token)).await?.1 {
            let is_so = |column| row.opt(column, Row::int).map(|number| number == Some(1));
            let end = match (is_so(1)?, is_so(2)?, is_so(3)?, is_so(5)?) {
                (true, _, _, true) => "held",
                (_, true, _, true) => "completed",
                (_, _, true, true) => "failed",
                _ => continue,
            };
            found.insert(shown(&row.take(0)), end);
        }
    }
    Ok(found)
}

pub(super) async fn read_layout(shared: &Shared, session: &mut Session, name: &TableName) -> Result<Layout> {
    let flavor = shared.flavor();
    let catalog = dialect::catalog(flavor, name.schema.as_deref(), &name.table, &name.quoted(flavor));
    let mut layout = Layout::default();
    let (_, tables) = session.query_typed(&catalog.table).await?;
    let Some(described) = tables.first() else { return Ok(layout) };
    layout.engine = described.text(0)?;
    layout.is_view = described.text(1)?.to_lowercase().contains("view");
    let (_, columns) = session.query_typed(&catalog.columns).await?;
    for row in &columns {
        layout.columns.push(match flavor {
            Flavor::MySql => mysql_column(row)?,
            Flavor::Sqlite => sqlite_column(row)?,
        });
    }
    if flavor == Flavor::Sqlite {
        let mut primary: Vec<(i64, String)> = Vec::new();
        for row in columns.iter() {
            primary.push((row.int(3)?, row.text(0)?));
        }
        primary.retain(|(position, _)| *position > 0);
        primary.sort();
        layout.primary = primary.into_iter().map(|(_, name)| name).collect();
    }
    if !layout.is_view {
        read_indexes(session, flavor, &catalog.indexes, &mut layout).await?;
    }
    Ok(layout)
}

/// A part of an index: index, is unique, column (none for an expression), is whole and ascending, can be used.
struct Part {
    index: String,
    is_unique: bool,
    column: Option<String>,
    is_plain: bool,
    is_usable: bool,
}

async fn read_indexes(session: &mut Session, flavor: Flavor, statement: &Statement, layout: &mut Layout) -> Result<()> {
    let (names, rows) = session.query_typed(statement).await?;
    let places: HashMap<String, usize> = names.iter().enumerate().map(|(at, name)| (name.to_lowercase(), at)).collect();
    for row in &rows {
        let part = match flavor {
            Flavor::MySql => mysql_part(row, &places)?,
            Flavor::Sqlite => Part {
                index: row.text(0)?,
                is_unique: row.int(1)? == 1,
                column: row.opt(2, Row::text)?,
                is_plain: row.int(3)? == 0,
                is_usable: row.int(4)? == 0,
            },
        };
        if !part.is_usable {
            continue;
        }
        if flavor == Flavor::MySql && part.index == "PRIMARY" {
            layout.primary.extend(part.column.clone());
        }
        if layout.indexes.last().is_none_or(|last| last.name != part.index) {
            layout.indexes.push(Index {
                name: part.index.clone(),
                is_unique: part.is_unique,
                columns: Vec::new(),
                is_whole: true,
            });
        }
        let Some(index) = layout.indexes.last_mut() else { continue };
        match part.column.filter(|_| part.is_plain && index.is_whole) {
            Some(column) => index.columns.push(column),
            None => index.is_whole = false,
        }
    }
    Ok(())
}

/// A row of SHOW INDEX. Its last columns differ: `Visible` in MySQL, `Ignored` in MariaDB.
fn mysql_part(row: &Row, places: &HashMap<String, usize>) -> Result<Part> {
    let at = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
    let says = |name: &str, word: &str| row.opt(at(name), Row::text).ok().flatten().is_some_and(|text| text == word);
    Ok(Part {
        index: row.text(at("key_name"))?,
        is_unique: row.int(at("non_unique"))? == 0,
        column: row.opt(at("column_name"), Row::text)?,
        is_plain: row.is_null(at("sub_part")) && says("collation", "A"),
        is_usable: !says("visible", "NO") && !says("ignored", "YES") && says("index_type", "BTREE"),
    })
}

/// Runs a write by key in chunks; how many rows matched.
async fn execute_each(session: &mut Session, chunks: &[Keys], render: impl Fn(&Keys) -> Option<Statement>) -> Result<u64> {
    let mut matched = 0;
    for chunk in chunks {
        if let Some(statement) = render(chunk) {
            matched += session.execute(&statement).await?.matched;
        }
    }
    Ok(matched)
}

/// The claim shape on a table: engines without row locks were refused, so it is the server's.
fn is_token_update(rows: &Rows<'_>) -> bool {
    rows.shape == ClaimShape::TokenUpdate
}
