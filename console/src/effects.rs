//! `rowclaim effects`: what was sent to the outside world, and what nobody knows.

use crate::fault::{Fault, OK, Outcome};
use crate::{connect, json, screen, span};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use rowclaim::blocking::Engine;
use rowclaim::{EffectFilter, EffectRecord, EffectState, Error, ErrorKind};
use serde::Serialize;
use serde_json::value::RawValue;

/// List and show effects, and decide those of which nobody knows whether they happened
#[derive(Subcommand)]
pub enum Effects {
    List(List),
    Show(Show),
    Resolve(Resolve),
}

/// List effects, newest first
///
/// With --json, one object a line. For the next page give the last id to --before.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim effects list --state unknown              who waits for a person
  rowclaim effects list --limit 1000 --json | jq -r '[.key, .state] | @tsv'")]
pub struct List {
    /// Only in this state: pending, sending, succeeded, failed or unknown
    #[arg(long, value_parser = state)]
    state: Option<EffectState>,
    /// Only ids below this one
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// Effects at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Show one effect with its response
#[derive(Args)]
pub struct Show {
    key: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Say whether an unknown effect has happened
///
/// An effect is unknown when its sender was lost, or got no answer, between the call of the provider and the record: look
/// there (the effect's key was its idempotency key) before you decide. What has happened is never sent again; what was
/// not sent goes out with the next call for its key.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim effects resolve sms:4711 --happened --response '{\"id\": \"SM7\"}'
  rowclaim effects resolve sms:4711 --not-sent")]
pub struct Resolve {
    key: String,
    /// The provider has done it
    #[arg(long, required_unless_present = "not_sent")]
    happened: bool,
    /// With --happened: what the provider answered, as JSON; later calls for the key get it
    #[arg(long, value_name = "JSON", requires = "happened")]
    response: Option<String>,
    /// The provider has not done it: the next call for the key sends it
    #[arg(long, conflicts_with = "happened")]
    not_sent: bool,
}

fn state(name: &str) -> Result<EffectState, String> {
    EffectState::parse(name).map_err(|error| error.to_string())
}

impl Effects {
    pub fn run(&self, dsn: Option<&str>) -> Outcome {
        match self {
            Effects::List(command) => command.run(&connect::engine(dsn)?),
            Effects::Show(command) => command.run(&connect::engine(dsn)?),
            Effects::Resolve(command) => command.run(&connect::engine(dsn)?),
        }
    }
}

/// An effect, for programs.
#[derive(Serialize)]
struct View<'a> {
    id: i64,
    key: &'a str,
    state: &'a str,
    attempts: i64,
    holder: &'a str,
    /// JSON as it is.
    response: Option<&'a RawValue>,
    error: Option<&'a str>,
    lease_until: String,
    created_at: String,
    started_at: String,
    finished_at: Option<String>,
}

impl<'a> From<&'a EffectRecord> for View<'a> {
    fn from(effect: &'a EffectRecord) -> Self {
        // One that was written with line breaks would break one-object-a-line.
        let response = effect.response.as_deref().filter(|text| !text.contains(['\n', '\r']));
        View {
            id: effect.id,
            key: &effect.key,
            state: effect.state.name(),
            attempts: effect.attempts,
            holder: &effect.holder,
            response: response.and_then(|text| serde_json::from_str(text).ok()),
            error: effect.error.as_deref(),
            lease_until: span::instant(effect.lease_until),
            created_at: span::instant(effect.created_at),
            started_at: span::instant(effect.started_at),
            finished_at: effect.finished_at.map(span::instant),
        }
    }
}

impl List {
    fn run(&self, engine: &Engine) -> Outcome {
        let effects = engine.effects(&EffectFilter { state: self.state, before: self.before, limit: self.limit as usize })?;
        if self.json {
            effects.iter().try_for_each(|effect| json::line(&View::from(effect)))?;
            return Ok(OK);
        }
        if effects.is_empty() {
            screen::line("no effects")?;
            return Ok(OK);
        }
        let mut table = screen::table(["id", "key", "state", "attempts", "sender", "begun", "ended", "error"]);
        for effect in &effects {
            table.add_row([
                Cell::new(effect.id),
                screen::text(&effect.key),
                screen::word(effect.state.name()),
                Cell::new(effect.attempts),
                screen::text(&effect.holder),
                Cell::new(span::shown(effect.started_at)),
                Cell::new(effect.finished_at.map(span::shown).unwrap_or_default()),
                screen::text(&screen::shortened(effect.error.as_deref().unwrap_or_default(), 60)),
            ]);
        }
        screen::show(&table)?;
        Ok(OK)
    }
}

impl Show {
    fn run(&self, engine: &Engine) -> Outcome {
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no effect {}", self.key));
        let effect = engine.effect(&self.key)?.ok_or_else(missing)?;
        if self.json {
            json::line(&View::from(&effect))?;
            return Ok(OK);
        }
        let mut table = screen::table(["effect", &effect.id.to_string()]);
        table.add_row([Cell::new("key"), screen::text(&effect.key)]);
        table.add_row([Cell::new("state"), screen::word(effect.state.name())]);
        table.add_row([Cell::new("attempts"), Cell::new(effect.attempts)]);
        table.add_row([Cell::new("sender"), screen::text(&effect.holder)]);
        table.add_row([Cell::new("first begun"), Cell::new(span::shown(effect.created_at))]);
        table.add_row([Cell::new("last begun"), Cell::new(span::shown(effect.started_at))]);
        if effect.state == EffectState::Sending {
            table.add_row([Cell::new("lease until"), Cell::new(span::shown(effect.lease_until))]);
        }
        table.add_row([Cell::new("ended"), Cell::new(effect.finished_at.map(span::shown).unwrap_or_default())]);
        table.add_row([Cell::new("error"), screen::text(effect.error.as_deref().unwrap_or_default())]);
        table.add_row([Cell::new("response"), screen::text(effect.response.as_deref().unwrap_or_default())]);
        screen::show(&table)?;
        Ok(OK)
    }
}

impl Resolve {
    fn run(&self, engine: &Engine) -> Outcome {
        if engine.resolve_effect(&self.key, self.happened, self.response.as_deref())? {
            let word = if self.happened { "happened" } else { "not sent" };
            screen::line(format!("resolved {} as {word}", screen::printable(&self.key)))?;
            return Ok(OK);
        }
        let state = engine.effect(&self.key)?.map_or("gone", |effect| effect.state.name());
        Err(Fault::Engine(Error::new(ErrorKind::Lost, format!("effect {} is not unknown: it is {state}", self.key))))
    }
}
