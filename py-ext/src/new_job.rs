//! The arguments of a creation become a `NewJob`; what the caller left out stays as the core has it.

use crate::errors::{invalid, raise};
use crate::values::{given, instant, span, text, whole};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping, PyString};
use rowclaim::{NewJob, Unique};

static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// What can be said about a job besides its queue and payload.
#[derive(Default)]
pub(crate) struct Options<'a, 'py> {
    pub key: Argument<'a, 'py>,
    pub unique: Argument<'a, 'py>,
    pub delay: Argument<'a, 'py>,
    pub run_at: Argument<'a, 'py>,
    pub priority: Argument<'a, 'py>,
    pub max_attempts: Argument<'a, 'py>,
}

/// The job that the arguments describe.
pub(crate) fn new_job(queue: &str, payload: &Bound<'_, PyAny>, options: &Options<'_, '_>) -> PyResult<NewJob> {
    let mut job = NewJob::new(queue, encode(payload)?);
    if let Some(key) = given(options.key) {
        job.key = Some(text("key", key)?);
    }
    if let Some(value) = given(options.unique) {
        job.unique = unique(value)?;
    }
    if let Some(delay) = given(options.delay) {
        job.delay = span("delay", delay)?;
    }
    if let Some(run_at) = given(options.run_at) {
        job.run_at = Some(instant("run_at", run_at)?);
    }
    if let Some(priority) = given(options.priority) {
        job.priority = whole("priority", priority)?;
    }
    if let Some(max_attempts) = given(options.max_attempts) {
        job.max_attempts = Some(whole("max_attempts", max_attempts)?);
    }
    Ok(job)
}

/// The jobs of `create_many`: mappings with `payload` and the names of [`Options`].
pub(crate) fn new_jobs(queue: &str, jobs: &Bound<'_, PyAny>) -> PyResult<Vec<NewJob>> {
    let mut made = Vec::new();
    for (index, job) in jobs.try_iter()?.enumerate() {
        let job = job?;
        let fields = match job.cast::<PyDict>() {
            Ok(fields) => fields.clone(),
            Err(_) => {
                let fields = PyDict::new(job.py());
                fields.update(job.cast::<PyMapping>()?)?;
                fields
            }
        };
        made.push(from_mapping(queue, index, &fields)?);
    }
    Ok(made)
}

fn from_mapping(queue: &str, index: usize, fields: &Bound<'_, PyDict>) -> PyResult<NewJob> {
    let py = fields.py();
    let mut payload = None;
    let [mut key, mut unique, mut delay, mut run_at, mut priority, mut max_attempts] = [const { None }; 6];
    for (name, value) in fields.iter() {
        let place = match text("name", &name)?.as_str() {
            "payload" => &mut payload,
            "key" => &mut key,
            "unique" => &mut unique,
            "delay" => &mut delay,
            "run_at" => &mut run_at,
            "priority" => &mut priority,
            "max_attempts" => &mut max_attempts,
            other => return Err(invalid(py, format!("job {index} has the unknown field {other}"))),
        };
        *place = Some(value);
    }
    let payload = payload.ok_or_else(|| invalid(py, format!("job {index} has no payload")))?;
    let options = Options {
        key: key.as_ref(),
        unique: unique.as_ref(),
        delay: delay.as_ref(),
        run_at: run_at.as_ref(),
        priority: priority.as_ref(),
        max_attempts: max_attempts.as_ref(),
    };
    new_job(queue, &payload, &options)
}

fn encode(payload: &Bound<'_, PyAny>) -> PyResult<String> {
    let encoded = ENCODE.import(payload.py(), "rowclaim._payload", "encode")?.call1((payload,))?;
    text("payload", &encoded)
}

fn unique(value: &Bound<'_, PyAny>) -> PyResult<Unique> {
    if !value.is_instance_of::<PyString>() {
        return span("unique", value).map(Unique::For);
    }
    Unique::parse(&text("unique", value)?).map_err(|error| raise(value.py(), &error))
}
