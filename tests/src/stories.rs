//! The runner of `scenarios/*.json`; what a step means is in `scenarios/README.md`.

use crate::Db;
use rowclaim::blocking::{Claim, Handled, Job, Lease, Leased, OnceStep, RunStart, WorkRequest};
use rowclaim::{
    ClaimRequest, Error, Finish, GuardedWrite, JobState, LeaseFilter, LeaseRequest, NewJob, OnUnknown, Once, OnceRequest,
    Outcome, RunFilter, RunRequest, RunState, Sent, SkipReason, ThrottleRequest, Timestamp, Unique, span_from_seconds,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Every story's file name and text.
pub fn all() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    };
    paths.into_iter().map(read).collect()
}

/// The story's options as part of a DSN.
pub fn options(story: &Value) -> String {
    let pairs = story["options"].as_object().map(|options| options.iter());
    let text: Vec<String> =
        pairs.into_iter().flatten().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
    text.join("&")
}

#[derive(Default)]
struct Cast {
    jobs: HashMap<String, i64>,
    claims: HashMap<String, (Claim, Vec<Job>)>,
    leases: HashMap<String, Lease>,
}

/// Takes every step of a story and compares its answers.
pub fn run(db: &Db, name: &str, story: &Value) {
    steps(db, &mut Cast::default(), name, &story["steps"]);
    for table in story["tables"].as_array().into_iter().flatten() {
        db.raw().run(&format!("DROP TABLE {}{}", db.prefix, table.as_str().unwrap()));
    }
}

fn steps(db: &Db, cast: &mut Cast, name: &str, steps: &Value) {
    for (number, step) in steps.as_array().unwrap().iter().enumerate() {
        let place = format!("{name}, step {number}: {step}");
        // The `error` of a `fail` and of a `reject` is its text.
        let expected_kind = step.get("error").filter(|_| step["do"] != "fail" && step["do"] != "reject");
        match (take(db, cast, &place, step), expected_kind) {
            (Ok(answer), None) => compare(&place, step.get("expect"), &answer),
            (Err(error), Some(kind)) => assert_eq!(error.kind().name(), kind.as_str().unwrap(), "{place}: {error}"),
            (Ok(answer), Some(_)) => panic!("{place}: no error but {answer}"),
            (Err(error), None) => panic!("{place}: {error}"),
        }
    }
}

fn compare(place: &str, expected: Option<&Value>, answer: &Value) {
    match expected {
        None => {}
        Some(Value::Object(fields)) => {
            for (field, value) in fields {
                assert_eq!(value, &answer[field], "{place}: field {field} of {answer}");
            }
        }
        Some(value) => assert_eq!(value, answer, "{place}"),
    }
}

