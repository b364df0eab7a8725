//! The PHP extension `rowclaim`: classes in the namespace `Rowclaim` over the core's blocking facade.
//!
//! A map, in the order a call travels: `arguments`, `values`, `column_values` and `json` make Rust values of PHP's,
//! `connect`, `create`, `guard`, `handlers`, `mapping`, `once` and `work` put them together for a verb, `engine`, `claim` and
//! `job` are the classes with the verbs, `table`, `row_claim` and `row` those of mapped tables, `held` is what both share;
//! `lease`, `effect`, `run`, `schedule` and `runner` are what else an engine has; `created`, `receipt`, `summary`, `record` and
//! `rows` are answers, `exceptions` are errors, `thrown` is what PHP code throws. `process` is the gate between PHP and the core
//! (signals, fatal errors, the end); `ini` has the settings. No SQL, no retries, no time arithmetic, no defaults: those are the
//! core's.

mod arguments;
mod claim;
mod column_values;
mod connect;
mod create;
mod created;
mod effect;
mod engine;
mod exceptions;
mod guard;
mod handlers;
mod held;
mod ini;
mod job;
mod json;
mod lease;
mod mapping;
mod once;
mod process;
mod receipt;
mod record;
mod row;
mod row_claim;
mod rows;
mod run;
mod runner;
mod schedule;
mod summary;
mod table;
mod thrown;
mod values;
mod work;

use ext_php_rs::flags::ClassFlags;
use ext_php_rs::prelude::*;
use ext_php_rs::wrap_function;
use rowclaim::ErrorKind;

/// Every class here is final, a handle on something that cannot be written down, and takes no properties of its user's:
/// `$row->status = 2` would change no row.
const CLASS: ClassFlags = ClassFlags::Final.union(ClassFlags::NotSerializable).union(ClassFlags::NoDynamicProperties);

/// The exception class of each kind of error, by kind; for the tests.
#[php_function]
#[php(name = "Rowclaim\\error_kinds")]
pub fn error_kinds() -> Vec<(String, String)> {
    ErrorKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), exceptions::class_name(kind))).collect()
}

/// The start of the module.
pub fn startup(_kind: i32, module: i32) -> i32 {
    ini::register(module);
    process::start();
    match std::panic::catch_unwind(exceptions::register) {
        Ok(Ok(())) => 0,
        _ => -1,
    }
}

extern "C" fn shutdown(_kind: i32, module: i32) -> i32 {
    process::end();
    ini::unregister(module);
    0
}

extern "C" fn request_startup(_kind: i32, _module: i32) -> i32 {
    process::set_request_over(false);
    0
}

extern "C" fn request_shutdown(_kind: i32, _module: i32) -> i32 {
    process::set_request_over(true);
    0
}

/// The module as PHP loads it.
#[php_module]
#[php(startup = "startup")]
pub fn get_module(module: ModuleBuilder) -> ModuleBuilder {
    module
        .name("rowclaim")
        .class::<engine::Engine>()
        .class::<claim::Claim>()
        .class::<job::Job>()
        .class::<table::Table>()
        .class::<row_claim::RowClaim>()
        .class::<row::Row>()
        .class::<record::Record>()
        .class::<lease::Lease>()
        .class::<lease::LeaseRecord>()
        .class::<created::Created>()
        .class::<summary::Summary>()
        .class::<json::Json>()
        .class::<effect::Effect>()
        .class::<effect::EffectRecord>()
        .class::<receipt::Receipt>()
        .class::<run::Run>()
        .class::<run::RunRecord>()
        .class::<schedule::ScheduleRecord>()
        .class::<runner::Runner>()
        .class::<runner::RunnerAnswer>()
        .function(wrap_function!(error_kinds))
        .request_startup_function(request_startup)
        .request_shutdown_function(request_shutdown)
        .shutdown_function(shutdown)
        .info_function(ini::section)
}
