//! The statements for SQLite.
//!
//! The order and the columns are those of `mysql.rs`. Every writing transaction begins IMMEDIATE and has the
//! database to itself, so reads inside it need no locking clause. Instants are integers, microseconds since 1970, UTC;
//! the clock is julianday('now'), which every SQLite has, in whole milliseconds.

use super::Texts;

macro_rules! now {
    () => {
        "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
    };
}
pub(super) use now;

pub(super) const NOW: &str = now!();

pub(super) const TEXTS: Texts = Texts {
    probe_skip_locked: "SELECT 1",

    next_queue: "SELECT queue FROM {jobs} INDEXED BY {pick} WHERE queue > ? ORDER BY queue LIMIT 1",
    next_priority: "SELECT priority FROM {jobs} INDEXED BY {pick} WHERE queue = ? AND priority > ? \
        ORDER BY priority LIMIT 1",

    pick: concat!(
        "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} INDEXED BY {pick} \
        WHERE queue = ? AND priority = ? AND ready_at BETWEEN ? AND MIN(?, ",
        now!(),
        ") \
        ORDER BY ready_at, id LIMIT ?"
    ),
    pick_after: concat!(
        "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} INDEXED BY {pick} \
        WHERE queue = ? AND priority = ? AND (ready_at, id) > (?, ?) AND ready_at >= ? AND ready_at <= MIN(?, ",
        now!(),
        ") \
        ORDER BY ready_at, id LIMIT ?"
    ),
    pick_ids: concat!(
        "SELECT id, ready_at, attempts, max_attempts FROM {jobs} INDEXED BY {pick} \
        WHERE queue = ? AND priority = ? AND ready_at <= ",
        now!(),
        " AND id % ? = ? \
        ORDER BY ready_at, id LIMIT ?"
    ),
    lock_ids: concat!(
        "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} \
        WHERE {ids} AND state = 'ready' AND ready_at <= ",
        now!(),
        " ORDER BY id"
    ),
    insert_claim: concat!(
        "INSERT INTO {claims} \
        (token, source, worker, claimed_at, lease_for, lease_until, max_until, job_count, job_ids, table_id, on_lost) \
        VALUES (?, ?, ?, ",
        now!(),
        ", ?, ",
        now!(),
        " + ?, \
        ",
        now!(),
        " + ?, ?, ?, ?, ?)"
    ),
    mark: concat!(
        "UPDATE {jobs} SET state = 'claimed', ready_at = NULL, claim_id = ?, attempts = attempts + 1, \
        fence = fence + 1, unique_key = IIF(key_life = 'until_claimed', NULL, unique_key) \
        WHERE {ids} AND state = 'ready' AND ready_at <= ",
        now!()
    ),
    exhaust: concat!(
        "UPDATE {jobs} SET state = 'dead', ready_at = NULL, last_error = 'no attempts left', \
        finished_at = ",
        now!(),
        ", unique_key = IIF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND state = 'ready' AND attempts >= max_attempts"
    ),
    bury: concat!(
        "UPDATE {jobs} SET state = 'dead', ready_at = NULL, last_error = 'the payload or the key is not UTF-8', \
        finished_at = ",
        now!(),
        ", unique_key = IIF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND state = 'ready'"
    ),
    claim_by_token: "SELECT id, job_ids FROM {claims} WHERE token = ? AND state = 'open'",
    claimed: "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at, queue, priority \
        FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed' ORDER BY id",
    start: concat!(
        "INSERT INTO {attempts} (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, row_key, claim_id) \
        SELECT ?, ?, 'started', 0, worker, claimed_at, ",
        now!(),
        ", NULL, ?, id FROM {claims} WHERE id = ? AND state = 'open'"
    ),

    complete: concat!(
        "UPDATE {jobs} SET state = 'done', finished_at = ",
        now!(),
        ", \
        unique_key = IIF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'"
    ),
    fail_back: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        " + ?, last_error = ? \
        WHERE id = ? AND claim_id = ? AND state = 'claimed'"
    ),
    fail_dead: concat!(
        "UPDATE {jobs} SET state = 'dead', finished_at = ",
        now!(),
        ", last_error = ?, \
        unique_key = IIF(key_life = 'active', NULL, unique_key) \
        WHERE id = ? AND claim_id = ? AND state = 'claimed'"
    ),
    release: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        " + ?, attempts = attempts - 1 \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'"
    ),
    insert_attempts: "INSERT INTO {attempts} (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, claim_id, row_key) VALUES {rows}",
    insert_attempts_row: concat!("(?,?,?,?,?,(SELECT claimed_at FROM {claims} WHERE id = ?),", now!(), ",?,?,?)"),
    inspect: "SELECT id, state, claim_id FROM {jobs} WHERE {ids}",
    outcome_of: "SELECT outcome FROM {attempts} WHERE job_id = ? AND fence = ? AND outcome <> 'started' ORDER BY id DESC LIMIT 1",
    close_claims: concat!("UPDATE {claims} SET state = 'closed', closed_at = ", now!(), " WHERE {ids} AND state = 'open'"),

    renew: concat!(
        "UPDATE {claims} SET lease_until = MIN(",
        now!(),
        " + lease_for, COALESCE(max_until, 9223372036854775807)) \
        WHERE {ids} AND state = 'open' AND (max_until IS NULL OR max_until > ",
        now!(),
        ")"
    ),
    renewable: concat!(
        "SELECT id FROM {claims} WHERE {ids} AND state = 'open' \
        AND (max_until IS NULL OR max_until > ",
        now!(),
        ")"
    ),

    expired: concat!(
        "SELECT id, job_ids, worker, table_id, token, on_lost FROM {claims} INDEXED BY {lease} \
        WHERE state = 'open' AND lease_until < ",
        now!(),
        " ORDER BY lease_until LIMIT ?"
    ),
    expire: concat!(
        "UPDATE {claims} SET state = 'expired', closed_at = ",
        now!(),
        " \
        WHERE id = ? AND state = 'open' AND lease_until < ",
        now!()
    ),
    lost_jobs: "SELECT id, attempts, max_attempts, fence FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed' ORDER BY id",
    lost_back: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        " + ?, claim_id = NULL, \
        lost = lost + 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'"
    ),
    lost_dead: concat!(
        "UPDATE {jobs} SET state = 'dead', finished_at = ",
        now!(),
        ", claim_id = NULL, lost = lost + 1, \
        last_error = 'lease expired', unique_key = IIF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'"
    ),
    started: "SELECT job_id, row_key FROM {attempts} WHERE claim_id = ? AND outcome = 'started'",
    lost_held: "UPDATE {jobs} SET state = 'held', claim_id = NULL, lost = lost + 1, \
        last_error = 'lease expired after it was started' WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    lost_unbegun: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        ", claim_id = NULL, lost = lost + 1, \
        attempts = attempts - 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'"
    ),

    look: concat!(
        "SELECT unique_key, id, state, unique_until IS NOT NULL AND unique_until <= ",
        now!(),
        " \
        FROM {jobs} WHERE queue = ? AND unique_key IN ({list})"
    ),
    free_timed: concat!("UPDATE {jobs} SET unique_key = NULL WHERE {ids} AND key_life = 'timed' AND unique_until <= ", now!()),
    insert_jobs: "INSERT INTO {jobs} (queue, job_key, unique_key, key_life, unique_until, priority, payload, ready_at, \
        max_attempts, create_token, created_at) VALUES {rows}",
    insert_jobs_row: concat!("(?,?,?,?,", now!(), " + ?,?,?,COALESCE(?, ", now!(), " + ?),?,?,", now!(), ")"),
    made_in_row: "SELECT COUNT(*) FROM {jobs} WHERE id BETWEEN ? AND ? AND create_token = ?",
    made: "SELECT id FROM {jobs} WHERE id >= ? AND create_token = ? ORDER BY id LIMIT ?",
    made_before_loss: "SELECT id FROM {jobs} WHERE id > (SELECT MAX(id) FROM {jobs}) - 100000 AND create_token = ? ORDER BY id",
    plan_create: concat!(
        "INSERT INTO {jobs} (queue, job_key, unique_key, key_life, priority, payload, ready_at, max_attempts, created_at) \
        VALUES (?, ?, ?, ?, ?, ?, ",
        now!(),
        " + ?, ?, ",
        now!(),
        ") \
        ON CONFLICT (queue, unique_key) DO NOTHING"
    ),

    job: "SELECT id, queue, job_key, priority, state, payload, attempts, max_attempts, lost, fence, ready_at, created_at, \
        finished_at, last_error, claim_id FROM {jobs} WHERE id = ?",
    list_jobs: "SELECT id, queue, job_key, priority, state, payload, attempts, max_attempts, lost, fence, ready_at, created_at, \
        finished_at, last_error, claim_id FROM {jobs} \
        WHERE id < ? AND (? IS NULL OR queue = ?) AND (? IS NULL OR state = ?) ORDER BY id DESC LIMIT ?",
    list_dead: "SELECT DISTINCT j.id, j.queue, j.job_key, j.priority, j.state, j.payload, j.attempts, j.max_attempts, j.lost, \
        j.fence, j.ready_at, j.created_at, j.finished_at, j.last_error, j.claim_id \
        FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'dead' \
        WHERE a.final = 1 AND j.id < ? AND (? IS NULL OR j.queue = ?) ORDER BY j.id DESC LIMIT ?",
    list_held: "SELECT DISTINCT j.id, j.queue, j.job_key, j.priority, j.state, j.payload, j.attempts, j.max_attempts, j.lost, \
        j.fence, j.ready_at, j.created_at, j.finished_at, j.last_error, j.claim_id \
        FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'held' \
        WHERE a.final = 2 AND j.id < ? AND (? IS NULL OR j.queue = ?) ORDER BY j.id DESC LIMIT ?",
    retry_dead: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        ", attempts = 0, finished_at = NULL, claim_id = NULL, \
        fence = fence + 1, unique_key = IIF(key_life = 'active', job_key, unique_key) WHERE id = ? AND state = 'dead'"
    ),
    retry_claimed: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        ", claim_id = NULL, fence = fence + 1 \
        WHERE id = ? AND state = 'claimed'"
    ),
    cancel: concat!(
        "UPDATE {jobs} SET state = 'cancelled', ready_at = NULL, finished_at = ",
        now!(),
        ", \
        unique_key = IIF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state IN ('ready', 'dead', 'held')"
    ),
    cancel_claimed: concat!(
        "UPDATE {jobs} SET state = 'cancelled', ready_at = NULL, finished_at = ",
        now!(),
        ", claim_id = NULL, \
        fence = fence + 1, unique_key = IIF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state = 'claimed'"
    ),
    held_jobs: "SELECT id FROM {jobs} WHERE {ids} AND state = 'held' ORDER BY id",
    resolve_sent: concat!(
        "UPDATE {jobs} SET state = 'done', finished_at = ",
        now!(),
        ", \
        unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND state = 'held'"
    ),
    resolve_unsent: concat!(
        "UPDATE {jobs} SET state = 'ready', ready_at = ",
        now!(),
        ", attempts = MIN(attempts, max_attempts) - 1 \
        WHERE {ids} AND state = 'held'"
    ),
    list_attempts: "SELECT fence, outcome, final, worker, claimed_at, ended_at, error FROM {attempts} \
        WHERE job_id = ? AND outcome <> 'started' ORDER BY id LIMIT ?",

    outcome_of_row: "SELECT outcome FROM {attempts} WHERE claim_id = ? AND row_key = ? AND outcome <> 'started' \
        ORDER BY id DESC LIMIT 1",
    find_table: "SELECT id FROM {tables} WHERE digest = ?",
    insert_table: concat!("INSERT INTO {tables} (digest, name, mapping, created_at) VALUES (?, ?, ?, ", now!(), ")"),
    table_by_id: "SELECT name, mapping FROM {tables} WHERE id = ?",
    list_tables: "SELECT id, name, mapping, created_at FROM {tables} ORDER BY name, id",
    open_tokens: "SELECT token FROM {claims} WHERE token IN ({list}) AND state = 'open'",
    postpone: concat!(
        "UPDATE {claims} SET lease_until = ",
        now!(),
        " + 60000000 WHERE id = ? AND state = 'open' AND lease_until < ",
        now!()
    ),

    claim: "SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost \
        FROM {claims} WHERE id = ? OR token = ?",
    list_claims: "SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost \
        FROM {claims} WHERE id < ? AND (? IS NULL OR state = ?) AND (? IS NULL OR source = ?) ORDER BY id DESC LIMIT ?",
    end_claim: concat!("UPDATE {claims} SET lease_until = ", now!(), " - 1000 WHERE id = ? AND state = 'open'"),
    attempts_of_claim: "SELECT job_id, row_key, fence, outcome, final, ended_at, error FROM {attempts} WHERE claim_id = ? \
        AND outcome <> 'started' ORDER BY id LIMIT ?",

    take_lease: concat!(
        "UPDATE {leases} SET owner = ?, holder = ?, fence = fence + 1, acquired_at = ",
        now!(),
        ", lease_for = ?, lease_until = ",
        now!(),
        " + ? WHERE name = ? AND lease_until <= ",
        now!()
    ),
    first_lease: concat!(
        "INSERT INTO {leases} (owner, holder, fence, acquired_at, lease_for, lease_until, name) VALUES (?, ?, (",
        now!(),
        ") / 1000, ",
        now!(),
        ", ?, ",
        now!(),
        " + ?, ?)"
    ),
    lease: concat!("SELECT owner, holder, fence, lease_until, lease_until > ", now!(), " FROM {leases} WHERE name = ?"),
    renew_lease: concat!("UPDATE {leases} SET lease_until = ", now!(), " + lease_for WHERE name = ? AND owner = ? AND fence = ?"),
    restore_lease: concat!(
        "INSERT INTO {leases} (name, owner, fence, holder, acquired_at, lease_for, lease_until) VALUES (?, ?, ?, ?, ",
        now!(),
        ", ?, ",
        now!(),
        " + ?)"
    ),
    release_lease: concat!(
        "UPDATE {leases} SET owner = NULL, lease_until = ",
        now!(),
        " WHERE name = ? AND owner = ? AND fence = ?"
    ),
    list_leases: concat!(
        "SELECT name, holder, fence, acquired_at, lease_until, owner IS NOT NULL AND lease_until > ",
        now!(),
        " FROM {leases} ORDER BY name LIMIT ?"
    ),

    count_due: concat!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM {jobs} INDEXED BY {pick} WHERE queue = ? AND priority = ? \
        AND ready_at BETWEEN 0 AND ",
        now!(),
        " LIMIT ?) c"
    ),
    count_delayed: concat!(
        "SELECT COUNT(*) FROM (SELECT 1 FROM {jobs} INDEXED BY {pick} WHERE queue = ? AND priority = ? \
        AND ready_at > ",
        now!(),
        " LIMIT ?) c"
    ),
    oldest_due: concat!(
        "SELECT ",
        now!(),
        " - ready_at FROM {jobs} INDEXED BY {pick} \
        WHERE queue = ? AND priority = ? AND ready_at BETWEEN 0 AND ",
        now!(),
        " ORDER BY ready_at LIMIT 1"
    ),
    open_claims: concat!(
        "SELECT id, job_ids, source, table_id, lease_until - ",
        now!(),
        " \
        FROM {claims} INDEXED BY {lease} WHERE state = 'open' LIMIT ?"
    ),
    count_claimed: "SELECT COUNT(*) FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    count_dead: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'dead' \
        WHERE a.final = 1 AND j.queue = ? LIMIT ?) c",
    count_held: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'held' \
        WHERE a.final = 2 AND j.queue = ? LIMIT ?) c",
    count_exact: "SELECT queue, state, COUNT(*) FROM {jobs} GROUP BY queue, state ORDER BY queue, state",

    prunable_jobs: concat!(
        "SELECT id FROM {jobs} WHERE id > ? AND state IN ('done', 'dead', 'cancelled') \
        AND finished_at < ",
        now!(),
        " - ? ORDER BY id LIMIT ?"
    ),
    prune_jobs: "DELETE FROM {jobs} WHERE {ids} AND state IN ('done', 'dead', 'cancelled')",
    prunable_claims: concat!(
        "SELECT id FROM {claims} WHERE id > ? AND state <> 'open' \
        AND closed_at < ",
        now!(),
        " - ? ORDER BY id LIMIT ?"
    ),
    prune_claims: "DELETE FROM {claims} WHERE {ids} AND state <> 'open'",
    prunable_attempts: concat!(
        "SELECT a.id FROM {attempts} a LEFT JOIN {jobs} j ON j.id = a.job_id \
        LEFT JOIN {claims} c ON c.id = a.claim_id AND c.state = 'open' AND a.outcome = 'started' WHERE a.id > ? \
        AND a.ended_at < ",
        now!(),
        " - ? AND j.id IS NULL AND c.id IS NULL ORDER BY a.id LIMIT ?"
    ),
    prune_attempts: "DELETE FROM {attempts} WHERE {ids}",
};