fn take(db: &Db, cast: &mut Cast, place: &str, step: &Value) -> Result<Value, Error> {
    let engine = &db.engine;
    match step["do"].as_str().unwrap() {
        "create" => {
            let created = engine.create(&new_job(step, &step["queue"])?)?;
            if let Some(name) = step["as"].as_str() {
                cast.jobs.insert(name.to_owned(), created.id);
            }
            let same = step["expect"]["same_as"].as_str().filter(|name| cast.jobs.get(*name) == Some(&created.id));
            Ok(json!({ "exists": created.exists, "state": created.state.name(), "same_as": same }))
        }
        "create_many" => {
            let jobs: Vec<NewJob> =
                step["jobs"].as_array().unwrap().iter().map(|job| new_job(job, &step["queue"])).collect::<Result<_, _>>()?;
            let exists: Vec<bool> = engine.create_many(&jobs)?.iter().map(|created| created.exists).collect();
            Ok(json!({ "exists": exists }))
        }
        "claim" => claim(db, cast, step),
        "lease" => lease(db, cast, step),
        "renew" if step.get("lease").is_some() => Ok(json!(held(cast, step).renew()?)),
        "release" if step.get("lease").is_some() => Ok(json!(held(cast, step).release()?)),
        "lost" => Ok(json!(held(cast, step).is_lost())),
        "leases" => {
            let leases = engine
                .leases(&step["limit"].as_u64().map_or_else(LeaseFilter::default, |n| LeaseFilter { limit: n as usize }))?;
            let names =
                |held: bool| leases.iter().filter(|one| one.is_held == held).map(|one| one.name.clone()).collect::<Vec<_>>();
            Ok(json!({ "held": names(true), "free": names(false) }))
        }
        "throttle" => {
            let mut request = ThrottleRequest::new(step["name"].as_str().unwrap(), step["limit"].as_i64().unwrap());
            let span = |name: &str| step[name].as_f64().map(|seconds| span_from_seconds(name, seconds)).transpose();
            request.per = span("per")?.unwrap_or(request.per);
            request.wait = span("wait")?.unwrap_or(request.wait);
            Ok(json!(engine.throttle(&request)?))
        }
        "guard" => guard(db, cast, step),
        "once" => once(db, cast, step),
        "effect" => {
            let effect = engine.effect(step["key"].as_str().unwrap())?.unwrap();
            let response = decoded(effect.response.as_deref());
            Ok(json!({ "state": effect.state.name(), "attempts": effect.attempts, "response": response }))
        }
        "resolve_effect" => {
            let response = step.get("response").map(Value::to_string);
            let (key, happened) = (step["key"].as_str().unwrap(), step["happened"].as_bool().unwrap());
            Ok(json!(engine.resolve_effect(key, happened, response.as_deref())?))
        }
        "run_slot" => run_slot(db, cast, place, step),
        "runs" => {
            let state = step["state"].as_str().map(RunState::parse).transpose()?;
            let task = step["task"].as_str().map(str::to_owned);
            let runs = engine.runs(&RunFilter { task, state, ..RunFilter::default() })?;
            let states: Vec<_> = runs.iter().map(|run| run.state.name()).collect();
            let reasons: Vec<_> = runs.iter().map(|run| run.reason.map(SkipReason::name)).collect();
            Ok(json!({ "states": states, "reasons": reasons }))
        }
        "sql" => sql(db, step["statement"].as_str().unwrap()),
        verb @ ("complete" | "fail" | "reject" | "release") => {
            let job = &cast.claims[step["claim"].as_str().unwrap()].1[step["index"].as_u64().unwrap() as usize];
            let delay = step["delay"].as_f64().map(Duration::from_secs_f64);
            let answer = match verb {
                "complete" => job.complete()?,
                "fail" => job.fail(step["error"].as_str().unwrap(), delay)?,
                "reject" => job.reject(step["error"].as_str().unwrap())?,
                _ => job.release(delay.unwrap_or_default())?,
            };
            Ok(json!(answer == Finish::Accepted))
        }
        "renew" => Ok(json!(cast.claims[step["claim"].as_str().unwrap()].0.renew()?)),
        "recover" => {
            let recovered = engine.recover()?;
            Ok(json!({ "claims": recovered.claims, "returned": recovered.returned, "dead": recovered.dead }))
        }
        verb @ ("retry" | "cancel") => {
            let id = cast.jobs[step["job"].as_str().unwrap()];
            let force = step["force"].as_bool().unwrap_or(false);
            Ok(json!(if verb == "retry" { engine.retry(id, force)? } else { engine.cancel(id, force)? }))
        }
        "job" => {
            let job = engine.job(cast.jobs[step["job"].as_str().unwrap()])?.unwrap();
            Ok(json!({
                "state": job.state.name(), "attempts": job.attempts, "max_attempts": job.max_attempts, "fence": job.fence,
                "lost": job.lost, "priority": job.priority, "key": job.key, "last_error": job.last_error, "payload": job.payload,
            }))
        }
        "attempts" => {
            let attempts = engine.attempts(cast.jobs[step["job"].as_str().unwrap()])?;
            Ok(json!({ "outcomes": attempts.iter().map(|attempt| attempt.outcome.clone()).collect::<Vec<_>>() }))
        }
        "wait" => {
            std::thread::sleep(Duration::from_secs_f64(step["seconds"].as_f64().unwrap()));
            Ok(Value::Null)
        }
        "work" => work(db, step),
        other => panic!("no step is called {other}"),
    }
}

fn new_job(step: &Value, queue: &Value) -> Result<NewJob, Error> {
    let mut job = NewJob::new(queue.as_str().unwrap(), step["payload"].to_string());
    job.key = step["key"].as_str().map(str::to_owned);
    job.unique = match &step["unique"] {
        Value::Null => Unique::Forever,
        Value::String(name) => Unique::parse(name)?,
        seconds => Unique::For(Duration::from_secs_f64(seconds.as_f64().unwrap())),
    };
    job.delay = rowclaim::span_from_seconds("delay", step["delay"].as_f64().unwrap_or(0.0))?;
    job.run_at = step["run_at"].as_f64().map(Timestamp::from_unix_seconds).transpose()?;
    job.priority = step["priority"].as_i64().unwrap_or(0) as i16;
    job.max_attempts = step["max_attempts"].as_i64();
    Ok(job)
}

