//! Mappings that do not fit, wrong requests, and tables that change under a mapping: a clear answer, and nothing lost.

use conformance::tables::{ALL_ROLES, TARGETS, UserTable, mapping};
use conformance::{Kind, every_database};
use rowclaim::{ErrorKind, Filters, Finish, RowClaimRequest, Value};

fn base(more: &str) -> String {
    format!("{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"failed\":3,\"token\":\"cron_token\"{more}}}")
}

every_database! {
    fn a_mapping_that_does_not_fit_is_refused_by_name("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        for (json, says) in [
            (base(",\"claimed_at\":\"sent_at\""), "claimed_at: table"),
            (base(",\"claimed_at\":\"sent_at\""), "has no column \"sent_at\"; it has id, task_id"),
            (base(",\"claimed_at\":\"send_at\""), "claimed_at: column send_at"),
            (base(",\"claimed_at\":\"send_at\",\"zone\":\"Mars/Olympus\""), "zone Mars/Olympus is neither"),
            (base(",\"claimed_at\":\"openid\""), "claimed_at: column openid"),
            (base(",\"attempts\":\"openid\""), "attempts: column openid"),
            (base(",\"error\":\"task_id\""), "error: column task_id"),
            (base(",\"max_attempts\":3"), "max_attempts needs attempts"),
            (base(",\"recover_after\":60"), "recover_after needs claimed_at or lease_until"),
            (base(",\"registry\":\"off\""), "registry off needs lease_until"),
            (base(",\"scope\":{\"task\":1}"), "scope: table"),
            (base(",\"scope\":{\"task_id\":\"x\"}"), "scope: column task_id takes a whole number, not \"x\""),
            (base(",\"columns\":[\"a\"]"), "columns: table"),
            (base(",\"locked_by\":\"cron_token\""), "cannot be both"),
            (base(",\"key\":\"task_id\""), "key: column task_id"),
            (base(",\"priority\":\"status\""), "cannot be both"),
            (base("").replace("\"pending\":0", "\"pending\":\"new\""), "pending: column status takes a whole number, not \"new\""),
            (base("").replace("\"processing\":1", "\"processing\":0"), "processing must differ from pending and done"),
            (base("").replace("\"failed\":3", "\"failed\":2"), "failed must differ"),
            (base("").replace("\"done\":2", "\"done\":0"), "rows that recur (done is pending) need available_at"),
            (base("").replace("cron_token", "result; DROP TABLE x"), "has no column \"result; DROP TABLE x\""),
            (base("").replace("cron_token", "a\\u0000b"), "is no name"),
        ] {
            let error = targets.try_map(&json).err().unwrap_or_else(|| panic!("accepted: {json}"));
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(says), "{error}\nnot: {says}");
        }
        for name in ["nowhere", "`x`; DROP TABLE y", "a\"b"] {
            let error = db.engine.table(name, &mapping("")).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
            assert!(error.to_string().contains("there is no table"), "{error}");
        }
        for name in ["", "a.b.c", "x\0", &"n".repeat(65)] {
            assert_eq!(db.engine.table(name, &mapping("")).err().unwrap().kind(), ErrorKind::Config, "{name:?}");
        }
    }

    fn tables_without_a_usable_key_or_token_are_refused("heartbeat=0", db) {
        let rest = "status INT NOT NULL, cron_token VARCHAR(40) NULL";
        for (columns, says) in [
            (format!("a INT NOT NULL, {rest}, PRIMARY KEY (a, status)"), "is (a, status), more than one column"),
            (format!("a INT NOT NULL, {rest}"), "has no primary key"),
        ] {
            let table = UserTable::new(db, &format!("k{}", says.len()), &columns);
            let error = table.try_map(&base("")).err().unwrap();
            assert!(error.to_string().contains(says), "{error}");
        }
        let table = UserTable::new(db, "unique_key", &format!("a INT NOT NULL, b INT NOT NULL UNIQUE, {rest}, PRIMARY KEY (a, status)"));
        table.run("INSERT INTO {t} VALUES (1, 5, 0, NULL), (2, 4, 0, NULL)");
        let batch = table.try_map(&base(",\"key\":\"b\"")).unwrap().claim(&RowClaimRequest::new(9)).unwrap();
        assert_eq!(batch.rows().iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [Value::Int(4), Value::Int(5)]);
        let view = format!("{}view", db.prefix);
        db.raw().run(&format!("CREATE VIEW {view} AS SELECT * FROM {}", table.name));
        let error = db.engine.table(&view, &mapping("\"key\":\"b\"")).err().unwrap();
        db.raw().run(&format!("DROP VIEW {view}"));
        assert!(error.to_string().contains("is a view; map the table behind it"), "{error}");
    }

    fn wrong_requests_are_refused_and_lose_nothing("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        let table = targets.map(ALL_ROLES);
        let by = |filters: Filters| RowClaimRequest { filters, ..RowClaimRequest::new(9) };
        for (request, says) in [
            (RowClaimRequest::new(0), "limit must be from 1"),
            (RowClaimRequest::new(10_001), "limit must be from 1"),
            (RowClaimRequest { lease: Some(std::time::Duration::from_millis(10)), ..RowClaimRequest::new(1) }, "lease must be"),
            (RowClaimRequest { partition: Some((2, 2)), ..RowClaimRequest::new(1) }, "partition must be"),
            (RowClaimRequest { order: vec!["nope".into()], ..RowClaimRequest::new(1) }, "has no column \"nope\""),
            (RowClaimRequest { order: vec!["id; DROP TABLE x".into()], ..RowClaimRequest::new(1) }, "has no column"),
            (by(Filters::none().equal("nope", Value::Int(1))), "has no column \"nope\""),
            (by(Filters::none().equal("task_id = 1 OR 1", Value::Int(1))), "has no column"),
            (by(Filters::none().equal("task_id", Value::Text("1 OR 1=1".into()))), "takes a whole number"),
            (by(Filters::none().equal("task_id", Value::Null)), "takes no NULL"),
            (by(Filters::none().any("task_id", vec![])), "the list of task_id is empty"),
            (by(Filters::none().equal("status", Value::Int(2))), "the engine's to look at"),
        ] {
            let error = table.claim(&request).err().unwrap_or_else(|| panic!("accepted: {request:?}"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains(says), "{error}\nnot: {says}");
        }
        // A text that looks like SQL is a text.
        let sql = Filters::none().equal("openid", Value::Text("' OR ''='".into()));
        assert!(table.claim(&by(sql.clone())).unwrap().is_empty());
        assert!(!table.remaining(&sql).unwrap());
        let batch = table.claim(&RowClaimRequest::new(3)).unwrap();
        let row = batch.job(0).unwrap();
        let set = |column: &str, value: Value| row.complete_with(vec![(column.into(), value)], None);
        for (column, value, says) in [
            ("nope", Value::Int(1), "has no column \"nope\""),
            ("status", Value::Int(9), "the engine's to write"),
            ("id", Value::Int(9), "the engine's to write"),
            ("cron_token", Value::Null, "the engine's to write"),
            ("task_id", Value::Text("x".into()), "takes a whole number"),
        ] {
            assert!(set(column, value).unwrap_err().to_string().contains(says), "{column}");
        }
        assert!(row.complete_with(vec![], Some(std::time::Duration::from_secs(1))).unwrap_err().to_string().contains("rows that recur"));
        assert_eq!(set("result", Value::Text("'; DROP TABLE x; --".into())).unwrap(), Finish::Accepted);
        assert_eq!(targets.column("result")[0], "'; DROP TABLE x; --");
        let json = base("").replace("\"failed\":3,", "");
        let error = targets.try_map(&json).unwrap().retry(None, &Filters::none(), 10).unwrap_err();
        assert!(error.to_string().contains("no failed"), "{error}");
    }

    // 52
    fn a_full_attempt_counter_ends_the_row_and_the_others_are_served("heartbeat=0", db) {
        let columns = TARGETS.replace("attempts INT", "attempts TINYINT UNSIGNED");
        let targets = UserTable::new(db, "tiny", &columns);
        targets.fill(3);
        targets.run("UPDATE {t} SET attempts = 255 WHERE id = 1");
        let table = targets.map("\"attempts\":\"attempts\",\"error\":\"error\"");
        let batch = table.claim(&RowClaimRequest::new(9)).unwrap();
        // SQLite's columns are as wide as they need to be.
        let expected = if db.is_sqlite() { ["1", "1", "1"] } else { ["3", "1", "1"] };
        assert_eq!(targets.column("status"), expected);
        assert_eq!(batch.len(), if db.is_sqlite() { 3 } else { 2 });
        if !db.is_sqlite() {
            assert_eq!(targets.column("error"), ["attempt counter full", "-", "-"]);
        }
    }

    fn rows_changed_or_deleted_by_hand_are_lost_to_their_owner("heartbeat=0", db) {
        let targets = UserTable::targets(db, 5);
        let table = targets.map(ALL_ROLES);
        let batch = table.claim(&RowClaimRequest::new(5)).unwrap();
        targets.run("DELETE FROM {t} WHERE id = 1");
        targets.run("UPDATE {t} SET status = 0, cron_token = NULL WHERE id = 2");
        targets.run("UPDATE {t} SET status = 2 WHERE id = 3");
        targets.run("UPDATE {t} SET cron_token = 'somebody' WHERE id = 4");
        let answers = batch.complete_all().unwrap();
        assert_eq!(answers, [Finish::Lost, Finish::Lost, Finish::Accepted, Finish::Lost, Finish::Accepted]);
        assert_eq!(targets.column("status"), ["0", "2", "1", "2"]);
    }

    // A column that is added or dropped while workers run: the next call looks again.
    fn a_table_can_be_altered_while_workers_run("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        let table = targets.map(ALL_ROLES);
        let batch = table.claim(&RowClaimRequest::new(2)).unwrap();
        targets.run("ALTER TABLE {t} ADD COLUMN extra INT NULL");
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 2]);
        targets.run("ALTER TABLE {t} DROP COLUMN result");
        let batch = table.claim(&RowClaimRequest::new(2)).unwrap();
        assert_eq!(batch.len(), 2);
        assert!(batch.rows()[0].get("extra").is_some(), "and knows the new column");
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 2]);
        let batch = table.claim(&RowClaimRequest::new(1)).unwrap();
        let row = batch.job(0).unwrap();
        let (to, back) = match db.is_sqlite() {
            true => ("ALTER TABLE {t} RENAME COLUMN error TO err", "ALTER TABLE {t} RENAME COLUMN err TO error"),
            false => ("ALTER TABLE {t} CHANGE error err VARCHAR(9) NULL", "ALTER TABLE {t} CHANGE err error VARCHAR(9) NULL"),
        };
        targets.run(to);
        assert_eq!(row.fail("x", None).unwrap_err().kind(), ErrorKind::Schema, "a column that is gone is named");
        let error = table.claim(&RowClaimRequest::new(1)).err().unwrap();
        assert!(error.to_string().contains("has no column \"error\""), "{error}");
        targets.run(back);
        assert_eq!(row.fail("x", None).unwrap(), Finish::Accepted);
    }
}

