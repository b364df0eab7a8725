//! Figures as people read them, a line each on stderr, and as one line of JSON on stdout at the end.

use serde_json::{Map, Value, json};

/// All figures of a run.
#[derive(Default)]
pub struct Report {
    figures: Map<String, Value>,
    missed: Vec<String>,
}

/// What a ratio should be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Whatever it is.
    Any,
}

/// The measured side and its counterpart, a value for each pair of rounds.
pub struct Pairs<'a> {
    pub ours: &'a [f64],
    pub counterpart: &'a [f64],
    pub counterpart_is: &'a str,
    pub unit: &'a str,
}

/// The middle value; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len() / 2), sorted.get(sorted.len().saturating_sub(1) / 2)) {
        (Some(high), Some(low)) => f64::midpoint(*high, *low),
        _ => 0.0,
    }
}

fn rounded(value: f64) -> f64 {
    let digits = if value.abs() < 100.0 { 1_000.0 } else { 1.0 };
    (value * digits).round() / digits
}

fn shown(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// `floor_ratio_b100_w1` and `ours` make `floor_ratio_b100_w1.ours`: a ratio's two sides stand beside it.
fn side(name: &str, side: &str) -> String {
    format!("{name}.{}", side.replace(' ', "_"))
}

impl Report {
    /// The median of the ratios of pairs, with the medians of both sides beside it.
    pub fn ratio(&mut self, name: &str, pairs: &Pairs<'_>, target: Target) -> f64 {
        let ratios: Vec<f64> = pairs.ours.iter().zip(pairs.counterpart).map(|(ours, theirs)| ours / theirs).collect();
        let ratio = median(&ratios);
        let (wanted, is_met) = match target {
            Target::AtLeast(bound) => (format!(">= {bound}"), ratio >= bound),
            Target::AtMost(bound) => (format!("<= {bound}"), ratio <= bound),
            Target::Any => ("none".to_owned(), true),
        };
        let (ours, theirs) = (median(pairs.ours), median(pairs.counterpart));
        let spread = match (ratios.iter().copied().reduce(f64::min), ratios.iter().copied().reduce(f64::max)) {
            (Some(low), Some(high)) => format!("{low:.2} to {high:.2} in {} rounds", ratios.len()),
            _ => String::new(),
        };
        eprintln!(
            "{name:<26} {:>7} {unit}, {}: {} {unit}; ratio {ratio:.2} ({spread}), target {wanted}: {}",
            shown(ours),
            pairs.counterpart_is,
            shown(theirs),
            if is_met { "met" } else { "MISSED" },
            unit = pairs.unit,
        );
        if !is_met {
            self.missed.push(name.to_owned());
        }
        self.figures.insert(name.to_owned(), json!(rounded(ratio)));
        self.figures.insert(side(name, "ours"), json!(rounded(ours)));
        self.figures.insert(side(name, pairs.counterpart_is), json!(rounded(theirs)));
        ratio
    }

    /// A figure that stands for itself.
    pub fn value(&mut self, name: &str, value: f64, unit: &str) {
        eprintln!("{name:<26} {:>7} {unit}", shown(value));
        self.figures.insert(name.to_owned(), json!(rounded(value)));
    }

    /// As [`Report::value`], for the JSON alone.
    pub fn aside(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), json!(rounded(value)));
    }

    /// Text beside the figures.
    pub fn text(&mut self, name: &str, text: &str) {
        eprintln!("{name}: {text}");
        self.figures.insert(name.to_owned(), json!(text));
    }

    /// A figure that could not be taken.
    pub fn skipped(&mut self, names: &[&str], why: &str) {
        for name in names {
            eprintln!("{name:<26} SKIPPED: {why}");
            self.figures.insert((*name).to_owned(), Value::Null);
        }
    }

    /// The line of JSON.
    pub fn json(mut self) -> String {
        self.figures.insert("missed".to_owned(), json!(self.missed));
        Value::Object(self.figures).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }

    #[test]
    fn a_missed_target_is_named() {
        let mut report = Report::default();
        let pairs = Pairs { ours: &[1.0, 1.0], counterpart: &[2.0, 2.0], counterpart_is: "floor", unit: "jobs/s" };
        report.ratio("low", &pairs, Target::AtLeast(0.8));
        report.ratio("fine", &pairs, Target::AtMost(0.8));
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["missed"], json!(["low"]));
        assert_eq!(json["low"], json!(0.5));
        assert_eq!(json["low.floor"], json!(2.0));
    }
}
