//! The own tables: there, at the right version, and as the migrations made them.

use super::Finding;
use super::look::{Look, one_number};
use crate::dialect::doctor as dialect;
use crate::error::{ErrorKind, Result};
use crate::plan::plain;
use crate::value::{Row, Value};
use rowclaim_migrations::Flavor;

/// Whether the tables are there at the version of this code.
pub(super) async fn look(look: &mut Look<'_>) -> Result<bool> {
    if !version(look).await? {
        return Ok(false);
    }
    if look.shared.flavor() == Flavor::MySql {
        form(look).await?;
        rights(look).await?;
    }
    Ok(true)
}

async fn version(look: &mut Look<'_>) -> Result<bool> {
    let flavor = look.shared.flavor();
    let subject = format!("{}schema", look.shared.config.prefix.as_str());
    let statement = plain(&look.shared.names.fill(dialect::own(flavor).version), vec![]);
    let newest = flavor.newest();
    let found = match look.ask(&statement).await? {
        Ok((_, rows)) => one_number(&rows).unwrap_or(0),
        Err(error) if error.kind() == ErrorKind::Config => {
            look.find(rights_missing(look, &subject, "SELECT, INSERT, UPDATE, DELETE", error.message()));
            return Ok(false);
        }
        Err(error) if error.kind() == ErrorKind::Schema => 0,
        Err(_) => return Ok(false),
    };
    if found == newest {
        return Ok(true);
    }
    let mend = "rowclaim migrate";
    if found == 0 {
        let message = format!("the tables with the prefix {} are missing", look.shared.config.prefix.as_str());
        let is_needed = look.request.tables.is_empty() || look.request.tables.iter().any(|table| table.mapping.registry);
        look.find(if look.shared.config.migrate {
            Finding::note("own-tables-missing", subject, message).so("they are made when they are first used")
        } else if is_needed {
            Finding::fault("own-tables-missing", subject, message).so("every verb fails").mend(mend)
        } else {
            Finding::note("own-tables-missing", subject, message)
                .so("claims on tables mapped with registry off do without")
                .mend(mend)
        });
    } else if found < newest {
        let message = format!("the tables are at version {found} and this code needs {newest}");
        look.find(if look.shared.config.migrate {
            Finding::note("own-tables-old", subject, message).so("they are upgraded when they are first used")
        } else {
            Finding::fault("own-tables-old", subject, message).so("every verb fails").mend(mend)
        });
    } else {
        let message = format!("the tables are at version {found}, newer than the {newest} of this code");
        let mend = "install the newer Rowclaim on this machine too";
        look.find(Finding::fault("own-tables-newer", subject, message).so("every verb fails here").mend(mend));
    }
    Ok(false)
}

pub(super) fn rights_missing(look: &Look<'_>, table: &str, rights: &str, said: &str) -> Finding {
    Finding::fault("rights-missing", table, format!("the server refuses: {said}")).so("claims fail").mend(format!(
        "GRANT {rights} ON {} TO {}",
        Flavor::MySql.quote(table),
        look.account
    ))
}

/// One own table as the migrations make it.
#[derive(Debug)]
struct Expected {
    name: String,
    columns: Vec<Part>,
    indexes: Vec<Part>,
}

/// A column or an index.
#[derive(Debug)]
struct Part {
    name: String,
    /// The type in short form; empty for an index.
    kind: String,
    /// Empty where the schema says none.
    collation: String,
    /// As the schema has it.
    definition: String,
}

/// Reads the whole schema, whose texts keep one column or one index a line.
fn expected(schema: &str, prefix: &str) -> Vec<Expected> {
    let mut tables: Vec<Expected> = Vec::new();
    for line in schema.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1)).copied();
        if let Some(name) = line.strip_prefix("CREATE TABLE IF NOT EXISTS {").and_then(|rest| rest.split_once('}')) {
            tables.push(Expected { name: format!("{prefix}{}", name.0), columns: Vec::new(), indexes: Vec::new() });
            continue;
        }
        let Some(table) = tables.last_mut() else { continue };
        let part = |name: &str, kind: &str| Part {
            name: name.to_owned(),
            kind: short_type(kind),
            collation: after("COLLATE").unwrap_or_default().to_owned(),
            definition: words.join(" ").trim_end_matches(',').to_owned(),
        };
        match words.as_slice() {
            ["PRIMARY", "KEY", ..] => table.indexes.push(part("PRIMARY", "")),
            ["KEY", name, ..] | ["UNIQUE", "KEY", name, ..] => table.indexes.push(part(name, "")),
            [name, kind, ..] if !line.starts_with(')') && !line.starts_with("--") => table.columns.push(part(name, kind)),
            _ => {}
        }
    }
    tables
}

/// A type in lower case; of whole numbers without the width that some servers add.
fn short_type(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.split_once('(') {
        Some((word, _)) if word.ends_with("int") => word.to_owned(),
        _ => kind,
    }
}

