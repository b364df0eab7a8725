//! Where PHP's process meets the core: waits, signals, fatal errors, the end.
//!
//! [`gate`] is the one way to the core. While the core waits, [`wait_hook`] lets PHP's signal handlers run; what they throw
//! is thrown on. A fatal error of PHP leaves by a jump over all frames: it is caught here ([`call`]), the Rust frames are
//! left in order, and the jump goes on at the gate. The one thing to know: no PHP code is run while an exception is pending.

use crate::exceptions::{exception, pending};
use ext_php_rs::convert::IntoZvalDyn;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendCallable, Zval};
use ext_php_rs::zend::{ExecutorGlobals, bailout, try_catch};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest a closing engine may take to write what is pending, at the end of the process and where no limit is given.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(2);

thread_local! {
    /// A fatal error was caught and must go on when the Rust frames are left.
    static IS_FATAL: Cell<bool> = const { Cell::new(false) };
}

/// Does something in the core; its error becomes an exception.
///
/// # Errors
/// The core's error; what PHP code threw meanwhile.
pub fn gate<T>(work: impl FnOnce() -> rowclaim::Result<T>) -> PhpResult<T> {
    let had_exception = ExecutorGlobals::has_exception();
    let result = work();
    if IS_FATAL.take() {
        drop(result);
        // SAFETY: the caught fatal error goes on; the frames up to the exported function own no more than memory.
        unsafe { bailout() };
    }
    if !had_exception && ExecutorGlobals::has_exception() {
        return Err(pending());
    }
    result.map_err(|error| exception(&error))
}

/// How a call of PHP code ended.
pub enum Called<T = ()> {
    /// With a value.
    Returned(T),
    /// With an exception that is pending now.
    Threw,
    /// With `exit()`, or with a fatal error: nothing more may be run.
    Left,
}

/// Calls PHP code from inside the core's frames.
pub fn call(callable: &ZendCallable, arguments: Vec<&dyn IntoZvalDyn>) -> Called {
    match call_for(callable, arguments, drop) {
        // A destructor of what it returned may have thrown.
        Called::Returned(()) => ended().unwrap_or(Called::Returned(())),
        other => other,
    }
}

/// As [`call`], for what `read` makes of the value, while a fatal error is still caught. What `read` throws is pending then.
pub fn call_for<T>(callable: &ZendCallable, arguments: Vec<&dyn IntoZvalDyn>, read: impl FnOnce(Zval) -> T) -> Called<T> {
    if is_leaving() {
        return Called::Left;
    }
    match try_catch(AssertUnwindSafe(|| callable.try_call(arguments).map(read))) {
        Ok(Ok(answer)) => Called::Returned(answer),
        // Without an exception it could not be called at all.
        Ok(Err(_)) => ended().unwrap_or(Called::Left),
        Err(_) => {
            IS_FATAL.set(true);
            Called::Left
        }
    }
}

/// What is pending after PHP code has run.
fn ended<T>() -> Option<Called<T>> {
    ExecutorGlobals::pending_exception_class().map(|class| if is_exit(&class) { Called::Left } else { Called::Threw })
}

/// Whether a class is what exit() and its like throw: internal ones that must never be taken.
pub fn is_exit(class: &str) -> bool {
    matches!(class, "UnwindExit" | "GracefulExit")
}

/// Whether the Rust frames are to be left: an exception is pending, or a fatal error goes on at the gate.
pub fn is_leaving() -> bool {
    IS_FATAL.get() || ExecutorGlobals::has_exception()
}

/// Objects are freed after the request's functions are gone: no PHP code may be run then.
static IS_REQUEST_OVER: AtomicBool = AtomicBool::new(false);

/// For the start and the end of a request.
pub fn set_request_over(is_over: bool) {
    IS_REQUEST_OVER.store(is_over, Relaxed);
}

/// Lets PHP's signal handlers run; `false` when one of them threw, left or died.
fn wait_hook() -> bool {
    if is_leaving() || IS_REQUEST_OVER.load(Relaxed) {
        // The wait is part of cleaning up.
        return true;
    }
    match ZendCallable::try_from_name("pcntl_signal_dispatch") {
        Ok(dispatch) => matches!(call(&dispatch, vec![]), Called::Returned(())),
        Err(_) => true,
    }
}

