//! Callables by the name of what they are called for: a queue, or a task.

use crate::arguments::{Text, typed};
use crate::exceptions::invalid;
use ext_php_rs::exception::PhpResult;
use ext_php_rs::types::{ZendCallable, ZendHashTable, Zval};
use std::collections::HashMap;

/// A function of the user's.
pub type Handler = ZendCallable<'static>;

/// Handlers by name, in the order they were given.
pub struct Handlers {
    names: Vec<String>,
    callables: HashMap<String, Handler>,
}

impl Handlers {
    /// Reads an array of callables; `what` is what its keys name, for messages.
    ///
    /// # Errors
    /// `InvalidException` for one that cannot be called, and for a name that is not UTF-8.
    pub fn read(what: &str, handlers: &ZendHashTable) -> PhpResult<Self> {
        let mut names = Vec::with_capacity(handlers.len());
        let mut callables = HashMap::with_capacity(handlers.len());
        let mut entries = handlers.iter();
        while let Some((key, handler)) = entries.next_zval() {
            let name = match key.long() {
                Some(number) => number.to_string(),
                None => typed::<Text>("handlers", &format!("array of callables by {what}"), &key)?.utf8("handlers")?,
            };
            callables.insert(name.clone(), handler_of(&format!("the handler of {what} {name}"), handler)?);
            names.push(name);
        }
        Ok(Handlers { names, callables })
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The handler of a name.
    pub fn get(&self, name: &str) -> Option<&Handler> {
        self.callables.get(name)
    }
}

/// A callable that may be kept; `name` is what messages call it.
///
/// # Errors
/// `InvalidException` when it cannot be called.
pub fn handler_of(name: &str, callable: &Zval) -> PhpResult<Handler> {
    match ZendCallable::new_owned(callable.dereference().shallow_clone()) {
        Ok(callable) => Ok(callable),
        Err(_) => invalid(format!("{name} cannot be called")),
    }
}
