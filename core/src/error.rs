//! One error shape for every part: kind, retry advice, operation, message, context.
//!
//! Server codes are sorted into kinds in `dialect/codes.rs` only. Expected answers (lost, exists,
//! busy, empty) are values, not errors. Messages are one line and carry no secret and no payload.

use std::fmt;

/// What kind of fault it is. The bindings make one exception class of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration cannot work: DSN, option, password, server setting.
    Config,
    /// This server or this build cannot do it.
    Unsupported,
    /// Tables are missing, too old, or newer than the code.
    Schema,
    /// The caller's input or use is wrong.
    Invalid,
    /// A unique key is taken (only where that is not an answer).
    Duplicate,
    /// The named job or claim does not exist.
    NotFound,
    /// Somebody else owns it now (only where that is not an answer).
    Lost,
    /// Somebody else is at it right now (only where that is not an answer).
    Busy,
    /// Whether it has happened cannot be known: a person or the provider must say.
    Unknown,
    /// Deadlock or lock wait; retried inside, seen only when the budget ran out.
    Contention,
    /// The server cannot be reached, or went away.
    Unavailable,
    /// The caller stopped the wait: a signal, or an exception in a signal handler.
    Interrupted,
    /// A stored value is not what it should be.
    Decode,
    /// A fault of this code, or a server error nobody has sorted yet.
    Unexpected,
}

impl ErrorKind {
    /// Every kind, in the order of the declaration.
    pub const ALL: [ErrorKind; 14] = [
        ErrorKind::Config,
        ErrorKind::Unsupported,
        ErrorKind::Schema,
        ErrorKind::Invalid,
        ErrorKind::Duplicate,
        ErrorKind::NotFound,
        ErrorKind::Lost,
        ErrorKind::Busy,
        ErrorKind::Unknown,
        ErrorKind::Contention,
        ErrorKind::Unavailable,
        ErrorKind::Interrupted,
        ErrorKind::Decode,
        ErrorKind::Unexpected,
    ];

    /// Its name in lower case, the same in every language.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Schema => "schema",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Duplicate => "duplicate",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Lost => "lost",
            ErrorKind::Busy => "busy",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Contention => "contention",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Decode => "decode",
            ErrorKind::Unexpected => "unexpected",
        }
    }
}

/// What went wrong, and what to do about it.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    code: Option<u16>,
    drops_connection: bool,
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; the message names the option, column or value to change.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let message = message.replace(['\n', '\r'], " ");
        Error { kind, operation: "", message, code: None, drops_connection: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Config, message)
    }

    pub(crate) fn decode(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Decode, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message).dropping_connection()
    }

    pub(crate) fn with_code(mut self, code: u16) -> Self {
        self.code = Some(code);
        self
    }

    /// The connection must not be used again.
    pub(crate) fn dropping_connection(mut self) -> Self {
        self.drops_connection = true;
        self
    }

    pub(crate) fn drops_connection(&self) -> bool {
        self.drops_connection
    }

    /// Says which verb failed, unless a deeper layer has said it.
    pub(crate) fn during(mut self, operation: &'static str) -> Self {
        if self.operation.is_empty() {
            self.operation = operation;
        }
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call can succeed later without a change of input or configuration.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Contention | ErrorKind::Unavailable | ErrorKind::Busy)
    }

    /// Another try on another connection would fail the same way.
    pub(crate) fn is_permanent(&self) -> bool {
        !self.is_retryable() && !self.drops_connection
    }

    /// The verb that failed, for instance `claim`; empty outside of verbs.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The message without the operation.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The server's own error code, where it gave one.
    pub fn server_code(&self) -> Option<u16> {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operation.is_empty() {
            write!(f, "{}: ", self.operation)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(code) = self.code {
            write!(f, " (server code {code})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
