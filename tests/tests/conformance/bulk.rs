//! Bulk sending on a task table and its targets: a lock of the task row, claims of the target rows (kind L of the cases).

use conformance::every_database;
use conformance::tables::{ALL_ROLES, UserTable, mapping};
use rowclaim::{Filters, Finish, Mapping, Outcome, RowClaimRequest, Value};
use std::collections::BTreeMap;
use std::sync::Barrier;

const TASKS: &str = "id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL, status TINYINT NOT NULL DEFAULT 0, \
    lock_at DATETIME NULL, claim_token VARCHAR(36) NULL";

fn task_mapping() -> Mapping {
    let json = "{\"status\":\"status\",\"pending\":0,\"processing\":1,\"done\":2,\"token\":\"claim_token\",\
        \"claimed_at\":\"lock_at\",\"zone\":\"+08:00\",\"recover_after\":600}";
    Mapping::from_json(json).unwrap()
}

every_database! {
    // 141, 142, 146: whole seconds and NULL decide nothing, and nobody can give back what another one holds.
    fn a_task_row_is_held_by_its_token_and_not_by_its_time("heartbeat=0", db) {
        let tasks = UserTable::new(db, "tasks", TASKS);
        tasks.run("INSERT INTO {t} (id, name) VALUES (42, 'new year')");
        let all = Barrier::new(8);
        let got: Vec<usize> = std::thread::scope(|scope| {
            let crons: Vec<_> = (0..8)
                .map(|_| {
                    let table = db.another("heartbeat=0").table(&tasks.name, &task_mapping()).unwrap();
                    let all = &all;
                    scope.spawn(move || {
                        all.wait();
                        let task = table.claim(&RowClaimRequest::new(1).equal("id", Value::Int(42))).unwrap();
                        let count = task.len();
                        // Nobody drops it before all have tried.
                        all.wait();
                        count
                    })
                })
                .collect();
            crons.into_iter().map(|cron| cron.join().unwrap()).collect()
        });
        assert_eq!(got.iter().sum::<usize>(), 1, "{got:?}");
        let table = db.engine.table(&tasks.name, &task_mapping()).unwrap();
        let task = table.claim(&RowClaimRequest::new(1)).unwrap();
        assert_eq!(task.len(), 1, "the one that held it has given it back");
        let manual = db.another("heartbeat=0").table(&tasks.name, &task_mapping()).unwrap();
        assert!(manual.claim(&RowClaimRequest::new(1).equal("id", Value::Int(42))).unwrap().is_empty());
        // The budget of 50 seconds is over: the next cron goes on.
        assert_eq!(task.job(0).unwrap().release(std::time::Duration::ZERO).unwrap(), Finish::Accepted);
        let next = manual.claim(&RowClaimRequest::new(1)).unwrap();
        assert_eq!(task.job(0).unwrap().complete().unwrap(), Finish::Lost);
        assert_eq!(next.complete_all().unwrap(), [Finish::Accepted]);
    }

    // 143: one address that is refused for now costs no other one a second message.
    fn one_target_that_fails_is_the_only_one_sent_again("heartbeat=0", db) {
        let targets = UserTable::targets(db, 50);
        let table = targets.map(&ALL_ROLES.replace("\"backoff_base\":60", "\"backoff_base\":0,\"backoff_cap\":0"));
        let mut sent: BTreeMap<String, u32> = BTreeMap::new();
        let mut rounds = 0;
        while table.remaining(&Filters::none()).unwrap() {
            rounds += 1;
            for row in table.claim(&RowClaimRequest::new(50)).unwrap() {
                let row = row.unwrap();
                let times = sent.entry(format!("{:?}", row.key)).or_default();
                *times += 1;
                let outcome = if row.key == Value::Int(37) && *times == 1 {
                    Outcome::Fail { error: "mailbox full".into(), delay: None }
                } else {
                    Outcome::Complete
                };
                assert_eq!(row.finish(&outcome).unwrap(), Finish::Accepted);
            }
        }
        assert_eq!((rounds, sent.len(), sent.values().sum::<u32>()), (2, 50, 51));
        assert_eq!(targets.number("SELECT attempts FROM {t} WHERE id = 37"), 2);
    }

    // 138, 145, 148: many workers on the targets of one task; nobody writes the task row, and how many are open is asked of
    // the rows.
    fn many_workers_end_every_target_of_a_task_once("heartbeat=0", db) {
        let targets = UserTable::targets(db, 2_000);
        let ends: Vec<(usize, usize)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..16)
                .map(|_| {
                    let table = db.another("heartbeat=0").table(&targets.name, &mapping("\"error\":\"error\"")).unwrap();
                    scope.spawn(move || {
                        let (mut sent, mut failed) = (0, 0);
                        let of_task = Filters::none().equal("task_id", Value::Int(1));
                        while table.remaining(&of_task).unwrap() {
                            let claim = table.claim(&RowClaimRequest { filters: of_task.clone(), ..RowClaimRequest::new(40) }).unwrap();
                            let (bad, good): (Vec<Value>, Vec<Value>) =
                                claim.rows().iter().map(|row| row.key.clone()).partition(|key| matches!(key, Value::Int(id) if id % 10 == 0));
                            let accepted = |keys: &[Value], outcome: &Outcome| {
                                let answers = if keys.is_empty() { Vec::new() } else { claim.finish(keys, outcome).unwrap() };
                                answers.iter().filter(|answer| **answer == Finish::Accepted).count()
                            };
                            sent += accepted(&good, &Outcome::Complete);
                            failed += accepted(&bad, &Outcome::Fail { error: "no".into(), delay: None });
                        }
                        (sent, failed)
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let (sent, failed) = ends.iter().fold((0, 0), |sum, end| (sum.0 + end.0, sum.1 + end.1));
        assert_eq!((sent, failed), (1_800, 200));
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 2"), 1_800);
        assert_eq!(targets.number("SELECT COUNT(*) FROM {t} WHERE status = 3 AND error = 'no'"), 200);
    }
}
