//! SIGTERM and SIGINT for commands that work until they are stopped: the first one asks, the second one ends.
//!
//! The one thing to know: commands that were started (see [`crate::exec`]) are in process groups of their own, so that a
//! Ctrl-C does not end the job in hand; the second signal ends them too.

use crate::exec;
use crate::fault::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is added to the number of a signal in an exit code.
const SIGNALLED: i32 = 128;

/// True from the first signal on.
pub fn on_signals() -> Result<Arc<AtomicBool>, Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let no_signals = |error| Fault::unexpected(format!("signals cannot be waited for: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(no_signals)?;
    let guard = runtime.enter();
    // From here on a signal does not end the process by itself.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            next(&mut interrupt, &mut terminate).await;
            told.store(true, Relaxed);
            let second = next(&mut interrupt, &mut terminate).await;
            exec::end_all();
            std::process::exit(SIGNALLED + second.as_raw_value());
        });
    });
    Ok(stop)
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    }
}
