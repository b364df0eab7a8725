//! The statements by which the doctor looks at a server and at the own tables.
//!
//! All of them read, none takes a lock, and every walk over rows ends at a number. SHOW is used for settings because it
//! leaves out what a server does not know instead of failing. Whether the user may read the answer is the engine's to see.

use super::sqlite::NOW;
use rowclaim_migrations::Flavor;

/// Settings that claims depend on, as the next session will find them.
pub(crate) const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('log_bin', 'binlog_format', 'read_only', 'super_read_only', 'innodb_read_only', 'tx_read_only', 'transaction_read_only', \
    'tx_isolation', 'transaction_isolation', 'autocommit', 'innodb_rollback_on_timeout', 'innodb_flush_log_at_trx_commit', \
    'innodb_lock_wait_timeout', 'innodb_autoinc_lock_mode', 'max_connections', 'version_comment', 'wsrep_on', 'wsrep_sync_wait', \
    'group_replication_group_name')";

/// The same of this session: `binlog_format`, and the account's own limit of connections.
pub(crate) const SESSION_VARIABLES: &str =
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('binlog_format', 'max_user_connections')";

/// How the server is doing.
pub(crate) const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN \
    ('Threads_connected', 'wsrep_ready', 'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_local_state_comment')";

/// Which server answers: every server has two or three of these, and no two servers have the same.
pub(crate) const IDENTITY: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('hostname', 'server_id', 'server_uuid', 'server_uid', 'port')";

/// The account that the rights of this session come from.
pub(crate) const ACCOUNT: &str = "SELECT CURRENT_USER()";

/// Where the server replicates from: the newer name of the statement, and the older one. Needs REPLICATION CLIENT.
pub(crate) const REPLICA: [&str; 2] = ["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"];

/// Transactions that began more than so many seconds ago: connection, age in seconds, user, host, what it does, rows locked.
/// `trx_started` is in the system's zone, whatever the session's is. Needs PROCESS.
pub(crate) const LONG_TRANSACTIONS: &str = "SELECT t.trx_mysql_thread_id, \
    TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')), p.USER, p.HOST, p.COMMAND, \
    t.trx_rows_locked FROM information_schema.INNODB_TRX t \
    LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id \
    WHERE TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')) >= ? \
    ORDER BY t.trx_started LIMIT 5";

/// Versions of rows that purge has not removed yet. Needs PROCESS.
pub(crate) const HISTORY: &str = "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'";

/// InnoDB makes the table of transactions anew only when nobody has read it for 100 ms. Holds no lock while it waits.
pub(crate) const SETTLE: &str = "SELECT SLEEP(0.13)";

/// What the transaction of this connection has locked: rows, lock structures. Needs PROCESS.
pub(crate) const OWN_LOCKS: &str = "SELECT trx_rows_locked, trx_lock_structs FROM information_schema.INNODB_TRX \
    WHERE trx_mysql_thread_id = CONNECTION_ID()";

/// Triggers of a table that this user may see: name and event. Values: schema or NULL, table.
pub(crate) fn triggers(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::MySql => {
            "SELECT TRIGGER_NAME, CONCAT(ACTION_TIMING, ' ', EVENT_MANIPULATION) FROM information_schema.TRIGGERS \
             WHERE EVENT_OBJECT_SCHEMA = COALESCE(?, DATABASE()) AND EVENT_OBJECT_TABLE = ? ORDER BY TRIGGER_NAME"
        }
        Flavor::Sqlite => {
            "SELECT name, '' FROM sqlite_master WHERE ? IS NULL AND type = 'trigger' AND lower(tbl_name) = lower(?) ORDER BY name"
        }
    }
}

/// Journal mode and how SQLite waits for the disk, one statement an answer.
pub(crate) const SQLITE_PRAGMAS: [&str; 2] = ["PRAGMA journal_mode", "PRAGMA synchronous"];

/// A write that is rolled back: BEGIN IMMEDIATE alone succeeds on a file that can only be read.
pub(crate) const SQLITE_WRITE: &str = "CREATE TABLE rowclaim_doctor_writes (x)";

/// The statements on the own tables of one kind of database, before the names are filled in.
pub(crate) struct OwnTexts {
    /// The version the tables are at.
    pub version: &'static str,
    /// Claims that ran out over a minute ago and are still open, up to 1,001: how many, and for how many seconds at most.
    pub unrecovered: &'static str,
    /// Dead jobs, up to 1,001.
    pub dead: &'static str,
    /// Held jobs, up to 1,001.
    pub held: &'static str,
    /// The last ended claims on a table (by name), among the last 20,000: microseconds it ran, microseconds of its lease, how
    /// it ended.
    pub runs_of_table: &'static str,
    /// The same of jobs.
    pub runs_of_jobs: &'static str,
}

