//! Drill 4: all processes run the same slots at once, each run sends an effect, and some are killed in the middle of it.

use super::crew::{Crew, Said};
use super::{Broken, Stage, Told};
use rowclaim::{EffectState, RunFilter, RunState, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const TASK: &str = "drill-slots";
const SLOTS: i64 = 18;
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens to whoever runs a slot: killed before the provider has accepted, killed after that, or nothing.
fn accident(slot: i64) -> &'static str {
    match slot % 6 {
        2 => "before",
        5 => "after",
        _ => "",
    }
}

fn key(slot: i64) -> String {
    format!("drill:slot:{slot}")
}

/// Answers by their word.
type Answers = BTreeMap<String, usize>;

pub fn run(stage: &Stage<'_>) -> Result<Told, Broken> {
    let (engine, mut told) = (&stage.scratch.engine, Told::default());
    let mut crew = stage.crew("slots", &[])?;
    let first = stage.scratch.now()? / 60_000_000 * 60_000_000;
    let slots: Vec<(i64, i64)> = (0..SLOTS).map(|number| (number, first + number * 60_000_000)).collect();
    for (number, slot) in &slots {
        run_slot(stage, &mut crew, *slot, accident(*number), &mut told)?;
    }
    let unknown: Vec<i64> = slots.iter().filter(|(number, _)| !accident(*number).is_empty()).map(|(_, slot)| *slot).collect();
    let all: Vec<i64> = slots.iter().map(|(_, slot)| *slot).collect();

    // Once more, as two crontabs would: nothing is left to run, and nothing is sent again.
    let again = ask(&mut crew, "slot", "again", &all)?;
    let already = again.values().all(|answers| answers.keys().all(|word| word == "already"));
    told.must(already, || format!("a slot that had had its run was run again: {again:?}"));
    let answers = ask(&mut crew, "send", "", &all)?;
    for slot in &all {
        let expected = if unknown.contains(slot) { "unknown" } else { "stored" };
        let given = answers.get(slot).cloned().unwrap_or_default();
        told.must(given.keys().all(|word| word == expected), || format!("{}: {given:?}, not {expected}", key(*slot)));
    }

    // A person looks at the provider's book.
    let book = book(stage)?;
    for slot in &unknown {
        let has_happened = book.contains_key(&key(*slot));
        let is_resolved = engine.resolve_effect(&key(*slot), has_happened, has_happened.then_some("{\"accepted\": true}"))?;
        told.must(is_resolved, || format!("{} was not held for a person", key(*slot)));
    }
    ask(&mut crew, "send", "", &unknown)?;
    check(stage, &all, &unknown, &mut told)?;
    told.what = format!(
        "{SLOTS} slots by {} processes at once, {} killed while sending: one run a slot, one send a key; {} held for a person",
        stage.processes,
        unknown.len(),
        unknown.len()
    );
    Ok(told)
}

/// All processes run a slot at once; whoever gets it may be killed in the middle of its effect.
fn run_slot(stage: &Stage<'_>, crew: &mut Crew, slot: i64, accident: &str, told: &mut Told) -> Result<(), Broken> {
    let alive = crew.alive().len();
    crew.tell_all(&json!({ "do": "slot", "slot": slot, "stall": accident }));
    let (mut stalled, mut answers) = (None, Answers::new());
    crew.wait("all processes have an answer for the slot", PATIENCE, |said| {
        note(said, &mut answers);
        stalled = stalled.or(said.is("stalled").then_some(said.by));
        (answers.values().sum::<usize>() + usize::from(stalled.is_some()) == alive).then_some(())
    })?;
    let ran = answers.get("ran").copied().unwrap_or(0) + usize::from(stalled.is_some());
    told.must(ran == 1, || format!("slot {slot} was run {ran} times"));
    let Some(victim) = stalled else { return Ok(()) };
    crew.kill(victim);
    // Its leases run out, and whoever looks finds it so.
    let until = Instant::now() + PATIENCE;
    loop {
        crew.hear(Duration::from_millis(100), |_| None::<()>)?;
        stage.scratch.engine.recover()?;
        let run = stage.scratch.engine.run_of_slot(TASK, Timestamp(slot))?;
        let effect = stage.scratch.engine.effect(&key(slot))?;
        if run.is_some_and(|run| run.state == RunState::Lost) && effect.is_some_and(|e| e.state == EffectState::Unknown) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(Broken::now(format!("slot {slot}: its killed run was not found to be lost")));
        }
    }
}

/// Tells all processes the same for several slots at once, and collects what they answer.
fn ask(crew: &mut Crew, order: &str, stall: &str, slots: &[i64]) -> Result<HashMap<i64, Answers>, Broken> {
    let expected = crew.alive().len() * slots.len();
    for slot in slots {
        crew.tell_all(&json!({ "do": order, "slot": slot, "stall": stall }));
    }
    let (mut given, mut count) = (HashMap::new(), 0);
    crew.wait("all processes answer", PATIENCE * 2, |said| {
        let answers = given.entry(said.int("slot")).or_default();
        count += note(said, answers);
        (count >= expected).then_some(())
    })?;
    Ok(given)
}

/// Counts an answer under its word.
fn note(said: &Said, answers: &mut Answers) -> usize {
    let word = match said.text("event") {
        word @ ("ran" | "already" | "busy") => word,
        "answered" => said.text("once"),
        _ => return 0,
    };
    *answers.entry(word.to_owned()).or_default() += 1;
    1
}

/// The provider's book: how often each key was sent.
fn book(stage: &Stage<'_>) -> Result<HashMap<String, u64>, Broken> {
    let text = std::fs::read_to_string(&stage.orders.provider).map_err(|e| Broken::now(format!("the provider's book: {e}")))?;
    let mut sends = HashMap::new();
    text.lines().for_each(|key| *sends.entry(key.to_owned()).or_default() += 1);
    Ok(sends)
}

/// One row a slot, one send a key.
fn check(stage: &Stage<'_>, all: &[i64], unknown: &[i64], told: &mut Told) -> Result<(), Broken> {
    let sends = book(stage)?;
    told.sent_twice = sends.values().filter(|times| **times > 1).count() as u64;
    for slot in all {
        told.must(sends.contains_key(&key(*slot)), || format!("{} was never sent", key(*slot)));
        let effect = stage.scratch.engine.effect(&key(*slot))?.map(|effect| effect.state);
        told.must(effect == Some(EffectState::Succeeded), || format!("{} is {effect:?}", key(*slot)));
    }
    let rows = stage.scratch.engine.runs(&RunFilter { task: Some(TASK.to_owned()), limit: 10_000, ..RunFilter::default() })?;
    for slot in all {
        let of_slot: Vec<_> = rows.iter().filter(|row| row.slot.0 == *slot).map(|row| row.state.name()).collect();
        let expected = if unknown.contains(slot) { "lost" } else { "succeeded" };
        told.must(of_slot == [expected], || format!("slot {slot} has the rows {of_slot:?}, not one that is {expected}"));
    }
    told.must(rows.len() == all.len(), || format!("{} rows for {} slots", rows.len(), all.len()));
    Ok(())
}
