//! What worker processes write down about each job, and the audit over it.
//!
//! A worker appends one line an event to its own file, before the handler and after the accepted finish, with the
//! machine's monotonic clock: `start job fence micros` and `done job fence micros` (or `lost …`). The audit needs no
//! word of the engine's tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub struct Recorder(File);

/// Microseconds on a clock that all processes of the machine share.
pub fn clock() -> i64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000
}

impl Recorder {
    pub fn new(path: &Path) -> Recorder {
        Recorder(File::options().create(true).append(true).open(path).unwrap())
    }

    /// One write call a line: a killed process leaves whole lines.
    pub fn write(&mut self, event: &str, job: i64, fence: i64) {
        let line = format!("{event} {job} {fence} {}\n", clock());
        self.0.write_all(line.as_bytes()).unwrap();
    }
}

/// One owner's time with a job.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub worker: usize,
    pub fence: i64,
    pub start: i64,
    /// When its finish was accepted or refused; the end of its process otherwise.
    pub end: i64,
    pub is_done: bool,
    pub is_lost: bool,
}

#[derive(Debug, Default)]
pub struct Audit {
    pub spans: BTreeMap<i64, Vec<Span>>,
    pub late_writes_refused: u64,
}

impl Audit {
    /// Reads one worker's file; `ended` is when its process was surely gone.
    pub fn read(&mut self, worker: usize, path: &Path, ended: i64) {
        let Ok(text) = std::fs::read_to_string(path) else { return };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [event, job, fence, at] = words[..] else { continue };
            let (job, fence, at): (i64, i64, i64) = (job.parse().unwrap(), fence.parse().unwrap(), at.parse().unwrap());
            let spans = self.spans.entry(job).or_default();
            if event == "start" {
                spans.push(Span { worker, fence, start: at, end: ended, is_done: false, is_lost: false });
            } else if let Some(span) = spans.iter_mut().rev().find(|s| s.worker == worker && s.fence == fence) {
                span.end = at;
                span.is_done = event == "done";
                span.is_lost = event == "lost";
                self.late_writes_refused += u64::from(event == "lost");
            }
        }
    }

    /// Jobs whose finish was accepted exactly once.
    pub fn done_once(&self) -> usize {
        self.spans.values().filter(|spans| spans.iter().filter(|s| s.is_done).count() == 1).count()
    }

    /// Pairs of owners of one job with the same fence, or with times that overlap although neither was refused.
    pub fn double_owners(&self) -> usize {
        let mut doubles = 0;
        for spans in self.spans.values() {
            let mut spans: Vec<&Span> = spans.iter().collect();
            spans.sort_by_key(|span| span.start);
            for pair in spans.windows(2) {
                let is_overlap = pair[1].start < pair[0].end && !pair[0].is_lost && !pair[1].is_lost;
                doubles += usize::from(pair[0].fence >= pair[1].fence || is_overlap);
            }
        }
        doubles
    }
}