/// See [`OwnTexts`].
pub(crate) fn own(flavor: Flavor) -> OwnTexts {
    match flavor {
        Flavor::MySql => MYSQL,
        Flavor::Sqlite => SQLITE,
    }
}

const MYSQL: OwnTexts = OwnTexts {
    version: "SELECT COALESCE(MAX(version), 0) FROM {schema}",
    // Index: lease.
    unrecovered: "SELECT COUNT(*), COALESCE(MAX(TIMESTAMPDIFF(SECOND, lease_until, UTC_TIMESTAMP(6))), 0) FROM \
        (SELECT lease_until FROM {claims} FORCE INDEX (lease) \
        WHERE state = 'open' AND lease_until < UTC_TIMESTAMP(6) - INTERVAL 60 SECOND ORDER BY lease_until LIMIT 1001) c",
    // By the ledger's index on final.
    dead: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'dead' \
        WHERE a.final = 1 LIMIT 1001) c",
    held: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'held' \
        WHERE a.final = 2 LIMIT 1001) c",
    // By primary key, backwards.
    runs_of_table: "SELECT TIMESTAMPDIFF(MICROSECOND, c.claimed_at, c.closed_at), c.lease_for, c.state FROM {claims} c \
        WHERE c.id > (SELECT MAX(id) FROM {claims}) - 20000 AND c.table_id IN (SELECT t.id FROM {tables} t WHERE t.name = ?) \
        AND c.state <> 'open' AND c.closed_at IS NOT NULL ORDER BY c.id DESC LIMIT 1000",
    runs_of_jobs: "SELECT TIMESTAMPDIFF(MICROSECOND, c.claimed_at, c.closed_at), c.lease_for, c.state FROM {claims} c \
        WHERE c.id > (SELECT MAX(id) FROM {claims}) - 20000 AND c.table_id IS NULL \
        AND c.state <> 'open' AND c.closed_at IS NOT NULL ORDER BY c.id DESC LIMIT 1000",
};

const SQLITE: OwnTexts = OwnTexts {
    version: MYSQL.version,
    unrecovered: "SELECT COUNT(*), COALESCE(MAX({now} - lease_until), 0) / 1000000 FROM \
        (SELECT lease_until FROM {claims} INDEXED BY {lease} \
        WHERE state = 'open' AND lease_until < {now} - 60000000 ORDER BY lease_until LIMIT 1001) c",
    dead: MYSQL.dead,
    held: MYSQL.held,
    runs_of_table: "SELECT c.closed_at - c.claimed_at, c.lease_for, c.state FROM {claims} c \
        WHERE c.id > (SELECT MAX(id) FROM {claims}) - 20000 AND c.table_id IN (SELECT t.id FROM {tables} t WHERE t.name = ?) \
        AND c.state <> 'open' AND c.closed_at IS NOT NULL ORDER BY c.id DESC LIMIT 1000",
    runs_of_jobs: "SELECT c.closed_at - c.claimed_at, c.lease_for, c.state FROM {claims} c \
        WHERE c.id > (SELECT MAX(id) FROM {claims}) - 20000 AND c.table_id IS NULL \
        AND c.state <> 'open' AND c.closed_at IS NOT NULL ORDER BY c.id DESC LIMIT 1000",
};

/// A text with the clock filled in, where it has one.
pub(crate) fn with_clock(text: &str) -> String {
    text.replace("{now}", &format!("({NOW})"))
}

/// Storage engines of the tables whose names begin with a prefix: name, engine. Value: the prefix, as a pattern.
pub(crate) const OWN_ENGINES: &str = "SELECT TABLE_NAME, COALESCE(ENGINE, '') FROM information_schema.TABLES \
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE ? ORDER BY TABLE_NAME";

/// Columns of the same: table, column, type, collation.
pub(crate) const OWN_COLUMNS: &str = "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COALESCE(COLLATION_NAME, '') \
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE ? ORDER BY TABLE_NAME, ORDINAL_POSITION";

/// Indexes of the same: table, index.
pub(crate) const OWN_INDEXES: &str = "SELECT DISTINCT TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS \
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE ?";

/// How the server would run a statement. The format is named: newer servers have other defaults.
pub(crate) fn explain(flavor: Flavor, sql: &str) -> String {
    match flavor {
        Flavor::MySql => format!("EXPLAIN FORMAT=TRADITIONAL {sql}"),
        Flavor::Sqlite => format!("EXPLAIN QUERY PLAN {sql}"),
    }
}

/// Asks whether the rows of an own table may be written; writes nothing.
pub(crate) fn own_write(table: &str) -> String {
    explain(Flavor::MySql, &format!("UPDATE {table} SET state = state WHERE id = 0"))
}
