//! PHP arguments to Rust values, with the conversions PHP itself does: '12' is an int where the caller is not strict.
//!
//! Here are the types of arguments, and the arguments that may be of several types. What a value means, and which values
//! are allowed, is the core's business.

use crate::exceptions::{exception, invalid, pending};
use crate::values::{read_property, type_name};
use ext_php_rs::convert::FromZval;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::flags::DataType;
use ext_php_rs::types::{ZendHashTable, ZendObject, ZendStr, Zval};
use ext_php_rs::zend::{ClassEntry, ExecutorGlobals, ce};
use rowclaim::{OnLost, Resolution, Timestamp, Unique, span_from_seconds};
use std::time::Duration;

unsafe extern "C" {
    // What PHP's own functions use. They look at the caller's strict_types, and warn where PHP warns.
    fn zend_parse_arg_long_slow(value: *mut Zval, out: *mut i64, argument: u32) -> bool;
    fn zend_parse_arg_double_slow(value: *mut Zval, out: *mut f64, argument: u32) -> bool;
    fn zend_parse_arg_str_slow(value: *mut Zval, out: *mut *mut ZendStr, argument: u32) -> bool;
    fn zend_parse_arg_bool_slow(value: *mut Zval, out: *mut bool, argument: u32) -> bool;
}

/// PHP names the number where null is given, which is refused before; without one it would not warn that 1.5 becomes 1.
const ARGUMENT: u32 = 1;

/// A whole number.
#[derive(Clone, Copy)]
pub struct Int(pub i64);

impl FromZval<'_> for Int {
    const TYPE: DataType = DataType::Long;

    fn from_zval(zval: &Zval) -> Option<Self> {
        if let Some(number) = zval.long() {
            return Some(Int(number));
        }
        let mut copy = zval.dereference().shallow_clone();
        let mut number = 0;
        // SAFETY: PHP reads and converts a zval of our own and writes a number of our own.
        let is_one = !copy.is_null() && unsafe { zend_parse_arg_long_slow(&raw mut copy, &raw mut number, ARGUMENT) };
        is_one.then_some(Int(number))
    }
}

impl Int {
    /// It as a size.
    ///
    /// # Errors
    /// `InvalidException` when negative.
    pub fn size(self, name: &str) -> PhpResult<usize> {
        usize::try_from(self.0).or_else(|_| invalid(format!("{name} must not be negative, as {} is", self.0)))
    }

    /// It as a priority.
    ///
    /// # Errors
    /// `InvalidException` outside of 16 bits.
    pub fn priority(self) -> PhpResult<i16> {
        let (min, max) = (i16::MIN, i16::MAX);
        i16::try_from(self.0).or_else(|_| invalid(format!("priority must be from {min} to {max}, not {}", self.0)))
    }
}

/// A number of seconds, whole or broken.
#[derive(Clone, Copy)]
pub struct Seconds(pub f64);

impl FromZval<'_> for Seconds {
    const TYPE: DataType = DataType::Double;

    fn from_zval(zval: &Zval) -> Option<Self> {
        if let Some(number) = zval.double() {
            return Some(Seconds(number));
        }
        if let Some(number) = zval.long() {
            return Some(Seconds(number as f64));
        }
        let mut copy = zval.dereference().shallow_clone();
        let mut number = 0.0;
        // SAFETY: PHP reads and converts a zval of our own and writes a number of our own.
        let is_one = !copy.is_null() && unsafe { zend_parse_arg_double_slow(&raw mut copy, &raw mut number, ARGUMENT) };
        is_one.then_some(Seconds(number))
    }
}

impl Seconds {
    /// It as a span.
    ///
    /// # Errors
    /// `InvalidException`, naming the argument.
    pub fn span(self, name: &str) -> PhpResult<Duration> {
        span_from_seconds(name, self.0).map_err(|error| exception(&error))
    }
}

/// A string of any bytes.
pub struct Text(Vec<u8>);

impl FromZval<'_> for Text {
    const TYPE: DataType = DataType::String;

    fn from_zval(zval: &Zval) -> Option<Self> {
        if let Some(text) = zval.zend_str() {
            return Some(Text(text.as_bytes().to_vec()));
        }
        let mut copy = zval.dereference().shallow_clone();
        let mut text = std::ptr::null_mut();
        // SAFETY: PHP converts a zval of our own in place and answers with the string in it.
        let is_one = !copy.is_null() && unsafe { zend_parse_arg_str_slow(&raw mut copy, &raw mut text, ARGUMENT) };
        if is_one { copy.zend_str().map(|text| Text(text.as_bytes().to_vec())) } else { None }
    }
}

