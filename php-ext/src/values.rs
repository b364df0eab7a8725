//! PHP values to JSON text, and JSON text to PHP values.
//!
//! Writing is done here and not by `json_encode`, which turns 1.0 into 1, closures into {} and names no place; reading
//! is done by PHP's own `json_decode`. The one thing to know: text that came from the database is never written again.

use crate::exceptions::{invalid, pending, refuse};
use crate::json::Json;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendClassObject, ZendHashTable, ZendObject, ZendStr, Zval};
use ext_php_rs::zend::{ClassEntry, ExecutorGlobals};
use rowclaim::ErrorKind;
use std::ffi::{CStr, c_char};
use std::ptr::from_ref;

/// The deepest nesting of arrays and objects, as in `json_encode` and `json_decode`.
const MAX_DEPTH: u32 = 512;
/// The depth to ask PHP's reader for: it refuses the depth itself, where the writer allows it.
const READ_DEPTH: i64 = MAX_DEPTH as i64 + 1;
/// JSON_OBJECT_AS_ARRAY.
const OBJECT_AS_ARRAY: i64 = 1;

unsafe extern "C" {
    fn php_json_decode_ex(value: *mut Zval, text: *const c_char, length: usize, options: i64, depth: i64) -> i32;
    fn zend_zval_type_name(value: *const Zval) -> *const c_char;
}

/// Why a value has no JSON text.
enum Refusal {
    /// The reason, and the steps from the value up to the root.
    Value(String, Vec<String>),
    /// PHP code that was asked for the value threw: its exception is pending.
    Thrown,
}

type Written = Result<(), Refusal>;

fn no(reason: impl Into<String>) -> Written {
    Err(Refusal::Value(reason.into(), Vec::new()))
}

/// The JSON text of a PHP value; a [`Json`] as it is. `name` is what messages call the value.
///
/// # Errors
/// One of `kind`, naming the place, for NaN, infinity, resources, closures, objects without a JSON form, text that is
/// not UTF-8, and nesting deeper than 512; whatever a `jsonSerialize` throws.
pub fn to_json(kind: ErrorKind, name: &str, value: &Zval) -> PhpResult<String> {
    match json_or_reason(name, value) {
        Ok(json) => Ok(json),
        Err(Some(reason)) => refuse(kind, reason),
        Err(None) => Err(pending()),
    }
}

/// As [`to_json`], for callers that go on without.
///
/// # Errors
/// Why not; `None` when an exception is pending that says it.
pub fn json_or_reason(name: &str, value: &Zval) -> Result<String, Option<String>> {
    let mut out = Vec::new();
    match write(&mut out, value, 0) {
        Ok(()) => String::from_utf8(out).map_err(|_| Some(format!("{name} is not UTF-8"))),
        Err(Refusal::Thrown) => Err(None),
        Err(Refusal::Value(reason, steps)) => {
            let place: String = steps.into_iter().rev().take(16).collect();
            Err(Some(format!("{name}{place} {reason}")))
        }
    }
}

/// What a value is, for messages: its class, or its type.
pub fn type_name(value: &Zval) -> String {
    let value = value.dereference();
    let Some(object) = value.object() else {
        // SAFETY: reads a zval that lives over the call; PHP answers with a text that ends with NUL and is never freed.
        let name = unsafe { CStr::from_ptr(zend_zval_type_name(from_ref(value))) };
        return name.to_string_lossy().into_owned();
    };
    let class = object.get_class_name().unwrap_or_default();
    // What comes after a NUL is where an anonymous class was written.
    class.split('\0').next().unwrap_or_default().to_owned()
}

