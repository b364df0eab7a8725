//! The settings in php.ini, and the section of phpinfo().
//!
//! `rowclaim.dsn` is the DSN where none is given; `rowclaim.pool` and `rowclaim.lease` set the options of the same name
//! where neither the DSN nor the options do. All can be set in php.ini and by `-d` only, so that a script cannot show them.

use ext_php_rs::flags::IniEntryPermission;
use ext_php_rs::types::ZendStr;
use ext_php_rs::zend::{IniEntryDef, IniEntryDefs, ModuleEntry};
use ext_php_rs::{info_table_end, info_table_row, info_table_start};
use std::ffi::{CStr, c_char};

unsafe extern "C" {
    fn zend_ini_string(name: *const c_char, length: usize, original: i32) -> *const c_char;
    fn zend_unregister_ini_entries(module: i32);
    fn zend_ini_long(name: *const c_char, length: usize, original: i32) -> i64;
    fn zend_alter_ini_entry_chars(name: *mut ZendStr, value: *const c_char, length: usize, modify: i32, stage: i32) -> i32;
}

// PHP_INI_USER and PHP_INI_STAGE_RUNTIME, as for ini_set().
const BY_USER: i32 = 1;
const AT_RUNTIME: i32 = 1 << 4;

static ENTRIES: IniEntryDefs<4> = IniEntryDefs::new([
    IniEntryDef::new(c"rowclaim.dsn", c"", IniEntryPermission::System),
    IniEntryDef::new(c"rowclaim.pool", c"", IniEntryPermission::System),
    IniEntryDef::new(c"rowclaim.lease", c"", IniEntryPermission::System),
    IniEntryDef::end(),
]);

/// Options of a DSN that php.ini can set.
pub const OPTIONS: [(&str, &CStr); 2] = [("pool", c"rowclaim.pool"), ("lease", c"rowclaim.lease")];
/// The setting of the DSN.
pub const DSN: &CStr = c"rowclaim.dsn";

/// For the start of the module.
pub fn register(module: i32) {
    IniEntryDef::register(ENTRIES.as_slice(), module);
}

/// For the end of the module.
pub fn unregister(module: i32) {
    // SAFETY: takes out what `register` has put in under the same number.
    unsafe { zend_unregister_ini_entries(module) };
}

/// A setting, or `None` when it is empty.
pub fn get(name: &CStr) -> Option<String> {
    // SAFETY: the name lives over the call; PHP answers with a string of its own, or NULL, which is copied at once.
    let value = unsafe { zend_ini_string(name.as_ptr(), name.count_bytes(), 0).as_ref() }?;
    // SAFETY: it ends with NUL.
    let value = unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

/// After how many seconds PHP ends a request; `None` for no limit.
pub fn max_execution_time() -> Option<u64> {
    let name = c"max_execution_time";
    // SAFETY: reads a number by a name that lives over the call.
    let seconds = unsafe { zend_ini_long(name.as_ptr(), name.count_bytes(), 0) };
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// Has this request go on when its client has hung up; as the function of the same name.
pub fn ignore_user_abort() {
    let mut name = ZendStr::new("ignore_user_abort", false);
    let value = c"1";
    // SAFETY: name and value live over the call; PHP copies the value.
    unsafe { zend_alter_ini_entry_chars(&raw mut *name, value.as_ptr(), value.count_bytes(), BY_USER, AT_RUNTIME) };
}

/// A DSN for people: without its password.
fn without_password(dsn: &str) -> String {
    let Some((scheme, rest)) = dsn.split_once("://") else { return dsn.to_owned() };
    let authority = rest.split_once(['/', '?']).map_or(rest.len(), |(authority, _)| authority.len());
    // The last @: a password may hold one, and everything before it is user and password.
    let end = rest.get(..authority).and_then(|authority| authority.rfind('@'));
    let Some((login, host)) = end.and_then(|at| rest.split_at_checked(at)) else {
        // A password with a slash in it: show nothing that could be part of one.
        return if rest.contains('@') { format!("{scheme}://***") } else { dsn.to_owned() };
    };
    if host.get(1..).is_some_and(|host| host.contains('@')) {
        return format!("{scheme}://***");
    }
    match login.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***{host}"),
        None => dsn.to_owned(),
    }
}

/// The section of phpinfo().
pub extern "C" fn section(_module: *mut ModuleEntry) {
    let show = |name: &CStr| get(name).unwrap_or_else(|| "no value".to_owned());
    let dsn = without_password(&show(DSN));
    info_table_start!();
    info_table_row!("rowclaim support", "enabled");
    info_table_row!("version", env!("CARGO_PKG_VERSION"));
    info_table_row!("rowclaim.dsn", dsn.replace('\0', ""));
    for (_, name) in OPTIONS {
        let value = show(name);
        info_table_row!(name.to_string_lossy().as_ref(), value.replace('\0', ""));
    }
    info_table_end!();
}
