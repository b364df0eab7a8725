//! `rowclaim rows`: look at rows of mapped tables, put failed ones back, say what became of held ones.

use crate::config::Config;
use crate::fault::{Fault, OK, Outcome};
use crate::jobs::What;
use crate::{connect, json, mapped, screen};
use clap::{Args, Subcommand};
use comfy_table::Cell;
use rowclaim::blocking::Table;
use rowclaim::{ClaimedRow, Error, ErrorKind, RowFilter, Value};
use serde_json::{Map, Value as Json};

/// List, show, retry and resolve rows of mapped tables
#[derive(Subcommand)]
pub enum Rows {
    List(List),
    Show(Show),
    Retry(Retry),
    Resolve(Resolve),
}

/// List rows in the order of their keys
///
/// With --json, one object a line. For the next page give the last key to --after.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim rows list xxx_task_target --status 1 --where task_id=42
  rowclaim rows list polling_jobs --status failed --json | jq -r .last_error")]
pub struct List {
    /// The mapped table
    table: String,
    /// Only rows with this value of the status column
    #[arg(long, value_name = "VALUE")]
    status: Option<String>,
    /// Only rows for which this holds: COLUMN=VALUE, or COLUMN for NULL; may be given more than once
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Only keys above this one
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    /// Rows at most, 1 to 10,000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// Show one row
#[derive(Args)]
pub struct Show {
    /// The mapped table
    table: String,
    /// Its key
    key: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Put failed rows back with all their attempts
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim rows retry xxx_task_target 17 18
  rowclaim rows retry xxx_task_target --failed --where task_id=42")]
pub struct Retry {
    /// The mapped table
    table: String,
    /// The keys of failed rows
    #[arg(required_unless_present = "failed")]
    key: Vec<String>,
    /// All failed rows
    #[arg(long, conflicts_with = "key")]
    failed: bool,
    /// With --failed: only rows for which this holds: COLUMN=VALUE, or COLUMN for NULL
    #[arg(long = "where", value_name = "CONDITION", requires = "failed")]
    conditions: Vec<String>,
}

/// Say of rows that wait for a person whether they were sent
///
/// These are the rows in the mapping's held status: they were begun, and their worker's lease ran out. Sent: they are done. Not
/// sent: they are handed out again, and the attempt is not counted.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim rows list xxx_task_target --status 4
  rowclaim rows resolve xxx_task_target 17 18 --sent
  rowclaim rows resolve xxx_task_target 19 --not-sent")]
pub struct Resolve {
    /// The mapped table
    table: String,
    /// The keys of held rows
    #[arg(required = true)]
    key: Vec<String>,
    #[command(flatten)]
    what: What,
}

impl Rows {
    pub fn run(&self, dsn: Option<&str>, config: Config) -> Outcome {
        let engine = connect::engine(dsn)?;
        let name = match self {
            Rows::List(command) => &command.table,
            Rows::Show(command) => &command.table,
            Rows::Retry(command) => &command.table,
            Rows::Resolve(command) => &command.table,
        };
        let table = mapped::one(&engine, config, name)?;
        match self {
            Rows::List(command) => command.run(&table),
            Rows::Show(command) => command.run(&table),
            Rows::Retry(command) => command.run(&table),
            Rows::Resolve(command) => command.run(&table),
        }
    }
}

impl List {
    fn run(&self, table: &Table) -> Outcome {
        let filter = RowFilter {
            filters: mapped::filters(&self.conditions),
            status: self.status.clone().map(Value::Text),
            after: self.after.clone().map(Value::Text),
            limit: self.limit,
        };
        let rows = table.rows(&filter)?;
        if self.json {
            rows.iter().try_for_each(|row| json::line(&view(row)))?;
            return Ok(OK);
        }
        let Some(first) = rows.first() else {
            screen::line("no rows")?;
            return Ok(OK);
        };
        let mut shown = screen::table(first.columns().names().iter().map(String::as_str));
        for row in &rows {
            shown.add_row(row.iter().map(|(_, value)| screen::text(&screen::shortened(&text(value), 60))));
        }
        screen::show(&shown)?;
        Ok(OK)
    }
}

impl Show {
    fn run(&self, table: &Table) -> Outcome {
        let missing = || Error::new(ErrorKind::NotFound, format!("{} has no row {}", self.table, self.key));
        let row = table.row(&Value::Text(self.key.clone()))?.ok_or_else(missing)?;
        if self.json {
            json::line(&view(&row))?;
            return Ok(OK);
        }
        let mut shown = screen::table([self.table.as_str(), self.key.as_str()]);
        for (column, value) in row.iter() {
            shown.add_row([Cell::new(column), screen::text(&text(value))]);
        }
        screen::show(&shown)?;
        Ok(OK)
    }
}

impl Retry {
    fn run(&self, table: &Table) -> Outcome {
        const PAGE: usize = 1_000;
        let filters = mapped::filters(&self.conditions);
        let mut retried = 0;
        if self.failed {
            loop {
                let page = table.retry(None, &filters, PAGE)?;
                retried += page;
                if page < PAGE as u64 {
                    break;
                }
            }
        } else {
            let keys: Vec<Value> = self.key.iter().cloned().map(Value::Text).collect();
            retried = table.retry(Some(&keys), &filters, PAGE)?;
        }
        screen::line(format!("retried {retried} rows"))?;
        Ok(if retried < self.key.len() as u64 { crate::fault::FAILED } else { OK })
    }
}

impl Resolve {
    fn run(&self, table: &Table) -> Outcome {
        let keys: Vec<Value> = self.key.iter().cloned().map(Value::Text).collect();
        let mut code = OK;
        for (key, resolved) in self.key.iter().zip(table.resolve(&keys, self.what.resolution())?) {
            if resolved {
                screen::line(format!("resolved {}", screen::printable(key)))?;
                continue;
            }
            let message = format!("row {key} was not resolved: it is not held, or not any more");
            let found = Fault::Other { kind: ErrorKind::Lost, message }.report();
            code = if code == OK { found } else { code };
        }
        Ok(code)
    }
}

/// A value as people read it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Bytes(bytes) => bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
        other => other.as_text().unwrap_or_default().to_owned(),
    }
}

/// A row for programs: numbers as numbers, NULL as null, everything else as text.
fn view(row: &ClaimedRow) -> Map<String, Json> {
    let json = |value: &Value| match value {
        Value::Null => Json::Null,
        Value::Int(number) => Json::from(*number),
        Value::UInt(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        other => Json::from(text(other)),
    };
    row.iter().map(|(column, value)| (column.to_owned(), json(value))).collect()
}
