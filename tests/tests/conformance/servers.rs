//! What only a server of its own can show: read-only, statement binlog, short idle time-outs, and being away.

use conformance::Kind;
use conformance::raw::Raw;
use rowclaim::blocking::{Engine, Handled, WorkRequest};
use rowclaim::{ClaimRequest, ErrorKind, Finish, NewJob, Outcome};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A server that this test alone uses; gone when dropped.
pub(super) struct Own {
    folder: PathBuf,
    root: String,
}

fn servers(words: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers.py");
    let done = Command::new("python3").arg(script).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Own {
    pub(super) fn start(kind: Kind, name: &str, arguments: &[&str]) -> Option<Own> {
        kind.dsn()?;
        let folder = std::env::temp_dir().join(format!("rowclaim-{name}-{}-{}", kind.name(), std::process::id()));
        let mut own = Own { folder, root: String::new() };
        own.root = own.run(kind, arguments);
        Some(own)
    }

    /// Starts it, again on the same port after a stop.
    fn run(&self, kind: Kind, arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|argument| format!("--arg={argument}")).collect();
        let mut words = vec!["start", kind.name(), "--dir", self.folder.to_str().unwrap()];
        words.extend(arguments.iter().map(String::as_str));
        let line = servers(&words);
        let answer: serde_json::Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
        answer["dsn"].as_str().unwrap().to_owned()
    }

    fn stop(&self) {
        servers(&["stop", "--keep", "--dir", self.folder.to_str().unwrap()]);
    }

    pub(super) fn root(&self) -> Engine {
        Engine::connect(&self.root).unwrap()
    }

    /// As a user without the rights of root.
    pub(super) fn app(&self, options: &str) -> Engine {
        self.user("app", options)
    }

    pub(super) fn user(&self, name: &str, options: &str) -> Engine {
        Engine::connect(&format!("{}?{options}", self.root.replace("root@", &format!("{name}:secret@")))).unwrap()
    }

    pub(super) fn raw(&self) -> Raw {
        Raw::open(&self.root, "rowclaim_")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        servers(&["stop", "--kill", "--dir", self.folder.to_str().unwrap()]);
    }
}

#[test]
fn a_read_only_server_is_named_and_a_writable_one_is_found_again() {
    for kind in Kind::SERVERS {
        let Some(own) = Own::start(kind, "readonly", &[]) else { continue };
        own.root().migrate().unwrap();
        // A user with every right on every database may write to a read-only server too.
        for host in ["%", "localhost"] {
            own.raw().run(&format!("CREATE USER plain@'{host}' IDENTIFIED BY 'secret'"));
            own.raw().run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON rowclaim_test.* TO plain@'{host}'"));
        }
        let engine = Engine::connect(&own.root.replace("root@", "plain:secret@")).unwrap();
        engine.create(&NewJob::new("q", "1")).unwrap();
        own.raw().run("SET GLOBAL read_only = 1");
        for error in [engine.create(&NewJob::new("q", "2")).unwrap_err(), engine.claim(&ClaimRequest::new("q")).err().unwrap()] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.is_retryable() && error.message().contains("read-only"), "{error}");
        }
        own.raw().run("SET GLOBAL read_only = 0");
        assert_eq!(engine.claim(&ClaimRequest::new("q")).unwrap().complete_all().unwrap(), [Finish::Accepted]);
    }
}

#[test]
fn a_statement_binlog_is_refused_with_the_way_out() {
    for kind in Kind::SERVERS {
        let Some(own) = Own::start(kind, "binlog", &["--log-bin=x", "--server-id=1", "--binlog-format=STATEMENT"]) else {
            continue;
        };
        let engine = own.root();
        let error = engine.migrate().err().or_else(|| engine.create(&NewJob::new("q", "1")).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.message().contains("binlog_format is STATEMENT") && error.message().contains("ROW"), "{error}");
    }
}

// 109
#[test]
fn a_worker_that_was_idle_longer_than_wait_timeout_goes_on() {
    for kind in Kind::SERVERS {
        let Some(own) = Own::start(kind, "idle", &["--wait-timeout=1", "--interactive-timeout=1"]) else { continue };
        let engine = own.root();
        engine.migrate().unwrap();
        engine.create(&NewJob::new("q", "1")).unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
        let claim = engine.claim(&ClaimRequest::new("q")).unwrap();
        assert_eq!(claim.rows()[0].attempts, 1);
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(claim.complete_all().unwrap(), [Finish::Accepted]);
    }
}