/// For the start of the module.
pub fn start() {
    rowclaim::blocking::set_wait_hook(wait_hook);
}

/// For the end of the module: writes what is pending, closes connections.
pub fn end() {
    let _ = std::panic::catch_unwind(|| rowclaim::blocking::close_all(CLOSE_LIMIT));
}

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// Drains that live; a `work` inside of a handler shares the outer one's.
static DRAINS: AtomicUsize = AtomicUsize::new(0);
static PREVIOUS_TERM: AtomicUsize = AtomicUsize::new(0);
static PREVIOUS_INT: AtomicUsize = AtomicUsize::new(0);

type Handler = extern "C" fn(i32, *mut nix::libc::siginfo_t, *mut nix::libc::c_void);

extern "C" fn on_signal(signal: i32, about: *mut nix::libc::siginfo_t, context: *mut nix::libc::c_void) {
    if let Some(stop) = STOP.get() {
        stop.store(true, Relaxed);
    }
    let previous = if signal == Signal::SIGTERM as i32 { &PREVIOUS_TERM } else { &PREVIOUS_INT };
    let previous = previous.load(Relaxed);
    if previous != 0 {
        // SAFETY: stored by `Drain::replace` from a handler of this very type, which is in place again after us.
        let previous = unsafe { std::mem::transmute::<usize, Handler>(previous) };
        previous(signal, about, context);
    }
}

/// While it lives, SIGTERM and SIGINT set [`Drain::stop`] instead of ending the process; the second one ends it.
///
/// A handler the application has set with `pcntl_signal` runs too; a signal that is ignored stays so.
pub struct Drain {
    replaced: Vec<(Signal, SigAction)>,
}

impl Drain {
    /// Sets the handlers.
    pub fn begin() -> Self {
        let mut drain = Drain { replaced: Vec::new() };
        if DRAINS.fetch_add(1, Relaxed) > 0 {
            return drain;
        }
        Drain::stop().store(false, Relaxed);
        for (signal, previous) in [(Signal::SIGTERM, &PREVIOUS_TERM), (Signal::SIGINT, &PREVIOUS_INT)] {
            drain.replace(signal, previous);
        }
        drain
    }

    /// What a signal sets; one for the whole process.
    pub fn stop() -> &'static Arc<AtomicBool> {
        STOP.get_or_init(Arc::default)
    }

    fn replace(&mut self, signal: Signal, previous: &AtomicUsize) {
        let of_application = application_handler(signal);
        if of_application == Application::Ignores {
            return;
        }
        let mut flags = SaFlags::SA_SIGINFO | SaFlags::SA_RESTART;
        if of_application == Application::Nothing {
            // The second signal ends the process at once.
            flags |= SaFlags::SA_RESETHAND;
            previous.store(0, Relaxed);
        }
        let action = SigAction::new(SigHandler::SigAction(on_signal), flags, SigSet::empty());
        // SAFETY: `on_signal` stores an atomic, and calls what the kernel would have called.
        let Ok(replaced) = (unsafe { sigaction(signal, &action) }) else { return };
        if of_application == Application::Handles
            && let SigHandler::SigAction(handler) = replaced.handler()
            && handler as usize != on_signal as *const () as usize
        {
            previous.store(handler as usize, Relaxed);
        }
        self.replaced.push((signal, replaced));
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        DRAINS.fetch_sub(1, Relaxed);
        for (signal, action) in self.replaced.drain(..) {
            // SAFETY: the action that was in place before.
            let _ = unsafe { sigaction(signal, &action) };
        }
    }
}

/// What the application does about a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Application {
    Nothing,
    Ignores,
    Handles,
}

/// PHP puts a handler of its own under every signal: only pcntl knows what the application wants.
fn application_handler(signal: Signal) -> Application {
    let Ok(ask) = ZendCallable::try_from_name("pcntl_signal_get_handler") else { return Application::Nothing };
    let number = signal as i64;
    let answer: Option<Zval> = ask.try_call(vec![&number]).ok();
    match answer.as_ref().map(Zval::long) {
        None | Some(Some(0)) => Application::Nothing,
        Some(Some(_)) => Application::Ignores,
        Some(None) => Application::Handles,
    }
}