/// Storage engines, columns and indexes against what the migrations lead to.
async fn form(look: &mut Look<'_>) -> Result<()> {
    let prefix = look.shared.config.prefix.as_str().to_owned();
    let like = vec![Value::from(format!("{}%", prefix.replace('_', "\\_")))];
    let engines = look.see(dialect::OWN_ENGINES, like.clone()).await?;
    let columns = look.see(dialect::OWN_COLUMNS, like.clone()).await?;
    let indexes = look.see(dialect::OWN_INDEXES, like).await?;
    for table in expected(look.shared.flavor().schema(), &prefix) {
        let quoted = Flavor::MySql.quote(&table.name);
        let mine = |rows: &[Row]| -> Vec<Row> {
            rows.iter().filter(|row| row.text(0).is_ok_and(|name| name.eq_ignore_ascii_case(&table.name))).cloned().collect()
        };
        let Some(engine) = mine(&engines).first().and_then(|row| row.text(1).ok()) else {
            look.find(
                Finding::fault("own-table-changed", &table.name, "the table is missing, though the schema says it was made")
                    .so("claims fail")
                    .mend("rowclaim migrate --print, and the CREATE TABLE of it"),
            );
            continue;
        };
        if !engine.eq_ignore_ascii_case("innodb") {
            look.find(
                Finding::fault("own-table-engine", &table.name, format!("the table is {engine}, which has no transactions"))
                    .so("a claim that fails half-way stays, and rows are handed out twice")
                    .mend(format!("ALTER TABLE {quoted} ENGINE=InnoDB")),
            );
        }
        let found = mine(&columns);
        for part in &table.columns {
            let row = found.iter().find(|row| row.text(1).is_ok_and(|name| name.eq_ignore_ascii_case(&part.name)));
            let is = row.and_then(|row| Some((short_type(&row.text(2).ok()?), row.text(3).ok()?)));
            // Words of an ENUM are in the database's own character set, whichever that is.
            let is_as_made = |is: &(String, String)| {
                is.0 == part.kind && (is.1 == part.collation || part.collation.is_empty() && part.kind.starts_with("enum"))
            };
            if is.as_ref().is_some_and(is_as_made) {
                continue;
            }
            let how = if is.is_some() { "MODIFY" } else { "ADD COLUMN" };
            let is = is.map_or("missing".to_owned(), |is| format!("{} {}", is.0, is.1).trim().to_owned());
            let made = format!("{} {}", part.kind, part.collation);
            let subject = format!("{}.{}", table.name, part.name);
            look.find(
                Finding::warning("own-table-changed", subject, format!("the column is {is}; it was made {}", made.trim()))
                    .so("keys that differ in case or accents may become one, texts may be cut, or claims fail")
                    .mend(format!("ALTER TABLE {quoted} {how} {}", part.definition)),
            );
        }
        let found = mine(&indexes);
        for part in &table.indexes {
            if !found.iter().any(|row| row.text(1).is_ok_and(|name| name.eq_ignore_ascii_case(&part.name))) {
                look.find(
                    Finding::fault("own-index-missing", &table.name, format!("the index {} is missing", part.name))
                        .so("statements that name it fail, and others read the whole table")
                        .mend(format!("ALTER TABLE {quoted} ADD {}", part.definition)),
                );
            }
        }
    }
    Ok(())
}

/// Whether the account may write the rows of a claim, asked by an EXPLAIN that writes nothing.
async fn rights(look: &mut Look<'_>) -> Result<()> {
    if look.has_found(&["binlog-statement", "read-only"]) {
        return Ok(());
    }
    for (name, place) in [("jobs", "{jobs}"), ("claims", "{claims}")] {
        let sql = look.shared.names.fill(&dialect::own_write(place));
        if let Err(error) = look.ask(&plain(&sql, vec![])).await?
            && error.kind() == ErrorKind::Config
        {
            let table = format!("{}{name}", look.shared.config.prefix.as_str());
            look.find(rights_missing(look, &table, "SELECT, INSERT, UPDATE, DELETE", error.message()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_read_as_tables_columns_and_indexes() {
        let tables = expected(Flavor::MySql.schema(), "x_");
        assert!(tables.len() >= 4);
        let jobs = tables.iter().find(|table| table.name == "x_jobs").unwrap();
        let names: Vec<&str> = jobs.indexes.iter().map(|index| index.name.as_str()).collect();
        assert_eq!(names, ["PRIMARY", "unique_key", "pick"]);
        assert_eq!(jobs.indexes[2].definition, "KEY pick (queue, priority, ready_at)");
        let column = |name: &str| jobs.columns.iter().find(|column| column.name == name).unwrap();
        assert_eq!((column("payload").kind.as_str(), column("payload").collation.as_str()), ("longtext", "utf8mb4_bin"));
        assert_eq!(column("state").kind, "enum('ready','claimed','done','dead','cancelled','held')");
        assert_eq!(column("queue").definition, "queue VARBINARY(64) NOT NULL");
        assert_eq!(short_type("BIGINT(20)"), "bigint");
        assert_eq!(short_type("DATETIME(6)"), "datetime(6)");
    }
}
