//! Laravel's database queue on the same server, by its own code from Debian's packages.

use crate::Result;
use crate::bindings::folder;
use crate::server::Server;
use std::process::{Command, Stdio};

const TABLE: &str = "bench_laravel_jobs";

/// Why it cannot run here, if so.
pub fn missing() -> Option<String> {
    let there =
        Command::new("php").arg(folder().join("laravel.php")).arg("check").stderr(Stdio::null()).stdout(Stdio::null()).status();
    match there {
        Ok(status) if status.success() => None,
        Ok(_) => {
            Some("Laravel is not installed: apt-get install php-illuminate-queue php-illuminate-database php-mysql".to_owned())
        }
        Err(_) => Some("there is no php".to_owned()),
    }
}

/// A process that pops, runs and deletes jobs one by one, or fills the queue.
pub fn worker(server: &Server) -> Command {
    let mut command = Command::new("php");
    command.arg(folder().join("laravel.php")).args([server.base_dsn(), TABLE]);
    command
}

/// The table of Laravel's migration, fresh.
pub fn make_table(server: &mut Server) -> Result<()> {
    drop_table(server)?;
    server.run(&format!(
        "CREATE TABLE {TABLE} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, queue VARCHAR(255) NOT NULL, \
         payload LONGTEXT NOT NULL, attempts TINYINT UNSIGNED NOT NULL, reserved_at INT UNSIGNED NULL, \
         available_at INT UNSIGNED NOT NULL, created_at INT UNSIGNED NOT NULL, KEY {TABLE}_queue_index (queue)) \
         ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci"
    ))
}

pub fn drop_table(server: &mut Server) -> Result<()> {
    server.run(&format!("DROP TABLE IF EXISTS {TABLE}"))
}

/// The queue is empty.
pub fn check_done(server: &mut Server) -> Result<()> {
    match server.number(&format!("SELECT COUNT(*) FROM {TABLE}"))? {
        0 => Ok(()),
        left => Err(format!("{left} jobs are left in Laravel's queue").into()),
    }
}
