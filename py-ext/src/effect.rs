//! Effects: Python's functions are called between the steps of the core's `once`, and what they say is written down first.
//!
//! The loop has no logic of its own. The one thing to know: once `send` was called, whatever comes of it goes into the ledger
//! before anything else happens: a response without a JSON form is recorded as a success all the same, and an exception goes
//! on only after its record.

use crate::engine::Engine;
use crate::errors::{describe, invalid, is_not_sent, log, raise};
use crate::gate::{Held, enter};
use crate::job::Job;
use crate::results;
use crate::row::Row;
use crate::values::{given, span, text, whole, wrong_type};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use rowclaim::blocking::{self, OnceCall, OnceStep};
use rowclaim::{EffectFilter, EffectState, OnUnknown, OnceRequest, Sent};

static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ENCODE_RESPONSE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static UNENCODABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Argument<'a, 'py> = Option<&'a Bound<'py, PyAny>>;
type Object<'py> = PyResult<Bound<'py, PyAny>>;

/// An effect in the hands of the function that sends it or asks about it.
#[pyclass(module = "rowclaim", frozen)]
pub(crate) struct Effect {
    inner: blocking::Effect,
}

#[pymethods]
impl Effect {
    /// The key: hand it to the provider as its idempotency key.
    #[getter]
    fn key(&self) -> &str {
        self.inner.key()
    }

    /// Which try this is, from 1.
    #[getter]
    fn attempts(&self) -> i64 {
        self.inner.attempts()
    }

    /// For how many seconds the ledger surely holds it for this sender; 0.0 when it has ended.
    #[getter]
    fn valid_for(&self) -> f64 {
        self.inner.valid_for().as_secs_f64()
    }

    fn __repr__(&self) -> String {
        format!("<rowclaim.Effect {:?}, attempt {}>", self.inner.key(), self.inner.attempts())
    }
}

/// The arguments of a `once` call.
struct Once<'a, 'py> {
    key: &'a Bound<'py, PyAny>,
    request: &'a Bound<'py, PyAny>,
    send: &'a Bound<'py, PyAny>,
    ask: Argument<'a, 'py>,
    on_unknown: Argument<'a, 'py>,
    lease: Argument<'a, 'py>,
    wait: Argument<'a, 'py>,
}

impl<'py> Once<'_, 'py> {
    fn request(&self) -> PyResult<OnceRequest> {
        let py = self.key.py();
        let encoded = ENCODE.import(py, "rowclaim._payload", "encode")?.call1((self.request, "request"))?;
        let mut request = OnceRequest::new(text("key", self.key)?, text("request", &encoded)?);
        if let Some(policy) = given(self.on_unknown) {
            request.on_unknown = OnUnknown::parse(&text("on_unknown", policy)?).map_err(|error| raise(py, &error))?;
        }
        if let Some(lease) = given(self.lease) {
            request.lease = span("lease", lease)?;
        }
        if let Some(wait) = given(self.wait) {
            request.wait = span("wait", wait)?;
        }
        if !self.send.is_callable() {
            return Err(invalid(py, "send cannot be called"));
        }
        match (given(self.ask), request.on_unknown) {
            (None, OnUnknown::Ask) => Err(invalid(py, "on_unknown=\"ask\" needs ask, the function that asks the provider")),
            (Some(_), OnUnknown::Hold | OnUnknown::Retry) => Err(invalid(py, "ask is only called with on_unknown=\"ask\"")),
            (Some(ask), OnUnknown::Ask) if !ask.is_callable() => Err(invalid(py, "ask cannot be called")),
            _ => Ok(request),
        }
    }

    /// Has the effect happen, by the steps that the core says.
    fn run(&self, py: Python<'py>, begin: impl FnOnce(OnceRequest) -> rowclaim::Result<OnceCall> + Send) -> Object<'py> {
        let request = self.request()?;
        let mut held = Held::new(enter(py, || begin(request))?);
        loop {
            let call = held.get_mut(py)?;
            let (function, effect, is_asked) = match enter(py, || call.next_step())? {
                OnceStep::Settled(once) => {
                    return results::receipt(py, &once.receipt().map_err(|error| raise(py, &error))?);
                }
                OnceStep::Send(effect) => (Some(self.send), effect, false),
                OnceStep::Ask(effect) => (given(self.ask), effect, true),
            };
            let function = function.ok_or_else(|| invalid(py, "there is nobody to ask"))?;
            let key = effect.key().to_owned();
            let told = Told::of(py, &key, function.call1((Effect { inner: effect },)))?;
            let Told { sent, error, is_recorded } = told;
            // Then it is sent, and the exception was an answer.
            let goes_on = is_asked && matches!(sent, Sent::Failed(_));
            let answered = enter(py, || call.answer(sent));
            match (answered, error.filter(|_| !goes_on)) {
                (Ok(()), None) => {}
                (Ok(()), Some(error)) => return Err(error),
                (Err(failure), Some(error)) if !is_recorded && failure.is_instance_of::<PyException>(py) => {
                    log(py, &format!("what came of effect {key} could not be written down"), &failure)?;
                    return Err(error);
                }
                (Err(failure), _) => return Err(failure),
            }
        }
    }
}