fn on_servers(run: impl Fn(&conformance::Db)) {
    for kind in Kind::SERVERS {
        if let Some(db) = conformance::Db::new(kind, "heartbeat=0") {
            run(&db);
        }
    }
}

// 104
#[test]
fn tables_without_row_locks_are_refused_with_the_way_out() {
    on_servers(|db| {
        let columns = "id INT NOT NULL PRIMARY KEY, status INT NOT NULL, cron_token VARCHAR(40) NULL) ENGINE=MyISAM";
        let name = format!("{}myisam", db.prefix);
        db.raw().run(&format!("CREATE TABLE {name} ({columns}"));
        let error = db.engine.table(&name, &mapping("")).err().unwrap();
        db.raw().run(&format!("DROP TABLE {name}"));
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(&format!("ALTER TABLE `{name}` ENGINE=InnoDB")), "{error}");
    });
}

#[test]
fn a_token_column_that_is_too_short_is_refused_with_the_way_out() {
    on_servers(|db| {
        for token in ["VARCHAR(20)", "INT", "BINARY(12)", "DATETIME"] {
            let table = UserTable::new(
                db,
                "short",
                &format!("id INT NOT NULL PRIMARY KEY, status INT NOT NULL, cron_token {token} NULL"),
            );
            let error = table.try_map(&base("")).err().unwrap();
            assert!(error.to_string().contains("MODIFY cron_token VARCHAR(36) NULL"), "{error}");
        }
    });
}

