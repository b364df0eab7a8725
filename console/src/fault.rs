//! What ends a command early, and the exit code it ends with.
//!
//! The one thing to know: a closed pipe (`rowclaim jobs list | head -1`) is no fault; the reader has what it wanted.

use rowclaim::{Error, ErrorKind};
use std::io;

pub const OK: u8 = 0;
/// A fault, or the answer is no.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const NOT_FOUND: u8 = 3;
pub const UNAVAILABLE: u8 = 4;
pub const CONFIG: u8 = 5;

/// What a command answers: its exit code, or why it could not go on.
pub type Outcome = Result<u8, Fault>;

/// Why a command could not go on.
#[derive(Debug)]
pub enum Fault {
    /// The engine says so.
    Engine(Error),
    /// Something was wrong outside of the engine.
    Other { kind: ErrorKind, message: String },
    /// Wrong use that the parser cannot see.
    Usage(String),
    /// Stdout cannot be written.
    Output(io::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Engine(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Output(error)
    }
}

impl Fault {
    pub fn config(message: impl Into<String>) -> Self {
        Fault::Other { kind: ErrorKind::Config, message: message.into() }
    }

    pub fn unexpected(message: impl Into<String>) -> Self {
        Fault::Other { kind: ErrorKind::Unexpected, message: message.into() }
    }

    /// Says it in one line on stderr; the exit code.
    pub fn report(&self) -> u8 {
        let (kind, message) = match self {
            Fault::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return OK,
            Fault::Output(error) => ("output", error.to_string()),
            Fault::Engine(error) => (error.kind().name(), error.to_string()),
            Fault::Other { kind, message } => (kind.name(), message.clone()),
            Fault::Usage(message) => ("usage", message.clone()),
        };
        // Nobody is left to be told when stderr is closed too.
        let _ = io::Write::write_all(&mut io::stderr(), format!("error: {kind}: {}\n", one_line(&message)).as_bytes());
        self.code()
    }

    /// What it says, in one line.
    pub fn text(&self) -> String {
        one_line(&match self {
            Fault::Engine(error) => format!("{}: {error}", error.kind().name()),
            Fault::Other { message, .. } | Fault::Usage(message) => message.clone(),
            Fault::Output(error) => error.to_string(),
        })
    }

    fn code(&self) -> u8 {
        match self {
            Fault::Engine(error) => exit_code(error.kind()),
            Fault::Other { kind, .. } => exit_code(*kind),
            Fault::Usage(_) => USAGE,
            Fault::Output(_) => FAILED,
        }
    }
}

/// The exit code of an error kind.
pub fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Config | ErrorKind::Schema | ErrorKind::Unsupported => CONFIG,
        ErrorKind::Invalid => USAGE,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Unavailable | ErrorKind::Contention => UNAVAILABLE,
        _ => FAILED,
    }
}

fn one_line(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_an_exit_code_that_is_not_ok() {
        for kind in ErrorKind::ALL {
            assert_ne!(exit_code(kind), OK, "{}", kind.name());
        }
    }

    #[test]
    fn a_message_with_line_breaks_stays_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m"), "a b [31m");
    }
}
