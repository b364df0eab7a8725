use conformance::records::{Audit, clock};
use conformance::{every_database, wait_until};
use std::process::Command;

every_database! {
    // A worker kills itself before its first statement, its second, and so on, through claim, complete, fail, release and
    // close. Whatever step it dies at, no row is lost, none is done twice, and a healthy worker finishes them all.
    fn a_worker_may_die_before_any_statement("heartbeat=0&lease=1&backoff_base=0&max_attempts=1000", db) {
        let jobs = db.fill("q", 120);
        let folder = std::env::temp_dir().join(format!("rowclaim-steps-{}", db.prefix));
        std::fs::create_dir_all(&folder).unwrap();
        let mut audit = Audit::default();
        let mut killed = 0;
        for step in 0..45usize {
            let records = folder.join(step.to_string());
            let step_word = step.to_string();
            let status = Command::new(env!("CARGO_BIN_EXE_worker"))
                .args([db.dsn.as_str(), records.to_str().unwrap(), "steps", "crash", step_word.as_str()])
                .output()
                .unwrap()
                .status;
            use std::os::unix::process::ExitStatusExt;
            killed += usize::from(status.signal() == Some(9));
            audit.read(step, &records, clock());
        }
        assert!(killed >= 20, "{killed} workers died: the steps reach through the whole road");
        let open = "SELECT COUNT(*) FROM {jobs} WHERE state IN ('ready', 'claimed')";
        wait_until("every job is done", || {
            db.engine.recover().unwrap();
            let claim = db.claim(50);
            claim.complete_all().unwrap();
            db.number(open) == 0
        });
        assert_eq!(db.number("SELECT COUNT(*) FROM {jobs} WHERE state = 'done'"), jobs.len() as i64);
        assert_eq!(audit.double_owners(), 0);
        let twice = audit.spans.values().filter(|spans| spans.iter().filter(|span| span.is_done).count() > 1).count();
        assert_eq!(twice, 0);
        let dangling = "SELECT COUNT(*) FROM {jobs} WHERE (state = 'ready') <> (ready_at IS NOT NULL)";
        assert_eq!(db.number(dangling), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