// 7, 76: a time that the column cannot keep is refused; a zero date is never due and never a claim.
#[test]
fn zero_dates_are_never_due_and_far_ones_are_refused() {
    on_servers(|db| {
        let columns = TARGETS.replace("available_at DATETIME NULL", "available_at TIMESTAMP NULL");
        let targets = UserTable::new(db, "zero", &columns);
        targets.fill(3);
        let mut raw = db.raw();
        raw.run("SET SESSION sql_mode = ''");
        raw.run(&format!("UPDATE {} SET available_at = '0000-00-00 00:00:00' WHERE id = 1", targets.name));
        raw.run(&format!(
            "UPDATE {} SET status = 1, cron_token = 'x', send_at = '0000-00-00 00:00:00' WHERE id = 2",
            targets.name
        ));
        let table = targets.map(&format!("{ALL_ROLES},\"recover_after\":600"));
        table.recover().unwrap();
        targets.run("UPDATE {t} SET available_at = NULL WHERE id = 2");
        let batch = table.claim(&RowClaimRequest::new(9)).unwrap();
        assert_eq!(targets.column("status"), ["0", "1", "1"]);
        let zero = table.row(&Value::Int(1)).unwrap().unwrap();
        assert_eq!(zero.get("available_at"), Some(&Value::Moment("0000-00-00 00:00:00".into())));
        let far = vec![("available_at".to_owned(), Value::Text("2500-01-01 12:00:00".into()))];
        let error = batch.job(0).unwrap().complete_with(far, None).unwrap_err();
        assert!(error.to_string().contains("2038"), "{error}");
    });
}

