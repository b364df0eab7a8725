//! One exception class for each kind of error, below `Rowclaim\Exception\RowclaimException`; and `Rowclaim\NotSent`, which
//! only PHP code throws.
//!
//! They are plain internal classes without an object handler of their own, so that they have file, line and trace,
//! and can be extended and made by PHP code. The one thing to know: the readonly properties are declared on the base
//! class and can only be filled from its scope.

use ext_php_rs::builders::ClassBuilder;
use ext_php_rs::exception::{PhpException, PhpResult};
use ext_php_rs::types::{ZendObject, ZendStr, Zval};
use ext_php_rs::zend::{ClassEntry, ce};
use rowclaim::{Error, ErrorKind};
use std::ffi::{c_char, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const NAMESPACE: &str = "Rowclaim\\Exception\\";
const BASE: &str = "RowclaimException";
const NOT_SENT: &str = "Rowclaim\\NotSent";
const REJECT: &str = "Rowclaim\\Reject";

static BASE_CLASS: AtomicPtr<ClassEntry> = AtomicPtr::new(null_mut());
static NOT_SENT_CLASS: AtomicPtr<ClassEntry> = AtomicPtr::new(null_mut());
static REJECT_CLASS: AtomicPtr<ClassEntry> = AtomicPtr::new(null_mut());
static CLASSES: [AtomicPtr<ClassEntry>; ErrorKind::ALL.len()] = [const { AtomicPtr::new(null_mut()) }; ErrorKind::ALL.len()];
/// Where a registration leaves its class entry, since it is a plain function.
static REGISTERED: AtomicPtr<ClassEntry> = AtomicPtr::new(null_mut());

// MAY_BE_ bits and ZEND_ACC_ bits of PHP 8.
const MAY_BE_NULL: u32 = 1 << 1;
const MAY_BE_BOOL: u32 = (1 << 2) | (1 << 3);
const MAY_BE_LONG: u32 = 1 << 4;
const MAY_BE_STRING: u32 = 1 << 6;
const PUBLIC_READONLY: i32 = 1 | (1 << 7);

/// `zend_type`.
#[repr(C)]
struct ZendType {
    pointer: *mut c_void,
    mask: u32,
}

unsafe extern "C" {
    static spl_ce_RuntimeException: *mut ClassEntry;
    fn zend_declare_typed_property(
        class: *mut ClassEntry,
        name: *mut ZendStr,
        default: *mut Zval,
        flags: i32,
        comment: *mut c_void,
        kind: ZendType,
    ) -> *mut c_void;
    fn zend_update_property(
        scope: *mut ClassEntry,
        object: *mut ZendObject,
        name: *const c_char,
        length: usize,
        value: *mut Zval,
    );
}

/// The name of a kind's class, without the namespace.
fn short_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Config => "ConfigException",
        ErrorKind::Unsupported => "UnsupportedException",
        ErrorKind::Schema => "SchemaException",
        ErrorKind::Invalid => "InvalidException",
        ErrorKind::Duplicate => "DuplicateException",
        ErrorKind::NotFound => "NotFoundException",
        ErrorKind::Lost => "LostException",
        ErrorKind::Busy => "BusyException",
        ErrorKind::Unknown => "UnknownException",
        ErrorKind::Contention => "ContentionException",
        ErrorKind::Unavailable => "UnavailableException",
        ErrorKind::Interrupted => "InterruptedException",
        ErrorKind::Decode => "DecodeException",
        _ => "UnexpectedException",
    }
}

/// The full name of a kind's class.
pub fn class_name(kind: ErrorKind) -> String {
    format!("{NAMESPACE}{}", short_name(kind))
}

fn runtime_exception() -> &'static ClassEntry {
    // SAFETY: SPL is part of every PHP and started before extensions that are loaded; the entry lives as long as PHP.
    unsafe { spl_ce_RuntimeException.as_ref() }.unwrap_or_else(ce::exception)
}

fn base() -> &'static ClassEntry {
    // SAFETY: filled in `register`, with a class entry that lives until the process ends.
    unsafe { BASE_CLASS.load(Relaxed).as_ref() }.unwrap_or_else(runtime_exception)
}

fn class_of(kind: ErrorKind) -> &'static ClassEntry {
    let position = ErrorKind::ALL.iter().position(|other| *other == kind);
    let pointer = position.and_then(|at| CLASSES.get(at)).map_or(null_mut(), |class| class.load(Relaxed));
    // SAFETY: filled in `register`, with a class entry that lives until the process ends.
    unsafe { pointer.as_ref() }.unwrap_or_else(base)
}

/// Whether something thrown is a `Rowclaim\NotSent`.
pub fn is_not_sent(thrown: &ZendObject) -> bool {
    is_of(&NOT_SENT_CLASS, thrown)
}

