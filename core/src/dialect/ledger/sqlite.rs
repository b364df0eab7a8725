//! The ledger statements for SQLite; see `dialect/sqlite.rs`.

use super::LedgerTexts;
use crate::dialect::sqlite::now;

pub(in crate::dialect) const TEXTS: LedgerTexts = LedgerTexts {
    effect: concat!(
        "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' \
            AND lease_until <= ",
        now!(),
        ", created_at, started_at, finished_at, id FROM {effects} WHERE effect_key = ?"
    ),
    insert_effect: concat!(
        "INSERT INTO {effects} (effect_key, state, digest, owner, holder, attempts, lease_for, lease_until, \
            created_at, started_at) VALUES (?, 'sending', ?, ?, ?, 1, ?, ",
        now!(),
        " + ?, ",
        now!(),
        ", ",
        now!(),
        ")"
    ),
    take_effect: concat!(
        "UPDATE {effects} SET state = 'sending', owner = ?, holder = ?, attempts = attempts + 1, error = NULL, \
            lease_for = ?, lease_until = ",
        now!(),
        " + ?, started_at = ",
        now!(),
        ", finished_at = NULL WHERE effect_key = ? AND attempts = ? AND state = ?"
    ),
    renew_effect: concat!(
        "UPDATE {effects} SET lease_until = ",
        now!(),
        " + lease_for WHERE effect_key = ? AND owner = ? AND state = 'sending'"
    ),
    settle_effect: concat!(
        "UPDATE {effects} SET state = ?, response = ?, error = ?, finished_at = ",
        now!(),
        " WHERE effect_key = ? AND owner = ? AND state IN ('sending', 'unknown')"
    ),
    lapse_effect: concat!(
        "UPDATE {effects} SET state = 'unknown', error = 'the sender was lost', finished_at = ",
        now!(),
        " WHERE effect_key = ? AND state = 'sending' AND lease_until <= ",
        now!()
    ),
    lapsed_effects: concat!(
        "SELECT effect_key FROM {effects} INDEXED BY {effect_state} WHERE state = 'sending' AND lease_until <= ",
        now!(),
        " ORDER BY id LIMIT ?"
    ),
    resolve_effect: concat!(
        "UPDATE {effects} SET state = ?, response = ?, error = ?, owner = NULL, finished_at = ",
        now!(),
        " WHERE effect_key = ? AND (state = 'unknown' OR (state = 'sending' AND lease_until <= ",
        now!(),
        "))"
    ),
    list_effects: concat!(
        "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' \
            AND lease_until <= ",
        now!(),
        ", created_at, started_at, finished_at, id FROM {effects} WHERE id < ? ORDER BY id DESC LIMIT ?"
    ),
    list_effects_of_state: concat!(
        "SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' \
            AND lease_until <= ",
        now!(),
        ", created_at, started_at, finished_at, id FROM {effects} INDEXED BY {effect_state} WHERE state = ? AND id \
            < ? ORDER BY id DESC LIMIT ?"
    ),
    run_of_slot: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE task = ? AND slot = ? AND rerun = ?",
    reruns: "SELECT COALESCE(MAX(rerun), -1) FROM {runs} WHERE task = ? AND slot = ?",
    // By the index on task and slot: the rows of one slot, of which there are many only where people ran it again.
    run_of_token: "SELECT id, fence FROM {runs} WHERE task = ? AND slot = ? AND token = ?",
    insert_run: concat!(
        "INSERT INTO {runs} (task, slot, rerun, is_manual, state, token, fence, worker, created_at) VALUES (?, ?, \
            ?, ?, 'started', ?, ?, ?, ",
        now!(),
        ")"
    ),
    insert_skipped: concat!(
        "INSERT INTO {runs} (task, slot, rerun, is_manual, state, reason, worker, created_at, finished_at) VALUES \
            (?, ?, ?, ?, 'skipped', ?, ?, ",
        now!(),
        ", ",
        now!(),
        ")"
    ),
    insert_skipped_once: concat!(
        "INSERT INTO {runs} (task, slot, state, reason, slots, worker, created_at, finished_at) SELECT ?, ?, \
            'skipped', ?, ?, ?, ",
        now!(),
        ", ",
        now!(),
        " WHERE NOT EXISTS (SELECT 1 FROM {runs} WHERE task = ? AND slot = ? AND rerun = 0)"
    ),
    finish_run: concat!(
        "UPDATE {runs} SET state = ?, error = ?, finished_at = ",
        now!(),
        " WHERE id = ? AND token = ? AND state = 'started'"
    ),
    lose_earlier_runs: concat!(
        "UPDATE {runs} SET state = 'lost', error = 'lease expired', finished_at = ",
        now!(),
        " WHERE state = 'started' AND task = ? AND fence < ?"
    ),
    lapsed_runs: concat!(
        "SELECT r.id FROM {runs} r LEFT JOIN {leases} l ON l.name = 'run:' || r.task WHERE r.state = 'started' AND \
            (l.fence <> r.fence OR l.lease_until <= ",
        now!(),
        " OR (l.name IS NULL AND r.created_at < ",
        now!(),
        " - 86400000000)) ORDER BY r.id LIMIT ?"
    ),
    lose_run: concat!(
        "UPDATE {runs} SET state = 'lost', error = 'lease expired', finished_at = ",
        now!(),
        " WHERE id = ? AND state = 'started' AND NOT EXISTS (SELECT 1 FROM {leases} l WHERE l.name = 'run:' || \
            {runs}.task AND l.fence = {runs}.fence AND l.lease_until > ",
        now!(),
        ")"
    ),
    run: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE id = ?",
    list_runs: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE id < ? AND (? IS NULL OR task = ?) AND (? IS NULL OR state = ?) ORDER BY id \
        DESC LIMIT ?",
    last_run: "SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, \
        error FROM {runs} WHERE task = ? AND state <> 'skipped' ORDER BY slot DESC, rerun DESC LIMIT 1",
    lock_schedule: concat!(
        "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
            asked_at, ",
        now!(),
        " FROM {schedules} WHERE task = ?"
    ),
    schedule: concat!(
        "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
            asked_at, ",
        now!(),
        " FROM {schedules} WHERE task = ?"
    ),
    insert_schedule: concat!(
        "INSERT INTO {schedules} (cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, task, \
            accounted_until, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ",
        now!(),
        ", ",
        now!(),
        ")"
    ),
    change_schedule: concat!(
        "UPDATE {schedules} SET accounted_until = CASE WHEN cron = ? AND zone = ? THEN accounted_until ELSE ",
        now!(),
        " END, cron = ?, zone = ?, missed = ?, cap = ?, catch_up_for = ?, grace = ?, lease_for = ?, max_run = ?, \
            updated_at = ",
        now!(),
        " WHERE task = ?"
    ),
    delete_schedule: "DELETE FROM {schedules} WHERE task = ?",
    list_schedules: concat!(
        "SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, \
            asked_at, ",
        now!(),
        " FROM {schedules} ORDER BY task LIMIT ?"
    ),
    account_schedule: "UPDATE {schedules} SET accounted_until = ? WHERE task = ? AND accounted_until < ?",
    ask_schedule: concat!("UPDATE {schedules} SET asked_at = ", now!(), " WHERE task = ?"),
    clear_asked: "UPDATE {schedules} SET asked_at = NULL WHERE task = ? AND asked_at = ?",
    pause_schedule: concat!("UPDATE {schedules} SET paused_at = ", now!(), " WHERE task = ? AND paused_at IS NULL"),
    resume_schedule: "UPDATE {schedules} SET paused_at = NULL WHERE task = ? AND paused_at IS NOT NULL",

    reserve: concat!(
        "UPDATE {limits} SET next_at = MAX(next_at, ",
        now!(),
        ") + ? WHERE name = ? AND next_at <= ",
        now!(),
        " + ?"
    ),
    reserved: concat!("SELECT next_at - ", now!(), " FROM {limits} WHERE name = ?"),
    insert_limit: concat!("INSERT INTO {limits} (name, next_at) VALUES (?, ", now!(), " + ?)"),

    prunable_effects: concat!(
        "SELECT id FROM {effects} WHERE id > ? AND state IN ('succeeded', 'failed') AND finished_at < ",
        now!(),
        " - ? ORDER BY id LIMIT ?"
    ),
    prune_effects: "DELETE FROM {effects} WHERE {ids} AND state IN ('succeeded', 'failed')",
    prunable_runs: concat!(
        "SELECT id FROM {runs} WHERE id > ? AND state <> 'started' AND finished_at < ",
        now!(),
        " - ? ORDER BY id LIMIT ?"
    ),
    prune_runs: "DELETE FROM {runs} WHERE {ids} AND state <> 'started'",
};
