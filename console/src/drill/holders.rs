//! Drills 1 to 3: a holder of a lease that is killed, is not renewed, or is stopped.

use super::crew::{Crew, Said};
use super::scratch::{IN_TIME, LATE, Scratch};
use super::worker::{LEASE, write_late};
use super::{Broken, Stage, Told};
use serde_json::json;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Holders that are killed.
const KILLS: usize = 5;
/// Holders that work past their lease, in each of the two drills.
const ROUNDS: usize = 3;
/// Late writes with the fence of each killed holder, and of each of the others.
const LATE_FOR_THE_DEAD: u64 = 60;
const LATE_FOR_EACH: u64 = 200;
/// Nobody waits longer for the next holder.
const PATIENCE: Duration = Duration::from_secs(30);
/// A holder works so long before its accident.
const AT_WORK: Duration = Duration::from_millis(300);

/// Who holds, and with which fence.
#[derive(Clone, Copy)]
struct Holder {
    number: usize,
    fence: i64,
}

fn held(said: &Said) -> Option<Holder> {
    said.is("held").then(|| Holder { number: said.by, fence: said.int("fence") })
}

/// A holder is killed in the middle of its lease, again and again.
pub fn killed(stage: &Stage<'_>) -> Result<Told, Broken> {
    const NAME: &str = "killed";
    let mut crew = stage.crew("holder", &[])?;
    let mut told = Told::default();
    crew.tell_all(&json!({ "do": "contend", "name": NAME }));
    let mut holder = crew.wait("somebody takes the lease", PATIENCE, held)?;
    let (mut dead, mut longest) = (Vec::new(), Duration::ZERO);
    for _ in 0..KILLS {
        crew.hear(AT_WORK, |said| {
            // Without an accident only on a machine that is very busy.
            holder = held(said).unwrap_or(holder);
            None::<()>
        })?;
        crew.kill(holder.number);
        let since = Instant::now();
        dead.push(holder.fence);
        holder = crew.wait("another takes over", PATIENCE, |said| held(said).filter(|next| next.number != holder.number))?;
        longest = longest.max(since.elapsed());
    }
    for fence in &dead {
        told.late_tried += LATE_FOR_THE_DEAD;
        told.late_accepted += write_late(stage.scratch, NAME, *fence, LATE_FOR_THE_DEAD, &stage.orders.violate)?;
    }
    check_row(stage.scratch, NAME, &dead, &mut told)?;
    let (kills, lease, slowest) = (dead.len(), LEASE.as_secs_f64(), longest.as_secs_f64());
    told.what = format!("{kills} holders killed; the next took over within {slowest:.1} s, the lease being {lease} s");
    Ok(told)
}

/// A holder that is not renewed works on.
pub fn silent(stage: &Stage<'_>) -> Result<Told, Broken> {
    let mut crew = stage.crew("holder", &[0])?;
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let name = format!("silent {round}");
        let late = first_holds(&mut crew, &name)?;
        crew.wait("another takes over", PATIENCE, |said| held(said).filter(|next| next.number != late.number))?;
        write(&mut crew, stage.scratch, &name, late, &mut told)?;
    }
    told.what = format!("{ROUNDS} holders worked past their lease; {} late writes refused", told.late_tried - told.late_accepted);
    Ok(told)
}

/// A holder is stopped past its lease, and continued.
pub fn stopped(stage: &Stage<'_>) -> Result<Told, Broken> {
    let mut crew = stage.crew("holder", &[])?;
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let name = format!("stopped {round}");
        let late = first_holds(&mut crew, &name)?;
        crew.hear(AT_WORK, |_| None::<()>)?;
        stop_between_writes(&crew, stage.scratch, late.number)?;
        let next = crew.wait("another takes over", PATIENCE, |said| held(said).filter(|next| next.number != late.number));
        crew.go_on(late.number);
        next?;
        write(&mut crew, stage.scratch, &name, late, &mut told)?;
    }
    told.what = format!("{ROUNDS} holders stopped and continued; {} late writes refused", told.late_tried - told.late_accepted);
    Ok(told)
}

/// The first process takes a lease, and all others wait for it.
fn first_holds(crew: &mut Crew, name: &str) -> Result<Holder, Broken> {
    let contend = json!({ "do": "contend", "name": name });
    crew.tell(0, &contend);
    let holder = crew.wait("the first takes the lease", PATIENCE, |said| held(said).filter(|holder| holder.number == 0))?;
    for number in crew.alive().into_iter().filter(|number| *number != 0) {
        crew.tell(number, &contend);
    }
    Ok(holder)
}

/// SIGSTOP at a moment when the process does not keep the database locked: a whole SQLite file would wait for it.
fn stop_between_writes(crew: &Crew, scratch: &Scratch, number: usize) -> Result<(), Broken> {
    loop {
        crew.pause(number)?;
        let (sender, written) = channel();
        let is_free = std::thread::scope(|scope| {
            scope.spawn(move || sender.send(scratch.guard("probe", 1, "probe").is_ok()));
            let is_free = written.recv_timeout(Duration::from_millis(500)).unwrap_or(false);
            if !is_free {
                // Before the probe is waited for.
                crew.go_on(number);
            }
            is_free
        });
        if is_free {
            return Ok(());
        }
        crew.hear(Duration::from_millis(20), |_| None::<()>)?;
    }
}

/// Has the late holder write with its old fence.
fn write(crew: &mut Crew, scratch: &Scratch, name: &str, late: Holder, told: &mut Told) -> Result<(), Broken> {
    crew.tell(late.number, &json!({ "do": "late", "times": LATE_FOR_EACH }));
    let (tried, accepted, is_renewed, is_valid) = crew.wait("the late holder writes", PATIENCE * 2, |said| {
        let is_it = said.is("late") && said.by == late.number;
        is_it.then(|| (said.int("tried"), said.int("accepted"), said.truth("is_renewed"), said.truth("valid")))
    })?;
    told.late_tried += u64::try_from(tried).unwrap_or(0);
    told.late_accepted += u64::try_from(accepted).unwrap_or(1);
    told.must(!is_renewed, || "a late holder renewed its lease".to_owned());
    told.must(!is_valid, || "a late holder believed that it still held".to_owned());
    check_row(scratch, name, &[late.fence], told)
}

/// What the table says in the end counts, not what the writers were answered.
fn check_row(scratch: &Scratch, name: &str, old: &[i64], told: &mut Told) -> Result<(), Broken> {
    let row = scratch.guarded(name)?;
    if row.as_ref().is_some_and(|(note, _)| note == LATE) {
        told.late_accepted = told.late_accepted.max(1);
        told.faults.push(format!("{name}: the row was written by a late holder"));
    }
    let is_newest = row.as_ref().is_some_and(|(note, fence)| note == IN_TIME && old.iter().all(|old| fence > old));
    told.must(is_newest, || format!("{name}: the row does not say what the newest holder wrote: {row:?}"));
    Ok(())
}