fn claim(db: &Db, cast: &mut Cast, step: &Value) -> Result<Value, Error> {
    let queues = match &step["queue"] {
        Value::Array(names) => names.iter().map(|name| name.as_str().unwrap().to_owned()).collect(),
        name => vec![name.as_str().unwrap().to_owned()],
    };
    let mut request = ClaimRequest::new("");
    request.queues = queues;
    request.limit = step["limit"].as_u64().map_or(request.limit, |limit| limit as usize);
    request.priority = step["priority"].as_i64().map(|priority| priority as i16);
    request.lease = step["lease"].as_f64().map(|s| rowclaim::span_from_seconds("lease", s)).transpose()?;
    request.max_run = step["max_run"].as_f64().map(|s| rowclaim::span_from_seconds("max_run", s)).transpose()?;
    request.partition = step["partition"].as_array().map(|pair| (pair[0].as_i64().unwrap(), pair[1].as_i64().unwrap()));
    let claim = db.engine.claim(&request)?;
    let mut jobs = Vec::new();
    while let Some(job) = claim.next_job()? {
        jobs.push(job);
    }
    let answer = json!({
        "count": jobs.len(),
        "payloads": jobs.iter().map(|job| serde_json::from_str(&job.payload).unwrap()).collect::<Vec<Value>>(),
        "keys": jobs.iter().map(|job| job.key.clone()).collect::<Vec<_>>(),
        "attempts": jobs.iter().map(|job| job.attempts).collect::<Vec<_>>(),
        "fences": jobs.iter().map(|job| job.fence).collect::<Vec<_>>(),
    });
    if let Some(name) = step["as"].as_str() {
        cast.claims.insert(name.to_owned(), (claim, jobs));
    }
    Ok(answer)
}

fn lease(db: &Db, cast: &mut Cast, step: &Value) -> Result<Value, Error> {
    let span = |name: &str| rowclaim::span_from_seconds(name, step[name].as_f64().unwrap_or(0.0));
    let request = LeaseRequest { wait: span("wait")?, ..LeaseRequest::new(step["name"].as_str().unwrap(), span("lease")?) };
    let Leased::Acquired(lease) = db.engine.lease(&request)? else { return Ok(json!({ "acquired": false })) };
    let above = step["expect"]["above"].as_str().filter(|name| cast.leases[*name].fence() < lease.fence());
    let answer = json!({ "acquired": true, "above": above });
    cast.leases.insert(step["as"].as_str().unwrap_or_default().to_owned(), lease);
    Ok(answer)
}

fn held<'a>(cast: &'a Cast, step: &Value) -> &'a Lease {
    &cast.leases[step["lease"].as_str().unwrap()]
}

fn guard(db: &Db, cast: &Cast, step: &Value) -> Result<Value, Error> {
    let columns = |name: &str| {
        let value = |value: &Value| match value {
            Value::Null => rowclaim::Value::Null,
            Value::String(text) => rowclaim::Value::Text(text.clone()),
            number => rowclaim::Value::Int(number.as_i64().unwrap()),
        };
        step[name].as_object().unwrap().iter().map(|(column, wanted)| (column.clone(), value(wanted))).collect()
    };
    let write = GuardedWrite {
        table: format!("{}{}", db.prefix, step["table"].as_str().unwrap()),
        key: columns("key"),
        set: columns("set"),
        fence_column: step["fence_column"].as_str().unwrap_or("fence").to_owned(),
        fence: step["fence"].as_i64().unwrap_or(0),
    };
    let answer = match (step["lease"].as_str(), step["claim"].as_str()) {
        (Some(lease), _) => cast.leases[lease].guard(&write)?,
        (_, Some(claim)) => cast.claims[claim].1[step["index"].as_u64().unwrap() as usize].guard(&write)?,
        _ => db.engine.guard(&write)?,
    };
    Ok(json!(answer))
}

