//! The worker processes: started, listened to, replaced and stopped.
//!
//! A worker is told everything by environment variables (a DSN in an argument could be read by other users) and stops
//! when its stdin is closed, so none outlives the console. It prints JSON lines: `{"gave_up": recipient, "attempt": n}`
//! when it lost its patience with the provider, and at its end `{"completed": n, "failed": n, "refused": n}`, where
//! `refused` counts the `false` answers to complete() and fail(): late writes.

use super::LEASE;
use super::campaign::QUEUE;
use crate::connect::with_options;
use crate::fault::Fault;
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker waits for the provider's answer.
pub const TIMEOUT: Duration = Duration::from_millis(1_500);

const PHP_WORKER: &str = include_str!("../../demo/worker.php");
const PYTHON_WORKER: &str = include_str!("../../demo/worker.py");

/// What a worker is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Php,
    Python,
    Rust,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Language::Php => "php",
            Language::Python => "python",
            Language::Rust => "rust",
        }
    }
}

/// Where the interpreters are.
pub struct Tools {
    pub php: PathBuf,
    pub extension: Option<PathBuf>,
    pub python: PathBuf,
}

impl Tools {
    /// Says what is missing before anything is made.
    pub fn check(&self, languages: &[Language]) -> Result<(), Fault> {
        if languages.contains(&Language::Php) {
            let mut probe = self.php();
            probe.args(["-r", "exit(class_exists('Rowclaim\\\\Engine') ? 0 : 7);"]);
            let hint = "build it with `cargo build --profile fast -p rowclaim-php` and give --extension, or load it in php.ini";
            self.probe(probe, &self.php, "the PHP extension rowclaim", hint)?;
        }
        if languages.contains(&Language::Python) {
            let mut probe = Command::new(&self.python);
            probe.args(["-c", "import rowclaim; rowclaim.connect"]);
            let hint = "install it with `maturin develop -m py-ext/Cargo.toml` in a virtual environment and give its --python";
            self.probe(probe, &self.python, "the Python module rowclaim", hint)?;
        }
        Ok(())
    }

    fn probe(&self, mut command: Command, program: &Path, what: &str, hint: &str) -> Result<(), Fault> {
        let program = program.display();
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Fault::config(format!("{program} cannot be run ({error}): install it, name another, or use --workers rust"))
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        log::info!("{program}: {}", said.trim());
        Err(Fault::config(format!("{program} does not have {what}: {hint}; or use --workers rust")))
    }

    fn php(&self) -> Command {
        let mut command = Command::new(&self.php);
        if let Some(extension) = &self.extension {
            // PHP looks up a name with no slash in its own folder.
            let path = std::path::absolute(extension).unwrap_or_else(|_| extension.clone());
            command.arg("-d").arg(format!("extension={}", path.display()));
        }
        command
    }
}

/// What the workers told us.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Worker, recipient and attempt of sends whose answer the worker did not wait for.
    pub gave_up: HashSet<(String, String, u32)>,
    pub completed: u64,
    pub failed: u64,
    /// Late writes that were refused.
    pub refused: u64,
    /// Lines for people, not shown yet.
    lines: Vec<String>,
}

struct Member {
    name: String,
    language: Language,
    child: Child,
    listeners: Vec<JoinHandle<()>>,
    is_gone: bool,
}

/// What the workers share.
pub struct Place {
    pub dsn: String,
    /// The provider's.
    pub url: String,
    /// For their scripts.
    pub folder: PathBuf,
}

/// All workers.
pub struct Crew {
    tools: Tools,
    place: Place,
    batch: usize,
    members: Mutex<Vec<Member>>,
    told: Arc<Mutex<Told>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    /// Starts one worker for each language named.
    pub fn start(languages: Vec<Language>, tools: Tools, place: Place, batch: usize) -> Result<Self, Fault> {
        for (name, text) in [("worker.php", PHP_WORKER), ("worker.py", PYTHON_WORKER)] {
            let written = std::fs::write(place.folder.join(name), text);
            written.map_err(|error| Fault::unexpected(format!("{name} cannot be written to the temporary folder: {error}")))?;
        }
        let crew = Crew { tools, place, batch, members: Mutex::default(), told: Arc::default() };
        for language in languages {
            if let Err(fault) = crew.hire(language) {
                crew.stop();
                return Err(fault);
            }
        }
        Ok(crew)
    }

    /// Starts one more worker; its name.
    pub fn hire(&self, language: Language) -> Result<String, Fault> {
        let mut members = lock(&self.members);
        let number = members.iter().filter(|member| member.language == language).count() + 1;
        let name = format!("{}-{number}", language.name());
        let mut command = match language {
            Language::Php => {
                let mut command = self.tools.php();
                command.arg(self.place.folder.join("worker.php"));
                command
            }
            Language::Python => {
                let mut command = Command::new(&self.tools.python);
                command.arg("-u").arg(self.place.folder.join("worker.py"));
                command
            }
            Language::Rust => {
                let own = std::env::current_exe().map_err(|error| Fault::unexpected(format!("where am I: {error}")))?;
                let mut command = Command::new(own);
                command.arg("demo-worker");
                command
            }
        };
        command
            .env("ROWCLAIM_DSN", with_options(&self.place.dsn, &[("worker", &name)]))
            .env("DEMO_QUEUE", QUEUE)
            .env("DEMO_URL", &self.place.url)
            .env("DEMO_WORKER", &name)
            .env("DEMO_BATCH", self.batch.to_string())
            .env("DEMO_LEASE", LEASE.as_secs().to_string())
            .env("DEMO_TIMEOUT", TIMEOUT.as_secs_f64().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the console, which then tells the workers.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| Fault::config(format!("{name} does not start: {error}")))?;
        let mut listeners = Vec::new();
        if let Some(out) = child.stdout.take() {
            listeners.push(self.listen(&name, out, true));
        }
        if let Some(err) = child.stderr.take() {
            listeners.push(self.listen(&name, err, false));
        }
        members.push(Member { name: name.clone(), language, child, listeners, is_gone: false });
        Ok(name)
    }

