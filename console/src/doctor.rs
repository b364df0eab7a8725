//! `rowclaim doctor`: what is wrong with the server, the own tables and mapped tables, and what mends it.

use crate::config::Config;
use crate::fault::{Fault, Outcome};
use crate::json::{self, DoctorView};
use crate::{connect, mapped, screen, span};
use clap::Args;
use rowclaim::{DoctorRequest, DoctorTable, Finding, Severity};
use std::io;
use std::time::Duration;

/// Find what is wrong with the server, the tables and the mappings, and what mends it
///
/// Looks at the server's settings, at Rowclaim's own tables, and at every mapped table: those of the configuration file,
/// and those that claims were ever made from in this database. Changes nothing; a claim that is made to count its locks
/// is rolled back at once. What the account has no right to see is left out.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  rowclaim doctor
  rowclaim doctor --table xxx_task_target --where task_id      claims on it filter by task_id
  rowclaim doctor --json | jq -r '.findings[] | select(.severity != \"note\") | .fix'
  rowclaim doctor --ignore unknown-status --ignore replica     known, and meant to be so

Exit codes of this command:
  0  healthy: nothing but notes
  1  a warning: works now, and will hurt
  2  a fault: does not work, or hands out rows twice (also wrong use, as everywhere)
  3  a table of --table is neither in the configuration file nor known to the database
  4  the database cannot be reached
  5  the DSN, the password or the configuration file is wrong")]
pub struct Doctor {
    /// Only this mapped table, beside the server and the own tables; may be given more than once
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// A column that claims on the tables of --table filter by; the index has to have it
    #[arg(long = "where", value_name = "COLUMN", requires = "table")]
    filters: Vec<String>,
    /// Processes with an engine at the same time, whose connections must fit
    #[arg(long, value_name = "N", default_value_t = DoctorRequest::default().processes)]
    processes: u64,
    /// Name transactions that are open for longer: 60s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span::parse)]
    long_transaction: Duration,
    /// A finding to leave out, by its code; may be given more than once
    #[arg(long, value_name = "CODE", value_parser = code)]
    ignore: Vec<&'static str>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn code(text: &str) -> Result<&'static str, String> {
    let known = Finding::CODES.into_iter().find(|code| *code == text);
    known.ok_or_else(|| "there is no finding of this code".to_owned())
}

/// The worst that was found.
fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fault) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Note) | None => 0,
    }
}

impl Doctor {
    pub fn run(&self, dsn: Option<&str>, config: Config) -> Outcome {
        let engine = connect::engine(dsn)?;
        let mut request = DoctorRequest::new(self.tables(connect::required(dsn)?, config)?);
        request.processes = self.processes;
        request.long_transaction = self.long_transaction;
        let mut findings = engine.doctor(&request)?;
        findings.retain(|finding| !self.ignore.contains(&finding.code));
        if self.json {
            json::line(&DoctorView::from(findings.as_slice()))?;
        } else {
            let names: Vec<&str> = request.tables.iter().map(|table| table.name.as_str()).collect();
            show(&findings, &names)?;
        }
        Ok(exit_code(&findings))
    }

    /// The tables of the configuration file, then those of the registry that it does not name.
    fn tables(&self, dsn: &str, config: Config) -> Result<Vec<DoctorTable>, Fault> {
        let mut tables = config.tables;
        // Without making tables: whether they are there is for the doctor to say.
        let reader = rowclaim::blocking::Engine::connect(&connect::with_options(dsn, &[("migrate", "never")]))?;
        for (name, mapping) in mapped::registered(&reader)? {
            if tables.iter().all(|(known, _)| *known != name) {
                tables.push((name, mapping));
            }
        }
        if let Some(missing) = self.table.iter().find(|wanted| tables.iter().all(|(name, _)| name != *wanted)) {
            return Err(mapped::unmapped(missing));
        }
        tables.retain(|(name, _)| self.table.is_empty() || self.table.contains(name));
        let table = |(name, mapping)| DoctorTable { name, mapping, filters: self.filters.clone() };
        Ok(tables.into_iter().map(table).collect())
    }
}

/// Where the text of a finding begins.
const INDENT: usize = 11;

/// Under a heading for the server, for the own tables, and for each mapped table.
fn show(findings: &[Finding], tables: &[&str]) -> io::Result<()> {
    let mut heading = "";
    for finding in findings {
        let group = group(&finding.subject, tables);
        if group != heading {
            screen::line(format!("{}{}", if heading.is_empty() { "" } else { "\n" }, screen::bold(&screen::printable(group))))?;
            heading = group;
        }
        // Nine columns hold the longest severity.
        let word = screen::severity(finding.severity, &format!("{:<9}", finding.severity.name()));
        let subject = if finding.subject == group { String::new() } else { format!(" ({})", finding.subject) };
        let text = screen::printable(&format!("{}{subject}: {}", finding.code, finding.message));
        screen::hanging(&format!("  {word}"), INDENT, &text)?;
        if !finding.consequence.is_empty() {
            screen::hanging(&format!("{:INDENT$}→ ", ""), INDENT + 2, &screen::printable(&finding.consequence))?;
        }
        if let Some(fix) = &finding.fix {
            // In one piece, as it is to be copied.
            screen::line(format!("{:INDENT$}fix: {}", "", screen::printable(fix)))?;
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (faults, warnings, notes) = (count(Severity::Fault), count(Severity::Warning), count(Severity::Note));
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Note);
    let verdict = if worst == Severity::Note { "healthy: " } else { "" };
    let some = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let summary = format!("{verdict}{}, {}, {}", some(faults, "fault"), some(warnings, "warning"), some(notes, "note"));
    screen::line(format!("\n{}", screen::severity(worst, &summary)))
}

fn group<'a>(subject: &str, tables: &[&'a str]) -> &'a str {
    if subject == "server" {
        return "server";
    }
    let is_of = |table: &&&str| subject == **table || subject.strip_prefix(**table).is_some_and(|rest| rest.starts_with('.'));
    tables.iter().find(is_of).copied().unwrap_or("Rowclaim's own tables")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_table() {
        let tables = ["orders", "shop.orders"];
        for (subject, expected) in [
            ("server", "server"),
            ("orders", "orders"),
            ("orders.token", "orders"),
            ("shop.orders.token", "shop.orders"),
            ("orders_old.token", "Rowclaim's own tables"),
            ("rowclaim_claims", "Rowclaim's own tables"),
        ] {
            assert_eq!(group(subject, &tables), expected, "{subject}");
        }
    }

    #[test]
    fn the_worst_finding_is_the_exit_code() {
        let finding = |severity| Finding {
            severity,
            code: "server",
            subject: "server".into(),
            message: String::new(),
            consequence: String::new(),
            fix: None,
        };
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[finding(Severity::Note)]), 0);
        assert_eq!(exit_code(&[finding(Severity::Warning), finding(Severity::Note)]), 1);
        assert_eq!(exit_code(&[finding(Severity::Note), finding(Severity::Fault), finding(Severity::Warning)]), 2);
    }
}
