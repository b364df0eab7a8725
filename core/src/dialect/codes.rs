//! Which server code means what: the only place that knows codes.
//!
//! MySQL: <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>,
//! MariaDB: <https://mariadb.com/kb/en/mariadb-error-code-reference/>, SQLite: <https://sqlite.org/rescode.html>.

use crate::error::{Error, ErrorKind};

/// Sorts what mysql_async reports.
pub(crate) fn mysql(error: mysql_async::Error) -> Error {
    use mysql_async::{DriverError, Error as My};
    match error {
        My::Server(server) => mysql_server(server.code, &server.message),
        My::Driver(DriverError::PacketTooLarge) => {
            Error::new(ErrorKind::Invalid, "payload too large for max_allowed_packet").dropping_connection()
        }
        My::Driver(DriverError::NoClientSslFlagFromServer) => Error::config("the server does not offer TLS; use tls=off"),
        My::Driver(DriverError::UnknownAuthPlugin { name }) => {
            Error::config(format!("the server asks for the authentication plugin {name}, which is unknown here"))
        }
        My::Driver(
            e @ (DriverError::StmtParamsMismatch { .. }
            | DriverError::StmtParamsNumberExceedsLimit { .. }
            | DriverError::MixedParams),
        ) => Error::new(ErrorKind::Unexpected, e.to_string()),
        My::Url(e) => Error::config(format!("DSN: {e}")),
        // rustls speaks through invalid data: a certificate that cannot be checked, a handshake that fails.
        My::Io(mysql_async::IoError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData && e.get_ref().is_some() => {
            Error::config(format!("TLS: {e}")).dropping_connection()
        }
        My::Io(mysql_async::IoError::Tls(e)) => Error::config(format!("TLS: {e}")).dropping_connection(),
        My::Io(mysql_async::IoError::Io(e)) => Error::unavailable(format!("the connection is lost: {e}")),
        // Whatever else the driver says, this connection's state is unknown.
        other => Error::unavailable(format!("connection: {other}")),
    }
}

/// As [`mysql`] for a connection that is being opened.
pub(crate) fn unreachable(error: mysql_async::Error, address: &str) -> Error {
    match error {
        mysql_async::Error::Io(mysql_async::IoError::Io(e)) if e.kind() != std::io::ErrorKind::InvalidData => {
            Error::unavailable(format!("cannot reach {address}: {e}"))
        }
        other => mysql(other),
    }
}

fn mysql_server(code: u16, message: &str) -> Error {
    let known = |kind, text: String| Error::new(kind, text).with_code(code);
    let said = || message.to_owned();
    match code {
        // Deadlock or certification failure (the transaction is gone), lock wait (it is still open: the
        // engine rolls back), record changed (1020, MariaDB snapshot isolation), NOWAIT (3572).
        1213 | 1205 | 1020 | 3572 => known(ErrorKind::Contention, said()),
        // A node of a Galera cluster that has lost its quorum or is still joining.
        1047 => known(ErrorKind::Unavailable, said()).dropping_connection(),
        1062 | 1586 => known(ErrorKind::Duplicate, "the key is taken".to_owned()),
        // A column or an index that is there already.
        1060 | 1061 => known(ErrorKind::Duplicate, said()),
        // Access denied, to the server or to the database; unknown database; too many of the user's connections.
        1044 | 1045 | 1698 | 1049 | 1142 | 1143 | 1227 => known(ErrorKind::Config, said()),
        // Read-only after a fail-over: the address may lead to another server next time.
        1290 | 1792 | 1836 => known(ErrorKind::Unavailable, format!("the server is read-only: {message}")).dropping_connection(),
        1665 => known(
            ErrorKind::Config,
            "the server's binlog_format is STATEMENT, which cannot replicate READ COMMITTED; set it to ROW".to_owned(),
        ),
        3159 | 4159 => known(ErrorKind::Config, format!("{message}; use tls=verify")),
        1146 | 1054 => known(ErrorKind::Schema, format!("{message}; run `rowclaim migrate`")),
        1064 | 1149 | 1305 | 1235 => known(ErrorKind::Unsupported, said()),
        1153 => known(ErrorKind::Invalid, "payload too large for max_allowed_packet".to_owned()).dropping_connection(),
        1264 | 1265 | 1292 | 1366 | 1406 | 1441 => known(ErrorKind::Invalid, said()),
        // Full disk or table, too many connections, shutdown, killed connection or statement, time-outs.
        1021 | 1114 | 1040 | 1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1203 | 1226 | 1317 | 1927 | 3024 | 3169 | 4031 => {
            known(ErrorKind::Unavailable, said()).dropping_connection()
        }
        _ => known(ErrorKind::Unexpected, said()),
    }
}

/// Sorts what rusqlite reports.
pub(crate) fn sqlite(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let rusqlite::Error::SqliteFailure(failure, message) = &error else {
        return match &error {
            rusqlite::Error::SqlInputError { msg, .. } if msg.starts_with("no such") => {
                Error::new(ErrorKind::Schema, format!("{msg}; run `rowclaim migrate`"))
            }
            _ => Error::new(ErrorKind::Unexpected, error.to_string()),
        };
    };
    let said = message.clone().unwrap_or_else(|| failure.to_string());
    let kind = match failure.code {
        Code::DatabaseBusy | Code::DatabaseLocked => ErrorKind::Contention,
        Code::ConstraintViolation if matches!(failure.extended_code, 2067 | 1555) => ErrorKind::Duplicate,
        Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen | Code::NotADatabase => ErrorKind::Config,
        Code::DiskFull | Code::SystemIoFailure | Code::OperationInterrupted => ErrorKind::Unavailable,
        Code::TooBig => ErrorKind::Invalid,
        _ if said.contains("no such table") || said.contains("no such column") || said.contains("no such index") => {
            return Error::new(ErrorKind::Schema, format!("{said}; run `rowclaim migrate`"));
        }
        _ => ErrorKind::Unexpected,
    };
    Error::new(kind, said)
}
