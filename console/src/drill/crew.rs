//! The drill's processes: the console itself, started again as `drill-worker`; told by lines of JSON on stdin, heard by lines
//! of JSON on stdout. One whose stdin is closed ends at once, so none outlives the console.

use super::Broken;
use super::scratch::Scratch;
use crate::connect::with_options;
use crate::progress;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What a process says, and which one.
pub struct Said {
    pub by: usize,
    pub what: Value,
}

impl Said {
    /// Its event has this name.
    pub fn is(&self, event: &str) -> bool {
        self.text("event") == event
    }

    pub fn text(&self, name: &str) -> &str {
        self.what.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn int(&self, name: &str) -> i64 {
        self.what.get(name).and_then(Value::as_i64).unwrap_or(-1)
    }

    pub fn truth(&self, name: &str) -> bool {
        self.what.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// What the processes of a drill share.
#[derive(Clone)]
pub struct Orders {
    pub prefix: String,
    /// The provider's book.
    pub provider: PathBuf,
    pub faults: bool,
    /// A violation that is planted, to prove that a check can fail.
    pub violate: String,
}

struct Member {
    child: Child,
    is_killed: bool,
}

/// All processes of one drill.
pub struct Crew {
    members: Vec<Member>,
    heard: Receiver<Said>,
    interrupted: Arc<AtomicBool>,
}

impl Crew {
    /// Starts processes with a role; `heartless` ones do not renew. Returns when all have connected.
    pub fn start(
        scratch: &Scratch,
        orders: &Orders,
        role: &str,
        processes: usize,
        heartless: &[usize],
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, Broken> {
        let (sender, heard) = channel();
        let mut crew = Crew { members: Vec::new(), heard, interrupted: Arc::clone(interrupted) };
        for number in 0..processes {
            let name = format!("{role}-{number}");
            let mut options = vec![("worker", name.as_str())];
            if heartless.contains(&number) {
                options.push(("heartbeat", "0"));
            }
            let dsn = with_options(&scratch.dsn, &options);
            let own = std::env::current_exe().map_err(|error| Broken::now(format!("where am I: {error}")))?;
            let mut child = Command::new(own)
                .arg("drill-worker")
                .env("ROWCLAIM_DSN", dsn)
                .env_remove("ROWCLAIM_CONFIG")
                .env("DRILL_ROLE", role)
                .env("DRILL_NUMBER", number.to_string())
                .env("DRILL_PREFIX", &orders.prefix)
                .env("DRILL_PROVIDER", &orders.provider)
                .env("DRILL_VIOLATE", &orders.violate)
                .env("DRILL_FAULTS", if orders.faults { "1" } else { "" })
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // Ctrl-C is for the console, which then ends them.
                .process_group(0)
                .spawn()
                .map_err(|error| Broken::now(format!("a process does not start: {error}")))?;
            if let Some(out) = child.stdout.take() {
                listen(number, out, sender.clone());
            }
            crew.members.push(Member { child, is_killed: false });
        }
        let mut ready = 0;
        crew.wait("all processes connect", Duration::from_secs(60), |said| {
            ready += usize::from(said.is("ready"));
            (ready == processes).then_some(())
        })?;
        Ok(crew)
    }

    /// Those that were not killed.
    pub fn alive(&self) -> Vec<usize> {
        let alive = self.members.iter().enumerate().filter(|(_, member)| !member.is_killed);
        alive.map(|(number, _)| number).collect()
    }

    /// Tells one process.
    pub fn tell(&mut self, number: usize, order: &Value) {
        if let Some(member) = self.members.get_mut(number).filter(|member| !member.is_killed)
            && let Some(stdin) = &mut member.child.stdin
        {
            // One that is gone is missed by whoever waits for its answer.
            let _ = writeln!(stdin, "{order}").and_then(|()| stdin.flush());
        }
    }

    /// Tells all processes, as much at once as one can.
    pub fn tell_all(&mut self, order: &Value) {
        for number in self.alive() {
            self.tell(number, order);
        }
    }

    /// Hears what is said until `wanted` has what it wants.
    pub fn wait<T>(&self, what: &str, within: Duration, wanted: impl FnMut(&Said) -> Option<T>) -> Result<T, Broken> {
        let late = || Broken::now(format!("{what}: it did not happen within {} s", within.as_secs()));
        self.hear(within, wanted)?.ok_or_else(late)
    }

    /// Hears what is said for a while, or until `wanted` has what it wants.
    pub fn hear<T>(&self, within: Duration, mut wanted: impl FnMut(&Said) -> Option<T>) -> Result<Option<T>, Broken> {
        let until = Instant::now() + within;
        loop {
            if self.interrupted.load(Relaxed) {
                return Err(Broken::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(said) if said.is("error") => {
                    return Err(Broken::now(format!("process {}: {}", said.by, said.text("error"))));
                }
                Ok(said) if said.is("gone") => {
                    if self.members.get(said.by).is_some_and(|member| !member.is_killed) {
                        return Err(Broken::now(format!("process {} ended by itself", said.by)));
                    }
                }
                Ok(said) => {
                    if let Some(found) = wanted(&said) {
                        return Ok(Some(found));
                    }
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Broken::now("no process is left")),
            }
        }
    }

    /// SIGKILL; it is gone when this returns.
    pub fn kill(&mut self, number: usize) {
        if let Some(member) = self.members.get_mut(number) {
            member.is_killed = true;
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }

    /// SIGSTOP; every thread of it stands still when this returns.
    pub fn pause(&self, number: usize) -> Result<(), Broken> {
        let Some(pid) = self.pid(number) else { return Ok(()) };
        let stopped = kill(pid, Signal::SIGSTOP).and_then(|()| waitpid(pid, Some(WaitPidFlag::WUNTRACED)));
        stopped.map(drop).map_err(|error| Broken::now(format!("a process cannot be stopped: {error}")))
    }

    /// SIGCONT.
    pub fn go_on(&self, number: usize) {
        if let Some(pid) = self.pid(number) {
            let _ = kill(pid, Signal::SIGCONT);
        }
    }

    fn pid(&self, number: usize) -> Option<Pid> {
        Some(Pid::from_raw(i32::try_from(self.members.get(number)?.child.id()).ok()?))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for number in self.alive() {
            self.kill(number);
        }
    }
}

fn listen(number: usize, out: impl Read + Send + 'static, sender: Sender<Said>) {
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(what) => drop(sender.send(Said { by: number, what })),
                Err(_) => progress::say(&line),
            }
        }
        let _ = sender.send(Said { by: number, what: json!({ "event": "gone" }) });
    });
}