impl Text {
    /// It as text.
    ///
    /// # Errors
    /// `InvalidException`, naming the argument, when it is not UTF-8.
    pub fn utf8(self, name: &str) -> PhpResult<String> {
        String::from_utf8(self.0)
            .or_else(|error| invalid(format!("{name} is not UTF-8 at byte {}", error.utf8_error().valid_up_to())))
    }

    /// It as text, or its bytes when it is not UTF-8.
    pub fn into_utf8(self) -> Result<String, Vec<u8>> {
        String::from_utf8(self.0).map_err(std::string::FromUtf8Error::into_bytes)
    }

    /// It as text for people; bytes that are not UTF-8 become a mark.
    pub fn lossy(self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

/// True or false.
#[derive(Clone, Copy)]
pub struct Flag(pub bool);

impl FromZval<'_> for Flag {
    const TYPE: DataType = DataType::Bool;

    fn from_zval(zval: &Zval) -> Option<Self> {
        if let Some(flag) = zval.bool() {
            return Some(Flag(flag));
        }
        let mut copy = zval.dereference().shallow_clone();
        let mut flag = false;
        // SAFETY: PHP reads and converts a zval of our own and writes a flag of our own.
        let is_one = !copy.is_null() && unsafe { zend_parse_arg_bool_slow(&raw mut copy, &raw mut flag, ARGUMENT) };
        is_one.then_some(Flag(flag))
    }
}

impl From<bool> for Flag {
    fn from(flag: bool) -> Self {
        Flag(flag)
    }
}

impl ext_php_rs::convert::StubLiteral for Flag {
    fn stub_literal(&self) -> String {
        self.0.to_string()
    }
}

/// A `TypeError`, worded as PHP words its own.
///
/// # Errors
/// Always.
pub fn wrong_type<T>(name: &str, expected: &str, given: &Zval) -> PhpResult<T> {
    if ExecutorGlobals::has_exception() {
        return Err(pending());
    }
    let message = format!("{name} must be of type {expected}, {} given", type_name(given)).replace('\0', " ");
    Err(ext_php_rs::exception::PhpException::new(message, 0, ce::type_error()))
}

/// An argument that is a `T`, as a member of an array.
///
/// # Errors
/// `TypeError`.
pub fn typed<'a, T: FromZval<'a>>(name: &str, expected: &str, value: &'a Zval) -> PhpResult<T> {
    match T::from_zval(value.dereference()) {
        Some(value) => Ok(value),
        None => wrong_type(name, expected, value),
    }
}

fn number(value: &Zval) -> Option<f64> {
    value.double().or_else(|| value.long().map(|number| number as f64))
}

/// `string|int|float`: the name of a key's life, or its seconds.
///
/// # Errors
/// `InvalidException`, `TypeError`.
pub fn unique(value: &Zval) -> PhpResult<Unique> {
    let value = value.dereference();
    if let Some(seconds) = number(value) {
        return Seconds(seconds).span("unique").map(Unique::For);
    }
    let name: Text = typed("unique", "string|int|float|null", value)?;
    Unique::parse(&name.utf8("unique")?).map_err(|error| exception(&error))
}

/// `int|float|DateTimeInterface`: an instant.
///
/// # Errors
/// `InvalidException`, `TypeError`.
pub fn instant(name: &str, value: &Zval) -> PhpResult<Timestamp> {
    let value = value.dereference();
    if let Some(object) = value.object()
        && ClassEntry::try_find("DateTimeInterface").is_some_and(|class| object.instance_of(class))
    {
        return date_time(name, value);
    }
    let Some(seconds) = Seconds::from_zval(value) else {
        return wrong_type(name, "int|float|DateTimeInterface|null", value);
    };
    Timestamp::from_unix_seconds(seconds.0).or_else(|_| invalid(format!("{name} is outside of the years 1000 to 9999")))
}

/// `int|float|string|DateTimeInterface`: an instant; a string is one as in RFC 3339.
///
/// # Errors
/// `InvalidException`, also for a string without its zone; `TypeError`.
pub fn slot(name: &str, value: &Zval) -> PhpResult<Timestamp> {
    let value = value.dereference();
    match value.zend_str().and_then(|_| Text::from_zval(value)) {
        Some(text) => Timestamp::from_rfc3339(name, &text.utf8(name)?).map_err(|error| exception(&error)),
        None => instant(name, value),
    }
}

/// The instant of a `DateTimeInterface`.
///
/// # Errors
/// `InvalidException` when it has none that 64 bits of microseconds hold.
pub fn date_time(name: &str, value: &Zval) -> PhpResult<Timestamp> {
    // Whole seconds, rounded down, and the microseconds after them in six digits: put together they are microseconds.
    let answer = value.try_call_method("format", vec![&"Uu"]);
    if ExecutorGlobals::has_exception() {
        return Err(pending());
    }
    let digits = answer.ok().and_then(|text| text.string()).unwrap_or_default();
    let Some((seconds, micros)) = digits.split_at_checked(digits.len().saturating_sub(6)) else {
        return invalid(format!("{name} has no time"));
    };
    let parsed = seconds.parse::<i64>().ok().zip(micros.parse::<i64>().ok());
    match parsed.and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros)) {
        Some(micros) => Ok(Timestamp(micros)),
        None => invalid(format!("{name} is too far away")),
    }
}

