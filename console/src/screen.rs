//! Text and tables on stdout: with colours and borders on a terminal, plain columns otherwise.
//!
//! What comes out of the database is shown with its control characters escaped: a payload cannot drive a terminal.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use rowclaim::{JobState, Severity};
use std::io::{self, IsTerminal, Write};

/// Writes a line.
pub fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// A table under `titles`.
pub fn table<'a>(titles: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    if io::stdout().is_terminal() {
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.load_preset(presets::NOTHING);
    }
    if wants_no_color() {
        table.force_no_tty();
    }
    table.set_header(titles.into_iter().map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    table
}

fn wants_no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// `text` with an SGR code of terminals, where there is one that shows colours.
fn painted(text: &str, code: &str) -> String {
    if io::stdout().is_terminal() && !wants_no_color() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A heading.
pub fn bold(text: &str) -> String {
    painted(text, "1")
}

/// A text in the colour of a severity.
pub fn severity(severity: Severity, text: &str) -> String {
    match severity {
        Severity::Fault => painted(text, "31;1"),
        Severity::Warning => painted(text, "33"),
        Severity::Note => painted(text, "32"),
    }
}

/// Writes a text behind `first`, its further lines indented: on a terminal broken between words to its width, otherwise
/// in one line.
pub fn hanging(first: &str, indent: usize, text: &str) -> io::Result<()> {
    // The table knows the width of the terminal, where there is one.
    let width = Table::new().width().filter(|_| io::stdout().is_terminal()).map_or(usize::MAX, usize::from);
    let mut lead = first.to_owned();
    for part in broken(text, width.saturating_sub(indent).max(20)) {
        line(format!("{lead}{part}"))?;
        lead = " ".repeat(indent);
    }
    Ok(())
}

/// Parts of at most `width` characters, broken between words where there are some.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut parts: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let Some(part) = parts.last_mut() else { break };
        let is_full = !part.is_empty() && part.chars().count() + 1 + word.chars().count() > width;
        if is_full {
            parts.push(word.to_owned());
        } else {
            if !part.is_empty() {
                part.push(' ');
            }
            part.push_str(word);
        }
    }
    parts
}

/// Writes a table, without the blanks that fill its last column.
pub fn show(table: &Table) -> io::Result<()> {
    table.lines().try_for_each(|text| line(text.trim_end()))
}

/// A cell of text from the database.
pub fn text(value: &str) -> Cell {
    Cell::new(printable(value))
}

/// A number; zero is dim.
pub fn number(value: u64) -> Cell {
    let cell = Cell::new(value).set_alignment(CellAlignment::Right);
    if value == 0 { cell.add_attribute(Attribute::Dim) } else { cell }
}

/// A state in its colour.
pub fn state(state: JobState) -> Cell {
    let cell = Cell::new(state.name());
    match state {
        JobState::Ready => cell,
        JobState::Claimed => cell.fg(Color::Yellow),
        JobState::Done => cell.fg(Color::Green),
        JobState::Dead => cell.fg(Color::Red),
        JobState::Held => cell.fg(Color::Magenta),
        JobState::Cancelled => cell.add_attribute(Attribute::Dim),
    }
}

/// `value` with its control characters escaped.
pub fn printable(value: &str) -> String {
    // The two that turn the direction of writing could show a key as another one.
    let is_hidden = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if is_hidden(c) { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

/// At most `limit` characters of `value`.
pub fn shortened(value: &str, limit: usize) -> String {
    match value.char_indices().nth(limit) {
        Some((at, _)) => format!("{}…", value.get(..at).unwrap_or_default()),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_not_passed_on() {
        assert_eq!(printable("a\u{1b}[2Jb 中"), "a\\u{1b}[2Jb 中");
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(broken("one two three", 8), ["one two", "three"]);
        assert_eq!(broken("unbreakable", 3), ["unbreakable"]);
        assert_eq!(broken("one two", usize::MAX), ["one two"]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("ééé", 2), "éé…");
        assert_eq!(shortened("éé", 2), "éé");
    }
}
