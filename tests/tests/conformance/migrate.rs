use conformance::raw::OWN_TABLES;
use conformance::{Db, Kind, every_database};
use rowclaim::{ErrorKind, NewJob};
use rowclaim_migrations::Flavor;
use std::collections::BTreeSet;

fn newest() -> i64 {
    Flavor::Sqlite.newest()
}

/// Columns and indexes of the tables, as the database tells them.
fn shape(db: &Db) -> BTreeSet<String> {
    let mut raw = db.raw();
    let rows = if db.is_sqlite() {
        raw.rows("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    } else {
        let like = format!("table_schema = DATABASE() AND table_name LIKE '{}%'", db.prefix.replace('_', "\\_"));
        let mut rows = raw.rows(&format!(
            "SELECT table_name, column_name, ordinal_position, column_type, is_nullable, column_default, extra, collation_name \
             FROM information_schema.columns WHERE {like}"
        ));
        rows.extend(raw.rows(&format!(
            "SELECT table_name, index_name, seq_in_index, column_name, non_unique FROM information_schema.statistics WHERE {like}"
        )));
        rows
    };
    // SQLite keeps the text of what made a table, and adds a new column at its end.
    let plain = |text: String| text.replace("IF NOT EXISTS ", "").split_whitespace().collect::<String>();
    rows.into_iter().map(|row| format!("{:?}", row.into_iter().map(|cell| cell.map(plain)).collect::<Vec<_>>())).collect()
}

every_database! {
    fn migrations_can_be_repeated(db) {
        let again = db.engine.migrate().unwrap();
        assert_eq!((again.from, again.to), (newest(), newest()));
    }

    fn eight_processes_migrate_at_once_and_one_applies(db) {
        let mut raw = db.raw();
        raw.drop_own_tables();
        let from: Vec<i64> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|_| {
                    let engine = db.another("migrate=never");
                    scope.spawn(move || engine.migrate().unwrap().from)
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert_eq!(from.iter().filter(|from| **from == 0).count(), 1, "{from:?}");
        db.engine.create(&NewJob::new("q", "1")).unwrap();
    }

    fn the_printed_schema_is_what_migrations_lead_to(db) {
        let migrated = shape(db);
        assert!(migrated.len() > 20 || db.is_sqlite() && migrated.len() >= 9, "{migrated:?}");
        let mut raw = db.raw();
        raw.drop_own_tables();
        for statement in db.engine.schema_sql().unwrap().split(";\n").filter(|s| !s.trim().is_empty()) {
            raw.run(statement);
        }
        assert_eq!(shape(db), migrated);
        let engine = db.another("migrate=never");
        assert!(!engine.create(&NewJob::new("q", "1")).unwrap().exists, "a hand-made schema is accepted");
        assert_eq!(engine.migrate().unwrap().from, newest());
    }

    fn newer_tables_are_refused(db) {
        db.raw().run(&format!("UPDATE {{schema}} SET version = 99 WHERE version = {}", newest()));
        let engine = db.another("");
        for error in [engine.create(&NewJob::new("q", "1")).unwrap_err(), engine.migrate().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Schema);
            assert!(error.message().contains(&format!("newer than the {} of this code", newest())), "{error}");
        }
    }
}

#[test]
fn missing_tables_are_named_with_the_way_out() {
    for kind in [Kind::Sqlite, Kind::MariaDb, Kind::MySql] {
        let Some(db) = Db::new(kind, "migrate=never") else { continue };
        let mut raw = db.raw();
        for table in OWN_TABLES {
            raw.run(&format!("DROP TABLE {{{table}}}"));
        }
        let error = db.another("").create(&NewJob::new("q", "1")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        assert!(error.message().contains("are missing; run `rowclaim migrate` or call migrate()"), "{error}");
        db.engine.migrate().unwrap();
    }
}
