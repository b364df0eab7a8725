//! What the own tables tell of workers: claims nobody takes back, jobs that are dead, leases that are too short.

use super::Finding;
use super::look::{Look, one_number};
use crate::dialect::doctor as dialect;
use crate::error::Result;
use crate::plan::table::Table;
use crate::value::Row;
use std::time::Duration;

/// What is counted stops here.
const CAP: i64 = 1_000;
/// Fewer runs than this say nothing.
const RUNS: usize = 20;

pub(super) async fn look(look: &mut Look<'_>) -> Result<()> {
    let prefix = look.shared.config.prefix.as_str().to_owned();
    let texts = dialect::own(look.shared.flavor());
    let sql = look.shared.names.fill(&dialect::with_clock(texts.unrecovered));
    if let Some(row) = look.see(&sql, vec![]).await?.first()
        && let (Ok(count), Ok(age)) = (row.int(0), row.int(1))
        && count > 0
    {
        let message = format!("claims that ran out and were not taken back: {}, the oldest for {age} seconds", capped(count));
        look.find(
            Finding::warning("claims-unrecovered", format!("{prefix}claims"), message)
                .so("their rows wait until a worker claims again, or somebody recovers")
                .mend("rowclaim recover"),
        );
    }
    let sql = look.shared.names.fill(texts.dead);
    if let Some(count) = one_number(&look.see(&sql, vec![]).await?).filter(|count| *count > 0) {
        look.find(
            Finding::note("dead-jobs", format!("{prefix}jobs"), format!("jobs out of attempts: {}", capped(count)))
                .so("they wait for a person")
                .mend("rowclaim jobs list --state dead, then rowclaim jobs retry --dead"),
        );
    }
    let sql = look.shared.names.fill(texts.held);
    if let Some(count) = one_number(&look.see(&sql, vec![]).await?).filter(|count| *count > 0) {
        let message = format!("jobs that were begun when their lease ran out: {}", capped(count));
        look.find(
            Finding::note("held-jobs", format!("{prefix}jobs"), message)
                .so("they wait for a person who knows whether they were sent")
                .mend("rowclaim jobs list --state held, then rowclaim jobs resolve ID --sent or --not-sent"),
        );
    }
    let sql = look.shared.names.fill(texts.runs_of_jobs);
    let runs = Runs::read(&look.see(&sql, vec![]).await?);
    lease(look, &format!("{prefix}jobs"), &runs);
    Ok(())
}

/// Run times of claims on a table against its lease and its time of recovery.
pub(super) async fn of_table(look: &mut Look<'_>, table: &Table) -> Result<()> {
    let name = table.name.shown();
    let sql = look.shared.names.fill(dialect::own(look.shared.flavor()).runs_of_table);
    let runs = Runs::read(&look.see(&sql, vec![name.as_str().into()]).await?);
    lease(look, &name, &runs);
    if let (Some(after), Some(usual)) = (table.mapping.recover_after, runs.nearly_longest())
        && usual > after
    {
        look.find(
            Finding::warning(
                "recover-after-short",
                &name,
                format!(
                    "recover_after is {} s, and one claim in twenty runs for {:.1} s or more",
                    after.as_secs(),
                    usual.as_secs_f64()
                ),
            )
            .so("rows that other code holds as long as these are taken from it while it works on them")
            .mend(format!("recover_after: {} in the mapping", usual.as_secs().saturating_mul(3).max(60))),
        );
    }
    Ok(())
}

/// The last ended claims of a source.
struct Runs {
    /// How long those ran that were closed, shortest first, each with its lease.
    closed: Vec<(Duration, Duration)>,
    expired: usize,
}

impl Runs {
    fn read(rows: &[Row]) -> Self {
        let span = |row: &Row, at| Some(Duration::from_micros(u64::try_from(row.int(at).ok()?).ok()?));
        let is_closed = |row: &&Row| row.text(2).is_ok_and(|state| state == "closed");
        let mut closed: Vec<_> = rows.iter().filter(is_closed).filter_map(|row| Some((span(row, 0)?, span(row, 1)?))).collect();
        closed.sort();
        Runs { expired: rows.len() - rows.iter().filter(is_closed).count(), closed }
    }

    /// All but one in twenty are shorter.
    fn nearly_longest(&self) -> Option<Duration> {
        let at = self.closed.len() * 95 / 100;
        self.closed.get(at).filter(|_| self.closed.len() >= RUNS).map(|run| run.0)
    }

    /// How many ran for longer than half of their lease.
    fn late(&self) -> usize {
        self.closed.iter().filter(|(run, lease)| *run > *lease / 2).count()
    }
}

fn lease(look: &mut Look<'_>, subject: &str, runs: &Runs) {
    let all = runs.closed.len() + runs.expired;
    if runs.expired >= 10 && runs.expired * 10 >= all {
        let message = format!("{} of the last {all} claims ran out instead of being finished", runs.expired);
        look.find(
            Finding::warning("claims-expire", subject, message)
                .so("workers die, stand still, or work for longer than their lease without a heartbeat; the rows are worked on twice")
                .mend("look into the workers' logs; heartbeat=1, or a longer lease"),
        );
    }
    let Some(usual) = runs.nearly_longest().filter(|_| !look.shared.config.heartbeat) else { return };
    if runs.late() * 20 >= runs.closed.len() {
        look.find(
            Finding::warning(
                "lease-short",
                subject,
                format!(
                    "heartbeat is off, and one claim in twenty runs for {:.1} s or more: over half of its lease",
                    usual.as_secs_f64()
                ),
            )
            .so("a claim that takes a little longer runs out while its rows are worked on, and they are worked on twice")
            .mend(format!("heartbeat=1, or lease={} or more", usual.as_secs().saturating_mul(4).max(10))),
        );
    }
}

/// `1000+` instead of a number that was not counted to its end.
pub(super) fn capped(count: i64) -> String {
    if count > CAP { format!("{CAP}+") } else { count.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn the_nearly_longest_run_is_that_of_the_last_twentieth() {
        let row = |seconds: i64, state: &str| {
            Row(vec![Value::Int(seconds * 1_000_000), Value::Int(60_000_000), Value::Text(state.to_owned())])
        };
        let mut rows: Vec<Row> = (1..=100).map(|seconds| row(seconds, "closed")).collect();
        rows.push(row(500, "expired"));
        let runs = Runs::read(&rows);
        assert_eq!(runs.nearly_longest(), Some(Duration::from_secs(96)));
        assert_eq!((runs.late(), runs.expired), (70, 1));
        assert_eq!(Runs::read(&rows[..19]).nearly_longest(), None);
    }
}
