//! `rowclaim stats`: what waits, runs and is dead, by queue.

use crate::fault::{OK, Outcome};
use crate::json::{self, StatsView};
use crate::{connect, screen, span};
use clap::Args;
use comfy_table::{Cell, CellAlignment, Color};
use rowclaim::{Count, JobState};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// Show what waits, runs and is dead, by queue
///
/// Counts go by indexes and stop at 10,000 in each priority (shown as 10000+), so this is cheap on a table of any size.
/// --exact counts every job by state and reads the whole table.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim stats
  rowclaim stats --watch 2
  rowclaim stats --json | jq '.queues[] | select(.dead.rows > 0).queue'")]
pub struct Stats {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Count every job by state; reads the whole table
    #[arg(long)]
    exact: bool,
    /// Again after so many seconds (or 500ms, 1m), until stopped
    #[arg(long, value_name = "SECONDS", value_parser = span::parse)]
    watch: Option<Duration>,
}

impl Stats {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        let engine = connect::engine(dsn)?;
        let server = engine.server_version()?;
        loop {
            let stats = engine.stats(self.exact)?;
            if self.json {
                json::line(&StatsView::new(&server, &stats))?;
            } else {
                if self.watch.is_some() && io::stdout().is_terminal() {
                    // Clears the terminal and goes to its upper left corner.
                    screen::line("\u{1b}[2J\u{1b}[H")?;
                }
                self.show(&server, &stats)?;
            }
            match self.watch {
                Some(pause) => std::thread::sleep(pause.max(Duration::from_millis(100))),
                None => return Ok(OK),
            }
        }
    }

    fn show(&self, server: &str, stats: &rowclaim::Stats) -> io::Result<()> {
        let exact = self.exact.then_some(JobState::ALL).into_iter().flatten();
        let titles = ["queue", "due", "delayed", "claimed", "dead", "held", "oldest due"].map(str::to_owned);
        let titles: Vec<String> = titles.into_iter().chain(exact.clone().map(|state| format!("={}", state.name()))).collect();
        let mut table = screen::table(titles.iter().map(String::as_str));
        for queue in &stats.queues {
            let (dead, held) = (count(queue.dead), count(queue.held));
            let mut cells = vec![
                screen::text(&queue.queue),
                count(queue.due),
                count(queue.delayed),
                screen::number(queue.claimed),
                if queue.dead.rows > 0 { dead.fg(Color::Red) } else { dead },
                if queue.held.rows > 0 { held.fg(Color::Magenta) } else { held },
                Cell::new(queue.oldest_due.map(span::human).unwrap_or_default()),
            ];
            let all = queue.exact.clone().unwrap_or_default();
            cells.extend(exact.clone().map(|state| screen::number(all.get(state.name()).copied().unwrap_or(0))));
            table.add_row(cells);
        }
        if stats.queues.is_empty() {
            screen::line("no jobs")?;
        } else {
            screen::show(&table)?;
        }
        let expired = match stats.expired_claims {
            0 => String::new(),
            n => format!(", {n} of them past their lease"),
        };
        screen::line(format!("{} open claims{expired} · {}", stats.open_claims, screen::printable(server)))
    }
}

fn count(count: Count) -> Cell {
    if count.is_capped {
        return Cell::new(format!("{}+", count.rows)).set_alignment(CellAlignment::Right);
    }
    screen::number(count.rows)
}
