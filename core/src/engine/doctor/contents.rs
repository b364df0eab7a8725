//! What is in a mapped table: statuses, counters, dates, and rows that are held. Samples from both ends, never the whole.

use super::Finding;
use super::claims::capped;
use super::look::Look;
use crate::dialect::Statements;
use crate::dialect::rows::{Rows, SAMPLE, Window};
use crate::error::Result;
use crate::plan::keys::shown as shown_key;
use crate::plan::plain;
use crate::plan::spread;
use crate::plan::table::Table;
use crate::plan::table::layout::{Column, Kind};
use crate::value::{Row, Value};
use rowclaim_migrations::Flavor;
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

/// Held rows are looked at up to here.
const HELD: i64 = 1_001;
/// Without `recover_after` a row is given up after this.
const A_DAY: Duration = Duration::from_secs(86_400);

pub(super) async fn look(look: &mut Look<'_>, rows: &Rows<'_>) -> Result<()> {
    let windows = windows(look, rows).await?;
    statuses(look, rows, &windows).await?;
    held(look, rows, &windows).await
}

/// The ends of the table, which are all of it where it is small.
async fn windows(look: &mut Look<'_>, rows: &Rows<'_>) -> Result<Vec<Window>> {
    let mut windows = vec![Window::First];
    if let Ok((_, found)) = look.ask(&rows.key_at(SAMPLE - 1)).await?
        && let Some(mut row) = found.into_iter().next()
    {
        windows.push(Window::Last { after: row.take(0) });
    }
    Ok(windows)
}

/// What of a sample the messages name.
fn sample(windows: &[Window]) -> String {
    if windows.len() > 1 { format!(" among the first and last {SAMPLE} rows") } else { String::new() }
}

/// A time column with zero dates: how many rows that wait have one, how many others, and the first key of each.
#[derive(Default)]
struct Zeros {
    waiting: (i64, Option<Value>),
    others: (i64, Option<Value>),
}

async fn statuses(look: &mut Look<'_>, rows: &Rows<'_>, windows: &[Window]) -> Result<()> {
    let table = rows.table;
    let is_zero_able =
        |column: &&Column| table.flavor == Flavor::MySql && matches!(column.kind, Kind::DateTime { .. } | Kind::Timestamp { .. });
    let times: Vec<&Column> = [&table.available_at, &table.claimed_at].into_iter().flatten().filter(is_zero_able).collect();
    let mut unknown: Vec<(Value, i64)> = Vec::new();
    let mut zeros: Vec<Zeros> = times.iter().map(|_| Zeros::default()).collect();
    let (mut most_attempts, mut held) = (0, 0);
    for window in windows {
        let Ok((_, found)) = look.ask(&rows.statuses(window, &times)).await? else { return Ok(()) };
        for mut row in found {
            let (status, count) = (row.take(0), row.int(1)?);
            most_attempts = most_attempts.max(row.int(2).unwrap_or(0));
            let is_waiting = is_same(&status, &table.pending);
            for (position, zeros) in zeros.iter_mut().enumerate() {
                let at = 3 + 2 * position;
                let counted = if is_waiting { &mut zeros.waiting } else { &mut zeros.others };
                counted.0 += row.int(at)?;
                let key = row.take(at + 1);
                counted.1 = counted.1.take().or((key != Value::Null).then_some(key));
            }
            if table.held.as_ref().is_some_and(|status_of_held| is_same(&status, status_of_held)) {
                held += count;
                continue;
            }
            let mut known = [Some(&table.pending), Some(&table.processing), Some(&table.done), table.failed.as_ref()].into_iter();
            if !known.any(|known| known.is_some_and(|known| is_same(&status, known))) {
                match unknown.iter_mut().find(|(other, _)| is_same(other, &status)) {
                    Some((_, rows)) => *rows += count,
                    None => unknown.push((status, count)),
                }
            }
        }
    }
    unknown_statuses(look, table, &unknown, &sample(windows));
    if held > 0 {
        let name = table.name.shown();
        let message = format!("rows that were begun when their lease ran out: {held}{}", sample(windows));
        look.find(
            Finding::note("held-rows", &name, message)
                .so("they wait for a person who knows whether they were sent")
                .mend(format!("rowclaim rows resolve {name} KEY --sent or --not-sent")),
        );
    }
    for (column, zeros) in times.iter().zip(&zeros) {
        zero_dates(look, rows, column, zeros, &sample(windows));
    }
    attempts(look, rows, most_attempts).await
}

