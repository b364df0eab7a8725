//! The statements for MySQL and MariaDB.
//!
//! Everything runs under READ COMMITTED, one statement a packet. Instants are UTC on the server's clock.
//! Column order of the claiming reads is shared: `plan/claim.rs` decodes by position.

use super::Texts;

pub(super) const NOW: &str = "UTC_TIMESTAMP(6)";

pub(super) const TEXTS: Texts = Texts {
    probe_skip_locked: "SELECT 1 FROM DUAL FOR UPDATE SKIP LOCKED",

    // One index entry is read for each distinct value; no locks. Index: pick.
    next_queue: "SELECT queue FROM {jobs} FORCE INDEX (pick) WHERE queue > ? ORDER BY queue LIMIT 1",
    next_priority: "SELECT priority FROM {jobs} FORCE INDEX (pick) WHERE queue = ? AND priority > ? \
        ORDER BY priority LIMIT 1",

    // Locks n entries of pick and n rows until COMMIT; rows others hold are stepped over, so no worker waits.
    // FORCE INDEX, both bounds on ready_at and this ORDER BY are all needed: without any of them MariaDB
    // locks tens of thousands of rows (measured). One lane a statement for the same reason.
    pick: "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} FORCE INDEX (pick) \
        WHERE queue = ? AND priority = ? AND ready_at BETWEEN ? AND LEAST(?, UTC_TIMESTAMP(6)) \
        ORDER BY ready_at, id LIMIT ? {skip locked}",
    // As `pick`, from within an instant on. Two ranges of the index: as `ready_at > ? OR id > ?` beside the bounds all
    // rows of the instant are walked, and locked on MariaDB. A second range costs 16 workers a third of their speed.
    pick_after: "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} FORCE INDEX (pick) \
        WHERE queue = ? AND priority = ? \
        AND (ready_at = ? AND id > ? OR ready_at > ? AND ready_at <= LEAST(?, UTC_TIMESTAMP(6))) \
        ORDER BY ready_at, id LIMIT ? {skip locked}",
    // Takes no locks: what it finds must be tested again by whoever locks it.
    pick_ids: "SELECT id, ready_at, attempts, max_attempts FROM {jobs} FORCE INDEX (pick) \
        WHERE queue = ? AND priority = ? AND ready_at <= UTC_TIMESTAMP(6) AND MOD(id, ?) = ? \
        ORDER BY ready_at, id LIMIT ?",
    // Locks the named rows by primary key until COMMIT.
    lock_ids: "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at \
        FROM {jobs} FORCE INDEX (PRIMARY) \
        WHERE {ids} AND state = 'ready' AND ready_at <= UTC_TIMESTAMP(6) ORDER BY id {skip locked}",
    // A new row; nobody else sees it before COMMIT.
    insert_claim: "INSERT INTO {claims} \
        (token, source, worker, claimed_at, lease_for, lease_until, max_until, job_count, job_ids, table_id, on_lost) \
        VALUES (?, ?, ?, UTC_TIMESTAMP(6), ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, \
        UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?, ?, ?)",
    // By primary key, with the state predicate: a stale candidate changes nothing. The count is compared.
    // One entry of pick moves, to ready_at NULL.
    mark: "UPDATE {jobs} SET state = 'claimed', ready_at = NULL, claim_id = ?, attempts = attempts + 1, \
        fence = fence + 1, unique_key = IF(key_life = 'until_claimed', NULL, unique_key) \
        WHERE {ids} AND state = 'ready' AND ready_at <= UTC_TIMESTAMP(6)",
    exhaust: "UPDATE {jobs} SET state = 'dead', ready_at = NULL, last_error = 'no attempts left', \
        finished_at = UTC_TIMESTAMP(6), unique_key = IF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND state = 'ready' AND attempts >= max_attempts",
    bury: "UPDATE {jobs} SET state = 'dead', ready_at = NULL, last_error = 'the payload or the key is not UTF-8', \
        finished_at = UTC_TIMESTAMP(6), unique_key = IF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND state = 'ready'",
    claim_by_token: "SELECT id, job_ids FROM {claims} WHERE token = ? AND state = 'open'",
    // By primary key within the ids the claim recorded; no index on claim_id is needed.
    claimed: "SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at, queue, priority \
        FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed' ORDER BY id",
    // Locks the claim's row for the statement: a recovery that came first leaves nothing to write, a later one waits and
    // then sees what was written.
    start: "INSERT INTO {attempts} (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, row_key, claim_id) \
        SELECT ?, ?, 'started', 0, worker, claimed_at, UTC_TIMESTAMP(6), NULL, ?, id FROM {claims} \
        WHERE id = ? AND state = 'open' FOR UPDATE",

    // All finishing writes: by primary key, with claim and state; locks the rows for one statement.
    // pick does not move, since ready_at stays NULL.
    complete: "UPDATE {jobs} SET state = 'done', finished_at = UTC_TIMESTAMP(6), \
        unique_key = IF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    fail_back: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, last_error = ? \
        WHERE id = ? AND claim_id = ? AND state = 'claimed'",
    fail_dead: "UPDATE {jobs} SET state = 'dead', finished_at = UTC_TIMESTAMP(6), last_error = ?, \
        unique_key = IF(key_life = 'active', NULL, unique_key) \
        WHERE id = ? AND claim_id = ? AND state = 'claimed'",
    release: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, attempts = attempts - 1 \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    insert_attempts: "INSERT INTO {attempts} (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, claim_id, row_key) VALUES {rows}",
    insert_attempts_row: "(?,?,?,?,?,(SELECT claimed_at FROM {claims} WHERE id = ?),UTC_TIMESTAMP(6),?,?,?)",
    inspect: "SELECT id, state, claim_id FROM {jobs} WHERE {ids}",
    outcome_of: "SELECT outcome FROM {attempts} WHERE job_id = ? AND fence = ? AND outcome <> 'started' ORDER BY id DESC LIMIT 1",
    // Its own statement, never inside a finish: the lock order is claim, then jobs.
    close_claims: "UPDATE {claims} SET state = 'closed', closed_at = UTC_TIMESTAMP(6) WHERE {ids} AND state = 'open'",

    // One row a claim, however many jobs it holds. A lapsed claim that nobody recovered yet is renewed too.
    renew: "UPDATE {claims} SET lease_until = LEAST(UTC_TIMESTAMP(6) + INTERVAL lease_for MICROSECOND, \
        COALESCE(max_until, '9999-12-31 23:59:59.999999')) \
        WHERE {ids} AND state = 'open' AND (max_until IS NULL OR max_until > UTC_TIMESTAMP(6))",
    renewable: "SELECT id FROM {claims} WHERE {ids} AND state = 'open' \
        AND (max_until IS NULL OR max_until > UTC_TIMESTAMP(6))",

    // No locks: a sweeper takes claims one by one with `expire`. Index: lease.
    expired: "SELECT id, job_ids, worker, table_id, token, on_lost FROM {claims} FORCE INDEX (lease) \
        WHERE state = 'open' AND lease_until < UTC_TIMESTAMP(6) ORDER BY lease_until LIMIT ?",
    // Locks the claim's row; a renewal or another sweeper that came first makes it match nothing.
    expire: "UPDATE {claims} SET state = 'expired', closed_at = UTC_TIMESTAMP(6) \
        WHERE id = ? AND state = 'open' AND lease_until < UTC_TIMESTAMP(6)",
    lost_jobs: "SELECT id, attempts, max_attempts, fence FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed' \
        ORDER BY id {lock}",
    lost_back: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, claim_id = NULL, \
        lost = lost + 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    lost_dead: "UPDATE {jobs} SET state = 'dead', finished_at = UTC_TIMESTAMP(6), claim_id = NULL, lost = lost + 1, \
        last_error = 'lease expired', unique_key = IF(key_life = 'active', NULL, unique_key) \
        WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    // No locks: read under the claim's own, which keeps `start` from writing more. Index: claim.
    started: "SELECT job_id, row_key FROM {attempts} WHERE claim_id = ? AND outcome = 'started'",
    // The key stays taken while a person is awaited.
    lost_held: "UPDATE {jobs} SET state = 'held', claim_id = NULL, lost = lost + 1, \
        last_error = 'lease expired after it was started' WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    lost_unbegun: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6), claim_id = NULL, lost = lost + 1, \
        attempts = attempts - 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'",

    look: "SELECT unique_key, id, state, unique_until IS NOT NULL AND unique_until <= UTC_TIMESTAMP(6) \
        FROM {jobs} WHERE queue = ? AND unique_key IN ({list})",
    free_timed: "UPDATE {jobs} SET unique_key = NULL WHERE {ids} AND key_life = 'timed' AND unique_until <= UTC_TIMESTAMP(6)",
    insert_jobs: "INSERT INTO {jobs} (queue, job_key, unique_key, key_life, unique_until, priority, payload, ready_at, \
        max_attempts, create_token, created_at) VALUES {rows}",
    insert_jobs_row: "(?,?,?,?,UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,?,?,\
        COALESCE(?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND),?,?,UTC_TIMESTAMP(6))",
    // By primary key; only the count leaves the server.
    made_in_row: "SELECT COUNT(*) FROM {jobs} WHERE id BETWEEN ? AND ? AND create_token = ?",
    made: "SELECT id FROM {jobs} WHERE id >= ? AND create_token = ? ORDER BY id LIMIT ?",
    // create_token has no index (each index costs every job): the newest rows are looked through instead.
    made_before_loss: "SELECT id FROM {jobs} WHERE id > (SELECT MAX(id) FROM {jobs}) - 100000 AND create_token = ? ORDER BY id",
    // For the caller's own transaction: a repeat changes nothing and LAST_INSERT_ID() is the row's id either way.
    plan_create: "INSERT INTO {jobs} (queue, job_key, unique_key, key_life, priority, payload, ready_at, max_attempts, created_at) \
        VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6)) \
        ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)",

    job: "SELECT id, queue, job_key, priority, state, payload, attempts, max_attempts, lost, fence, ready_at, created_at, \
        finished_at, last_error, claim_id FROM {jobs} WHERE id = ?",
    // By primary key, backwards; stops at the limit.
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
    retry_dead: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6), attempts = 0, finished_at = NULL, claim_id = NULL, \
        fence = fence + 1, unique_key = IF(key_life = 'active', job_key, unique_key) WHERE id = ? AND state = 'dead'",
    retry_claimed: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6), claim_id = NULL, fence = fence + 1 \
        WHERE id = ? AND state = 'claimed'",
    cancel: "UPDATE {jobs} SET state = 'cancelled', ready_at = NULL, finished_at = UTC_TIMESTAMP(6), \
        unique_key = IF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state IN ('ready', 'dead', 'held')",
    cancel_claimed: "UPDATE {jobs} SET state = 'cancelled', ready_at = NULL, finished_at = UTC_TIMESTAMP(6), claim_id = NULL, \
        fence = fence + 1, unique_key = IF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state = 'claimed'",
    // By primary key until COMMIT; then written with the state again, and the counts compared.
    held_jobs: "SELECT id FROM {jobs} WHERE {ids} AND state = 'held' ORDER BY id {lock}",
    resolve_sent: "UPDATE {jobs} SET state = 'done', finished_at = UTC_TIMESTAMP(6), \
        unique_key = IF(key_life = 'active', NULL, unique_key) WHERE {ids} AND state = 'held'",
    // The attempt that was not made is not counted.
    resolve_unsent: "UPDATE {jobs} SET state = 'ready', ready_at = UTC_TIMESTAMP(6), attempts = LEAST(attempts, max_attempts) - 1 \
        WHERE {ids} AND state = 'held'",
    // What was started is not told here: how it ended is.
    list_attempts: "SELECT fence, outcome, final, worker, claimed_at, ended_at, error FROM {attempts} \
        WHERE job_id = ? AND outcome <> 'started' ORDER BY id LIMIT ?",

    // Index: claim.
    outcome_of_row: "SELECT outcome FROM {attempts} WHERE claim_id = ? AND row_key = ? AND outcome <> 'started' \
        ORDER BY id DESC LIMIT 1",
    find_table: "SELECT id FROM {tables} WHERE digest = ?",
    insert_table: "INSERT INTO {tables} (digest, name, mapping, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6))",
    table_by_id: "SELECT name, mapping FROM {tables} WHERE id = ?",
    list_tables: "SELECT id, name, mapping, created_at FROM {tables} ORDER BY name, id",
    open_tokens: "SELECT token FROM {claims} WHERE token IN ({list}) AND state = 'open'",
    postpone: "UPDATE {claims} SET lease_until = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE \
        WHERE id = ? AND state = 'open' AND lease_until < UTC_TIMESTAMP(6)",

    claim: "SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost \
        FROM {claims} WHERE id = ? OR token = ?",
    list_claims: "SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost \
        FROM {claims} WHERE id < ? AND (? IS NULL OR state = ?) AND (? IS NULL OR source = ?) ORDER BY id DESC LIMIT ?",
    // A microsecond ago, so that recovery finds it at once.
    end_claim: "UPDATE {claims} SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 MICROSECOND WHERE id = ? AND state = 'open'",
    attempts_of_claim: "SELECT job_id, row_key, fence, outcome, final, ended_at, error FROM {attempts} WHERE claim_id = ? \
        AND outcome <> 'started' ORDER BY id LIMIT ?",

    // By primary key; the database's clock alone decides. LAST_INSERT_ID hands the new fence back with the answer.
    take_lease: "UPDATE {leases} SET owner = ?, holder = ?, fence = LAST_INSERT_ID(fence + 1), acquired_at = UTC_TIMESTAMP(6), \
        lease_for = ?, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND \
        WHERE name = ? AND lease_until <= UTC_TIMESTAMP(6)",
    first_lease: "INSERT INTO {leases} (owner, holder, fence, acquired_at, lease_for, lease_until, name) \
        VALUES (?, ?, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED), UTC_TIMESTAMP(6), ?, \
        UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?)",
    lease: "SELECT owner, holder, fence, lease_until, lease_until > UTC_TIMESTAMP(6) FROM {leases} WHERE name = ?",
    // A lease that has lapsed but that nobody took is renewed too.
    renew_lease: "UPDATE {leases} SET lease_until = UTC_TIMESTAMP(6) + INTERVAL lease_for MICROSECOND \
        WHERE name = ? AND owner = ? AND fence = ?",
    restore_lease: "INSERT INTO {leases} (name, owner, fence, holder, acquired_at, lease_for, lease_until) \
        VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6), ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)",
    release_lease: "UPDATE {leases} SET owner = NULL, lease_until = UTC_TIMESTAMP(6) WHERE name = ? AND owner = ? AND fence = ?",
    list_leases: "SELECT name, holder, fence, acquired_at, lease_until, owner IS NOT NULL AND lease_until > UTC_TIMESTAMP(6) \
        FROM {leases} ORDER BY name LIMIT ?",

    count_due: "SELECT COUNT(*) FROM (SELECT 1 FROM {jobs} FORCE INDEX (pick) WHERE queue = ? AND priority = ? \
        AND ready_at BETWEEN '1000-01-01' AND UTC_TIMESTAMP(6) LIMIT ?) c",
    count_delayed: "SELECT COUNT(*) FROM (SELECT 1 FROM {jobs} FORCE INDEX (pick) WHERE queue = ? AND priority = ? \
        AND ready_at > UTC_TIMESTAMP(6) LIMIT ?) c",
    oldest_due: "SELECT TIMESTAMPDIFF(MICROSECOND, ready_at, UTC_TIMESTAMP(6)) FROM {jobs} FORCE INDEX (pick) \
        WHERE queue = ? AND priority = ? AND ready_at BETWEEN '1000-01-01' AND UTC_TIMESTAMP(6) ORDER BY ready_at LIMIT 1",
    open_claims: "SELECT id, job_ids, source, table_id, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) \
        FROM {claims} FORCE INDEX (lease) WHERE state = 'open' LIMIT ?",
    count_claimed: "SELECT COUNT(*) FROM {jobs} WHERE {ids} AND claim_id = ? AND state = 'claimed'",
    count_dead: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'dead' \
        WHERE a.final = 1 AND j.queue = ? LIMIT ?) c",
    count_held: "SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM {attempts} a JOIN {jobs} j ON j.id = a.job_id AND j.state = 'held' \
        WHERE a.final = 2 AND j.queue = ? LIMIT ?) c",
    count_exact: "SELECT queue, state, COUNT(*) FROM {jobs} GROUP BY queue, state ORDER BY queue, state",

    // Walks the primary key once, in steps; no locks. The DELETE then goes by id, with the state again.
    prunable_jobs: "SELECT id FROM {jobs} WHERE id > ? AND state IN ('done', 'dead', 'cancelled') \
        AND finished_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY id LIMIT ?",
    prune_jobs: "DELETE FROM {jobs} WHERE {ids} AND state IN ('done', 'dead', 'cancelled')",
    prunable_claims: "SELECT id FROM {claims} WHERE id > ? AND state <> 'open' \
        AND closed_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY id LIMIT ?",
    prune_claims: "DELETE FROM {claims} WHERE {ids} AND state <> 'open'",
    // What an open claim has started stays: its recovery goes by it.
    prunable_attempts: "SELECT a.id FROM {attempts} a LEFT JOIN {jobs} j ON j.id = a.job_id \
        LEFT JOIN {claims} c ON c.id = a.claim_id AND c.state = 'open' AND a.outcome = 'started' WHERE a.id > ? \
        AND a.ended_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND j.id IS NULL AND c.id IS NULL ORDER BY a.id LIMIT ?",
    prune_attempts: "DELETE FROM {attempts} WHERE {ids}",
};
