//! This process's engines by configuration. Lock-free, since a lock held during a fork would stay held in the child.

use crate::background::with_signals_blocked;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use arc_swap::ArcSwapOption;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// An engine and the runtime its foreground connections belong to.
pub(super) struct Local {
    pub engine: Engine,
    pub runtime: Runtime,
}

struct Registry {
    pid: u32,
    engines: HashMap<String, Arc<Local>>,
}

static REGISTRY: ArcSwapOption<Registry> = ArcSwapOption::const_empty();

/// The registry of this process, or `None`; the parent's is leaked, without running a destructor on its sockets.
fn current() -> Option<Arc<Registry>> {
    let found = REGISTRY.load_full()?;
    if found.pid == std::process::id() {
        return Some(found);
    }
    let previous = REGISTRY.compare_and_swap(&found, None);
    // One count more than needed keeps everything the parent made from being dropped here.
    std::mem::forget(Arc::clone(&found));
    drop(previous);
    None
}

fn store(change: impl Fn(&mut HashMap<String, Arc<Local>>)) {
    loop {
        let found = current();
        let mut engines = found.as_ref().map(|r| r.engines.clone()).unwrap_or_default();
        change(&mut engines);
        let next = Some(Arc::new(Registry { pid: std::process::id(), engines }));
        let previous = REGISTRY.compare_and_swap(&found, next);
        let is_stored = match (&*previous, &found) {
            (Some(previous), Some(found)) => Arc::ptr_eq(previous, found),
            (None, None) => true,
            _ => false,
        };
        if is_stored {
            return;
        }
    }
}

/// This process's engine for `config`, made on first use.
pub(super) fn local(config: &Arc<Config>) -> Result<Arc<Local>> {
    let find = || current().and_then(|registry| registry.engines.get(&config.identity).cloned());
    if let Some(found) = find() {
        return Ok(found);
    }
    let runtime = with_signals_blocked(|| tokio::runtime::Builder::new_current_thread().enable_all().build())
        .map_err(|e| Error::new(ErrorKind::Unexpected, format!("no runtime: {e}")))?;
    let made = Arc::new(Local { engine: Engine::new(Config::clone(config))?, runtime });
    store(|engines| {
        engines.entry(config.identity.clone()).or_insert_with(|| Arc::clone(&made));
    });
    find().ok_or_else(|| Error::new(ErrorKind::Unexpected, "the engine was closed while it was made"))
}

pub(super) fn remove(config: &Config) -> Option<Arc<Local>> {
    let found = current().and_then(|registry| registry.engines.get(&config.identity).cloned());
    store(|engines| {
        engines.remove(&config.identity);
    });
    found
}

pub(super) fn remove_all() -> Vec<Arc<Local>> {
    let found = current().map(|registry| registry.engines.values().cloned().collect()).unwrap_or_default();
    store(HashMap::clear);
    found
}
