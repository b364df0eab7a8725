//! Whether a claim finds its rows by an index: what it would use, what the server makes of it, and which index is missing.

use super::locks::{self, Locks};
use super::look::Look;
use super::{DoctorTable, Finding};
use crate::dialect::doctor as dialect;
use crate::dialect::rows::Rows;
use crate::error::Result;
use crate::plan::plain;
use crate::plan::table::Table;
use crate::plan::table::access::{Access, Search};
use crate::plan::table::layout::{Column, Index, Kind};
use crate::value::{Row, Value};
use rowclaim_migrations::Flavor;

/// Rows a claim asks for here.
pub(super) const LIMIT: usize = 100;
/// A table with fewer rows is quick to read without any index.
const SMALL: i64 = 1_000;

/// The search of a claim that filters by the columns asked for, with values from a row of the table.
///
/// Where none are asked for, an index that would fit claims with a filter is taken as a sign that they have it.
pub(super) async fn search(look: &mut Look<'_>, rows: &Rows<'_>, wanted: &DoctorTable) -> Result<Option<Search>> {
    let table = rows.table;
    let mut columns = Vec::new();
    for name in &wanted.filters {
        match table.column(name) {
            Ok(column) => columns.push(column.clone()),
            Err(error) => look.find(Finding::warning("where-unknown", table.name.shown(), error.message())),
        }
    }
    if wanted.filters.is_empty()
        && let Ok(plain) = Search::new(table, &[], &[], None)
        && let wish = Wish::of(table, &plain)
        && !wish.is_given(table)
        && plain.access == Access::Candidates
        && let Some(filters) = wish.filters(table)
    {
        let names: Vec<&str> = filters.iter().map(|column| column.name.as_str()).collect();
        let message = format!("an index fits claims that filter by {}, and none those that do not", names.join(", "));
        look.find(
            Finding::note("missing-index", table.name.shown(), message)
                .so("claims without this filter read through rows that are done, or sort those that wait")
                .mend(wish.ddl(table)),
        );
        columns = filters;
    }
    let mut values: Vec<Value> = columns.iter().map(any_value).collect();
    if !columns.is_empty()
        && let Ok((_, found)) = look.ask(&rows.example(&columns)).await?
        && let Some(row) = found.into_iter().next()
    {
        values = row.0;
    }
    let values: Vec<[Value; 1]> = values.into_iter().map(|value| [value]).collect();
    let filters: Vec<(&str, &[Value])> =
        columns.iter().zip(&values).map(|(column, value)| (column.name.as_str(), value.as_slice())).collect();
    match Search::new(table, &filters, &[], None) {
        Ok(search) => Ok(Some(search)),
        Err(error) => {
            look.find(Finding::warning("where-unknown", table.name.shown(), error.message()));
            Ok(None)
        }
    }
}

/// A value that a column can hold, for a table without rows.
pub(super) fn any_value(column: &Column) -> Value {
    match &column.kind {
        Kind::Int { .. } | Kind::Number | Kind::Other(_) => Value::Int(0),
        Kind::Text { .. } => Value::Text(String::new()),
        Kind::Choice(words) => Value::Text(words.first().cloned().unwrap_or_default()),
        Kind::Bytes { length, is_fixed } => {
            Value::Bytes(vec![0; if *is_fixed { usize::try_from(*length).unwrap_or(0) } else { 0 }])
        }
        Kind::DateTime { .. } | Kind::Timestamp { .. } => Value::Moment("2000-01-01 00:00:00".to_owned()),
    }
}

pub(super) async fn look(look: &mut Look<'_>, rows: &Rows<'_>, search: &Search, is_innodb: bool) -> Result<()> {
    let table = rows.table;
    let subject = table.name.shown();
    let mut plans = Vec::new();
    for statement in rows.finding(search, LIMIT) {
        let explain = plain(&dialect::explain(table.flavor, &statement.sql), statement.values);
        if let Ok((names, lines)) = look.ask(&explain).await? {
            plans.extend(lines.iter().map(|line| Plan::read(table.flavor, &names, line)));
        }
    }
    let shown: Vec<String> = plans.iter().map(|plan| plan.shown.clone()).collect();
    let shown = if shown.is_empty() { String::new() } else { format!(" (EXPLAIN: {})", shown.join("; ")) };
    let is_small = matches!(look.ask(&rows.key_at(SMALL)).await?, Ok((_, found)) if found.is_empty());
    let locked = if is_innodb { locks::of_a_claim(look, rows, search).await? } else { None };
    let wish = Wish::of(table, search);
    let analyze = format!("ANALYZE TABLE {}", table.name.quoted(table.flavor));
    let has_many_locks = locked.is_some_and(Locks::is_too_many);
    if !wish.is_given(table) && matches!(search.access, Access::Candidates) {
        let is_harmless = is_small || plans.iter().all(|plan| !plan.is_scan && plan.rows < SMALL);
        let message = format!("no index gives waiting rows in their order{shown}");
        let finding = if is_harmless {
            Finding::note("missing-index", &subject, message)
        } else {
            Finding::warning("missing-index", &subject, message)
        };
        let so = "each claim reads through rows that are done or sorts those that wait, and gets slower as the table grows";
        look.find(finding.so(so).mend(wish.ddl(table)));
    } else {
        let how = match &search.access {
            Access::Index { name, .. } => format!("claims find their rows by the index {name}"),
            Access::Candidates => "claims read candidates by an index and lock them by key".to_owned(),
        };
        let locks = locked.map_or(String::new(), |locks| format!("; {} rows lock {}", locks.taken, locks.locked));
        look.find(Finding::note("claim-plan", &subject, format!("{how}{locks}{shown}")));
        let strays =
            |plan: &&Plan| is_innodb && !is_small && !has_many_locks && plan.rows >= SMALL && (plan.is_scan || plan.sorts);
        if let Some(plan) = plans.iter().find(strays) {
            look.find(
                Finding::warning("claim-sorts", &subject, format!("the server does not follow the index: {}", plan.shown))
                    .so("each claim reads or sorts all that waits")
                    .mend(&analyze),
            );
        }
    }
    if let Some(locks) = locked.filter(|locks| locks.is_too_many()) {
        look.find(
            Finding::warning(
                "claim-locks",
                &subject,
                format!("a claim of {} rows locks {} rows, more than {}", locks.taken, locks.locked, locks.bound()),
            )
            .so("workers and other code wait for rows that nobody works on")
            .mend(if wish.is_given(table) { analyze } else { wish.ddl(table) }),
        );
    }
    Ok(())
}

