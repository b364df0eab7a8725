//! One mapped table: whether the mapping fits, and what is missing in it. Rows, indexes and locks are looked at next door.

use super::look::{Look, answered};
use super::own::rights_missing;
use super::{DoctorTable, Finding, claims, contents, index};
use crate::dialect::doctor as dialect;
use crate::engine::table::{read_layout, statements_of};
use crate::error::{ErrorKind, Result};
use crate::plan::plain;
use crate::plan::table::access::Search;
use crate::plan::table::layout::{Kind, Layout};
use crate::plan::table::{Table, TableName};
use crate::value::Row;
use rowclaim_migrations::Flavor;

/// Messages of errors are cut below this many characters of the column.
const ERROR_CHARS: u64 = 200;

pub(super) async fn look(look: &mut Look<'_>, wanted: &DoctorTable) -> Result<()> {
    let name = match TableName::parse(&wanted.name) {
        Ok(name) => name,
        Err(error) => {
            look.find(Finding::fault("mapping-unfit", &wanted.name, error.message()).so("the table cannot be claimed from"));
            return Ok(());
        }
    };
    let layout = match answered(read_layout(look.shared, look.session, &name).await)? {
        Ok(layout) => layout,
        Err(error) => {
            let message = format!("the table cannot be looked at: {}", error.message());
            look.find(Finding::fault("mapping-unfit", &wanted.name, message).so("the table cannot be claimed from"));
            return Ok(());
        }
    };
    // What an engine without row locks makes of an index says nothing about InnoDB.
    let is_innodb = layout.engine.is_empty() || layout.engine.eq_ignore_ascii_case("innodb");
    let Some(table) = fit(look, wanted, name, layout) else { return Ok(()) };
    columns(look, &table);
    triggers(look, &table).await?;
    let Ok(rows) = answered(statements_of(look.shared, look.session, &table).await)? else { return Ok(()) };
    let Some(search) = index::search(look, &rows, wanted).await? else { return Ok(()) };
    rights(look, &rows, &search).await?;
    index::look(look, &rows, &search, is_innodb).await?;
    contents::look(look, &rows).await?;
    if table.mapping.registry {
        claims::of_table(look, &table).await?;
    }
    Ok(())
}

/// The mapping bound to the table. What can be looked past is, so that one look finds more than the first fault.
fn fit(look: &mut Look<'_>, wanted: &DoctorTable, name: TableName, mut layout: Layout) -> Option<Table> {
    let shown = name.shown();
    let flavor = look.shared.flavor();
    let lost = "the table cannot be claimed from";
    if layout.columns.is_empty() {
        let message = "there is no such table, or no right to see it";
        look.find(Finding::fault("table-missing", &shown, message).so(lost));
        return None;
    }
    if layout.is_view {
        let finding = Finding::fault("table-view", &shown, "this is a view").so("rows of a view cannot be locked one by one");
        look.find(finding.mend("map the table behind it"));
        return None;
    }
    if !layout.engine.is_empty() && !layout.engine.eq_ignore_ascii_case("innodb") {
        let message = format!("the table is {}, which has no row locks and no transactions", layout.engine);
        let finding =
            Finding::fault("table-engine", &shown, message).so("two workers would get the same rows; claims are refused");
        look.find(finding.mend(format!("ALTER TABLE {} ENGINE=InnoDB", name.quoted(flavor))));
        "InnoDB".clone_into(&mut layout.engine);
    }
    // A token column that is too narrow is widened here, on paper, for a second look; everything else ends it.
    for _ in 0..2 {
        let error = match Table::bind(name.clone(), flavor, wanted.mapping.clone(), layout.clone()) {
            Ok(table) => return Some(table),
            Err(error) => error,
        };
        let is_token = error.message().starts_with("token: column");
        let token = layout.columns.iter_mut().find(|column| column.name.eq_ignore_ascii_case(&wanted.mapping.token));
        let (message, mend) = match error.message().split_once("; ALTER ") {
            Some((message, mend)) => (message, Some(format!("ALTER {mend}"))),
            None => (error.message(), None),
        };
        let (code, subject) = match &token {
            Some(column) if is_token => ("token-unfit", format!("{shown}.{}", column.name)),
            _ => ("mapping-unfit", shown.clone()),
        };
        let message = if is_token { message.trim_start_matches("token: ") } else { message };
        let mut finding = Finding::fault(code, subject, message).so(lost);
        finding.fix = mend;
        look.find(finding);
        let column = token.filter(|_| is_token)?;
        column.kind = Kind::Text { chars: 36, in_bytes: false, charset: String::new() };
        column.is_nullable = true;
    }
    None
}