fn write(out: &mut Vec<u8>, value: &Zval, depth: u32) -> Written {
    let value = value.dereference();
    if value.is_null() {
        out.extend_from_slice(b"null");
    } else if let Some(flag) = value.bool() {
        out.extend_from_slice(if flag { b"true" } else { b"false" });
    } else if let Some(number) = value.long() {
        out.extend_from_slice(number.to_string().as_bytes());
    } else if let Some(number) = value.double() {
        if !number.is_finite() {
            return no("is NaN or infinite, which has no JSON form");
        }
        serde_json::to_writer(out, &number).or_else(|error| no(error.to_string()))?;
    } else if let Some(text) = value.zend_str() {
        match std::str::from_utf8(text.as_bytes()) {
            Ok(text) => put(out, text)?,
            Err(error) => return no(format!("is not UTF-8 at byte {}", error.valid_up_to())),
        }
    } else if let Some(array) = value.array() {
        write_array(out, array, depth + 1)?;
    } else if let Some(object) = value.object() {
        write_object(out, value, object, depth + 1)?;
    } else {
        return no("is a resource, which has no JSON form");
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, text: &str) -> Written {
    serde_json::to_writer(out, text).or_else(|error| no(error.to_string()))
}

fn check_depth(depth: u32) -> Written {
    if depth > MAX_DEPTH { no(format!("is nested deeper than {MAX_DEPTH}")) } else { Ok(()) }
}

fn is_list(array: &ZendHashTable) -> bool {
    let mut entries = array.iter();
    let mut expected = 0;
    // Not `next`: it panics on a key that is not UTF-8.
    while let Some((key, _)) = entries.next_zval() {
        if key.long() != Some(expected) {
            return false;
        }
        expected += 1;
    }
    true
}

fn write_array(out: &mut Vec<u8>, array: &ZendHashTable, depth: u32) -> Written {
    check_depth(depth)?;
    if !is_list(array) {
        return write_map(out, array, depth);
    }
    out.push(b'[');
    let mut entries = array.iter();
    let mut position = 0;
    while let Some((_, value)) = entries.next_zval() {
        if position > 0 {
            out.push(b',');
        }
        write(out, value, depth).map_err(|refusal| refusal.below(|| format!("[{position}]")))?;
        position += 1;
    }
    out.push(b']');
    Ok(())
}

fn write_map(out: &mut Vec<u8>, map: &ZendHashTable, depth: u32) -> Written {
    out.push(b'{');
    let mut entries = map.iter();
    let mut is_first = true;
    while let Some((key, value)) = entries.next_zval() {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        let bytes = match key.long() {
            Some(number) => number.to_string().into_bytes(),
            None => key.zend_str().map(|text| text.as_bytes().to_vec()).unwrap_or_default(),
        };
        match std::str::from_utf8(&bytes) {
            Ok(key) => put(out, key)?,
            Err(_) => return no(format!("has the key '{}', which is not UTF-8", bytes.escape_ascii())),
        }
        out.push(b':');
        write(out, value, depth).map_err(|refusal| refusal.below(|| format!("['{}']", String::from_utf8_lossy(&bytes))))?;
    }
    out.push(b'}');
    Ok(())
}

fn write_object(out: &mut Vec<u8>, value: &Zval, object: &ZendObject, depth: u32) -> Written {
    check_depth(depth)?;
    let is = |class: &str| ClassEntry::try_find(class).is_some_and(|class| object.instance_of(class));
    if let Some(json) = ZendClassObject::<Json>::from_zend_obj(object) {
        out.extend_from_slice(json.text.as_bytes());
        return Ok(());
    }
    if is("JsonSerializable") {
        let answer = value.try_call_method("jsonSerialize", vec![]);
        if ExecutorGlobals::has_exception() {
            return Err(Refusal::Thrown);
        }
        let answer = answer.map_err(|error| Refusal::Value(error.to_string(), Vec::new()))?;
        return write(out, &answer, depth);
    }
    if is("BackedEnum") {
        let value = read_property(object, "value").map_err(|_| Refusal::Thrown)?;
        return write(out, &value, depth);
    }
    let name = object.get_class_name().unwrap_or_default();
    if name == "stdClass" {
        return match object.get_properties() {
            Ok(properties) => write_map(out, properties, depth),
            Err(error) => no(error.to_string()),
        };
    }
    no(format!("is an object of {}, which has no JSON form: make it JsonSerializable", name.replace('\0', " ")))
}

impl Refusal {
    fn below(self, step: impl FnOnce() -> String) -> Self {
        match self {
            Refusal::Value(reason, mut steps) => {
                steps.push(step());
                Refusal::Value(reason, steps)
            }
            thrown => thrown,
        }
    }
}

/// Reads a property as PHP code would; `get_property` asks for a writable one, which readonly properties refuse.
///
/// # Errors
/// What the property throws.
pub fn read_property(object: &ZendObject, name: &str) -> PhpResult<Zval> {
    let mut name = ZendStr::new(name, false);
    let mut place = Zval::new();
    // SAFETY: every object has handlers, which live as long as its class.
    let read = unsafe { object.handlers.as_ref() }.and_then(|handlers| handlers.read_property);
    let Some(read) = read else { return invalid("the object has no readable properties") };
    // SAFETY: object, name and place live over the call; 0 is BP_VAR_R; no cache slot.
    let found = unsafe { read(from_ref(object).cast_mut(), &raw mut *name, 0, std::ptr::null_mut(), &raw mut place).as_ref() };
    if ExecutorGlobals::has_exception() {
        return Err(pending());
    }
    Ok(found.map_or_else(Zval::null, |found| found.dereference().shallow_clone()))
}

/// The PHP value of JSON text: objects as arrays, whole numbers beyond 64 bits as floats.
///
/// # Errors
/// `DecodeException` with `refusal` for text that PHP cannot read: nesting deeper than 512, half surrogate pairs.
pub fn from_json(refusal: &str, text: &str) -> PhpResult<Zval> {
    let mut value = Zval::new();
    // PHP's scanner wants a NUL after the text.
    let terminated = ZendStr::new(text, false);
    let bytes = terminated.as_bytes();
    // SAFETY: the text lives over the call, its length is right, and a NUL follows; PHP writes into the fresh zval.
    let status = unsafe { php_json_decode_ex(&raw mut value, bytes.as_ptr().cast(), bytes.len(), OBJECT_AS_ARRAY, READ_DEPTH) };
    if status == 0 { Ok(value) } else { refuse(ErrorKind::Decode, refusal) }
}
