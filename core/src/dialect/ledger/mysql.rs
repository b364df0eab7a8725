//! The ledger statements for MySQL and MariaDB; see `dialect/mysql.rs`.

use super::LedgerTexts;

pub(in crate::dialect) const TEXTS: LedgerTexts = LedgerTexts {
    effect: "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND \
        lease_until <= UTC_TIMESTAMP(6), created_at, started_at, finished_at, id FROM {effects} WHERE \
        effect_key = ?",
    // A second sender of the same key waits for this row and then gets a duplicate.
    insert_effect: "INSERT INTO {effects} (effect_key, state, digest, owner, holder, attempts, lease_for, lease_until, created_at, \
        started_at) VALUES (?, 'sending', ?, ?, ?, 1, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, \
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
    // By the unique key, and only while nobody has tried since it was read.
    take_effect: "UPDATE {effects} SET state = 'sending', owner = ?, holder = ?, attempts = attempts + 1, error = NULL, \
        lease_for = ?, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, started_at = UTC_TIMESTAMP(6), \
        finished_at = NULL WHERE effect_key = ? AND attempts = ? AND state = ?",
    renew_effect: "UPDATE {effects} SET lease_until = UTC_TIMESTAMP(6) + INTERVAL lease_for MICROSECOND WHERE effect_key = ? AND \
        owner = ? AND state = 'sending'",
    // The sender knows better than a lease that ran out; another sender or a person does not overwrite, nor is overwritten.
    settle_effect: "UPDATE {effects} SET state = ?, response = ?, error = ?, finished_at = UTC_TIMESTAMP(6) WHERE effect_key = ? \
        AND owner = ? AND state IN ('sending', 'unknown')",
    lapse_effect: "UPDATE {effects} SET state = 'unknown', error = 'the sender was lost', finished_at = UTC_TIMESTAMP(6) WHERE \
        effect_key = ? AND state = 'sending' AND lease_until <= UTC_TIMESTAMP(6)",
    // Index: effect_state; few are being sent at any time.
    lapsed_effects: "SELECT effect_key FROM {effects} FORCE INDEX (effect_state) WHERE state = 'sending' AND lease_until <= \
        UTC_TIMESTAMP(6) ORDER BY id LIMIT ?",
    // The owner goes: a late answer of the sender does not overwrite what a person decided.
    resolve_effect: "UPDATE {effects} SET state = ?, response = ?, error = ?, owner = NULL, finished_at = UTC_TIMESTAMP(6) WHERE \
        effect_key = ? AND (state = 'unknown' OR (state = 'sending' AND lease_until <= UTC_TIMESTAMP(6)))",
    list_effects: "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND \
        lease_until <= UTC_TIMESTAMP(6), created_at, started_at, finished_at, id FROM {effects} WHERE id < ? \
        ORDER BY id DESC LIMIT ?",
    list_effects_of_state: "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND \
        lease_until <= UTC_TIMESTAMP(6), created_at, started_at, finished_at, id FROM {effects} FORCE INDEX \
        (effect_state) WHERE state = ? AND id < ? ORDER BY id DESC LIMIT ?",
    run_of_slot: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE task = ? AND slot = ? AND rerun = ?",
    reruns: "SELECT COALESCE(MAX(rerun), -1) FROM {runs} WHERE task = ? AND slot = ?",
    // By the index on task and slot: the rows of one slot, of which there are many only where people ran it again.
    run_of_token: "SELECT id, fence FROM {runs} WHERE task = ? AND slot = ? AND token = ?",
    // In the transaction that takes the lease: whoever finds the lease held finds this row.
    insert_run: "INSERT INTO {runs} (task, slot, rerun, is_manual, state, token, fence, worker, created_at) VALUES (?, ?, ?, ?, \
        'started', ?, ?, ?, UTC_TIMESTAMP(6))",
    insert_skipped: "INSERT INTO {runs} (task, slot, rerun, is_manual, state, reason, worker, created_at, finished_at) VALUES (?, \
        ?, ?, ?, 'skipped', ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
    insert_skipped_once: "INSERT INTO {runs} (task, slot, state, reason, slots, worker, created_at, finished_at) SELECT ?, ?, 'skipped', \
        ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {runs} WHERE \
        task = ? AND slot = ? AND rerun = 0)",
    // By primary key, token and state: a run that was marked lost stays lost.
    finish_run: "UPDATE {runs} SET state = ?, error = ?, finished_at = UTC_TIMESTAMP(6) WHERE id = ? AND token = ? AND state = \
        'started'",
    // Index: run_state; few runs are started at any time.
    lose_earlier_runs: "UPDATE {runs} SET state = 'lost', error = 'lease expired', finished_at = UTC_TIMESTAMP(6) WHERE state = \
        'started' AND task = ? AND fence < ?",
    // A lease that was deleted comes back with its next renewal; after a day it is gone.
    lapsed_runs: "SELECT r.id FROM {runs} r LEFT JOIN {leases} l ON l.name = CONCAT('run:', r.task) WHERE r.state = 'started' \
        AND (l.fence <> r.fence OR l.lease_until <= UTC_TIMESTAMP(6) OR (l.name IS NULL AND r.created_at < \
        UTC_TIMESTAMP(6) - INTERVAL 1 DAY)) ORDER BY r.id LIMIT ?",
    lose_run: "UPDATE {runs} SET state = 'lost', error = 'lease expired', finished_at = UTC_TIMESTAMP(6) WHERE id = ? AND \
        state = 'started' AND NOT EXISTS (SELECT 1 FROM {leases} l WHERE l.name = CONCAT('run:', {runs}.task) \
        AND l.fence = {runs}.fence AND l.lease_until > UTC_TIMESTAMP(6))",
    run: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE id = ?",
    list_runs: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE id < ? AND (? IS NULL OR task = ?) AND (? IS NULL OR state = ?) ORDER BY id \
        DESC LIMIT ?",
    // Index: run_slot, backwards.
    last_run: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE task = ? AND state <> 'skipped' ORDER BY slot DESC, rerun DESC LIMIT 1",
    // Those who look at the same schedule at the same time wait for each other here.
    lock_schedule: "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
        asked_at, UTC_TIMESTAMP(6) FROM {schedules} WHERE task = ? {lock}",
    schedule: "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
        asked_at, UTC_TIMESTAMP(6) FROM {schedules} WHERE task = ?",
    insert_schedule: "INSERT INTO {schedules} (cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, task, \
        accounted_until, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
    change_schedule: "UPDATE {schedules} SET accounted_until = CASE WHEN cron = ? AND zone = ? THEN accounted_until ELSE \
        UTC_TIMESTAMP(6) END, cron = ?, zone = ?, missed = ?, cap = ?, catch_up_for = ?, grace = ?, lease_for \
        = ?, max_run = ?, updated_at = UTC_TIMESTAMP(6) WHERE task = ?",
    delete_schedule: "DELETE FROM {schedules} WHERE task = ?",
    list_schedules: "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
        asked_at, UTC_TIMESTAMP(6) FROM {schedules} ORDER BY task LIMIT ?",
    account_schedule: "UPDATE {schedules} SET accounted_until = ? WHERE task = ? AND accounted_until < ?",
    ask_schedule: "UPDATE {schedules} SET asked_at = UTC_TIMESTAMP(6) WHERE task = ?",
    clear_asked: "UPDATE {schedules} SET asked_at = NULL WHERE task = ? AND asked_at = ?",
    pause_schedule: "UPDATE {schedules} SET paused_at = UTC_TIMESTAMP(6) WHERE task = ? AND paused_at IS NULL",
    resume_schedule: "UPDATE {schedules} SET paused_at = NULL WHERE task = ? AND paused_at IS NOT NULL",

    // The session's zone is UTC. The row is locked until COMMIT, so that `reserved` reads what was written here.
    reserve: "UPDATE {limits} SET next_at = GREATEST(next_at, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)) + ? \
        WHERE name = ? AND next_at <= CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) + ?",
    reserved: "SELECT next_at - CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) FROM {limits} WHERE name = ?",
    insert_limit: "INSERT INTO {limits} (name, next_at) VALUES (?, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) + ?)",

    prunable_effects: "SELECT id FROM {effects} WHERE id > ? AND state IN ('succeeded', 'failed') AND finished_at < UTC_TIMESTAMP(6) \
        - INTERVAL ? MICROSECOND ORDER BY id LIMIT ?",
    prune_effects: "DELETE FROM {effects} WHERE {ids} AND state IN ('succeeded', 'failed')",
    prunable_runs: "SELECT id FROM {runs} WHERE id > ? AND state <> 'started' AND finished_at < UTC_TIMESTAMP(6) - INTERVAL ? \
        MICROSECOND ORDER BY id LIMIT ?",
    prune_runs: "DELETE FROM {runs} WHERE {ids} AND state <> 'started'",
};
