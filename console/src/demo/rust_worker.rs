//! The hidden `demo-worker`: what `worker.php` and `worker.py` do, for machines without PHP and Python.
//!
//! HTTP by hand, one connection a message, since a client library would be a dependency of the demo alone.

use crate::connect;
use crate::fault::{Fault, OK, Outcome};
use rowclaim::blocking::{Engine, Job};
use rowclaim::{ClaimRequest, Finish};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

static STOP: AtomicBool = AtomicBool::new(false);

struct Worker {
    name: String,
    provider: SocketAddr,
    timeout: Duration,
    completed: u64,
    failed: u64,
    refused: u64,
}

pub fn run(dsn: Option<&str>) -> Outcome {
    let provider = setting("DEMO_URL")?;
    let provider = provider.trim_start_matches("http://").trim_end_matches("/send");
    let mut worker = Worker {
        name: setting("DEMO_WORKER")?,
        provider: provider.parse().map_err(|_| Fault::config("DEMO_URL is no address"))?,
        timeout: Duration::from_secs_f64(number("DEMO_TIMEOUT")?),
        completed: 0,
        failed: 0,
        refused: 0,
    };
    let request = ClaimRequest::new(setting("DEMO_QUEUE")?)
        .limit(number("DEMO_BATCH")? as usize)
        .lease(Duration::from_secs_f64(number("DEMO_LEASE")?));
    // Stdin that is closed says stop; so nobody outlives the console.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        STOP.store(true, Relaxed);
    });
    worker.work(&connect::engine(dsn)?, &request)?;
    let (completed, failed, refused) = (worker.completed, worker.failed, worker.refused);
    crate::json::line(&json!({ "completed": completed, "failed": failed, "refused": refused }))?;
    Ok(OK)
}

impl Worker {
    fn work(&mut self, engine: &Engine, request: &ClaimRequest) -> Result<(), Fault> {
        while !STOP.load(Relaxed) {
            let claim = engine.claim(request)?;
            if claim.is_empty() {
                std::thread::sleep(Duration::from_millis(100));
            }
            for job in claim {
                let job = job?;
                let answer = match self.send(&job) {
                    Ok(()) => {
                        let answer = job.complete()?;
                        self.completed += u64::from(answer == Finish::Accepted);
                        answer
                    }
                    Err(error) => {
                        self.failed += 1;
                        job.fail(error, None)?
                    }
                };
                // The lease ran out meanwhile, and another worker owns the job now.
                if answer == Finish::Lost {
                    self.refused += 1;
                    writeln!(std::io::stderr(), "late write refused for job {}", job.id)?;
                }
            }
        }
        Ok(())
    }

    fn send(&self, job: &Job) -> Result<(), String> {
        let started = Instant::now();
        self.post(job).map_err(|error| {
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) || started.elapsed() >= self.timeout {
                let payload: serde_json::Value = serde_json::from_str(&job.payload).unwrap_or_default();
                let recipient = payload.get("recipient").cloned().unwrap_or_default();
                let _ = crate::json::line(&json!({ "gave_up": recipient, "attempt": job.attempts }));
            }
            error.to_string()
        })
    }

    fn post(&self, job: &Job) -> std::io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.provider, self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        let body = &job.payload;
        let head = format!(
            "POST /send HTTP/1.1\r\nHost: {}\r\nX-Worker: {}\r\nX-Job: {}\r\nX-Attempt: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.provider,
            self.name,
            job.id,
            job.attempts,
            body.len()
        );
        stream.write_all((head + body).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_whitespace().nth(1) {
            Some("200") => Ok(()),
            Some(status) => Err(std::io::Error::other(format!("the provider answered {status}"))),
            None => Err(std::io::Error::other("the provider hung up")),
        }
    }
}

fn setting(name: &str) -> Result<String, Fault> {
    std::env::var(name).map_err(|_| Fault::config(format!("{name} is not set; `rowclaim demo` starts its workers itself")))
}

fn number(name: &str) -> Result<f64, Fault> {
    setting(name)?.parse().map_err(|_| Fault::config(format!("{name} is no number")))
}
