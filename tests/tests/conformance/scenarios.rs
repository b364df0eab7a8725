use conformance::{Db, Kind, stories};

fn run(kind: Kind) {
    let all = stories::all();
    assert!(all.len() >= 8, "{} stories", all.len());
    for (name, story) in all {
        if let Some(db) = Db::new(kind, &stories::options(&story)) {
            stories::run(&db, &name, &story);
        }
    }
}

#[test]
fn sqlite() {
    run(Kind::Sqlite);
}

#[test]
fn mariadb() {
    run(Kind::MariaDb);
}

#[test]
fn mariadb_token_update() {
    run(Kind::MariaDbTokenUpdate);
}

#[test]
fn mysql() {
    run(Kind::MySql);
}
