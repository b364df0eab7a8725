//! A command for each job or run: started by `sh -c` as cron does, fed on stdin, watched, and ended when it takes too long.
//!
//! Stdout of the console is for its own answers: what the command writes, on either stream, goes to stderr. The end of
//! its stderr is kept, for the record of the failure.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::{HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Characters of an error that are kept; the engine keeps no more.
const KEPT: usize = 4_000;
/// Between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest pause between two looks at a command that may have to be ended.
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// A process that the command has left behind may keep its stderr open; nobody waits longer for it.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// The process groups of the commands that run now.
static RUNNING: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every command that runs now, at once.
pub fn end_all() {
    for group in lock(&RUNNING).iter() {
        let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
    }
}

/// Where what the command writes goes.
pub type PassOn = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What is run, and what it is told.
pub struct Exec<'a> {
    pub command: &'a str,
    /// `None` unsets a variable that the console itself was started with.
    pub environment: Vec<(&'static str, Option<String>)>,
    pub stdin: String,
}

/// How a command ended.
pub struct Ended {
    status: ExitStatus,
    /// Why it was ended before its time.
    cut_short: Option<String>,
    stderr: String,
}

impl Ended {
    /// Its exit code, unless a signal or the console has ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code().filter(|_| self.cut_short.is_none())
    }

    /// What went wrong, with the end of its stderr, in at most 4,000 characters.
    pub fn error(&self) -> String {
        let mut said = match (&self.cut_short, self.status.signal()) {
            (Some(why), _) => why.clone(),
            (None, Some(number)) => {
                let name = Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.to_string());
                format!("ended by {name}")
            }
            (None, None) => format!("exit code {}", self.status.code().unwrap_or_default()),
        };
        let stderr = self.stderr.trim();
        if !stderr.is_empty() {
            said.push_str(": ");
            let room = KEPT.saturating_sub(said.chars().count());
            let skipped = stderr.chars().count().saturating_sub(room);
            said.extend(stderr.chars().skip(skipped));
        }
        said
    }
}

/// Runs a command to its end. `must_end` is asked again and again: with a reason it is ended, by SIGTERM and then SIGKILL.
pub fn run(exec: Exec<'_>, pass_on: &PassOn, mut must_end: impl FnMut() -> Option<String>) -> io::Result<Ended> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(exec.command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    for (name, value) in &exec.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command.spawn()?;
    let group = i32::try_from(child.id()).unwrap_or(i32::MAX);
    lock(&RUNNING).insert(group);
    if let Some(mut stdin) = child.stdin.take() {
        // On a thread: the command may write before it reads. One that does not read at all is no fault.
        std::thread::spawn(move || stdin.write_all(exec.stdin.as_bytes()));
    }
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    let (heard, rest) = channel();
    if let Some(stdout) = child.stdout.take() {
        listen(stdout, Arc::clone(pass_on), None, heard.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        listen(stderr, Arc::clone(pass_on), Some(Arc::clone(&kept)), heard);
    }
    let ended = watch(&mut child, group, &mut must_end);
    lock(&RUNNING).remove(&group);
    let (status, cut_short) = ended?;
    wait_for_last_words(&rest);
    let bytes: Vec<u8> = lock(&kept).iter().copied().collect();
    Ok(Ended { status, cut_short, stderr: String::from_utf8_lossy(&bytes).into_owned() })
}

fn watch(
    child: &mut Child,
    group: i32,
    must_end: &mut impl FnMut() -> Option<String>,
) -> io::Result<(ExitStatus, Option<String>)> {
    let mut pause = Duration::from_micros(500);
    let mut cut_short: Option<(String, Instant)> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, cut_short.map(|(why, _)| why)));
        }
        match &cut_short {
            None => {
                if let Some(why) = must_end() {
                    let _ = killpg(Pid::from_raw(group), Signal::SIGTERM);
                    cut_short = Some((why, Instant::now()));
                }
            }
            Some((_, since)) if since.elapsed() >= PATIENCE => {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            Some(_) => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

fn listen(mut stream: impl Read + Send + 'static, pass_on: PassOn, keep: Option<Arc<Mutex<VecDeque<u8>>>>, heard: Sender<()>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 8_192];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let part = buffer.get(..read).unwrap_or_default();
            pass_on(part);
            if let Some(keep) = &keep {
                let mut kept = lock(keep);
                kept.extend(part);
                // A character has at most four bytes.
                let too_many = kept.len().saturating_sub(4 * KEPT);
                kept.drain(..too_many);
            }
        }
        let _ = heard.send(());
    });
}

fn wait_for_last_words(rest: &Receiver<()>) {
    let until = Instant::now() + LAST_WORDS;
    // Disconnected when both streams have ended.
    while rest.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_it(command: &str, stdin: &str, must_end: impl FnMut() -> Option<String>) -> Ended {
        let exec = Exec { command, environment: vec![("ROWCLAIM_TEST", Some("here".into()))], stdin: stdin.to_owned() };
        let nowhere: PassOn = Arc::new(|_| ());
        run(exec, &nowhere, must_end).unwrap()
    }

    #[test]
    fn stdin_and_environment_arrive_and_the_end_of_stderr_is_kept() {
        let ended = run_it("[ \"$(cat)\" = \"$ROWCLAIM_TEST\" ] && exit 0; exit 3", "here", || None);
        assert_eq!(ended.code(), Some(0));
        let ended = run_it("yes é | head -c 100000 >&2; echo the end >&2; exit 3", "", || None);
        assert_eq!(ended.code(), Some(3));
        let error = ended.error();
        assert!(error.starts_with("exit code 3: ") && error.ends_with("the end"), "{error}");
        assert_eq!(error.chars().count(), 4_000);
    }

    #[test]
    fn a_signal_is_named_and_a_command_that_takes_too_long_is_ended() {
        assert_eq!(run_it("kill -9 $$", "", || None).error(), "ended by SIGKILL");
        let ended = run_it("echo stuck >&2; sleep 60", "", || Some("took too long".to_owned()));
        assert_eq!((ended.code(), ended.error().starts_with("took too long")), (None, true));
    }

    #[test]
    fn large_input_that_nobody_reads_and_a_process_left_behind_hold_nothing_up() {
        let since = Instant::now();
        assert_eq!(run_it("sleep 20 & exit 0", &"x".repeat(1 << 20), || None).code(), Some(0));
        assert!(since.elapsed() < Duration::from_secs(10));
    }
}