/// Whether something thrown says that no repetition mends it: a `Rowclaim\Reject`, or a payload that cannot be read.
pub fn is_reject(thrown: &ZendObject) -> bool {
    is_of(&REJECT_CLASS, thrown) || thrown.instance_of(class_of(ErrorKind::Decode))
}

fn is_of(class: &AtomicPtr<ClassEntry>, thrown: &ZendObject) -> bool {
    // SAFETY: filled in `register`, with a class entry that lives until the process ends.
    unsafe { class.load(Relaxed).as_ref() }.is_some_and(|class| thrown.instance_of(class))
}

/// Registers the classes; for the start of the module.
///
/// # Errors
/// When PHP refuses a class.
pub fn register() -> ext_php_rs::error::Result<()> {
    declare(NOT_SENT, (runtime_exception, "\\RuntimeException"))?;
    NOT_SENT_CLASS.store(REGISTERED.load(Relaxed), Relaxed);
    declare(REJECT, (runtime_exception, "\\RuntimeException"))?;
    REJECT_CLASS.store(REGISTERED.load(Relaxed), Relaxed);
    declare(&format!("{NAMESPACE}{BASE}"), (runtime_exception, "\\RuntimeException"))?;
    BASE_CLASS.store(REGISTERED.load(Relaxed), Relaxed);
    let properties = [
        ("kind", MAY_BE_STRING),
        ("retryable", MAY_BE_BOOL),
        ("operation", MAY_BE_STRING),
        ("serverCode", MAY_BE_LONG | MAY_BE_NULL),
    ];
    for (name, mask) in properties {
        let name = ZendStr::new_interned(name, true).into_raw();
        // SAFETY: all zeros are a zval without a value (IS_UNDEF), which a typed property without a default must have.
        let mut undefined: Zval = unsafe { std::mem::zeroed() };
        // SAFETY: the class was registered just now, by this thread; PHP takes the name over.
        unsafe {
            zend_declare_typed_property(
                BASE_CLASS.load(Relaxed),
                name,
                &raw mut undefined,
                PUBLIC_READONLY,
                null_mut(),
                ZendType { pointer: null_mut(), mask },
            );
        }
    }
    for (kind, class) in ErrorKind::ALL.into_iter().zip(&CLASSES) {
        declare(&class_name(kind), (base, "\\Rowclaim\\Exception\\RowclaimException"))?;
        class.store(REGISTERED.load(Relaxed), Relaxed);
    }
    Ok(())
}

fn declare(name: &str, parent: ext_php_rs::class::ClassEntryInfo) -> ext_php_rs::error::Result<()> {
    ClassBuilder::new(name).extends(parent).registration(|class, _| REGISTERED.store(class, Relaxed)).register()
}

/// The exception for an error of the core.
pub fn exception(error: &Error) -> PhpException {
    // A NUL in a message would make PHP throw something else.
    let message = error.to_string().replace('\0', "\\0");
    let mut object = ZendObject::new(class_of(error.kind()));
    let code = error.server_code().map(i64::from);
    let fields = [
        ("message", text(&message)),
        ("kind", text(error.kind().name())),
        ("operation", text(error.operation())),
        ("retryable", with(|zval| zval.set_bool(error.is_retryable()))),
        ("serverCode", code.map_or_else(Zval::null, |code| with(|zval| zval.set_long(code)))),
        ("code", with(|zval| zval.set_long(code.unwrap_or(0)))),
    ];
    for (name, mut value) in fields {
        // SAFETY: the object is of a class below `base()`, which declares or inherits each of the names.
        unsafe {
            zend_update_property(from_ref(base()).cast_mut(), &raw mut *object, name.as_ptr().cast(), name.len(), &raw mut value);
        }
    }
    let mut zval = Zval::new();
    zval.set_object(&mut object);
    PhpException::new(message, 0, class_of(error.kind())).with_object(zval)
}

fn with(set: impl FnOnce(&mut Zval)) -> Zval {
    let mut zval = Zval::new();
    set(&mut zval);
    zval
}

fn text(text: &str) -> Zval {
    with(|zval| zval.set_zend_string(ZendStr::new(text, false)))
}

/// An `InvalidException`: the caller's input is wrong.
///
/// # Errors
/// Always.
pub fn invalid<T>(message: impl Into<String>) -> PhpResult<T> {
    refuse(ErrorKind::Invalid, message)
}

/// An exception of `kind` for something the binding itself found.
///
/// # Errors
/// Always.
pub fn refuse<T>(kind: ErrorKind, message: impl Into<String>) -> PhpResult<T> {
    Err(exception(&Error::new(kind, message)))
}

/// What to return when an exception is pending already: PHP goes on with that one.
pub fn pending() -> PhpException {
    PhpException::new(String::new(), 0, base())
}