/// Whether two values of the status column are one to the database; letter case does not count there, mostly.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a.as_text(), b.as_text()) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => a == b,
    }
}

fn unknown_statuses(look: &mut Look<'_>, table: &Table, unknown: &[(Value, i64)], sample: &str) {
    if unknown.is_empty() {
        return;
    }
    let list: Vec<String> =
        unknown.iter().take(10).map(|(value, count)| format!("{} ({count} rows)", crate::mapping::json_of(value))).collect();
    look.find(
        Finding::warning(
            "unknown-status",
            format!("{}.{}", table.name.shown(), table.status.name),
            format!("statuses that the mapping does not name: {}{sample}", list.join(", ")),
        )
        .so("these rows are never handed out, and a task looks finished while they are there")
        .mend("name the value in the mapping (failed, for instance), or set these rows to the pending one if they should run"),
    );
}

fn zero_dates(look: &mut Look<'_>, rows: &Rows<'_>, column: &Column, zeros: &Zeros, sample: &str) {
    let subject = format!("{}.{}", rows.table.name.shown(), column.name);
    let message = |count: i64, what: &str, key: Option<&Value>| {
        let key = key.map(shown_key).unwrap_or_default();
        format!("{count} {what} have a zero date{sample}, the first with the key {key}")
    };
    let (waiting, others) = (&zeros.waiting, &zeros.others);
    let is_due_time = rows.table.available_at.as_ref() == Some(column);
    let finding = if is_due_time && waiting.0 > 0 {
        Finding::warning("zero-date", subject, message(waiting.0, "waiting rows", waiting.1.as_ref()))
            .so("a zero date is no time that can come: they are never handed out")
    } else if waiting.0 + others.0 > 0 {
        Finding::note("zero-date", subject, message(waiting.0 + others.0, "rows", waiting.1.as_ref().or(others.1.as_ref())))
            .so("it is taken for a time long ago; strict servers and drivers refuse it")
    } else {
        return;
    };
    look.find(finding.mend(rows.without_zero_dates(column)));
}

/// The counter against what its column can hold. The highest by an index, where there is one, otherwise that of the sample.
async fn attempts(look: &mut Look<'_>, rows: &Rows<'_>, mut most: i64) -> Result<()> {
    let table = rows.table;
    let Some(column) = &table.attempts else { return Ok(()) };
    let is_led = table.layout.indexes.iter().any(|index| index.columns.first() == Some(&column.name));
    if is_led && let Ok((_, found)) = look.ask(&rows.most_attempts(column)).await? {
        most = most.max(found.first().and_then(|row| row.int(0).ok()).unwrap_or(0));
    }
    let room = table.attempts_column_max();
    // 200 of 255, 100 of 127.
    if room > 0 && most >= room / 255 * 200 + room % 255 * 200 / 255 && most > 0 {
        let (name, quoted) = (table.flavor.quote(&column.name), table.name.quoted(table.flavor));
        let so = if table.failed.is_some() {
            "a row whose counter is full is ended as failed, whatever its limit"
        } else {
            "the counter stops there, and limits above it are never reached"
        };
        look.find(
            Finding::warning(
                "attempts-near-full",
                format!("{}.{}", table.name.shown(), column.name),
                format!("a row has {most} attempts, and the column ends at {room}"),
            )
            .so(so)
            .mend(format!("ALTER TABLE {quoted} MODIFY {name} INT NOT NULL DEFAULT 0")),
        );
    }
    Ok(())
}