// 105: other collations than the connection's.
#[test]
fn collations_of_the_table_do_not_matter() {
    on_servers(|db| {
        let columns = "id VARCHAR(40) COLLATE utf8mb4_unicode_ci NOT NULL PRIMARY KEY, status VARCHAR(9) COLLATE utf8mb4_general_ci NOT NULL, \
            cron_token VARCHAR(40) CHARACTER SET latin1 NULL, error VARCHAR(50) CHARACTER SET latin1 NULL";
        let table = UserTable::new(db, "collated", columns);
        table.run("INSERT INTO {t} (id, status) VALUES ('ß', 'new'), ('ä', 'NEW')");
        let json = "{\"status\":\"status\",\"pending\":\"new\",\"processing\":\"run\",\"done\":\"ok\",\"failed\":\"bad\",\"token\":\"cron_token\",\"error\":\"error\"}";
        let batch = table.try_map(json).unwrap().claim(&RowClaimRequest::new(9)).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.job(0).unwrap().fail("déjà \u{1f389}", None).unwrap(), Finish::Accepted);
        assert_eq!(batch.job(1).unwrap().complete().unwrap(), Finish::Accepted);
        assert_eq!(table.number("SELECT COUNT(*) FROM {t} WHERE error = 'déjà ?'"), 1);
    });
}