// 120
#[test]
fn a_worker_lives_through_a_server_that_is_away() {
    for kind in Kind::SERVERS {
        let Some(own) = Own::start(kind, "away", &[]) else { continue };
        let engine = own.root();
        engine.migrate().unwrap();
        let jobs: Vec<NewJob> = (0..400).map(|n| NewJob::new("q", n.to_string())).collect();
        engine.create_many(&jobs).unwrap();
        let mut request = WorkRequest::new(ClaimRequest::new("q").limit(20));
        request.max_jobs = Some(400);
        let since = Instant::now();
        let mut started = 0;
        let summary = engine
            .work(&request, |_| {
                started += 1;
                if started == 90 {
                    own.stop();
                }
                if started == 95 {
                    std::thread::sleep(Duration::from_secs(3));
                    own.run(kind, &[]);
                }
                Handled::As(Outcome::Complete)
            })
            .unwrap();
        assert_eq!((summary.claimed, summary.completed, summary.lost), (400, 400, 0), "{:?}", since.elapsed());
        let attempts = own.raw().rows("SELECT COUNT(*) FROM {jobs} WHERE state = 'done' AND attempts = 1");
        assert_eq!(attempts[0][0].as_deref(), Some("400"));
    }
}

// 120: away while the worker asks, not only while it works.
#[test]
fn an_idle_worker_waits_for_the_server_and_says_so_only_in_the_log() {
    for kind in Kind::SERVERS {
        let Some(own) = Own::start(kind, "restart", &[]) else { continue };
        let engine = own.root();
        engine.migrate().unwrap();
        let mut request = WorkRequest::new(ClaimRequest::new("q"));
        request.max_jobs = Some(1);
        let producer = own.app("worker=producer");
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| engine.work(&request, |_| Handled::As(Outcome::Complete)));
            std::thread::sleep(Duration::from_millis(300));
            own.stop();
            std::thread::sleep(Duration::from_secs(5));
            assert!(!worker.is_finished());
            own.run(kind, &[]);
            producer.create(&NewJob::new("q", "1")).unwrap();
            assert_eq!(worker.join().unwrap().unwrap().completed, 1);
        });
    }
}

/// As on a Galera cluster, where each node hands out every third id.
#[test]
fn ids_are_right_where_the_server_steps_by_more_than_one() {
    for kind in Kind::SERVERS {
        let arguments = ["--auto-increment-increment=3", "--auto-increment-offset=2"];
        let Some(own) = Own::start(kind, "steps", &arguments) else { continue };
        let engine = own.root();
        engine.migrate().unwrap();
        let jobs: Vec<NewJob> = (0..50).map(|n| NewJob::new("q", n.to_string()).key(format!("k{n}"))).collect();
        let created = engine.create_many(&jobs).unwrap();
        assert_eq!(created[1].id - created[0].id, 3);
        for (n, created) in created.iter().enumerate() {
            assert_eq!(engine.job(created.id).unwrap().unwrap().payload, n.to_string());
        }
    }
}

/// A certificate for 127.0.0.1 and the authority that signed it, in PEM files.
fn certificates(folder: &Path) {
    let script = "
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca 2> /dev/null
        openssl req -newkey rsa:2048 -nodes -keyout key.pem -out server.csr -subj /CN=127.0.0.1 2> /dev/null
        printf 'subjectAltName=IP:127.0.0.1' > san
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile san 2> /dev/null
        chmod -R a+rX .";
    std::fs::create_dir_all(folder).unwrap();
    let done = Command::new("sh").args(["-ec", script]).current_dir(folder).status().unwrap();
    assert!(done.success(), "openssl made no certificates");
}

#[test]
fn tls_is_checked_against_the_authority_and_refused_without_it() {
    let folder = std::env::temp_dir().join(format!("rowclaim-tls-{}", std::process::id()));
    certificates(&folder);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let arguments = [
        format!("--ssl-cert={}", file("cert.pem")),
        format!("--ssl-key={}", file("key.pem")),
        "--require-secure-transport=ON".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // MySQL runs in a folder of its own that does not hold the files; it makes its own certificate, which nobody can check.
    for (kind, arguments) in [(Kind::MariaDb, arguments.as_slice()), (Kind::MySql, &["--require-secure-transport=ON"])] {
        let Some(own) = Own::start(kind, "tls", arguments) else { continue };
        let connect = |options: &str| Engine::connect(&format!("{}?{options}", own.root));
        let plain = connect("").err().unwrap();
        assert_eq!(plain.kind(), ErrorKind::Config, "{plain}");
        let unknown = connect("tls=verify").err().unwrap();
        assert_eq!(unknown.kind(), ErrorKind::Config, "{unknown}");
        assert!(unknown.message().contains("TLS"), "{unknown}");
        connect("tls=insecure").unwrap().migrate().unwrap();
        if kind == Kind::MariaDb {
            connect(&format!("tls_ca={}", file("ca.pem"))).unwrap().create(&NewJob::new("q", "1")).unwrap();
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_unix_socket_is_a_way_to_the_server() {
    for kind in Kind::SERVERS {
        let Some(dsn) = kind.dsn() else { continue };
        let socket = std::env::var(format!("ROWCLAIM_TEST_{}_SOCKET", kind.name().to_uppercase())).unwrap();
        // A port where nobody listens shows that the socket is used.
        let (_, database) = dsn.rsplit_once('/').unwrap();
        let engine = Engine::connect(&format!("mysql://root@127.0.0.1:1/{database}?socket={socket}")).unwrap();
        assert!(!engine.server_version().unwrap().is_empty());
        let error = Engine::connect(&format!("mysql://root@127.0.0.1:1/{database}?socket=/no/such/socket")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}
