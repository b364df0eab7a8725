//! `rowclaim create`: create a job, once for each key.

use crate::fault::{Fault, OK, Outcome};
use crate::{connect, json, screen, span};
use clap::Args;
use rowclaim::{NewJob, Unique};
use std::io::Read;
use std::time::Duration;

/// Create a job, once for each key
///
/// With a key, a repeat creates nothing and answers which job is there already; both are exit code 0.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim create mail '{\"to\": 7}' --key mail:7
  rowclaim create report '{}' --delay 5m --max-attempts 3
  curl -s https://shop.example/order/7 | rowclaim create order_sync -")]
pub struct Create {
    /// 1 to 64 bytes
    queue: String,
    /// JSON; - reads it from stdin
    payload: String,
    /// The business key, 1 to 191 bytes: with the same queue and key a job is created once
    #[arg(long)]
    key: Option<String>,
    /// How long the key keeps others out: forever, active, until_claimed, or a time such as 1h
    #[arg(long, default_value = "forever", value_parser = unique, requires = "key")]
    unique: Unique,
    /// Wait before the first attempt: 30s, 5m, 7d
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    delay: Option<Duration>,
    /// Smaller runs first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,
    /// Attempts before the job is dead; otherwise the DSN's
    #[arg(long, value_name = "N")]
    max_attempts: Option<i64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn unique(text: &str) -> Result<Unique, String> {
    Unique::parse(text).or_else(|error| span::parse(text).map(Unique::For).map_err(|_| error.to_string()))
}

impl Create {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let mut payload = self.payload.clone();
        if payload == "-" {
            payload.clear();
            let read = std::io::stdin().read_to_string(&mut payload);
            read.map_err(|error| Fault::Usage(format!("PAYLOAD cannot be read from stdin: {error}")))?;
            payload.truncate(payload.trim_end().len());
        }
        let mut job = NewJob::new(&self.queue, payload);
        job.key.clone_from(&self.key);
        job.unique = self.unique;
        job.delay = self.delay.unwrap_or_default();
        job.priority = self.priority;
        job.max_attempts = self.max_attempts;
        let created = connect::engine(dsn)?.create(&job)?;
        if self.json {
            let answer = serde_json::json!({ "id": created.id, "exists": created.exists, "state": created.state.name() });
            json::line(&answer)?;
        } else if created.exists {
            screen::line(format!("exists {} ({})", created.id, created.state.name()))?;
        } else {
            screen::line(format!("created {}", created.id))?;
        }
        Ok(OK)
    }
}
