//! The two accidents: a worker is killed inside of a send, and a worker is stopped inside of a send past its lease.
//!
//! The moment is chosen by the provider: the message was accepted, and the worker waits for the answer. The killed worker
//! never learns it. The stopped one finds it when it goes on, and completes a job that is not its own any more: the
//! engine must refuse that write.

use super::LEASE;
use super::audit::Victim;
use super::campaign::Campaign;
use super::provider::{Ambush, Caught, Provider};
use super::workers::{Crew, Language};
use crate::fault::Fault;
use rowclaim::JobState;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A stopped worker goes on after this time at the latest.
const LONGEST_STOP: Duration = Duration::from_secs(30);

/// Lets both happen; who they happened to. Ends early when `over`.
pub fn run(crew: &Crew, provider: &Provider, campaign: &Campaign, over: &AtomicBool) -> Result<Vec<Victim>, Fault> {
    let mut victims = Vec::new();
    let Some((killed, language)) = crew.find(Language::Php) else { return Ok(victims) };
    if let Some(caught) = wait_for(provider, &killed, campaign.len() / 4, over) {
        crew.kill(&killed)?;
        victims.push(Victim { worker: killed.clone(), deliveries_before: provider.accepted() });
        drop(caught);
        let fresh = crew.hire(language)?;
        crew.say(format!("killed {killed} inside of a send (SIGKILL); {fresh} takes its place"));
    }
    let Some((stopped, _)) = crew.find(Language::Python) else { return Ok(victims) };
    if let Some(caught) = wait_for(provider, &stopped, campaign.len() / 2, over) {
        crew.pause(&stopped)?;
        victims.push(Victim { worker: stopped.clone(), deliveries_before: provider.accepted() });
        let since = Instant::now();
        let job = caught.job;
        // The answer now waits in its socket.
        let _ = caught.answer.send(());
        crew.say(format!("stopped {stopped} inside of a send (SIGSTOP)"));
        let lost = wait_until_lost(campaign, job, since, over);
        crew.go_on(&stopped)?;
        lost?;
        crew.say(format!("continued {stopped} after {:.1} s: its lease is over", since.elapsed().as_secs_f64()));
    }
    Ok(victims)
}

fn wait_for(provider: &Provider, worker: &str, after: usize, over: &AtomicBool) -> Option<Caught> {
    let (caught, receiver) = channel();
    provider.lie_in_wait(Ambush { worker: worker.to_owned(), after, caught });
    while !over.load(Relaxed) {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(caught) => return Some(caught),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// Waits until the lease is over and another worker has taken the job back.
fn wait_until_lost(campaign: &Campaign, job: i64, since: Instant, over: &AtomicBool) -> Result<(), Fault> {
    while since.elapsed() < LONGEST_STOP && !over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if since.elapsed() < LEASE {
            continue;
        }
        if campaign.engine.job(job)?.is_none_or(|row| row.lost > 0 || row.state != JobState::Claimed) {
            return Ok(());
        }
    }
    Ok(())
}
