//! Which tables are mapped: those of the configuration file, then those that claims were made from in this database.

use crate::config::Config;
use crate::fault::Fault;
use rowclaim::blocking::{Engine, Table};
use rowclaim::{Error, ErrorKind, Filters, Mapping, Value};

/// A mapping and where it was found.
pub struct Mapped {
    pub name: String,
    pub mapping: Mapping,
    /// `file` or `registry`.
    pub origin: &'static str,
}

/// Every mapped table; the file's mapping counts before the registry's, and there the newest.
pub fn all(engine: &Engine, config: Config) -> Result<Vec<Mapped>, Fault> {
    let file = config.tables.into_iter();
    let mut found: Vec<Mapped> = file.map(|(name, mapping)| Mapped { name, mapping, origin: "file" }).collect();
    for (name, mapping) in registered(engine)? {
        if found.iter().all(|known| known.name != name) {
            found.push(Mapped { name, mapping, origin: "registry" });
        }
    }
    Ok(found)
}

/// The newest mapping of each table in the registry. None where the own tables are not what they should be.
pub fn registered(engine: &Engine) -> Result<Vec<(String, Mapping)>, Fault> {
    let records = match engine.tables() {
        Ok(records) => records,
        // With a code the server has answered, and whoever needs the tables will say what is wrong with them.
        Err(error) if error.kind() == ErrorKind::Unavailable && error.server_code().is_none() => return Err(error.into()),
        Err(_) => Vec::new(),
    };
    let mut newest: Vec<(String, Mapping)> = Vec::new();
    // By name, then by age.
    for record in records {
        let mapping = match Mapping::from_json(&record.mapping) {
            Ok(mapping) => mapping,
            Err(error) => {
                log::warn!("the recorded mapping {} of {} cannot be read: {error}", record.id, record.name);
                continue;
            }
        };
        match newest.last_mut().filter(|last| last.0 == record.name) {
            Some(last) => last.1 = mapping,
            None => newest.push((record.name, mapping)),
        }
    }
    Ok(newest)
}

/// One mapped table by its name, checked against the database.
pub fn one(engine: &Engine, config: Config, name: &str) -> Result<Table, Fault> {
    let found = all(engine, config)?.into_iter().find(|mapped| mapped.name == name).ok_or_else(|| unmapped(name))?;
    Ok(engine.table(name, &found.mapping)?)
}

/// What to do about a table that nobody has mapped.
pub fn unmapped(name: &str) -> Fault {
    let message = format!("table {name} is not mapped: the configuration file does not name it, and nothing was claimed from it");
    Fault::Engine(Error::new(ErrorKind::NotFound, message))
}

/// `column=value` conditions; `column=` followed by nothing is the empty text, a bare `column` is NULL.
pub fn filters(conditions: &[String]) -> Filters {
    let mut filters = Filters::none();
    for condition in conditions {
        filters = match condition.split_once('=') {
            Some((column, value)) => filters.equal(column, Value::Text(value.to_owned())),
            None => filters.equal(condition.as_str(), Value::Null),
        };
    }
    filters
}
