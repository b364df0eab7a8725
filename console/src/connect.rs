//! From the DSN option to an engine.

use crate::fault::Fault;
use rowclaim::blocking::Engine;

/// The DSN, or what to do about its absence.
pub fn required(dsn: Option<&str>) -> Result<&str, Fault> {
    dsn.filter(|dsn| !dsn.is_empty()).ok_or_else(|| {
        Fault::Usage(
            "which database? give --dsn, set ROWCLAIM_DSN, or write it into rowclaim.json; `rowclaim --help` has the forms"
                .to_owned(),
        )
    })
}

/// An engine for the DSN; the server has answered.
pub fn engine(dsn: Option<&str>) -> Result<Engine, Fault> {
    Ok(Engine::connect(required(dsn)?)?)
}

/// The DSN with options added to its query. The last of two equal options counts.
pub fn with_options(dsn: &str, options: &[(&str, &str)]) -> String {
    let mut text = dsn.to_owned();
    for (name, value) in options {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    text
}

/// `text` without the user and password of the DSNs in it.
pub fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let end = after.find(|c: char| c.is_whitespace() || c == '\'').unwrap_or(after.len());
        let (dsn, behind) = after.split_at(end);
        match dsn.rsplit_once('@') {
            Some((_, place)) => shown.extend(["…@", place]),
            None => shown.push_str(dsn),
        }
        rest = behind;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_are_taken_out_of_text() {
        assert_eq!(redacted("no 'mysql://a:p@ss@h/d' and http://x y"), "no 'mysql://…@h/d' and http://x y");
    }

    #[test]
    fn options_follow_a_question_mark_and_then_ampersands() {
        assert_eq!(with_options("sqlite:a", &[("x", "1"), ("y", "2")]), "sqlite:a?x=1&y=2");
        assert_eq!(with_options("sqlite:a?w=0", &[("x", "1")]), "sqlite:a?w=0&x=1");
    }
}
