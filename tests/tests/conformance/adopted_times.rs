//! Clocks and zones of time columns in a user's table: kind G of the cases.
//!
//! | case | where |
//! |---|---|
//! | 77, 80 | here; a server in a hostile zone: `adopted_servers` |
//! | 74, 79 | processes whose clocks are wrong: `processes` |
//! | 75, 76 | `tables`, `tables_refused` |
//! | 81 | schedules are no mapped table's |

use conformance::tables::{UserTable, claim};
use conformance::{Db, Kind, every_database};
use rowclaim::{Finish, Timestamp, Value};

/// Rows that recur, with a time column of some type in some zone.
fn recurring<'a>(db: &'a Db, name: &str, kind: &str, zone: &str) -> (UserTable<'a>, rowclaim::blocking::Table) {
    let columns = format!(
        "id INTEGER NOT NULL PRIMARY KEY, openid VARCHAR(9) NULL, status INT NOT NULL DEFAULT 0, cron_token VARCHAR(40) NULL, \
         next_at {kind} NULL"
    );
    let jobs = UserTable::new(db, name, &columns);
    jobs.fill(1);
    let json = format!(
        "{{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":0,\"token\":\"cron_token\",\"available_at\":\"next_at\",\
         \"zone\":\"{zone}\"}}"
    );
    let table = jobs.try_map(&json).unwrap();
    (jobs, table)
}

/// Completes the row with its next time, which is due again at once if it lies in the past.
fn plan(jobs: &UserTable, table: &rowclaim::blocking::Table, next: Value) {
    jobs.run("UPDATE {t} SET next_at = NULL");
    let batch = claim(table, 1);
    let row = batch.job(0).unwrap();
    assert_eq!(row.complete_with(vec![("next_at".into(), next.clone())], None).unwrap(), Finish::Accepted, "{next:?}");
}

fn at(seconds: i64) -> Value {
    Value::At(Timestamp(seconds * 1_000_000))
}

/// Instants, and what clocks on the wall showed then.
const NEW_YORK: [(i64, &str); 6] = [
    (1_590_285_600, "2020-05-23 22:00:00"),
    (1_579_834_800, "2020-01-23 22:00:00"),
    // The hours around the changes of 2026.
    (1_772_953_199, "2026-03-08 01:59:59"),
    (1_772_953_200, "2026-03-08 03:00:00"),
    (1_793_509_200, "2026-11-01 01:00:00"),
    (1_793_512_800, "2026-11-01 01:00:00"),
];

every_database! {
    // 80: an instant is shown with the offset of its own day, not with today's.
    fn instants_are_stored_as_the_clock_on_the_wall_shows_them_then("heartbeat=0", db) {
        let (jobs, table) = recurring(db, "local", "DATETIME", "America/New_York");
        for (instant, shown) in NEW_YORK {
            plan(&jobs, &table, at(instant));
            assert_eq!(jobs.column("next_at"), [shown], "{instant}");
        }
    }

    // 77: an hour that does not exist on the wall is an hour like any other.
    fn the_skipped_hour_of_spring_is_written_like_any_other("heartbeat=0", db) {
        let (jobs, table) = recurring(db, "berlin", "DATETIME", "Europe/Berlin");
        for (instant, shown) in [(1_774_744_200, "2026-03-29 01:30:00"), (1_774_747_800, "2026-03-29 03:30:00")] {
            plan(&jobs, &table, at(instant));
            assert_eq!(jobs.column("next_at"), [shown]);
        }
        plan(&jobs, &table, Value::Text("2026-03-29 02:30:00".into()));
        assert_eq!(jobs.column("next_at"), ["2026-03-29 02:30:00"]);
        let (utc, table) = recurring(db, "utc", "DATETIME", "UTC");
        plan(&utc, &table, at(1_774_751_400));
        assert_eq!(utc.column("next_at"), ["2026-03-29 02:30:00"]);
    }
}

fn on_servers(run: impl Fn(&Db)) {
    for kind in Kind::SERVERS {
        if let Some(db) = Db::new(kind, "heartbeat=0") {
            run(&db);
        }
    }
}

/// Instants in TIMESTAMP columns, which the server keeps as UTC; read in the zone of the mapping.
// 77, 80
#[test]
fn timestamps_are_instants_whatever_the_zone() {
    on_servers(|db| {
        let (jobs, table) = recurring(db, "stamps", "TIMESTAMP", "America/New_York");
        for (instant, shown) in NEW_YORK {
            plan(&jobs, &table, at(instant));
            assert_eq!(jobs.number("SELECT UNIX_TIMESTAMP(next_at) FROM {t}"), instant);
            let row = table.row(&Value::Int(1)).unwrap().unwrap();
            assert_eq!(row.get("next_at"), Some(&Value::Moment(shown.into())));
        }
    });
}

fn wall_times_become_instants(db: &Db, times: &[(&str, i64)]) {
    let (jobs, table) = recurring(db, "walls", "TIMESTAMP", "America/New_York");
    for (wall, instant) in times {
        plan(&jobs, &table, Value::Text((*wall).into()));
        assert_eq!(jobs.number("SELECT UNIX_TIMESTAMP(next_at) FROM {t}"), *instant, "{}: {wall}", db.kind.name());
    }
}

/// What an application writes as its local time into a TIMESTAMP column.
// 80
#[test]
fn local_times_in_a_timestamp_column_are_read_in_the_zone_of_the_mapping() {
    on_servers(|db| {
        wall_times_become_instants(db, &[("2020-05-23 22:00:00", 1_590_285_600), ("2020-01-23 22:00:00", 1_579_834_800)]);
    });
}

// 80: 04:00 on the day of the change is 08:00 UTC, and the evening before is five hours from UTC still.
#[test]
fn local_times_on_the_day_of_a_change_are_read_with_the_offset_of_their_hour() {
    on_servers(|db| {
        wall_times_become_instants(
            db,
            &[
                ("2026-03-08 01:30:00", 1_772_951_400),
                ("2026-03-08 04:00:00", 1_772_956_800),
                ("2026-11-01 00:30:00", 1_793_507_400),
                ("2026-11-01 03:00:00", 1_793_520_000),
            ],
        );
    });
}
