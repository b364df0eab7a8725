//! The layers of the design, kept by reading the source.

use std::path::{Path, PathBuf};

fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn plan_and_dialect_know_no_driver_and_no_async() {
    let folders = [core().join("plan"), core().join("dialect")];
    let sources: Vec<PathBuf> = folders.iter().flat_map(|folder| files(folder)).collect();
    assert!(sources.len() >= 8);
    for path in sources {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in ["driver::", "async fn", "async move", ".await", "tokio"] {
            assert!(!text.contains(word), "{} uses {word}", path.display());
        }
    }
}

#[test]
fn sql_is_written_in_dialect_and_migrations_only() {
    for path in files(&core()) {
        let name = path.strip_prefix(core()).unwrap().to_string_lossy().into_owned();
        // The migration's own bookkeeping and the drivers' session set-up speak to the server before there are statements.
        if name.starts_with("dialect") || name.starts_with("driver") || name == "engine/migrate.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for word in ["\"SELECT ", "\"UPDATE ", "\"INSERT ", "\"DELETE "] {
            assert!(!text.contains(word), "{name} holds SQL: {word}");
        }
    }
}

#[test]
fn only_run_and_the_background_thread_retry() {
    for path in files(&core().join("engine")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_pause = text.contains("tokio::time::sleep");
        assert!(!is_pause || ["run.rs", "prune.rs", "migrate.rs"].contains(&name.as_str()), "{name} sleeps");
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for path in files(&core()) {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 420, "{} has {lines} lines", path.display());
    }
}
