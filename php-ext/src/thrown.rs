//! An exception of PHP code that is looked at in the core's frames, and goes on its way afterwards or not.

use crate::arguments::{class_and_message, throwable_text};
use crate::exceptions::{is_not_sent, is_reject};
use crate::process::is_exit;
use ext_php_rs::boxed::ZBox;
use ext_php_rs::types::{ZendObject, Zval};
use ext_php_rs::zend::ExecutorGlobals;

/// An exception that was pending. While it is held, PHP code can run.
pub struct Thrown(ZBox<ZendObject>);

impl Thrown {
    /// Takes the pending one; what `exit()` throws stays.
    pub fn take() -> Option<Self> {
        if ExecutorGlobals::pending_exception_class().is_some_and(|class| is_exit(&class)) {
            return None;
        }
        ExecutorGlobals::take_exception().map(Thrown)
    }

    /// `Class: message`.
    pub fn text(&self) -> String {
        throwable_text(&self.0)
    }

    /// Its message, or its class when it has none.
    pub fn message(&self) -> String {
        let (class, message) = class_and_message(&self.0);
        if message.is_empty() { class } else { message }
    }

    /// Whether it is a `Rowclaim\NotSent`.
    pub fn is_not_sent(&self) -> bool {
        is_not_sent(&self.0)
    }

    /// Whether it says that no repetition mends it.
    pub fn is_reject(&self) -> bool {
        is_reject(&self.0)
    }

    /// Has it pending again, as it was.
    pub fn put_back(mut self) {
        let mut zval = Zval::new();
        zval.set_object(&mut self.0);
        // It is an object, and one that can be thrown.
        let _ = ext_php_rs::exception::throw_object(zval);
    }
}