/// `string|array`: one queue, or several.
///
/// # Errors
/// `InvalidException`, `TypeError`.
pub fn queues(value: &Zval) -> PhpResult<Vec<String>> {
    let value = value.dereference();
    let Some(list) = value.array() else {
        let queue: Text = typed("queues", "string|array", value)?;
        return Ok(vec![queue.utf8("queues")?]);
    };
    let mut queues = Vec::with_capacity(list.len());
    let mut entries = list.iter();
    while let Some((_, queue)) = entries.next_zval() {
        queues.push(typed::<Text>("queues", "array of strings", queue)?.utf8("queues")?);
    }
    Ok(queues)
}

/// `[k, n]`: a part of the jobs.
///
/// # Errors
/// `InvalidException`, `TypeError`.
pub fn partition(list: &ZendHashTable) -> PhpResult<(i64, i64)> {
    match (list.len(), list.get_index(0), list.get_index(1)) {
        (2, Some(k), Some(n)) => {
            let k: Int = typed("partition[0]", "int", k)?;
            let n: Int = typed("partition[1]", "int", n)?;
            Ok((k.0, n.0))
        }
        _ => invalid("partition must be [k, n]"),
    }
}

/// Ids of jobs.
///
/// # Errors
/// `TypeError`.
pub fn ids(list: &ZendHashTable) -> PhpResult<Vec<i64>> {
    let mut ids = Vec::with_capacity(list.len());
    let mut entries = list.iter();
    while let Some((_, id)) = entries.next_zval() {
        ids.push(typed::<Int>("ids", "array of ints", id)?.0);
    }
    Ok(ids)
}

/// `onLost`: 'retry' or 'hold'.
///
/// # Errors
/// `InvalidException` for any other word.
pub fn on_lost(word: Option<Text>) -> PhpResult<OnLost> {
    let Some(word) = word else { return Ok(OnLost::default()) };
    OnLost::parse(&word.utf8("onLost")?).map_err(|error| exception(&error))
}

/// `$sent`: what has turned out about a row that was begun.
pub fn resolution(sent: Flag) -> Resolution {
    if sent.0 { Resolution::Sent } else { Resolution::NotSent }
}

/// `string|Throwable`: what went wrong; `Class: message` of a throwable.
///
/// # Errors
/// `TypeError`.
pub fn error_text(value: &Zval) -> PhpResult<String> {
    let value = value.dereference();
    if let Some(object) = value.object()
        && object.instance_of(ce::throwable())
    {
        return Ok(throwable_text(object));
    }
    Ok(typed::<Text>("error", "string|Throwable", value)?.lossy())
}

/// `Class: message` of a throwable.
pub fn throwable_text(object: &ZendObject) -> String {
    let (class, message) = class_and_message(object);
    if message.is_empty() { class } else { format!("{class}: {message}") }
}

/// The class of a throwable, and its message.
pub fn class_and_message(object: &ZendObject) -> (String, String) {
    let class = object.get_class_name().unwrap_or_default();
    let class = class.split('\0').next().unwrap_or_default().to_owned();
    let message = object
        .try_call_method("getMessage", vec![])
        .or_else(|_| read_property(object, "message").map_err(|_| ext_php_rs::error::Error::Callable));
    let message = message.ok().and_then(|message| Text::from_zval(&message)).map(Text::lossy).unwrap_or_default();
    (class, message)
}
