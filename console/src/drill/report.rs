//! What came of it: a table for people, and one JSON line for scripts.

use super::history::{Interval, most_at_once, out_of_order};
use super::{Name, Told};
use crate::{json, progress, screen, span};
use comfy_table::{Attribute, Cell, Color};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// All drills so far.
pub struct Report {
    server: String,
    done: Vec<Done>,
    /// Names whose history has been judged, with their most at once.
    judged: BTreeMap<String, usize>,
}

struct Done {
    name: Name,
    told: Told,
    took: Duration,
}

/// The last line on stdout.
#[derive(Serialize)]
struct Summary<'a> {
    db: &'a str,
    drills: usize,
    passed: usize,
    max_holders_at_once: usize,
    late_writes_tried: u64,
    late_writes_accepted: u64,
    effects_sent_twice: u64,
}

impl Report {
    pub fn new(server: String) -> Self {
        Report { server, done: Vec::new(), judged: BTreeMap::new() }
    }

    /// Adds a drill, and judges what its holders have written down.
    pub fn add(&mut self, name: Name, mut told: Told, history: &[(String, Interval)], took: Duration) {
        let mut fresh: BTreeMap<&str, Vec<Interval>> = BTreeMap::new();
        for (held, interval) in history.iter().filter(|(held, _)| !self.judged.contains_key(held)) {
            fresh.entry(held).or_default().push(*interval);
        }
        told.must(!fresh.is_empty(), || "nobody was seen to hold anything".to_owned());
        for (held, intervals) in fresh {
            let (most, disordered) = (most_at_once(&intervals), out_of_order(&intervals));
            told.must(most <= 1, || format!("{held}: {most} holders at once"));
            told.must(disordered == 0, || format!("{held}: {disordered} holders with a smaller fence than an earlier one"));
            self.judged.insert(held.to_owned(), most);
        }
        let accepted = told.late_accepted;
        told.must(accepted == 0, || format!("{accepted} late writes were accepted"));
        let twice = told.sent_twice;
        told.must(twice == 0, || format!("{twice} effects were sent twice"));
        for fault in &told.faults {
            progress::say(&format!("{}: {}", name.text(), screen::printable(fault)));
        }
        self.done.push(Done { name, told, took });
    }

    pub fn is_good(&self) -> bool {
        self.passed() == self.done.len() && self.most() == 1
    }

    fn passed(&self) -> usize {
        self.done.iter().filter(|done| done.told.faults.is_empty()).count()
    }

    fn most(&self) -> usize {
        self.judged.values().copied().max().unwrap_or(0)
    }

    fn db(&self) -> &'static str {
        let version = self.server.to_ascii_lowercase();
        ["sqlite", "mariadb", "mysql"].into_iter().find(|brand| version.contains(brand)).unwrap_or("mysql")
    }

    pub fn show(&self, as_json: bool) -> io::Result<()> {
        if as_json {
            let sum = |count: fn(&Told) -> u64| self.done.iter().map(|done| count(&done.told)).sum();
            return json::line(&Summary {
                db: self.db(),
                drills: self.done.len(),
                passed: self.passed(),
                max_holders_at_once: self.most(),
                late_writes_tried: sum(|told| told.late_tried),
                late_writes_accepted: sum(|told| told.late_accepted),
                effects_sent_twice: sum(|told| told.sent_twice),
            });
        }
        let mut table = screen::table(["drill", &screen::printable(&self.server), "took", "passed"]);
        for Done { name, told, took } in &self.done {
            let is_good = told.faults.is_empty();
            let faults = told.faults.iter().map(|fault| screen::printable(fault));
            let lines: Vec<String> = std::iter::once(told.what.clone()).chain(faults).filter(|line| !line.is_empty()).collect();
            let passed = Cell::new(if is_good { "passed" } else { "FAILED" }).add_attribute(Attribute::Bold);
            table.add_row([
                Cell::new(name.text()),
                Cell::new(lines.join("\n")),
                Cell::new(span::human(Duration::from_secs(took.as_secs()))),
                passed.fg(if is_good { Color::Green } else { Color::Red }),
            ]);
        }
        screen::show(&table)?;
        screen::line(format!("{} of {} drills passed", self.passed(), self.done.len()))
    }
}
