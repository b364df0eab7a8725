//! The verbs on mapped tables: the same promises as on jobs, on the tables people have.

use conformance::tables::{ALL_ROLES, UserTable, claim, keys, mapping};
use conformance::{every_database, wait_until};
use rowclaim::blocking::{Handled, WorkRequest};
use rowclaim::faults::Fault;
use rowclaim::{ClaimFilter, ClaimName, Filters, Finish, Outcome, Recovered, RowClaimRequest, RowFilter, Timestamp, Value};
use std::collections::HashSet;
use std::time::Duration;

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

const FAR: Duration = Duration::from_secs(600);

every_database! {
    fn rows_are_claimed_in_order_and_completed_with_what_the_caller_sets("heartbeat=0&worker=me", db) {
        let targets = UserTable::targets(db, 5);
        let table = targets.map(ALL_ROLES);
        let batch = claim(&table, 3);
        assert_eq!(keys(&batch), [1, 2, 3]);
        let token = batch.token().unwrap().hyphenated().to_string();
        assert_eq!(targets.column("cron_token"), [&token, &token, &token, "-", "-"]);
        assert_eq!(targets.column("status"), ["1", "1", "1", "0", "0"]);
        assert_eq!(targets.column("locked_by"), ["me", "me", "me", "-", "-"]);
        let row = &batch.rows()[0];
        assert_eq!((row.attempts, row.max_attempts, row.fence), (1, Some(3), 1));
        assert_eq!(row.get("OpenID"), Some(&text("open1")));
        assert_eq!(row.get("status"), Some(&Value::Int(1)), "as it stands now that it is claimed");
        let rest = claim(&table, 9);
        assert_eq!(keys(&rest), [4, 5]);
        assert!(claim(&table, 9).is_empty());
        drop(rest);
        let first = batch.job(0).unwrap();
        assert_eq!(first.complete_with(vec![("result".into(), text("ok"))], None).unwrap(), Finish::Accepted);
        assert_eq!(first.complete().unwrap(), Finish::Accepted, "a repeat is accepted");
        assert_eq!(batch.finish(&[Value::Int(2), Value::Int(3)], &Outcome::Complete).unwrap(), [Finish::Accepted; 2]);
        assert_eq!(targets.column("result"), ["ok", "-", "-", "-", "-"]);
        assert_eq!(targets.column("status"), ["2", "2", "2", "0", "0"], "what nobody started is released");
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE finished_at IS NOT NULL AND locked_by IS NULL AND cron_token IS NOT NULL"), 3);
        db.engine.flush().unwrap();
        let records = db.engine.tables().unwrap();
        assert_eq!(records.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), [targets.name.as_str()]);
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'closed' AND table_id IS NOT NULL"), 2);
    }

    // 75: the clock is the database's; the zone of the mapping decides what a DATETIME column shows.
    fn times_are_written_in_the_zone_of_the_mapping("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let _claim = claim(&targets.map("\"claimed_at\":\"send_at\",\"zone\":\"Asia/Shanghai\""), 1);
        let ahead = if db.is_sqlite() {
            "SELECT CAST(ROUND((julianday(send_at) - julianday('now')) * 24) AS INTEGER) FROM {t}"
        } else {
            "SELECT ROUND(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), send_at) / 3600) FROM {t}"
        };
        assert_eq!(targets.number(ahead), 8);
    }

    fn filters_order_and_partition_choose_the_rows("heartbeat=0", db) {
        let targets = UserTable::targets(db, 12);
        targets.run("UPDATE {t} SET task_id = id % 3, result = NULL, priority = 12 - id");
        targets.run("UPDATE {t} SET result = 'x' WHERE id > 6");
        let table = targets.map("\"scope\":{\"task_id\":1}");
        assert_eq!(keys(&claim(&table, 9)), [1, 4, 7, 10]);
        let table = targets.map("");
        let of = |request: RowClaimRequest| keys(&table.claim(&request).unwrap());
        let by = |filters: Filters| RowClaimRequest { filters, ..RowClaimRequest::new(9) };
        assert_eq!(of(by(Filters::none().equal("task_id", Value::Int(2)))), [2, 5, 8, 11]);
        assert_eq!(of(by(Filters::none().any("task_id", vec![text("0"), Value::Int(2)]).equal("result", Value::Null))), [2, 3, 5, 6]);
        assert_eq!(of(by(Filters::none().any("result", vec![Value::Null, text("y")]))), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(RowClaimRequest { order: vec!["-task_id".into(), "priority".into()], ..RowClaimRequest::new(5) }), [11, 8, 5, 2, 10]);
        assert_eq!(of(RowClaimRequest { partition: Some((1, 4)), ..RowClaimRequest::new(9) }), [1, 5, 9]);
        assert_eq!(keys(&claim(&targets.map("\"priority\":\"priority\""), 3)), [12, 11, 10]);
    }

    // 10: rows without a time come first, then by time, then by key.
    fn rows_wait_for_their_time("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        targets.run("UPDATE {t} SET available_at = '2001-01-01 00:00:00' WHERE id = 2");
        targets.run("UPDATE {t} SET available_at = '2000-01-01 00:00:00' WHERE id = 4");
        targets.run("UPDATE {t} SET available_at = '2500-01-01 00:00:00' WHERE id = 1");
        let table = targets.map("\"available_at\":\"available_at\",\"zone\":\"UTC\"");
        assert_eq!(keys(&claim(&table, 9)), [3, 5, 6, 4, 2]);
        assert!(table.remaining(&Filters::none()).unwrap());
    }

    // 27, 39, 43: the late owner writes nothing, whatever it tries.
    fn a_late_owner_is_refused("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let table = targets.map(&format!("{ALL_ROLES},\"backoff_cap\":60").replace("\"backoff_base\":60", "\"backoff_base\":0").replace("\"backoff_cap\":60", "\"backoff_cap\":0"));
        let late = claim(&table, 1);
        db.expire();
        assert_eq!(table.recover().unwrap(), Recovered { claims: 1, returned: 1, dead: 0, ..Recovered::default() });
        assert_eq!(targets.column("error"), ["lease expired"]);
        let owner = claim(&table, 1);
        assert_eq!((owner.rows()[0].attempts, owner.rows()[0].fence), (2, 2));
        assert!(!late.renew().unwrap());
        assert!(late.is_lost());
        let row = late.job(0).unwrap();
        let outcomes = [
            Outcome::Complete,
            Outcome::CompleteWith { set: vec![("result".into(), text("late"))], delay: None },
            Outcome::Fail { error: "late".into(), delay: None },
            Outcome::Release { delay: Duration::ZERO },
        ];
        for outcome in &outcomes {
            assert_eq!(row.finish(outcome).unwrap(), Finish::Lost, "{outcome:?}");
        }
        assert_eq!(targets.column("status"), ["1"]);
        assert_eq!(targets.column("result"), ["-"]);
        assert_eq!(targets.column("cron_token"), [owner.token().unwrap().hyphenated().to_string()]);
        assert_eq!(owner.complete_all().unwrap(), [Finish::Accepted]);
        for outcome in &outcomes {
            assert_eq!(row.finish(outcome).unwrap(), Finish::Lost, "{outcome:?}");
        }
        assert_eq!(targets.column("status"), ["2"]);
    }

    // 53, 54, 57
    fn a_failed_row_comes_back_after_its_back_off_until_it_is_out_of_attempts("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        let table = targets.map(ALL_ROLES);
        for attempt in 1..=3 {
            let batch = claim(&table, 1);
            let row = batch.job(0).unwrap();
            assert_eq!(row.attempts, attempt);
            let error = format!("no answer \u{1f389}{}", "x".repeat(200));
            assert_eq!(row.fail(error.clone(), None).unwrap(), Finish::Accepted);
            assert_eq!(row.fail(error, None).unwrap(), Finish::Accepted, "a repeat is accepted");
            assert!(claim(&table, 1).is_empty(), "it waits for its time");
            if attempt < 3 {
                assert_eq!(targets.column("status"), ["0"]);
                assert!(targets.column("error")[0].starts_with("no answer \u{1f389}xxx"));
                targets.run("UPDATE {t} SET available_at = NULL");
            }
        }
        assert_eq!(targets.column("status"), ["3"]);
        if !db.is_sqlite() {
            assert_eq!(targets.number("SELECT CHAR_LENGTH(error) FROM {t}"), 100, "cut to its column");
        }
        assert!(!table.remaining(&Filters::none()).unwrap());
        assert_eq!(table.retry(None, &Filters::none().equal("task_id", Value::Int(7)), 10).unwrap(), 0);
        assert_eq!(table.retry(None, &Filters::none(), 10).unwrap(), 1);
        assert_eq!(claim(&table, 1).rows()[0].attempts, 1, "with all its attempts");
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed' AND row_key = '1'"), 3);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed' AND final = 1"), 1);
    }

    fn a_rejected_row_is_failed_whatever_attempts_are_left("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2);
        let table = targets.map(ALL_ROLES);
        let batch = claim(&table, 2);
        for _ in 0..2 {
            assert_eq!(batch.job(0).unwrap().reject("number does not exist").unwrap(), Finish::Accepted, "a repeat is accepted");
        }
        assert_eq!(batch.job(0).unwrap().complete().unwrap(), Finish::Lost);
        assert_eq!(batch.job(1).unwrap().fail("x", None).unwrap(), Finish::Accepted);
        assert_eq!(batch.job(1).unwrap().reject("x").unwrap(), Finish::Lost, "the first word stands");
        assert_eq!((targets.column("status"), targets.column("attempts")), (vec!["3".into(), "0".into()], vec!["1".into(), "1".into()]));
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed' AND final = 1"), 1);
        assert_eq!(table.retry(None, &Filters::none(), 10).unwrap(), 1, "a person may bring it back");
    }

    fn a_released_row_comes_back_without_blame("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2);
        let table = targets.map(ALL_ROLES);
        let batch = claim(&table, 1);
        let row = batch.job(0).unwrap();
        assert_eq!(row.release(FAR).unwrap(), Finish::Accepted);
        assert_eq!(row.release(FAR).unwrap(), Finish::Accepted, "a repeat is accepted");
        assert_eq!(row.complete().unwrap(), Finish::Lost);
        assert_eq!(targets.column("attempts"), ["0", "0"]);
        assert_eq!(keys(&claim(&table, 9)), [2]);
        // A mapping without a time knows no later.
        let untimed = targets.map("");
        let batch = claim(&untimed, 1);
        assert!(batch.job(0).unwrap().release(FAR).unwrap_err().to_string().contains("needs available_at"));
        assert!(batch.job(0).unwrap().fail("x", Some(FAR)).unwrap_err().to_string().contains("needs available_at"));
        assert_eq!(batch.job(0).unwrap().fail("x", None).unwrap(), Finish::Accepted);
        assert_eq!(targets.number("SELECT status FROM {t} WHERE id = 1"), 3, "without a counter one failure is the end");
    }

    fn rows_that_recur_wait_for_their_next_time("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2);
        let json = format!("{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":0,\"token\":\"cron_token\",{}}}",
            "\"available_at\":\"available_at\",\"attempts\":\"attempts\",\"zone\":\"UTC\",\"claimed_at\":\"send_at\"");
        let table = targets.try_map(&json).unwrap();
        let batch = claim(&table, 2);
        let row = batch.job(0).unwrap();
        assert!(row.complete().unwrap_err().to_string().contains("the row recurs"));
        assert_eq!(row.complete_with(vec![], Some(FAR)).unwrap(), Finish::Accepted);
        assert_eq!(row.complete_with(vec![], Some(FAR)).unwrap(), Finish::Accepted, "a repeat is accepted");
        let at = Timestamp::from_unix_seconds(4e9).unwrap();
        assert_eq!(batch.job(1).unwrap().complete_with(vec![("available_at".into(), Value::At(at))], None).unwrap(), Finish::Accepted);
        assert_eq!(targets.column("attempts"), ["0", "0"]);
        assert_eq!(targets.column("cron_token"), ["-", "-"]);
        assert_eq!(&targets.column("available_at")[1][..19], "2096-10-02 07:06:40");
        assert!(claim(&table, 9).is_empty());
        targets.run("UPDATE {t} SET available_at = '2000-01-01 00:00:00'");
        std::mem::forget(claim(&table, 9));
        db.expire();
        assert_eq!(table.recover().unwrap().returned, 2);
        assert_eq!(&targets.column("available_at")[0][..19], "2000-01-01 00:00:00", "the slot it was run for");
        assert_eq!(keys(&claim(&table, 9)), [1, 2]);
    }

    // 34: what hand-written code has left behind comes back; what it still works on does not.
    fn rows_of_other_code_come_back_after_the_time_of_the_mapping("heartbeat=0", db) {
        let targets = UserTable::targets(db, 6);
        let now = if db.is_sqlite() { "datetime('now', '+8 hours')" } else { "UTC_TIMESTAMP() + INTERVAL 8 HOUR" };
        targets.run("UPDATE {t} SET status = 1, cron_token = NULL, send_at = NULL WHERE id = 1");
        targets.run("UPDATE {t} SET status = 1, cron_token = 'host:17', send_at = '2020-01-01 00:00:00' WHERE id = 2");
        targets.run(&format!("UPDATE {{t}} SET status = 1, cron_token = 'host:18', send_at = {now} WHERE id = 3"));
        targets.run("UPDATE {t} SET status = 1, cron_token = 'host:19', send_at = '2020-01-01 00:00:00', attempts = 3 WHERE id = 4");
        let table = targets.map(&format!("{ALL_ROLES},\"recover_after\":600"));
        let ours = claim(&table, 1);
        assert_eq!(keys(&ours), [5]);
        // Ours is known by its claim, whatever its row looks like.
        targets.run("UPDATE {t} SET send_at = '2020-01-01 00:00:00' WHERE id = 5");
        // The sweep beside the claim may have taken them already.
        table.recover().unwrap();
        assert_eq!(targets.column("status"), ["0", "0", "1", "3", "1", "0"]);
        assert_eq!(targets.column("error")[..4], ["lease expired", "lease expired", "-", "lease expired"]);
        assert_eq!(ours.complete_all().unwrap(), [Finish::Accepted]);
        assert_eq!(table.recover().unwrap(), Recovered::default());
    }

    // 3, 4: a row that was claimed anew between the look and the write is left alone.
    fn a_stale_row_that_was_claimed_anew_meanwhile_is_left_alone("heartbeat=0", db) {
        let targets = UserTable::targets(db, 1);
        targets.run("UPDATE {t} SET status = 1, cron_token = 'other', send_at = NULL");
        let table = targets.map(&format!("{ALL_ROLES},\"recover_after\":600"));
        db.faults.order("START TRANSACTION", Fault::Pause, 0, 1);
        db.faults.order("BEGIN IMMEDIATE", Fault::Pause, 0, 1);
        std::thread::scope(|scope| {
            let sweep = scope.spawn(|| table.recover().unwrap());
            std::thread::sleep(Duration::from_millis(200));
            targets.run("UPDATE {t} SET cron_token = 'newer'");
            assert_eq!(sweep.join().unwrap(), Recovered::default());
        });
        assert_eq!(targets.column("status"), ["1"]);
    }

    // 29, 32: a claim's rows come back by any engine, also by one that has never heard of the table.
    fn an_engine_that_does_not_know_the_table_recovers_its_claims("heartbeat=0", db) {
        let targets = UserTable::targets(db, 3);
        std::mem::forget(claim(&targets.map(ALL_ROLES), 3));
        db.expire();
        assert_eq!(db.another("heartbeat=0").recover().unwrap(), Recovered { claims: 1, returned: 3, dead: 0, ..Recovered::default() });
        assert_eq!(targets.column("status"), ["0", "0", "0"]);
        // A table that is gone holds nobody up.
        targets.run("UPDATE {t} SET available_at = NULL");
        std::mem::forget(claim(&targets.map(ALL_ROLES), 3));
        db.fill("q", 1);
        std::mem::forget(db.claim(1));
        db.expire();
        targets.run("DROP TABLE {t}");
        assert_eq!(db.another("heartbeat=0").recover().unwrap().returned, 1);
        targets.run("CREATE TABLE {t} (id INT)");
    }

    // 30, 31, 36: the lease in the row goes on with the heartbeat.
    fn the_heartbeat_writes_the_lease_into_the_rows("lease=1", db) {
        let targets = UserTable::targets(db, 2);
        let table = targets.map("\"lease_until\":\"lease_until\",\"zone\":\"UTC\"");
        let batch = claim(&table, 2);
        let first = targets.column("lease_until");
        wait_until("the lease is written again", || targets.column("lease_until") > first);
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(table.recover().unwrap(), Recovered::default());
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 2]);
        assert_eq!(targets.column("lease_until"), ["-", "-"]);
    }

    fn without_a_registry_the_lease_is_in_the_row("lease=1&migrate=never", db) {
        let targets = UserTable::targets(db, 4);
        db.raw().drop_own_tables();
        let engine = db.another("");
        let more = "\"lease_until\":\"lease_until\",\"attempts\":\"attempts\",\"zone\":\"UTC\",\"registry\":\"off\"";
        let table = engine.table(&targets.name, &mapping(more)).unwrap();
        let batch = claim(&table, 2);
        assert_eq!(keys(&batch), [1, 2]);
        std::thread::sleep(Duration::from_millis(2_200));
        assert_eq!(table.recover().unwrap(), Recovered::default(), "the heartbeat keeps it");
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 2]);
        let late = {
            let silent = db.another("heartbeat=0");
            silent.table(&targets.name, &mapping(more)).unwrap()
        };
        let late = claim(&late, 2);
        wait_until("the rows come back", || table.recover().unwrap().returned == 2 || targets.column("status")[2..] == ["0", "0"]);
        let owner = claim(&table, 2);
        assert_eq!(keys(&owner), [3, 4]);
        assert_eq!(late.complete_all().unwrap(), [Finish::Lost; 2]);
        assert!(!late.renew().unwrap());
        assert_eq!(owner.complete_all().unwrap(), [Finish::Accepted; 2]);
        assert_eq!(targets.column("status"), ["2", "2", "2", "2"]);
    }

    fn keys_can_be_text_or_bytes("heartbeat=0", db) {
        let columns = "id VARCHAR(40) NOT NULL PRIMARY KEY, status VARCHAR(16) NOT NULL DEFAULT 'new', token CHAR(32) NULL";
        let texts = UserTable::new(db, "texts", columns);
        texts.run("INSERT INTO {t} (id) VALUES ('b'), ('a'), ('ä\u{1f389}'), ('1-3')");
        let json = "{\"status\":\"status\",\"pending\":\"new\",\"processing\":\"running\",\"done\":\"done\",\"token\":\"token\"}";
        let table = texts.try_map(json).unwrap();
        let batch = claim(&table, 9);
        assert_eq!(batch.len(), 4);
        std::mem::forget(batch);
        db.expire();
        assert_eq!(table.recover().unwrap().returned, 4);
        let batch = claim(&table, 9);
        assert_eq!(batch.finish(&[text("a")], &Outcome::Complete).unwrap(), [Finish::Accepted]);
        assert!(batch.finish(&[text("x")], &Outcome::Complete).is_err());
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 3]);
        let columns = "id BINARY(16) NOT NULL PRIMARY KEY, status INT NOT NULL DEFAULT 0, cron_token BINARY(16) NULL";
        let bytes = UserTable::new(db, "bytes", columns);
        bytes.run("INSERT INTO {t} (id) VALUES (X'000102030405060708090a0b0c0d0e0f'), (X'ff0102030405060708090a0b0c0d0e00')");
        let table = bytes.map("");
        std::mem::forget(claim(&table, 9));
        db.expire();
        assert_eq!(table.recover().unwrap().returned, 2);
        let batch = claim(&table, 9);
        assert!(matches!(&batch.rows()[0].key, Value::Bytes(key) if key.len() == 16));
        assert_eq!(batch.complete_all().unwrap(), [Finish::Accepted; 2]);
        assert_eq!(bytes.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND LENGTH(cron_token) = 16"), 2);
    }

    // ThinkPHP's habit: whole seconds, and columns that take no NULL.
    fn times_can_be_whole_numbers_and_columns_can_refuse_null("heartbeat=0", db) {
        let columns = "id INTEGER NOT NULL PRIMARY KEY, status INT NOT NULL DEFAULT 0, cron_token VARCHAR(64) NOT NULL DEFAULT '', \
            next_run_at BIGINT NOT NULL DEFAULT 0, locked_until BIGINT NOT NULL DEFAULT 0, finished_at BIGINT NOT NULL DEFAULT 0, \
            attempts INT NOT NULL DEFAULT 0";
        for (unit, per_second) in [("seconds", 1), ("milliseconds", 1_000)] {
            let jobs = UserTable::new(db, &format!("polling_{unit}"), columns);
            jobs.run("INSERT INTO {t} (id) VALUES (1), (2)");
            let table = jobs.map(&format!("\"available_at\":\"next_run_at\",\"lease_until\":\"locked_until\",\
                \"finished_at\":\"finished_at\",\"attempts\":\"attempts\",\"max_attempts\":5,\"unit\":\"{unit}\""));
            let now = db.number(if db.is_sqlite() { "SELECT CAST(strftime('%s','now') AS INTEGER)" } else { "SELECT UNIX_TIMESTAMP()" });
            let batch = claim(&table, 9);
            assert_eq!(batch.len(), 2);
            let until: i64 = jobs.column("locked_until")[0].parse().unwrap();
            assert!((until - (now + 60) * per_second).abs() <= 2 * per_second, "{until} {now}");
            assert_eq!(batch.job(0).unwrap().fail("x", Some(FAR)).unwrap(), Finish::Accepted);
            assert_eq!(batch.job(1).unwrap().complete().unwrap(), Finish::Accepted);
            let next: i64 = jobs.column("next_run_at")[0].parse().unwrap();
            assert!((next - (now + 600) * per_second).abs() <= 2 * per_second, "{next} {now}");
            assert_eq!(jobs.column("locked_until"), ["0", "0"]);
            assert_eq!(jobs.column("cron_token")[0], "");
            assert!(claim(&table, 9).is_empty());
        }
    }

    // Which rows did this claim take, who, when, and how did each end: provable by the token.
    fn a_claim_tells_how_each_of_its_rows_ended("heartbeat=0&worker=me", db) {
        let targets = UserTable::targets(db, 6);
        let table = targets.map(ALL_ROLES);
        let batch = claim(&table, 6);
        batch.job(0).unwrap().complete().unwrap();
        batch.job(1).unwrap().fail("no answer", None).unwrap();
        batch.job(2).unwrap().release(FAR).unwrap();
        targets.run("DELETE FROM {t} WHERE id = 4");
        let name = ClaimName::Token(batch.token().unwrap());
        let told = |name| -> Vec<String> {
            let (_, ends) = db.engine.claim_record(name).unwrap().unwrap();
            ends.iter().map(|end| format!("{} {}", end.key, end.end)).collect()
        };
        assert_eq!(told(name), ["1 completed", "2 failed", "3 released", "4 unknown", "5 held", "6 held"]);
        let open = db.engine.claims(&ClaimFilter { state: Some("open".into()), ..ClaimFilter::default() }).unwrap();
        assert_eq!((open.len(), open[0].count, open[0].worker.as_str()), (1, 6, "me"));
        assert_eq!(open[0].source, targets.name);
        assert_eq!(db.engine.stats(false).unwrap().open_claims, 1, "a claim of rows is no job's");
        assert!(db.engine.end_claim(name).unwrap());
        assert_eq!(told(ClaimName::Id(open[0].id)), ["1 completed", "2 failed", "3 released", "4 unknown", "5 lost", "6 lost"]);
        assert_eq!(batch.complete_all().unwrap(), [Finish::Lost; 3]);
        assert!(!db.engine.end_claim(name).unwrap());
        assert!(db.engine.claim_record(ClaimName::Id(99)).unwrap().is_none());
        // The same of jobs.
        db.fill("q", 4);
        let jobs = db.claim(4);
        jobs.job(0).unwrap().complete().unwrap();
        jobs.job(1).unwrap().fail("x", None).unwrap();
        jobs.job(2).unwrap().release(FAR).unwrap();
        assert_eq!(told(ClaimName::Id(jobs.id().unwrap())), ["1 completed", "2 failed", "3 released", "4 held"]);
    }

    fn work_goes_through_a_table("heartbeat=0", db) {
        let targets = UserTable::targets(db, 25);
        let table = targets.map(ALL_ROLES);
        let mut request = WorkRequest::new(RowClaimRequest::new(10));
        request.until_empty = true;
        let summary = table
            .work(&request, |row| match row.key {
                Value::Int(7) => Handled::As(Outcome::Fail { error: "seven".into(), delay: None }),
                Value::Int(8) => Handled::As(Outcome::CompleteWith { set: vec![("result".into(), text("eight"))], delay: None }),
                _ => Handled::As(Outcome::Complete),
            })
            .unwrap();
        assert_eq!((summary.claimed, summary.completed, summary.failed), (25, 24, 1));
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2"), 24);
        assert_eq!(targets.column("result")[7], "eight");
    }

    fn a_person_can_look_and_take_rows_back("heartbeat=0", db) {
        let targets = UserTable::targets(db, 5);
        let table = targets.map(ALL_ROLES);
        let batch = claim(&table, 2);
        let filter = RowFilter { status: Some(Value::Int(1)), ..RowFilter::default() };
        assert_eq!(table.rows(&filter).unwrap().len(), 2);
        let page = table.rows(&RowFilter { after: Some(Value::Int(3)), limit: 1, ..RowFilter::default() }).unwrap();
        assert_eq!(page[0].key, Value::Int(4));
        assert_eq!(table.row(&text("5")).unwrap().unwrap().get("openid"), Some(&text("open5")));
        assert!(table.row(&Value::Int(99)).unwrap().is_none());
        assert_eq!(table.take_back(Some(&[Value::Int(1), Value::Int(5)]), &Filters::none(), 10).unwrap(), 1);
        assert_eq!(batch.complete_all().unwrap(), [Finish::Lost, Finish::Accepted]);
        assert_eq!(targets.column("status"), ["0", "2", "0", "0", "0"]);
    }

    // 2, 8: whoever comes at once, each row goes to one of them.
    fn many_workers_at_once_get_each_row_once("heartbeat=0", db) {
        for index in ["", "CREATE INDEX {i} ON {t} (task_id, status)", "CREATE INDEX {i} ON {t} (task_id, cron_token)"] {
            let targets = UserTable::targets(db, 600);
            if !index.is_empty() {
                targets.run(&index.replace("{i}", &format!("{}i", db.prefix)));
            }
            let seen: Vec<i64> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..8)
                    .map(|_| {
                        let table = db.another("heartbeat=0").table(&targets.name, &mapping(ALL_ROLES)).unwrap();
                        scope.spawn(move || {
                            let mut mine = Vec::new();
                            let request = RowClaimRequest::new(20).equal("task_id", Value::Int(1));
                            while table.remaining(&Filters::none()).unwrap() {
                                let batch = table.claim(&request).unwrap();
                                mine.extend(keys(&batch));
                                assert!(batch.complete_all().is_ok_and(|answers| answers.iter().all(|answer| *answer == Finish::Accepted)) || batch.is_empty());
                            }
                            mine
                        })
                    })
                    .collect();
                workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
            });
            assert_eq!((seen.len(), seen.iter().collect::<HashSet<_>>().len()), (600, 600));
            assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2 AND attempts = 1 AND fence = 1"), 600);
            targets.run("DROP TABLE {t}");
            if db.is_sqlite() { continue }
        }
    }

    // 12, 13, 21, 110
    fn a_fault_at_any_statement_of_a_mapped_claim_and_finish_is_retried("heartbeat=0", db) {
        let targets = UserTable::targets(db, 600);
        let table = targets.map(ALL_ROLES);
        drop(claim(&table, 1));
        let outcomes = [Outcome::Complete, Outcome::Fail { error: "x".into(), delay: None }, Outcome::Release { delay: FAR }];
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for skip in 0..8 {
                let place = format!("{fault:?} at {skip}");
                db.faults.order("", fault, skip, 1);
                let batch = claim(&table, 3);
                assert_eq!(batch.len(), 3, "{place}");
                assert!(batch.rows().iter().all(|row| row.attempts == 1), "{place}");
                while db.faults.left() > 0 {
                    table.row(&Value::Int(1)).unwrap();
                }
                for (position, outcome) in outcomes.iter().enumerate() {
                    db.faults.order("", fault, skip, 1);
                    assert_eq!(batch.job(position).unwrap().finish(outcome).unwrap(), Finish::Accepted, "{place} of {outcome:?}");
                    while db.faults.left() > 0 {
                        table.row(&Value::Int(1)).unwrap();
                    }
                }
                assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 1"), 0, "{place}");
            }
        }
        db.engine.flush().unwrap();
        assert_eq!(db.number("SELECT COUNT(*) FROM {claims} WHERE state = 'open'"), 0);
        assert_eq!(db.number("SELECT COUNT(*) FROM {attempts} WHERE outcome = 'failed'"), 32);
    }

    fn a_fault_at_any_statement_of_recovery_loses_no_row("heartbeat=0", db) {
        let targets = UserTable::targets(db, 4);
        let table = targets.map(&format!("{ALL_ROLES},\"recover_after\":600").replace("\"max_attempts\":3", "\"max_attempts\":1000"));
        for fault in [Fault::Deadlock, Fault::LockWait, Fault::LostBefore, Fault::LostAfter] {
            for skip in 0..10 {
                targets.run("UPDATE {t} SET available_at = NULL");
                targets.run("UPDATE {t} SET status = 1, send_at = NULL, cron_token = 'other' WHERE id = 4");
                std::mem::forget(claim(&table, 3));
                db.expire();
                db.faults.order("", fault, skip, 1);
                table.recover().unwrap();
                while db.faults.left() > 0 {
                    table.row(&Value::Int(1)).unwrap();
                }
                table.recover().unwrap();
                assert_eq!(targets.column("status"), ["0", "0", "0", "0"], "{fault:?} at {skip}");
            }
        }
    }
}