    fn listen(&self, name: &str, stream: impl Read + Send + 'static, is_protocol: bool) -> JoinHandle<()> {
        let (name, told) = (name.to_owned(), Arc::clone(&self.told));
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let message = serde_json::from_str::<Value>(&line).ok().filter(|_| is_protocol);
                let mut told = lock(&told);
                match message {
                    Some(Value::Object(message)) => told.note(&name, &message),
                    _ => told.lines.push(format!("{name}: {line}")),
                }
            }
        })
    }

    /// A worker of a language that runs, or of another when there is none.
    pub fn find(&self, language: Language) -> Option<(String, Language)> {
        let members = lock(&self.members);
        let mut running = members.iter().filter(|member| !member.is_gone);
        let found = running.clone().find(|member| member.language == language).or_else(|| running.next())?;
        Some((found.name.clone(), found.language))
    }

    /// Lines for people since the last call.
    pub fn said(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.told).lines)
    }

    pub fn say(&self, line: String) {
        lock(&self.told).lines.push(line);
    }

    pub fn told(&self) -> Told {
        lock(&self.told).clone()
    }

    /// Fails when a worker ended by itself.
    pub fn check(&self) -> Result<(), Fault> {
        for member in lock(&self.members).iter_mut().filter(|member| !member.is_gone) {
            if let Ok(Some(status)) = member.child.try_wait() {
                member.is_gone = true;
                member.listeners.drain(..).for_each(|listener| drop(listener.join()));
                let lines = self.said();
                lines.iter().for_each(|line| log::warn!("{line}"));
                let last = lines.last().map(String::as_str).unwrap_or_default();
                return Err(Fault::unexpected(format!("the worker {} ended early ({status}): {last}", member.name)));
            }
        }
        Ok(())
    }

    fn with<T>(&self, name: &str, act: impl FnOnce(&mut Member) -> std::io::Result<T>) -> Result<T, Fault> {
        let mut members = lock(&self.members);
        let found = members.iter_mut().find(|member| member.name == name);
        let member = found.ok_or_else(|| Fault::unexpected(format!("there is no worker {name}")))?;
        act(member).map_err(|error| Fault::unexpected(format!("{name}: {error}")))
    }

    /// SIGKILL; the process is gone when it returns.
    pub fn kill(&self, name: &str) -> Result<(), Fault> {
        self.with(name, |member| {
            member.is_gone = true;
            member.child.kill()?;
            member.child.wait().map(drop)
        })
    }

    /// SIGSTOP; every thread of the process stands still when it returns.
    pub fn pause(&self, name: &str) -> Result<(), Fault> {
        self.with(name, |member| {
            kill(pid(&member.child), Signal::SIGSTOP)?;
            match waitpid(pid(&member.child), Some(WaitPidFlag::WUNTRACED))? {
                WaitStatus::Stopped(..) => Ok(()),
                other => Err(std::io::Error::other(format!("did not stop: {other:?}"))),
            }
        })
    }

    /// SIGCONT.
    pub fn go_on(&self, name: &str) -> Result<(), Fault> {
        self.with(name, |member| Ok(kill(pid(&member.child), Signal::SIGCONT)?))
    }

    /// Tells the workers to stop, and waits until they have; one that does not is killed.
    pub fn stop(&self) {
        let mut members = lock(&self.members);
        for member in members.iter_mut().filter(|member| !member.is_gone) {
            drop(member.child.stdin.take());
            // One that is still stopped could not hear it.
            let _ = kill(pid(&member.child), Signal::SIGCONT);
        }
        let deadline = Instant::now() + Duration::from_secs(15);
        for member in members.iter_mut() {
            while !member.is_gone && matches!(member.child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    log::warn!("{} does not stop; killing it", member.name);
                    let _ = member.child.kill();
                    let _ = member.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            member.is_gone = true;
            member.listeners.drain(..).for_each(|listener| drop(listener.join()));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Told {
    fn note(&mut self, worker: &str, message: &serde_json::Map<String, Value>) {
        let number = |name: &str| message.get(name).and_then(Value::as_u64).unwrap_or(0);
        if let Some(recipient) = message.get("gave_up").and_then(Value::as_str) {
            let attempt = u32::try_from(number("attempt")).unwrap_or(0);
            self.gave_up.insert((worker.to_owned(), recipient.to_owned(), attempt));
        }
        self.completed += number("completed");
        self.failed += number("failed");
        self.refused += number("refused");
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}
