//! How far long work has come: a bar on a terminal, a plain line now and then otherwise; always on stderr.

use crate::exec::PassOn;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// One piece of long work.
pub struct Progress {
    label: &'static str,
    total: Option<u64>,
    /// `None` without a terminal.
    bar: Option<ProgressBar>,
    said_at: Mutex<Instant>,
}

impl Progress {
    /// Work of a known length.
    pub fn new(label: &'static str, total: u64) -> Self {
        Progress::start(label, Some(total), "{msg:12} {bar:36} {human_pos}/{human_len}  {per_sec}  {elapsed}")
    }

    /// Work whose end is not known.
    pub fn open_ended(label: &'static str) -> Self {
        Progress::start(label, None, "{spinner} {msg} {human_pos}  {per_sec}  {elapsed}")
    }

    fn start(label: &'static str, total: Option<u64>, template: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.set_message(label);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { label, total, bar, said_at: Mutex::new(Instant::now()) }
    }

    /// So far.
    pub fn at(&self, done: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(done);
        }
        let mut said_at = self.said_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said_at.elapsed() >= PLAIN_EVERY {
            *said_at = Instant::now();
            drop(said_at);
            self.say(&match self.total {
                Some(total) => format!("{} {done}/{total}", self.label),
                None => format!("{} {done}", self.label),
            });
        }
    }

    /// Writes what a command has written, as it is, to stderr.
    pub fn passing_on(&self) -> PassOn {
        let bar = self.bar.clone();
        Arc::new(move |bytes| {
            let write = || drop(std::io::stderr().write_all(bytes));
            match &bar {
                Some(bar) => bar.suspend(write),
                None => write(),
            }
        })
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Says something without spoiling the bar.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(text),
        }
    }
}

/// Says something on stderr, if anybody listens.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