/// What a function of the caller came to: the word for the ledger, and what is raised when that is written.
struct Told {
    sent: Sent,
    error: Option<PyErr>,
    /// The error says that the success was written down.
    is_recorded: bool,
}

impl Told {
    /// # Errors
    /// None that the functions can cause.
    fn of(py: Python<'_>, key: &str, returned: PyResult<Bound<'_, PyAny>>) -> PyResult<Self> {
        let error = match returned {
            Ok(response) => return Told::happened(py, key, &response),
            Err(error) => error,
        };
        let is_not_sent = is_not_sent(py, &error)?;
        // An exception that cannot say what it is: what stopped it matters more, after the record.
        let (text, error) = match describe(py, error.value(py)) {
            Ok(text) => (text, error),
            Err(failure) => (error.get_type(py).name()?.to_string(), failure),
        };
        let sent = if is_not_sent { Sent::Failed(text) } else { Sent::Unknown(text) };
        Ok(Told { sent, error: Some(error), is_recorded: false })
    }

    fn happened(py: Python<'_>, key: &str, response: &Bound<'_, PyAny>) -> PyResult<Self> {
        let why = match encode_response(response) {
            Ok(text) => return Ok(Told { sent: Sent::Succeeded(text), error: None, is_recorded: false }),
            Err(why) => why,
        };
        let in_its_place = UNENCODABLE.import(py, "rowclaim._payload", "unencodable")?.call1((response,))?;
        let sent = Sent::Succeeded(in_its_place.extract()?);
        if !why.is_instance_of::<PyException>(py) {
            return Ok(Told { sent, error: Some(why), is_recorded: true });
        }
        let message = format!("effect {key} has happened and is recorded as succeeded, but its response is not kept: {why}");
        let error = invalid(py, message);
        error.set_cause(py, Some(why));
        Ok(Told { sent, error: Some(error), is_recorded: true })
    }
}

fn encode_response(response: &Bound<'_, PyAny>) -> PyResult<String> {
    let encoded = ENCODE_RESPONSE.import(response.py(), "rowclaim._payload", "encode_response")?.call1((response,))?;
    text("response", &encoded)
}