/// Rows in processing that no open claim holds.
async fn held(look: &mut Look<'_>, rows: &Rows<'_>, windows: &[Window]) -> Result<()> {
    let table = rows.table;
    let whole = [Window::Whole];
    let (windows, sample) = if leads_to_status(table) { (&whole[..], String::new()) } else { (windows, sample(windows)) };
    let after = table.mapping.recover_after.map_or(A_DAY, |after| after + Duration::from_secs(60));
    let mut held: Vec<(Value, Value, bool)> = Vec::new();
    for window in windows {
        let Ok((_, found)) = look.ask(&rows.held_rows(window, after, HELD)).await? else { return Ok(()) };
        held.extend(found.into_iter().map(|mut row| (row.take(0), row.take(1), row.int(2).is_ok_and(|number| number == 1))));
    }
    let is_open = open(look, rows, &held).await?;
    held.retain(|(_, token, _)| !is_open(token));
    let keys = |held: &[&(Value, Value, bool)]| -> String {
        held.iter().take(3).map(|(key, ..)| shown_key(key)).collect::<Vec<_>>().join(", ")
    };
    let (stuck, others): (Vec<_>, Vec<_>) = held.iter().partition(|(.., is_old)| *is_old);
    let subject = table.name.shown();
    if !stuck.is_empty() {
        let how = match &table.lease_until {
            Some(_) => "past their lease".to_owned(),
            None => format!("claimed over {} ago or at no known time", shown_span(after)),
        };
        let count = capped(stuck.len() as i64);
        let message = format!("held by no open claim and {how}{sample}: {count} rows; keys {}", keys(&stuck));
        let finding = Finding::warning("stuck-rows", &subject, message);
        let recover = format!("rowclaim recover --table {subject}");
        look.find(if table.mapping.recover_after.is_some() || table.lease_until.is_some() {
            finding.so("they wait until a worker claims from this table, or somebody recovers it").mend(recover)
        } else {
            let mend = format!("recover_after in the mapping (with claimed_at), then {recover}");
            finding.so("nobody takes them back: they stay for ever").mend(mend)
        });
    }
    if !others.is_empty() {
        look.find(
            Finding::note(
                "held-by-other-code",
                &subject,
                format!("other code holds {} rows{sample}; keys {}", capped(others.len() as i64), keys(&others)),
            )
            .so("they are left to it"),
        );
    }
    Ok(())
}

/// An index by which the rows of a status are found without reading the others.
fn leads_to_status(table: &Table) -> bool {
    let is_scope = |name: &String| table.scope.iter().any(|(column, _)| column.name.eq_ignore_ascii_case(name));
    let mut indexes = table.layout.indexes.iter();
    indexes.any(|index| index.columns.iter().find(|name| !is_scope(name)).is_some_and(|name| *name == table.status.name))
}

/// Which tokens belong to a claim that is still open. Without a registry every token that looks like one may.
async fn open(look: &mut Look<'_>, rows: &Rows<'_>, held: &[(Value, Value, bool)]) -> Result<impl Fn(&Value) -> bool + use<>> {
    let table = rows.table;
    let form = table.token_form;
    let has_registry = table.mapping.registry;
    let mut open = HashSet::new();
    if has_registry {
        let tokens: HashSet<Uuid> = held.iter().filter_map(|(_, token, _)| form.read(token)).collect();
        let tokens: Vec<Uuid> = tokens.into_iter().collect();
        let text = &Statements::new(table.flavor, rows.shape, &look.shared.names).open_tokens;
        for part in tokens.chunks(500) {
            let sql = spread(text, "{list}", "?", part.len());
            let values = part.iter().map(|token| token.as_bytes().as_slice().into()).collect();
            let Ok((_, rows)) = look.ask(&plain(&sql, values)).await? else { continue };
            let read = |row: &Row| Uuid::from_slice(&row.bytes(0).ok()?).ok();
            open.extend(rows.iter().filter_map(read));
        }
    }
    Ok(move |token: &Value| form.read(token).is_some_and(|token| !has_registry || open.contains(&token)))
}

fn shown_span(span: Duration) -> String {
    match span.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
