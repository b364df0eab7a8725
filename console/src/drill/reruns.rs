//! Drill 5: runs by hand, and runs that were asked for, beside a scheduled pass in many processes.

use super::crew::{Crew, Said};
use super::worker::LEASE;
use super::{Broken, Stage, Told};
use rowclaim::{Missed, RunFilter, RunRecord, RunState, ScheduleFilter, ScheduleRecord, ScheduleRequest};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const TASK: &str = "drill-reruns";
const SECOND: i64 = 1_000_000;
/// How often a run is asked for.
const ASKED: usize = 3;
/// At least so long.
const SPAN: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(30);

/// What the processes said that they ran: the id, and whether by hand.
type Ran = HashMap<i64, bool>;

pub fn run(stage: &Stage<'_>) -> Result<Told, Broken> {
    let engine = &stage.scratch.engine;
    let mut crew = stage.crew("passes", &[])?;
    let mut request = ScheduleRequest::new(TASK, "* * * * * *", "UTC");
    (request.missed, request.cap, request.lease) = (Missed::All, 1_000, LEASE);
    let first = engine.schedule(&request)?.accounted_until.0;
    // Long before the first slot of the schedule.
    let by_hand = first / SECOND * SECOND - 3_600 * SECOND;
    let since = Instant::now();
    let mut ran = Ran::new();
    crew.tell_all(&json!({ "do": "go", "task": TASK, "slot": by_hand }));
    for _ in 0..ASKED {
        hear(&crew, Duration::from_secs(1), &mut ran)?;
        engine.ask_run(TASK)?;
        let until = Instant::now() + PATIENCE;
        while schedule(stage)?.asked_at.is_some() {
            hear(&crew, Duration::from_millis(50), &mut ran)?;
            if Instant::now() > until {
                return Err(Broken::now("nobody made the run that was asked for"));
            }
        }
    }
    hear(&crew, SPAN.saturating_sub(since.elapsed()), &mut ran)?;
    rest(&mut crew, &mut ran)?;
    // What became due since the last look of the others.
    let mut pass = engine.tick(&[TASK.to_owned()], None)?;
    while let Some(run) = pass.next_run()? {
        ran.insert(run.id(), run.is_manual());
        run.succeed()?;
    }
    let last = schedule(stage)?.accounted_until.0;
    if stage.orders.violate == "gap" {
        let sql = format!("DELETE FROM {}runs WHERE task = ? AND is_manual = 0 AND slot > ?", stage.scratch.prefix());
        engine.sql(&sql, &[TASK.into(), rowclaim::Timestamp(last - 2 * SECOND).into()])?;
    }
    let rows = engine.runs(&RunFilter { task: Some(TASK.to_owned()), limit: 10_000, ..RunFilter::default() })?;
    Ok(judge(&rows, &ran, first, last, by_hand))
}

/// Every slot has its row, every run by hand its mark.
fn judge(rows: &[RunRecord], ran: &Ran, first: i64, last: i64, by_hand: i64) -> Told {
    let mut told = Told::default();
    let mut accounted: BTreeMap<i64, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.is_manual) {
        for back in 0..row.slots {
            *accounted.entry(row.slot.0 - back * SECOND).or_default() += 1;
        }
    }
    let mut slots = 0;
    let mut slot = first / SECOND * SECOND + SECOND;
    while slot <= last {
        let times = accounted.get(&slot).copied().unwrap_or(0);
        told.must(times == 1, || format!("slot {slot} has {times} rows"));
        slots += 1;
        slot += SECOND;
    }
    told.must(slots >= 3, || format!("only {slots} slots came"));
    for row in rows {
        if let Some(is_manual) = ran.get(&row.id) {
            told.must(row.is_manual == *is_manual, || format!("run {}: manual {}, not {is_manual}", row.id, row.is_manual));
        }
    }
    let known: HashMap<i64, &RunRecord> = rows.iter().map(|row| (row.id, row)).collect();
    let unknown = ran.keys().filter(|id| !known.contains_key(*id)).count();
    // Those that the planted gap has deleted are missed here too.
    told.must(unknown == 0, || format!("{unknown} runs have no row"));
    let manual = |row: &&RunRecord| row.is_manual && row.state == RunState::Succeeded;
    let again = rows.iter().filter(manual).filter(|row| row.slot.0 == by_hand).count();
    let asked = rows.iter().filter(manual).filter(|row| row.slot.0 != by_hand).count();
    told.must(again > 0, || "nobody ran anything by hand".to_owned());
    told.must(asked == ASKED, || format!("{ASKED} runs were asked for, and {asked} were made"));
    told.what = format!("{slots} slots accounted for, {again} runs by hand and {asked} asked for beside them, each one marked");
    told
}

fn schedule(stage: &Stage<'_>) -> Result<ScheduleRecord, Broken> {
    let found =
        stage.scratch.engine.schedules(&ScheduleFilter::default())?.into_iter().find(|record| record.request.task == TASK);
    found.ok_or_else(|| Broken::now("the schedule is gone"))
}

fn note(said: &Said, ran: &mut Ran) {
    if said.is("ran") {
        ran.insert(said.int("id"), said.truth("is_manual"));
    }
}

fn hear(crew: &Crew, span: Duration, ran: &mut Ran) -> Result<(), Broken> {
    crew.hear(span, |said| {
        note(said, ran);
        None::<()>
    })
    .map(drop)
}

fn rest(crew: &mut Crew, ran: &mut Ran) -> Result<(), Broken> {
    let alive = crew.alive().len();
    crew.tell_all(&json!({ "do": "rest" }));
    let mut resting = 0;
    crew.wait("all processes rest", PATIENCE, |said| {
        note(said, ran);
        resting += usize::from(said.is("rested"));
        (resting == alive).then_some(())
    })
}
