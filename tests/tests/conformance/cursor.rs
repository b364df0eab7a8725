use conformance::every_database;
use conformance::tables::{TARGETS, UserTable};
use rowclaim::{ClaimRequest, RowClaimRequest, Value};
use std::time::{Duration, Instant};

every_database! {
    // A row that becomes due before the cursor's place is found within the second the cursor may be used.
    fn a_row_before_the_cursor_is_late_by_a_second_at_most("heartbeat=0", db) {
        let ids = db.fill("q", 2_000);
        db.claim(100).complete_all().unwrap();
        // The cursor stands behind the first 100 now. This row lies before it.
        let past = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
        db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {past} WHERE id = {}", ids[1_999]));
        let since = Instant::now();
        let mut found = None;
        while found.is_none() && since.elapsed() < Duration::from_secs(3) {
            let claim = db.claim(20);
            assert_eq!(claim.len(), 20, "the lane must not run dry in this test");
            if claim.rows().iter().any(|job| job.id == ids[1_999]) {
                found = Some(since.elapsed());
            }
            claim.complete_all().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let found = found.expect("the row before the cursor was not found in three seconds");
        // The second, and a slow machine's time for one more claim.
        assert!(found <= Duration::from_millis(1_600), "{found:?}");
    }

    fn a_short_batch_goes_back_to_the_beginning_at_once("heartbeat=0", db) {
        let ids = db.fill("q", 120);
        db.claim(100).complete_all().unwrap();
        let past = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
        db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {past} WHERE id = {}", ids[119]));
        let claim = db.claim(100);
        assert_eq!(claim.len(), 20);
        assert_eq!(claim.rows()[0].id, ids[119], "in order: the row before the cursor comes first");
    }

    // A bulk send is one instant: the cursor stands between two jobs of it, and nothing is skipped or told twice.
    fn jobs_of_one_instant_are_taken_in_order_once("heartbeat=0", db) {
        let ids = db.fill("q", 4_000);
        let at = if db.is_sqlite() { "1000" } else { "'2001-01-01'" };
        db.raw().run(&format!("UPDATE {{jobs}} SET ready_at = {at}"));
        let other = db.another("");
        let mut taken = Vec::new();
        let mut take = |engine: &rowclaim::blocking::Engine, limit| {
            let claim = engine.claim(&ClaimRequest::new("q").limit(limit)).unwrap();
            taken.extend(claim.rows().iter().map(|job| job.id));
            claim.complete_all().unwrap();
        };
        for _ in 0..4 {
            take(&db.engine, 400);
            take(&db.engine, 200);
            take(&other, 300);
        }
        // Before the cursor, in the same instant: found when a batch comes up short.
        db.raw().run(&format!("UPDATE {{jobs}} SET state = 'ready', ready_at = {at} WHERE id = {}", ids[0]));
        take(&db.engine, 500);
        assert_eq!(taken[..3_600], ids[..3_600]);
        let rest: Vec<i64> = std::iter::once(ids[0]).chain(ids[3_600..].iter().copied()).collect();
        assert_eq!(taken[3_600..], rest);
    }

    // The same rows by a mapped table's own time, which is often the same second for all of them.
    fn rows_of_one_instant_are_taken_in_order_once("heartbeat=0", db) {
        let targets = UserTable::new(db, "instant", TARGETS);
        targets.run(&format!("CREATE INDEX {}i ON {{t}} (status, available_at)", targets.name));
        targets.fill(2_000);
        targets.run("UPDATE {t} SET available_at = '2020-01-01 00:00:00'");
        let table = targets.map("\"available_at\":\"available_at\",\"zone\":\"UTC\"");
        let mut taken = Vec::new();
        loop {
            let claim = table.claim(&RowClaimRequest::new(300)).unwrap();
            if claim.is_empty() {
                break;
            }
            taken.extend(claim.rows().iter().map(|row| row.key.clone()));
            claim.complete_all().unwrap();
        }
        assert_eq!(taken, (1..=2_000).map(Value::Int).collect::<Vec<_>>());
    }

    // A priority nobody used before is seen within the second priorities are remembered.
    fn a_new_priority_is_late_by_a_second_at_most("heartbeat=0", db) {
        db.fill("q", 1_000);
        db.claim(10).complete_all().unwrap();
        let mut urgent = rowclaim::NewJob::new("q", "{}");
        urgent.priority = -1;
        let urgent = db.another("").create(&urgent).unwrap().id;
        let since = Instant::now();
        loop {
            let claim = db.engine.claim(&ClaimRequest::new("q").limit(10)).unwrap();
            let is_found = claim.rows()[0].id == urgent;
            claim.complete_all().unwrap();
            if is_found {
                break;
            }
            assert!(since.elapsed() < Duration::from_millis(1_600), "{:?}", since.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    // The same on mapped tables: by time, and by key where no time is mapped.
    fn a_row_of_a_table_before_the_cursor_is_late_by_a_second_at_most("heartbeat=0", db) {
        for (index, more) in [("status, available_at", "\"available_at\":\"available_at\",\"zone\":\"UTC\""), ("status", "")] {
            let targets = UserTable::new(db, &format!("cursor{}", more.len()), TARGETS);
            targets.run(&format!("CREATE INDEX {}i ON {{t}} ({index})", targets.name));
            targets.fill(2_000);
            targets.run("UPDATE {t} SET available_at = '2020-01-01 00:00:00'");
            targets.run("UPDATE {t} SET status = 2 WHERE id = 1");
            let table = targets.map(more);
            let claim = || table.claim(&RowClaimRequest::new(20)).unwrap();
            claim().complete_all().unwrap();
            // The cursor stands behind the first rows now. This one lies before it.
            targets.run("UPDATE {t} SET status = 0, cron_token = NULL, available_at = '2001-01-01 00:00:00' WHERE id = 1");
            let since = Instant::now();
            let mut found = None;
            while found.is_none() && since.elapsed() < Duration::from_secs(3) {
                let batch = claim();
                assert_eq!(batch.len(), 20, "the table must not run dry in this test");
                if batch.rows().iter().any(|row| row.key == Value::Int(1)) {
                    found = Some(since.elapsed());
                }
                batch.complete_all().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            let found = found.expect("the row before the cursor was not found in three seconds");
            assert!(found > Duration::ZERO && found <= Duration::from_millis(1_600), "{found:?}");
            // A batch that comes up short goes back to the beginning at once, and stays in order.
            targets.run("UPDATE {t} SET status = 2");
            targets.run("UPDATE {t} SET status = 0, cron_token = NULL, available_at = '2002-01-01 00:00:00' WHERE id IN (2, 1990, 1991)");
            let batch = claim();
            assert_eq!(batch.rows().iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [2, 1990, 1991].map(Value::Int));
        }
    }
}