#[pymethods]
impl Engine {
    /// Has an effect outside of the database happen once: calls ``send(effect)`` unless the ledger says that it has
    /// happened, and records what came of it.
    ///
    /// ``key``: 1 to 191 bytes; the same key is the same effect, compared byte for byte. ``request``: anything
    /// ``json.dumps`` takes; only its digest is kept, and another request under the same key is refused. What ``send``
    /// returns is the response, recorded as JSON (up to 1 MB, None allowed) and given to later calls. When ``send`` raises
    /// ``NotSent`` it surely has not happened and a later call sends it again; after any other exception, and when the
    /// process dies in between, nobody knows. The exception is raised when that is recorded.
    ///
    /// ``on_unknown`` says what is done then: ``"hold"`` (the default) leaves it to a person, who calls
    /// ``resolve_effect``; ``"retry"`` sends it again under the same key, for providers that know the key; ``"ask"`` calls
    /// ``ask(effect)`` first, which returns the response when it has happened, raises ``NotSent`` when it has not (it is
    /// sent then), and anything else when the provider cannot say. ``lease``: a sender that is silent for longer is taken
    /// for lost (from 1 second; 60 when None; renewed in the background). ``wait``: for so long another sender of the same
    /// key is waited for. ``completes``: a job or row that is completed in the same transaction.
    ///
    /// Raises InvalidError for another request under the key, and when the response has no JSON form (it is recorded as
    /// succeeded then); BusyError while another process sends it; UnknownError while nobody knows whether it has happened;
    /// LostError when a person has decided meanwhile; UnavailableError, also when it was sent and could not be recorded
    /// (that is tried further in the background).
    #[pyo3(signature = (key, request, send, *, ask=None, on_unknown=None, lease=None, wait=None, completes=None))]
    #[allow(clippy::too_many_arguments)]
    fn once<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        request: &Bound<'py, PyAny>,
        send: &Bound<'py, PyAny>,
        ask: Argument<'_, 'py>,
        on_unknown: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        wait: Argument<'_, 'py>,
        completes: Argument<'_, 'py>,
    ) -> Object<'py> {
        let engine = self.open(py)?;
        let once = Once { key, request, send, ask, on_unknown, lease, wait };
        let Some(completes) = given(completes) else { return once.run(py, |request| engine.begin_once(request)) };
        if let Ok(job) = completes.cast::<Job>() {
            let job = job.get().inner(py)?;
            return once.run(py, |request| engine.begin_once(request)?.completing(job));
        }
        let row = completes.cast::<Row>().map_err(|_| wrong_type("completes", "a Job or Row", completes))?;
        let row = row.get().inner(py)?;
        once.run(py, |request| engine.begin_once(request)?.completing(row))
    }

    /// An effect as it stands in the ledger, or None.
    fn effect<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let engine = self.open(py)?;
        let key = text("key", key)?;
        enter(py, || engine.effect(&key))?.map(|effect| results::effect(py, &effect)).transpose()
    }

    /// Effects as they stand in the ledger, newest first.
    ///
    /// ``state``: pending, sending, succeeded, failed or unknown. ``before``: only smaller ids, for the next page.
    /// ``limit``: 100 when None.
    #[pyo3(signature = (*, state=None, before=None, limit=None))]
    fn effects<'py>(
        &self,
        py: Python<'py>,
        state: Argument<'_, 'py>,
        before: Argument<'_, 'py>,
        limit: Argument<'_, 'py>,
    ) -> PyResult<Bound<'py, PyList>> {
        let engine = self.open(py)?;
        let mut filter = EffectFilter::default();
        let parse = |state| EffectState::parse(&text("state", state)?).map_err(|error| raise(py, &error));
        filter.state = given(state).map(parse).transpose()?;
        filter.before = given(before).map(|before| whole("before", before)).transpose()?;
        if let Some(limit) = given(limit) {
            filter.limit = whole("limit", limit)?;
        }
        let effects = enter(py, || engine.effects(&filter))?;
        results::list(py, &effects, results::effect)
    }

    /// A person's word on an effect of which nobody knows: it has happened, with its ``response`` where that is known, or
    /// it has not, and the next ``once`` sends it. False when it does not stand so any more.
    ///
    /// Raises NotFoundError.
    #[pyo3(signature = (key, happened, response=None))]
    fn resolve_effect(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        happened: bool,
        response: Argument<'_, '_>,
    ) -> PyResult<bool> {
        let engine = self.open(py)?;
        let key = text("key", key)?;
        let response = given(response).map(encode_response).transpose()?;
        enter(py, || engine.resolve_effect(&key, happened, response.as_deref()))
    }
}

#[pymethods]
impl Job {
    /// Has an effect happen once, as ``Engine.once``, and completes this job in the transaction that records its success:
    /// neither is there without the other. The receipt's ``completed`` is False when the job was lost meanwhile.
    ///
    /// When the effect has happened before, the job is completed without sending.
    #[pyo3(signature = (key, request, send, *, ask=None, on_unknown=None, lease=None, wait=None))]
    #[allow(clippy::too_many_arguments)]
    fn once<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        request: &Bound<'py, PyAny>,
        send: &Bound<'py, PyAny>,
        ask: Argument<'_, 'py>,
        on_unknown: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        wait: Argument<'_, 'py>,
    ) -> Object<'py> {
        let job = self.inner(py)?;
        Once { key, request, send, ask, on_unknown, lease, wait }.run(py, |request| job.begin_once(request))
    }
}

#[pymethods]
impl Row {
    /// Has an effect happen once, as ``Engine.once``, and completes this row in the transaction that records its success:
    /// neither is there without the other. The receipt's ``completed`` is False when the row was lost meanwhile.
    ///
    /// When the effect has happened before, the row is completed without sending. Raises InvalidError for rows that recur.
    #[pyo3(signature = (key, request, send, *, ask=None, on_unknown=None, lease=None, wait=None))]
    #[allow(clippy::too_many_arguments)]
    fn once<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        request: &Bound<'py, PyAny>,
        send: &Bound<'py, PyAny>,
        ask: Argument<'_, 'py>,
        on_unknown: Argument<'_, 'py>,
        lease: Argument<'_, 'py>,
        wait: Argument<'_, 'py>,
    ) -> Object<'py> {
        let row = self.inner(py)?;
        Once { key, request, send, ask, on_unknown, lease, wait }.run(py, |request| row.begin_once(request))
    }
}
