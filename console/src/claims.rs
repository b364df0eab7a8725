//! `rowclaim claims` and `rowclaim release`: which rows a claim took, who, when, and how each of them ended.

use crate::config::Config;
use crate::fault::{FAILED, Fault, OK, Outcome};
use crate::{connect, json, mapped, screen, span};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use rowclaim::blocking::Engine;
use rowclaim::{ClaimEnd, ClaimFilter, ClaimName, ClaimRecord, Error, ErrorKind, Filters, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use uuid::Uuid;

/// List and show claims
#[derive(Subcommand)]
pub enum Claims {
    List(List),
    Show(Show),
}

/// List claims, newest first
///
/// With --json, one object a line. For the next page give the last id to --before.
#[derive(Args)]
pub struct List {
    /// Only in this state: open, closed or expired
    #[arg(long)]
    state: Option<String>,
    /// Only of this source: a mapped table, or the queues as they were asked
    #[arg(long)]
    source: Option<String>,
    /// Only ids below this one
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// Claims at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Show one claim and how each of its rows ended
///
/// A claim is named by its id, or by its token as it stands in the token column of a row.
#[derive(Args)]
pub struct Show {
    #[arg(value_name = "ID|TOKEN", value_parser = name)]
    claim: ClaimName,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Take rows away from owners that are gone, and put them back at once
///
/// The owner's late writes are refused from then on. Without this, rows come back when the lease ends.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim release --claim 4711
  rowclaim release --claim 0b2f7c1e-6f0e-4a57-9d0c-0d4a1c1f8b11
  rowclaim release --table xxx_task_target 17 18")]
pub struct Release {
    /// A claim, by id or token: everything it still holds
    #[arg(long, value_name = "ID|TOKEN", value_parser = name, required_unless_present = "table", conflicts_with = "table")]
    claim: Option<ClaimName>,
    /// A mapped table: the held rows of these keys
    #[arg(long, value_name = "NAME", requires = "key")]
    table: Option<String>,
    key: Vec<String>,
}

fn name(text: &str) -> Result<ClaimName, String> {
    let id = text.parse().map(ClaimName::Id).ok();
    id.or_else(|| Uuid::try_parse(text).map(ClaimName::Token).ok()).ok_or_else(|| "neither an id nor a token".to_owned())
}

impl Claims {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        match self {
            Claims::List(command) => command.run(&connect::engine(dsn)?),
            Claims::Show(command) => command.run(&connect::engine(dsn)?),
        }
    }
}

/// A claim, for programs.
#[derive(Serialize)]
struct View<'a> {
    id: i64,
    token: String,
    source: &'a str,
    worker: &'a str,
    state: &'a str,
    rows: u64,
    claimed_at: String,
    lease_until: String,
    closed_at: Option<String>,
    on_lost: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<Vec<EndView<'a>>>,
}

#[derive(Serialize)]
struct EndView<'a> {
    key: &'a str,
    end: &'a str,
    is_final: bool,
    ended_at: Option<String>,
    error: Option<&'a str>,
}

fn view<'a>(claim: &'a ClaimRecord, ends: Option<&'a [ClaimEnd]>) -> View<'a> {
    let end = |end: &'a ClaimEnd| EndView {
        key: &end.key,
        end: end.end,
        is_final: end.is_final,
        ended_at: end.ended_at.map(span::instant),
        error: end.error.as_deref(),
    };
    View {
        id: claim.id,
        token: claim.token.to_string(),
        source: &claim.source,
        worker: &claim.worker,
        state: &claim.state,
        rows: claim.count,
        claimed_at: span::instant(claim.claimed_at),
        lease_until: span::instant(claim.lease_until),
        closed_at: claim.closed_at.map(span::instant),
        on_lost: claim.on_lost.name(),
        ends: ends.map(|ends| ends.iter().map(end).collect()),
    }
}

impl List {
    fn run(&self, engine: &Engine) -> Outcome {
        let filter =
            ClaimFilter { state: self.state.clone(), source: self.source.clone(), before: self.before, limit: self.limit };
        let claims = engine.claims(&filter)?;
        if self.json {
            claims.iter().try_for_each(|claim| json::line(&view(claim, None)))?;
            return Ok(OK);
        }
        if claims.is_empty() {
            screen::line("no claims")?;
            return Ok(OK);
        }
        let mut table = screen::table(["id", "source", "worker", "state", "rows", "claimed", "lease until", "ended"]);
        for claim in &claims {
            table.add_row([
                Cell::new(claim.id),
                screen::text(&claim.source),
                screen::text(&claim.worker),
                Cell::new(&claim.state),
                screen::number(claim.count),
                Cell::new(span::shown(claim.claimed_at)),
                Cell::new(span::shown(claim.lease_until)),
                Cell::new(claim.closed_at.map(span::shown).unwrap_or_default()),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}

impl Show {
    fn run(&self, engine: &Engine) -> Outcome {
        let missing = || Error::new(ErrorKind::NotFound, "there is no such claim; `rowclaim prune` may have deleted it");
        let (claim, ends) = engine.claim_record(self.claim)?.ok_or_else(missing)?;
        if self.json {
            json::line(&view(&claim, Some(&ends)))?;
            return Ok(OK);
        }
        let mut table = screen::table(["claim", &claim.id.to_string()]);
        let mut by_end: BTreeMap<&str, u64> = BTreeMap::new();
        ends.iter().for_each(|end| *by_end.entry(end.end).or_default() += 1);
        let sum = by_end.iter().map(|(end, count)| format!("{count} {end}")).collect::<Vec<_>>().join(", ");
        table.add_row([Cell::new("token"), Cell::new(claim.token)]);
        table.add_row([Cell::new("source"), screen::text(&claim.source)]);
        table.add_row([Cell::new("worker"), screen::text(&claim.worker)]);
        table.add_row([Cell::new("state"), Cell::new(&claim.state)]);
        table.add_row([Cell::new("claimed"), Cell::new(span::shown(claim.claimed_at))]);
        table.add_row([Cell::new("lease until"), Cell::new(span::shown(claim.lease_until))]);
        table.add_row([Cell::new("ended"), Cell::new(claim.closed_at.map(span::shown).unwrap_or_default())]);
        table.add_row([Cell::new("rows"), Cell::new(sum)]);
        screen::show(&table)?;
        screen::line("")?;
        let mut table = screen::table(["row", "end", "at", "error"]);
        for end in &ends {
            let word = if end.is_final { format!("{}, for good", end.end) } else { end.end.to_owned() };
            table.add_row([
                screen::text(&end.key),
                Cell::new(word),
                Cell::new(end.ended_at.map(span::shown).unwrap_or_default()),
                screen::text(&screen::shortened(end.error.as_deref().unwrap_or_default(), 60)),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}

impl Release {
    pub fn run(&self, dsn: Option<&str>, config: Config) -> Outcome {
        let engine = connect::engine(dsn)?;
        if let Some(claim) = self.claim {
            if !engine.end_claim(claim)? {
                return Err(Fault::Engine(Error::new(ErrorKind::Lost, "the claim is not open any more")));
            }
            screen::line("released what the claim still held")?;
            return Ok(OK);
        }
        let table = mapped::one(&engine, config, self.table.as_deref().unwrap_or_default())?;
        let keys: Vec<Value> = self.key.iter().cloned().map(Value::Text).collect();
        let released = table.take_back(Some(&keys), &Filters::none(), keys.len())?;
        screen::line(format!("released {released} rows"))?;
        Ok(if released < keys.len() as u64 { FAILED } else { OK })
    }
}
