//! The configuration file: which database, and how its tables are mapped.
//!
//! `rowclaim.json` in the current folder, or the file that --config or ROWCLAIM_CONFIG names:
//! `{"dsn": "mysql://app@127.0.0.1/shop", "tables": {"xxx_task_target": {"status": "status", "pending": 0, …}}}`.
//! A mapping has the form it has in every language; see `rowclaim::Mapping::from_json`.

use crate::fault::Fault;
use rowclaim::Mapping;
use serde_json::{Map, Value as Json};
use std::path::Path;

/// The file that is read when none is named.
pub const USUAL: &str = "rowclaim.json";

/// What the file says; nothing where there is none.
#[derive(Debug, Default)]
pub struct Config {
    /// The database, for commands that are given none.
    pub dsn: Option<String>,
    /// Mapped tables in the order of the file.
    pub tables: Vec<(String, Mapping)>,
}

impl Config {
    /// Reads the named file, or the usual one where it is there.
    pub fn load(named: Option<&Path>) -> Result<Config, Fault> {
        let path = match named {
            Some(path) => path,
            None if Path::new(USUAL).is_file() => Path::new(USUAL),
            None => return Ok(Config::default()),
        };
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| Fault::config(format!("{shown} cannot be read: {error}")))?;
        Config::parse(&text).map_err(|message| Fault::config(format!("{shown}: {message}")))
    }

    fn parse(text: &str) -> Result<Config, String> {
        let mut entries = object(serde_json::from_str(text).map_err(|error| error.to_string())?, "the file")?;
        let dsn = match entries.remove("dsn") {
            None => None,
            Some(Json::String(dsn)) => Some(dsn),
            Some(_) => return Err("dsn must be a text".to_owned()),
        };
        let tables = object(entries.remove("tables").unwrap_or_else(|| Json::Object(Map::new())), "tables")?;
        if let Some(unknown) = entries.keys().next() {
            return Err(format!("{unknown} is unknown; there are dsn and tables"));
        }
        let read = |(name, mapping): (String, Json)| {
            let mapping =
                Mapping::from_json(&mapping.to_string()).map_err(|error| format!("tables: {name}: {}", error.message()))?;
            Ok((name, mapping))
        };
        Ok(Config { dsn, tables: tables.into_iter().map(read).collect::<Result<_, String>>()? })
    }
}

fn object(json: Json, what: &str) -> Result<Map<String, Json>, String> {
    match json {
        Json::Object(entries) => Ok(entries),
        _ => Err(format!("{what} is no object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: &str = r#"{"status": "status", "token": "t", "pending": 0, "processing": 1, "done": 2}"#;

    #[test]
    fn tables_come_in_the_order_of_the_file() {
        let config = Config::parse(&format!(r#"{{"dsn": "sqlite:a", "tables": {{"z": {MAPPING}, "a": {MAPPING}}}}}"#)).unwrap();
        assert_eq!(config.dsn.as_deref(), Some("sqlite:a"));
        let names: Vec<&str> = config.tables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["z", "a"]);
        assert!(Config::parse("{}").unwrap().tables.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "EOF"),
            ("[]", "the file is no object"),
            (r#"{"dsn": 1}"#, "dsn must be a text"),
            (r#"{"table": {}}"#, "table is unknown"),
            (r#"{"tables": {"x": {"status": "s"}}}"#, "tables: x: mapping: pending is missing"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        assert!(Config::load(Some(Path::new("/no/such/file.json"))).is_err());
    }
}
