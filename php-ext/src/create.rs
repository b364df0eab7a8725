//! What a creation is told, one job or many.

use crate::arguments::{Int, Seconds, Text, instant, typed, unique, wrong_type};
use crate::exceptions::{invalid, pending};
use crate::values::to_json;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{Iterable, ZendHashTable, Zval};
use ext_php_rs::zend::ExecutorGlobals;
use rowclaim::{ErrorKind, NewJob};

/// What a caller says about a job beside its queue and payload.
#[derive(Default)]
pub struct JobArguments<'a> {
    /// `key`
    pub key: Option<Text>,
    /// `unique`
    pub unique: Option<&'a Zval>,
    /// `delay`
    pub delay: Option<Seconds>,
    /// `runAt`
    pub run_at: Option<&'a Zval>,
    /// `priority`
    pub priority: Option<Int>,
    /// `maxAttempts`
    pub max_attempts: Option<Int>,
}

/// The job that the arguments describe.
///
/// # Errors
/// `InvalidException`, `TypeError`; what a `jsonSerialize` throws.
pub fn new_job(queue: &str, payload: &Zval, arguments: JobArguments) -> PhpResult<NewJob> {
    let mut job = NewJob::new(queue, to_json(ErrorKind::Invalid, "payload", payload)?);
    if let Some(key) = arguments.key {
        job = job.key(key.utf8("key")?);
    }
    if let Some(value) = arguments.unique.filter(|value| !value.dereference().is_null()) {
        job.unique = unique(value)?;
    }
    if let Some(delay) = arguments.delay {
        job.delay = delay.span("delay")?;
    }
    if let Some(at) = arguments.run_at.filter(|at| !at.dereference().is_null()) {
        job.run_at = Some(instant("runAt", at)?);
    }
    if let Some(priority) = arguments.priority {
        job.priority = priority.priority()?;
    }
    if let Some(attempts) = arguments.max_attempts {
        job.max_attempts = Some(attempts.0);
    }
    Ok(job)
}

/// The jobs of a list or a generator; each is an array.
///
/// # Errors
/// As [`new_job`]; what the generator throws.
pub fn new_jobs(queue: &str, mut items: Iterable) -> PhpResult<Vec<NewJob>> {
    let mut jobs = Vec::new();
    let Some(entries) = items.iter() else {
        return if ExecutorGlobals::has_exception() { Err(pending()) } else { invalid("jobs cannot be iterated") };
    };
    for (_, item) in entries {
        if ExecutorGlobals::has_exception() {
            break;
        }
        let name = format!("job {}", jobs.len());
        let Some(fields) = item.dereference().array() else { return wrong_type(&name, "array", &item) };
        jobs.push(job_of_array(queue, &name, fields)?);
    }
    if ExecutorGlobals::has_exception() { Err(pending()) } else { Ok(jobs) }
}

fn job_of_array(queue: &str, name: &str, fields: &ZendHashTable) -> PhpResult<NewJob> {
    let mut arguments = JobArguments::default();
    let mut payload = None;
    let mut entries = fields.iter();
    while let Some((key, value)) = entries.next_zval() {
        let value = value.dereference();
        let key = key.zend_str().map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
        let field = |key: &str| format!("{key} of {name}");
        match key.as_deref() {
            Some("payload") => payload = Some(value),
            Some("key" | "unique" | "delay" | "runAt" | "priority" | "maxAttempts") if value.is_null() => {}
            Some("key") => arguments.key = Some(typed(&field("key"), "?string", value)?),
            Some("unique") => arguments.unique = Some(value),
            Some("delay") => arguments.delay = Some(typed(&field("delay"), "?float", value)?),
            Some("runAt") => arguments.run_at = Some(value),
            Some("priority") => arguments.priority = Some(typed(&field("priority"), "?int", value)?),
            Some("maxAttempts") => arguments.max_attempts = Some(typed(&field("maxAttempts"), "?int", value)?),
            Some(other) => {
                let known = "payload, key, unique, delay, runAt, priority, maxAttempts";
                return invalid(format!("{name} has the unknown field {other}; known are {known}"));
            }
            None => return invalid(format!("{name} must be an array with names")),
        }
    }
    match payload {
        Some(payload) => new_job(queue, payload, arguments),
        None => invalid(format!("{name} has no payload")),
    }
}