/// One line of EXPLAIN.
struct Plan {
    shown: String,
    rows: i64,
    is_scan: bool,
    sorts: bool,
}

impl Plan {
    fn read(flavor: Flavor, names: &[String], row: &Row) -> Self {
        let text = |name: &str| {
            let at = names.iter().position(|other| other.eq_ignore_ascii_case(name))?;
            row.text(at).ok().or_else(|| row.int(at).ok().map(|number| number.to_string()))
        };
        if flavor == Flavor::Sqlite {
            let shown = text("detail").unwrap_or_default();
            let is_scan = shown.starts_with("SCAN") && !shown.contains("USING");
            return Plan { rows: if is_scan { i64::MAX } else { 0 }, is_scan, sorts: shown.contains("USE TEMP B-TREE"), shown };
        }
        let (kind, key, extra) =
            (text("type").unwrap_or_default(), text("key").unwrap_or_default(), text("Extra").unwrap_or_default());
        let rows = text("rows").and_then(|rows| rows.parse().ok()).unwrap_or(0);
        let is_scan = matches!(kind.as_str(), "ALL" | "index");
        let by = if key.is_empty() { String::new() } else { format!(" by {key}") };
        let sorts = extra.to_lowercase().contains("filesort");
        let then = if sorts { ", then sorts" } else { "" };
        Plan { shown: format!("{kind}{by}, {rows} rows{then}"), rows, is_scan, sorts }
    }
}

/// The index that would give the rows: conditions first, then the order.
struct Wish {
    equal: Vec<String>,
    order: Vec<String>,
}

impl Wish {
    fn of(table: &Table, search: &Search) -> Self {
        let mut equal: Vec<String> = table.scope.iter().map(|(column, _)| column.name.clone()).collect();
        equal.extend(search.conditions.iter().map(|condition| condition.column.name.clone()));
        equal.push(table.status.name.clone());
        let mut seen = std::collections::HashSet::new();
        equal.retain(|name| seen.insert(name.to_lowercase()));
        Wish { equal, order: search.order.iter().map(|order| order.column.name.clone()).collect() }
    }

    /// Columns by which claims would have to filter so that an index gives their rows.
    fn filters(&self, table: &Table) -> Option<Vec<Column>> {
        let is_same = |a: &&String, b: &&String| a.eq_ignore_ascii_case(b);
        table.layout.indexes.iter().filter(|index| index.is_whole).find_map(|index| {
            let (front, rest) = index.columns.split_at(index.columns.len().checked_sub(self.order.len())?);
            let is_in_order = rest.iter().zip(&self.order).all(|(a, b)| is_same(&a, &b));
            let holds_all = self.equal.iter().all(|name| front.iter().any(|column| is_same(&column, &name)));
            let others = front.iter().filter(|column| !self.equal.iter().any(|name| is_same(column, &name)));
            let others: Vec<Column> = others.filter_map(|name| table.layout.column(name).cloned()).collect();
            // The key in front finds one row, and the token is not for callers to filter by.
            let is_odd = others.iter().any(|column| [&table.key.name, &table.token.name].contains(&&column.name));
            (is_in_order && holds_all && !is_odd).then_some(others)
        })
    }

    /// Whether there is one: all conditions in front, in any order, and behind them exactly the order.
    fn is_given(&self, table: &Table) -> bool {
        let is_equal = |name: &&String| self.equal.iter().any(|other| other.eq_ignore_ascii_case(name));
        table.layout.indexes.iter().any(|index: &Index| {
            let (front, rest): (Vec<&String>, Vec<&String>) = {
                let at = index.columns.iter().take_while(is_equal).count();
                let (front, rest) = index.columns.split_at(at);
                (front.iter().collect(), rest.iter().collect())
            };
            index.is_whole
                && front.len() == self.equal.len()
                && rest.len() == self.order.len()
                && rest.iter().zip(&self.order).all(|(a, b)| a.eq_ignore_ascii_case(b))
        })
    }

    fn ddl(&self, table: &Table) -> String {
        let names = self.equal.iter().chain(&self.order).map(|name| table.flavor.quote(name)).collect::<Vec<_>>().join(", ");
        let mut index: String = table.name.table.chars().take(50).collect();
        index += "_claim";
        let taken = table.layout.indexes.iter().filter(|other| other.name.starts_with(&index)).count();
        if taken > 0 {
            index += &format!("{}", taken + 1);
        }
        format!("CREATE INDEX {} ON {} ({names})", table.flavor.quote(&index), table.name.quoted(table.flavor))
    }
}