fn decoded(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// What a function of an effect does.
fn sent(what: &Value) -> (Sent, Option<String>) {
    let (word, told) = what.as_object().expect("it must not be sent").iter().next().unwrap();
    let text = told.as_str().unwrap_or_default().to_owned();
    match word.as_str() {
        "respond" => (Sent::Succeeded(told.to_string()), None),
        "not_sent" => (Sent::Failed(text.clone()), Some(text)),
        _ => (Sent::Unknown(text.clone()), Some(text)),
    }
}

fn once(db: &Db, cast: &Cast, step: &Value) -> Result<Value, Error> {
    let mut request = OnceRequest::new(step["key"].as_str().unwrap(), step["request"].to_string());
    if let Some(policy) = step["on_unknown"].as_str() {
        request.on_unknown = OnUnknown::parse(policy)?;
    }
    if let Some(lease) = step["lease"].as_f64() {
        request.lease = rowclaim::span_from_seconds("lease", lease)?;
    }
    let mut call = match step["claim"].as_str() {
        Some(claim) => cast.claims[claim].1[step["index"].as_u64().unwrap() as usize].begin_once(request)?,
        None => db.engine.begin_once(request)?,
    };
    let mut raised = None;
    loop {
        let what = match call.next_step()? {
            OnceStep::Send(_) => &step["send"],
            OnceStep::Ask(_) => &step["ask"],
            OnceStep::Settled(Once::Done(receipt)) => {
                let response = decoded(receipt.response.as_deref());
                return Ok(json!({
                    "fresh": receipt.is_fresh, "attempts": receipt.attempts, "completed": receipt.is_completed, "response": response,
                }));
            }
            OnceStep::Settled(once) => match raised {
                Some(text) => return Ok(json!({ "raised": text })),
                None => return Err(once.receipt().unwrap_err()),
            },
        };
        let sent = sent(what);
        raised = sent.1;
        call.answer(sent.0)?;
    }
}

fn run_slot(db: &Db, cast: &mut Cast, place: &str, step: &Value) -> Result<Value, Error> {
    let slot = Timestamp::from_rfc3339("slot", step["slot"].as_str().unwrap())?;
    let mut request = RunRequest::new(step["task"].as_str().unwrap(), slot);
    if let Some(lease) = step["lease"].as_f64() {
        request.lease = rowclaim::span_from_seconds("lease", lease)?;
    }
    request.max_run = step["max_run"].as_f64().map(|s| rowclaim::span_from_seconds("max_run", s)).transpose()?;
    request.is_manual = step["manual"].as_bool().unwrap_or(false);
    let (ran, record) = match db.engine.run_slot(&request)? {
        RunStart::Run(run) => {
            if let Some(inside) = step.get("inside") {
                steps(db, cast, place, inside);
            }
            if let Some(text) = step["raise"].as_str() {
                run.fail(text)?;
                return Ok(json!({ "ran": true, "raised": text }));
            }
            run.succeed()?;
            (true, run.record()?)
        }
        RunStart::Already(record) | RunStart::Busy(Some(record)) => (false, record),
        RunStart::Busy(None) => panic!("{place}: busy without a record"),
    };
    Ok(json!({
        "ran": ran, "state": record.state.name(), "reason": record.reason.map(SkipReason::name), "rerun": record.rerun,
        "manual": record.is_manual,
    }))
}

/// `{name}` is a table with the story's prefix.
fn sql(db: &Db, statement: &str) -> Result<Value, Error> {
    let statement = statement.replace('{', &db.prefix).replace('}', "");
    if !statement.starts_with("SELECT") {
        db.raw().run(&statement);
        return Ok(Value::Null);
    }
    Ok(json!(db.number(&statement)))
}

fn work(db: &Db, step: &Value) -> Result<Value, Error> {
    let outcomes: Vec<&str> = step["outcomes"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut request = WorkRequest::new(ClaimRequest::new(step["queue"].as_str().unwrap()));
    request.claim.limit = step["limit"].as_u64().map_or(request.claim.limit, |limit| limit as usize);
    request.until_empty = true;
    let mut turn = 0;
    let summary = db.engine.work(&request, |_| {
        turn += 1;
        Handled::As(match outcomes[(turn - 1) % outcomes.len()] {
            "complete" => Outcome::Complete,
            "fail" => Outcome::Fail { error: "boom".to_owned(), delay: None },
            "reject" => Outcome::Reject { error: "boom".to_owned() },
            _ => Outcome::Release { delay: Duration::from_secs(60) },
        })
    })?;
    Ok(json!({
        "claimed": summary.claimed, "completed": summary.completed, "failed": summary.failed,
        "released": summary.released, "lost": summary.lost,
    }))
}

/// Every state by name, so that a story cannot expect one that does not exist.
pub fn states() -> Vec<&'static str> {
    JobState::ALL.iter().map(|state| state.name()).collect()
}