/// What a mapping does without.
fn columns(look: &mut Look<'_>, table: &Table) {
    let shown = table.name.shown();
    if table.attempts.is_none() {
        look.find(
            Finding::note("no-attempts", &shown, "no column counts attempts")
                .so("a row that kills its worker is tried again for ever")
                .mend("attempts and failed in the mapping, with max_attempts"),
        );
    }
    if table.available_at.is_none() {
        look.find(
            Finding::note("no-back-off", &shown, "no column says when a row is due")
                .so("a row that failed is tried again at once")
                .mend("available_at in the mapping"),
        );
    }
    if table.claimed_at.is_none() && table.lease_until.is_none() {
        look.find(
            Finding::note("no-recovery", &shown, "no column says since when a row is held")
                .so("rows that other code leaves in processing stay there until somebody takes them back")
                .mend("claimed_at and recover_after in the mapping"),
        );
    } else if table.lease_until.is_none() && table.mapping.recover_after.is_none() {
        look.find(
            Finding::note("no-recovery", &shown, "the mapping does not say when a row in processing is given up")
                .so("rows that other code leaves in processing stay there until somebody takes them back")
                .mend("recover_after in the mapping"),
        );
    }
    if !table.key_is_primary {
        look.find(
            Finding::note("key-not-primary", format!("{shown}.{}", table.key.name), "the key is not the primary key")
                .so("claims read candidates first and lock them by the key: right, and a little slower"),
        );
    }
    if let Some(column) = &table.error
        && let Kind::Text { chars, .. } = &column.kind
        && *chars < ERROR_CHARS
    {
        let message = format!("the column holds {chars} characters of an error");
        let finding = Finding::note("error-short", format!("{shown}.{}", column.name), message).so("longer messages are cut");
        let name = table.flavor.quote(&column.name);
        look.find(finding.mend(format!("ALTER TABLE {} MODIFY {name} VARCHAR(1000) NULL", table.name.quoted(table.flavor))));
    }
}

async fn triggers(look: &mut Look<'_>, table: &Table) -> Result<()> {
    let values = vec![table.name.schema.as_deref().into(), table.name.table.as_str().into()];
    let rows = look.see(dialect::triggers(table.flavor), values).await?;
    let shown = |row: &Row| Some(format!("{} {}", row.text(0).ok()?, row.text(1).ok()?).trim().to_owned());
    let names: Vec<String> = rows.iter().filter_map(shown).collect();
    if !names.is_empty() {
        look.find(
            Finding::note("triggers", table.name.shown(), format!("the table has triggers: {}", names.join(", "))).so(
                "they run inside of each claim and each finish: what they lock, workers wait for; what they raise, workers get",
            ),
        );
    }
    Ok(())
}

/// Whether the account may write the rows, asked by an EXPLAIN that writes nothing.
async fn rights(look: &mut Look<'_>, rows: &crate::dialect::rows::Rows<'_>, search: &Search) -> Result<()> {
    let table = rows.table;
    if table.flavor == Flavor::Sqlite || look.has_found(&["binlog-statement", "read-only"]) {
        return Ok(());
    }
    let Ok(keys) = crate::plan::keys::Keys::new([index::any_value(&table.key)]) else { return Ok(()) };
    let mut mark = rows.mark(search, &keys, uuid::Uuid::nil(), "", std::time::Duration::from_secs(60));
    mark.sql = dialect::explain(table.flavor, &mark.sql);
    if let Err(error) = look.ask(&plain(&mark.sql, mark.values)).await?
        && error.kind() == ErrorKind::Config
    {
        look.find(rights_missing(look, &table.name.shown(), "SELECT, UPDATE", error.message()));
    }
    Ok(())
}
