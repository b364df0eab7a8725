//! Text and tables on stdout: with colours and borders on a terminal, plain columns otherwise.
//!
//! What comes out of the database is shown with its control characters escaped: a payload cannot drive a terminal.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use rowclaim::JobState;
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
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        table.force_no_tty();
    }
    table.set_header(titles.into_iter().map(|title| Cell::new(title).add_attribute(Attribute::Bold)));
    table
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
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("ééé", 2), "éé…");
        assert_eq!(shortened("éé", 2), "éé");
    }
}
