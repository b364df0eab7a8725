//! An effect on its way: the core says what is next, the user's functions are called, what they come to is handed back.
//!
//! The outcome is written before anything goes on: an exception of a function waits until then, also `exit()` and fatal
//! errors. While one is pending no signal handler runs, so nothing cuts the writing.

use crate::arguments::{Seconds, Text, wrong_type};
use crate::effect::Effect;
use crate::exceptions::{exception, invalid};
use crate::handlers::{Handler, handler_of};
use crate::job::Job;
use crate::process::{Called, call_for, gate, is_leaving};
use crate::receipt::Receipt;
use crate::row::Row;
use crate::thrown::Thrown;
use crate::values::{json_or_reason, to_json, type_name};
use ext_php_rs::convert::IntoZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendClassObject, Zval};
use rowclaim::blocking::{Engine, OnceCall, OnceStep};
use rowclaim::{Error, ErrorKind, OnUnknown, OnceRequest, Sent};

/// What a caller says about an effect.
pub struct OnceArguments<'a> {
    /// `key`
    pub key: Text,
    /// `request`
    pub request: &'a Zval,
    /// `send`
    pub send: &'a Zval,
    /// `ask`
    pub ask: Option<&'a Zval>,
    /// `onUnknown`
    pub on_unknown: Option<Text>,
    /// `lease`
    pub lease: Option<Seconds>,
    /// `wait`
    pub wait: Option<Seconds>,
}

/// The user's functions.
struct Functions {
    send: Handler,
    ask: Option<Handler>,
}

fn given(argument: Option<&Zval>) -> Option<&Zval> {
    argument.map(Zval::dereference).filter(|argument| !argument.is_null())
}

impl OnceArguments<'_> {
    fn read(self) -> PhpResult<(OnceRequest, Functions)> {
        let json = to_json(ErrorKind::Invalid, "request", self.request)?;
        let mut request = OnceRequest::new(self.key.utf8("key")?, json);
        if let Some(policy) = self.on_unknown {
            request.on_unknown = OnUnknown::parse(&policy.utf8("onUnknown")?).map_err(|error| exception(&error))?;
        }
        if let Some(lease) = self.lease {
            request.lease = lease.span("lease")?;
        }
        if let Some(wait) = self.wait {
            request.wait = wait.span("wait")?;
        }
        let send = handler_of("send", self.send)?;
        let ask = given(self.ask).map(|ask| handler_of("ask", ask)).transpose()?;
        match (&ask, request.on_unknown == OnUnknown::Ask) {
            (None, true) => invalid("onUnknown: 'ask' needs a function ask"),
            (Some(_), false) => invalid("ask is called with onUnknown: 'ask' only"),
            _ => Ok((request, Functions { send, ask })),
        }
    }
}

/// Has an effect happen once. `completes` is null, a job or a row.
///
/// # Errors
/// As the core's `once`; what the functions throw.
pub fn once(engine: &Engine, arguments: OnceArguments, completes: Option<&Zval>) -> PhpResult<Receipt> {
    let (request, functions) = arguments.read()?;
    let Some(held) = given(completes) else { return carry_out(|| engine.begin_once(request), &functions) };
    let object = held.object();
    if let Some(job) = object.and_then(ZendClassObject::<Job>::from_zend_obj) {
        return carry_out(|| engine.begin_once(request)?.completing(job.core()), &functions);
    }
    if let Some(row) = object.and_then(ZendClassObject::<Row>::from_zend_obj) {
        return carry_out(|| engine.begin_once(request)?.completing(row.core()), &functions);
    }
    wrong_type("completes", "Rowclaim\\Job|Rowclaim\\Row|null", held)
}

/// Has an effect happen once that completes a job or row.
///
/// # Errors
/// As [`once`].
pub fn once_of(begin: impl FnOnce(OnceRequest) -> rowclaim::Result<OnceCall>, arguments: OnceArguments) -> PhpResult<Receipt> {
    let (request, functions) = arguments.read()?;
    carry_out(|| begin(request), &functions)
}

fn carry_out(begin: impl FnOnce() -> rowclaim::Result<OnceCall>, functions: &Functions) -> PhpResult<Receipt> {
    gate(|| step_by_step(begin()?, functions)).map(Receipt::new)
}

/// What a function has come to.
enum Said {
    /// Write it down and go on.
    Plain(Sent),
    /// Write it down, then leave with this error, or with what is pending.
    Last(Sent, Error),
}

fn step_by_step(mut call: OnceCall, functions: &Functions) -> rowclaim::Result<rowclaim::Receipt> {
    loop {
        let said = match (call.next_step()?, &functions.ask) {
            (OnceStep::Settled(once), _) => return once.receipt(),
            (OnceStep::Send(effect), _) => said(&functions.send, effect, false),
            (OnceStep::Ask(effect), Some(ask)) => said(ask, effect, true),
            (OnceStep::Ask(_), None) => Said::Plain(Sent::Unknown("there is nobody to ask".to_owned())),
        };
        match said {
            Said::Plain(sent) => call.answer(sent)?,
            Said::Last(sent, error) => {
                let written = call.answer(sent);
                // What is pending weighs more than what could not be written, which is tried further.
                return if is_leaving() { Err(error) } else { written.and(Err(error)) };
            }
        }
    }
}

fn said(function: &Handler, effect: rowclaim::blocking::Effect, is_asked: bool) -> Said {
    let left = || Error::new(ErrorKind::Interrupted, "the function did not return");
    let key = effect.key().to_owned();
    let Ok(argument) = Effect(effect).into_zval(false) else {
        return Said::Last(Sent::Failed("PHP did not take the effect".to_owned()), left());
    };
    let read = |response: Zval| json_or_reason("response", &response).map_err(|reason| (type_name(&response), reason));
    match call_for(function, vec![&argument], read) {
        Called::Returned(Ok(response)) => Said::Plain(Sent::Succeeded(response)),
        Called::Returned(Err((of, reason))) => {
            let why = reason.or_else(|| Thrown::take().map(|thrown| thrown.text())).unwrap_or_default();
            let kept = serde_json::json!({ "unencodable": of }).to_string();
            let message = format!("effect {key} has happened and is recorded as succeeded, without its response: {why}");
            Said::Last(Sent::Succeeded(kept), Error::new(ErrorKind::Invalid, message))
        }
        Called::Left => Said::Last(Sent::Unknown("the script ended in the middle".to_owned()), left()),
        Called::Threw => {
            let Some(thrown) = Thrown::take() else {
                return Said::Last(Sent::Unknown("an exception without a name".to_owned()), left());
            };
            match (thrown.is_not_sent(), is_asked) {
                (true, true) => {
                    let text = thrown.message();
                    drop(thrown);
                    if is_leaving() { Said::Last(Sent::Failed(text), left()) } else { Said::Plain(Sent::Failed(text)) }
                }
                (is_not_sent, _) => {
                    let sent = if is_not_sent { Sent::Failed(thrown.message()) } else { Sent::Unknown(thrown.text()) };
                    thrown.put_back();
                    Said::Last(sent, left())
                }
            }
        }
    }
}
