-- probe_skip_locked
SELECT 1

-- next_queue
SELECT queue FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue > ? ORDER BY queue LIMIT 1

-- next_priority
SELECT priority FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority > ? ORDER BY priority LIMIT 1

-- pick
SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND ready_at BETWEEN ? AND MIN(?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) ORDER BY ready_at, id LIMIT ?

-- pick_after
SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND (ready_at, id) > (?, ?) AND ready_at >= ? AND ready_at <= MIN(?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) ORDER BY ready_at, id LIMIT ?

-- pick_ids
SELECT id, ready_at, attempts, max_attempts FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND ready_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AND id % ? = ? ORDER BY ready_at, id LIMIT ?

-- lock_ids
SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at FROM "rowclaim_jobs" WHERE {ids} AND state = 'ready' AND ready_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 ORDER BY id

-- insert_claim
INSERT INTO "rowclaim_claims" (token, source, worker, claimed_at, lease_for, lease_until, max_until, job_count, job_ids, table_id, on_lost) VALUES (?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, ?, ?, ?, ?)

-- mark
UPDATE "rowclaim_jobs" SET state = 'claimed', ready_at = NULL, claim_id = ?, attempts = attempts + 1, fence = fence + 1, unique_key = IIF(key_life = 'until_claimed', NULL, unique_key) WHERE {ids} AND state = 'ready' AND ready_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- exhaust
UPDATE "rowclaim_jobs" SET state = 'dead', ready_at = NULL, last_error = 'no attempts left', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND state = 'ready' AND attempts >= max_attempts

-- bury
UPDATE "rowclaim_jobs" SET state = 'dead', ready_at = NULL, last_error = 'the payload or the key is not UTF-8', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND state = 'ready'

-- claim_by_token
SELECT id, job_ids FROM "rowclaim_claims" WHERE token = ? AND state = 'open'

-- claimed
SELECT id, ready_at, job_key, payload, attempts, max_attempts, fence, lost, created_at, queue, priority FROM "rowclaim_jobs" WHERE {ids} AND claim_id = ? AND state = 'claimed' ORDER BY id

-- start
INSERT INTO "rowclaim_attempts" (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, row_key, claim_id) SELECT ?, ?, 'started', 0, worker, claimed_at, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, NULL, ?, id FROM "rowclaim_claims" WHERE id = ? AND state = 'open'

-- complete
UPDATE "rowclaim_jobs" SET state = 'done', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- fail_back
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, last_error = ? WHERE id = ? AND claim_id = ? AND state = 'claimed'

-- fail_dead
UPDATE "rowclaim_jobs" SET state = 'dead', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, last_error = ?, unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE id = ? AND claim_id = ? AND state = 'claimed'

-- release
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, attempts = attempts - 1 WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- insert_attempts
INSERT INTO "rowclaim_attempts" (job_id, fence, outcome, final, worker, claimed_at, ended_at, error, claim_id, row_key) VALUES {rows}

-- insert_attempts_row
(?,?,?,?,?,(SELECT claimed_at FROM "rowclaim_claims" WHERE id = ?),CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,?,?,?)

-- inspect
SELECT id, state, claim_id FROM "rowclaim_jobs" WHERE {ids}

-- outcome_of
SELECT outcome FROM "rowclaim_attempts" WHERE job_id = ? AND fence = ? AND outcome <> 'started' ORDER BY id DESC LIMIT 1

-- close_claims
UPDATE "rowclaim_claims" SET state = 'closed', closed_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE {ids} AND state = 'open'

-- renew
UPDATE "rowclaim_claims" SET lease_until = MIN(CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + lease_for, COALESCE(max_until, 9223372036854775807)) WHERE {ids} AND state = 'open' AND (max_until IS NULL OR max_until > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- renewable
SELECT id FROM "rowclaim_claims" WHERE {ids} AND state = 'open' AND (max_until IS NULL OR max_until > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- expired
SELECT id, job_ids, worker, table_id, token, on_lost FROM "rowclaim_claims" INDEXED BY "rowclaim_claims_lease" WHERE state = 'open' AND lease_until < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 ORDER BY lease_until LIMIT ?

-- expire
UPDATE "rowclaim_claims" SET state = 'expired', closed_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE id = ? AND state = 'open' AND lease_until < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- lost_jobs
SELECT id, attempts, max_attempts, fence FROM "rowclaim_jobs" WHERE {ids} AND claim_id = ? AND state = 'claimed' ORDER BY id

-- lost_back
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, claim_id = NULL, lost = lost + 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- lost_dead
UPDATE "rowclaim_jobs" SET state = 'dead', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, claim_id = NULL, lost = lost + 1, last_error = 'lease expired', unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- started
SELECT job_id, row_key FROM "rowclaim_attempts" WHERE claim_id = ? AND outcome = 'started'

-- lost_held
UPDATE "rowclaim_jobs" SET state = 'held', claim_id = NULL, lost = lost + 1, last_error = 'lease expired after it was started' WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- lost_unbegun
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, claim_id = NULL, lost = lost + 1, attempts = attempts - 1, last_error = 'lease expired' WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- look
SELECT unique_key, id, state, unique_until IS NOT NULL AND unique_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_jobs" WHERE queue = ? AND unique_key IN ({list})

-- free_timed
UPDATE "rowclaim_jobs" SET unique_key = NULL WHERE {ids} AND key_life = 'timed' AND unique_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- insert_jobs
INSERT INTO "rowclaim_jobs" (queue, job_key, unique_key, key_life, unique_until, priority, payload, ready_at, max_attempts, create_token, created_at) VALUES {rows}

-- insert_jobs_row
(?,?,?,?,CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?,?,?,COALESCE(?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?),?,?,CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- made_in_row
SELECT COUNT(*) FROM "rowclaim_jobs" WHERE id BETWEEN ? AND ? AND create_token = ?

-- made
SELECT id FROM "rowclaim_jobs" WHERE id >= ? AND create_token = ? ORDER BY id LIMIT ?

-- made_before_loss
SELECT id FROM "rowclaim_jobs" WHERE id > (SELECT MAX(id) FROM "rowclaim_jobs") - 100000 AND create_token = ? ORDER BY id

-- plan_create
INSERT INTO "rowclaim_jobs" (queue, job_key, unique_key, key_life, priority, payload, ready_at, max_attempts, created_at) VALUES (?, ?, ?, ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) ON CONFLICT (queue, unique_key) DO NOTHING

-- job
SELECT id, queue, job_key, priority, state, payload, attempts, max_attempts, lost, fence, ready_at, created_at, finished_at, last_error, claim_id FROM "rowclaim_jobs" WHERE id = ?

-- list_jobs
SELECT id, queue, job_key, priority, state, payload, attempts, max_attempts, lost, fence, ready_at, created_at, finished_at, last_error, claim_id FROM "rowclaim_jobs" WHERE id < ? AND (? IS NULL OR queue = ?) AND (? IS NULL OR state = ?) ORDER BY id DESC LIMIT ?

-- list_dead
SELECT DISTINCT j.id, j.queue, j.job_key, j.priority, j.state, j.payload, j.attempts, j.max_attempts, j.lost, j.fence, j.ready_at, j.created_at, j.finished_at, j.last_error, j.claim_id FROM "rowclaim_attempts" a JOIN "rowclaim_jobs" j ON j.id = a.job_id AND j.state = 'dead' WHERE a.final = 1 AND j.id < ? AND (? IS NULL OR j.queue = ?) ORDER BY j.id DESC LIMIT ?

-- list_held
SELECT DISTINCT j.id, j.queue, j.job_key, j.priority, j.state, j.payload, j.attempts, j.max_attempts, j.lost, j.fence, j.ready_at, j.created_at, j.finished_at, j.last_error, j.claim_id FROM "rowclaim_attempts" a JOIN "rowclaim_jobs" j ON j.id = a.job_id AND j.state = 'held' WHERE a.final = 2 AND j.id < ? AND (? IS NULL OR j.queue = ?) ORDER BY j.id DESC LIMIT ?

-- retry_dead
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, attempts = 0, finished_at = NULL, claim_id = NULL, fence = fence + 1, unique_key = IIF(key_life = 'active', job_key, unique_key) WHERE id = ? AND state = 'dead'

-- retry_claimed
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, claim_id = NULL, fence = fence + 1 WHERE id = ? AND state = 'claimed'

-- cancel
UPDATE "rowclaim_jobs" SET state = 'cancelled', ready_at = NULL, finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, unique_key = IIF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state IN ('ready', 'dead', 'held')

-- cancel_claimed
UPDATE "rowclaim_jobs" SET state = 'cancelled', ready_at = NULL, finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, claim_id = NULL, fence = fence + 1, unique_key = IIF(key_life = 'forever', unique_key, NULL) WHERE id = ? AND state = 'claimed'

-- held_jobs
SELECT id FROM "rowclaim_jobs" WHERE {ids} AND state = 'held' ORDER BY id

-- resolve_sent
UPDATE "rowclaim_jobs" SET state = 'done', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, unique_key = IIF(key_life = 'active', NULL, unique_key) WHERE {ids} AND state = 'held'

-- resolve_unsent
UPDATE "rowclaim_jobs" SET state = 'ready', ready_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, attempts = MIN(attempts, max_attempts) - 1 WHERE {ids} AND state = 'held'

-- list_attempts
SELECT fence, outcome, final, worker, claimed_at, ended_at, error FROM "rowclaim_attempts" WHERE job_id = ? AND outcome <> 'started' ORDER BY id LIMIT ?

-- outcome_of_row
SELECT outcome FROM "rowclaim_attempts" WHERE claim_id = ? AND row_key = ? AND outcome <> 'started' ORDER BY id DESC LIMIT 1

-- find_table
SELECT id FROM "rowclaim_tables" WHERE digest = ?

-- insert_table
INSERT INTO "rowclaim_tables" (digest, name, mapping, created_at) VALUES (?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- table_by_id
SELECT name, mapping FROM "rowclaim_tables" WHERE id = ?

-- list_tables
SELECT id, name, mapping, created_at FROM "rowclaim_tables" ORDER BY name, id

-- open_tokens
SELECT token FROM "rowclaim_claims" WHERE token IN ({list}) AND state = 'open'

-- postpone
UPDATE "rowclaim_claims" SET lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + 60000000 WHERE id = ? AND state = 'open' AND lease_until < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- claim
SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost FROM "rowclaim_claims" WHERE id = ? OR token = ?

-- list_claims
SELECT id, token, source, worker, claimed_at, lease_until, max_until, state, closed_at, job_count, job_ids, table_id, on_lost FROM "rowclaim_claims" WHERE id < ? AND (? IS NULL OR state = ?) AND (? IS NULL OR source = ?) ORDER BY id DESC LIMIT ?

-- end_claim
UPDATE "rowclaim_claims" SET lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - 1000 WHERE id = ? AND state = 'open'

-- attempts_of_claim
SELECT job_id, row_key, fence, outcome, final, ended_at, error FROM "rowclaim_attempts" WHERE claim_id = ? AND outcome <> 'started' ORDER BY id LIMIT ?

-- take_lease
UPDATE "rowclaim_leases" SET owner = ?, holder = ?, fence = fence + 1, acquired_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, lease_for = ?, lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ? WHERE name = ? AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- first_lease
INSERT INTO "rowclaim_leases" (owner, holder, fence, acquired_at, lease_for, lease_until, name) VALUES (?, ?, (CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) / 1000, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, ?)

-- lease
SELECT owner, holder, fence, lease_until, lease_until > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_leases" WHERE name = ?

-- renew_lease
UPDATE "rowclaim_leases" SET lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + lease_for WHERE name = ? AND owner = ? AND fence = ?

-- restore_lease
INSERT INTO "rowclaim_leases" (name, owner, fence, holder, acquired_at, lease_for, lease_until) VALUES (?, ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?)

-- release_lease
UPDATE "rowclaim_leases" SET owner = NULL, lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE name = ? AND owner = ? AND fence = ?

-- list_leases
SELECT name, holder, fence, acquired_at, lease_until, owner IS NOT NULL AND lease_until > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_leases" ORDER BY name LIMIT ?

-- count_due
SELECT COUNT(*) FROM (SELECT 1 FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND ready_at BETWEEN 0 AND CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 LIMIT ?) c

-- count_delayed
SELECT COUNT(*) FROM (SELECT 1 FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND ready_at > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 LIMIT ?) c

-- oldest_due
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ready_at FROM "rowclaim_jobs" INDEXED BY "rowclaim_jobs_pick" WHERE queue = ? AND priority = ? AND ready_at BETWEEN 0 AND CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 ORDER BY ready_at LIMIT 1

-- open_claims
SELECT id, job_ids, source, table_id, lease_until - CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_claims" INDEXED BY "rowclaim_claims_lease" WHERE state = 'open' LIMIT ?

-- count_claimed
SELECT COUNT(*) FROM "rowclaim_jobs" WHERE {ids} AND claim_id = ? AND state = 'claimed'

-- count_dead
SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM "rowclaim_attempts" a JOIN "rowclaim_jobs" j ON j.id = a.job_id AND j.state = 'dead' WHERE a.final = 1 AND j.queue = ? LIMIT ?) c

-- count_held
SELECT COUNT(*) FROM (SELECT DISTINCT j.id FROM "rowclaim_attempts" a JOIN "rowclaim_jobs" j ON j.id = a.job_id AND j.state = 'held' WHERE a.final = 2 AND j.queue = ? LIMIT ?) c

-- count_exact
SELECT queue, state, COUNT(*) FROM "rowclaim_jobs" GROUP BY queue, state ORDER BY queue, state

-- prunable_jobs
SELECT id FROM "rowclaim_jobs" WHERE id > ? AND state IN ('done', 'dead', 'cancelled') AND finished_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ? ORDER BY id LIMIT ?

-- prune_jobs
DELETE FROM "rowclaim_jobs" WHERE {ids} AND state IN ('done', 'dead', 'cancelled')

-- prunable_claims
SELECT id FROM "rowclaim_claims" WHERE id > ? AND state <> 'open' AND closed_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ? ORDER BY id LIMIT ?

-- prune_claims
DELETE FROM "rowclaim_claims" WHERE {ids} AND state <> 'open'

-- prunable_attempts
SELECT a.id FROM "rowclaim_attempts" a LEFT JOIN "rowclaim_jobs" j ON j.id = a.job_id LEFT JOIN "rowclaim_claims" c ON c.id = a.claim_id AND c.state = 'open' AND a.outcome = 'started' WHERE a.id > ? AND a.ended_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ? AND j.id IS NULL AND c.id IS NULL ORDER BY a.id LIMIT ?

-- prune_attempts
DELETE FROM "rowclaim_attempts" WHERE {ids}

-- effect
SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, created_at, started_at, finished_at, id FROM "rowclaim_effects" WHERE effect_key = ?

-- insert_effect
INSERT INTO "rowclaim_effects" (effect_key, state, digest, owner, holder, attempts, lease_for, lease_until, created_at, started_at) VALUES (?, 'sending', ?, ?, ?, 1, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- take_effect
UPDATE "rowclaim_effects" SET state = 'sending', owner = ?, holder = ?, attempts = attempts + 1, error = NULL, lease_for = ?, lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?, started_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, finished_at = NULL WHERE effect_key = ? AND attempts = ? AND state = ?

-- renew_effect
UPDATE "rowclaim_effects" SET lease_until = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + lease_for WHERE effect_key = ? AND owner = ? AND state = 'sending'

-- settle_effect
UPDATE "rowclaim_effects" SET state = ?, response = ?, error = ?, finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE effect_key = ? AND owner = ? AND state IN ('sending', 'unknown')

-- lapse_effect
UPDATE "rowclaim_effects" SET state = 'unknown', error = 'the sender was lost', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE effect_key = ? AND state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000

-- lapsed_effects
SELECT effect_key FROM "rowclaim_effects" INDEXED BY "rowclaim_effects_state" WHERE state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 ORDER BY id LIMIT ?

-- resolve_effect
UPDATE "rowclaim_effects" SET state = ?, response = ?, error = ?, owner = NULL, finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE effect_key = ? AND (state = 'unknown' OR (state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000))

-- list_effects
SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, created_at, started_at, finished_at, id FROM "rowclaim_effects" WHERE id < ? ORDER BY id DESC LIMIT ?

-- list_effects_of_state
SELECT effect_key, state, digest, owner, holder, attempts, response, error, lease_until, state = 'sending' AND lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, created_at, started_at, finished_at, id FROM "rowclaim_effects" INDEXED BY "rowclaim_effects_state" WHERE state = ? AND id < ? ORDER BY id DESC LIMIT ?

-- run_of_slot
SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, error FROM "rowclaim_runs" WHERE task = ? AND slot = ? AND rerun = ?

-- reruns
SELECT COALESCE(MAX(rerun), -1) FROM "rowclaim_runs" WHERE task = ? AND slot = ?

-- run_of_token
SELECT id, fence FROM "rowclaim_runs" WHERE task = ? AND slot = ? AND token = ?

-- insert_run
INSERT INTO "rowclaim_runs" (task, slot, rerun, is_manual, state, token, fence, worker, created_at) VALUES (?, ?, ?, ?, 'started', ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- insert_skipped
INSERT INTO "rowclaim_runs" (task, slot, rerun, is_manual, state, reason, worker, created_at, finished_at) VALUES (?, ?, ?, ?, 'skipped', ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- insert_skipped_once
INSERT INTO "rowclaim_runs" (task, slot, state, reason, slots, worker, created_at, finished_at) SELECT ?, ?, 'skipped', ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE NOT EXISTS (SELECT 1 FROM "rowclaim_runs" WHERE task = ? AND slot = ? AND rerun = 0)

-- finish_run
UPDATE "rowclaim_runs" SET state = ?, error = ?, finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE id = ? AND token = ? AND state = 'started'

-- lose_earlier_runs
UPDATE "rowclaim_runs" SET state = 'lost', error = 'lease expired', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE state = 'started' AND task = ? AND fence < ?

-- lapsed_runs
SELECT r.id FROM "rowclaim_runs" r LEFT JOIN "rowclaim_leases" l ON l.name = 'run:' || r.task WHERE r.state = 'started' AND (l.fence <> r.fence OR l.lease_until <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 OR (l.name IS NULL AND r.created_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - 86400000000)) ORDER BY r.id LIMIT ?

-- lose_run
UPDATE "rowclaim_runs" SET state = 'lost', error = 'lease expired', finished_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE id = ? AND state = 'started' AND NOT EXISTS (SELECT 1 FROM "rowclaim_leases" l WHERE l.name = 'run:' || "rowclaim_runs".task AND l.fence = "rowclaim_runs".fence AND l.lease_until > CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- run
SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, error FROM "rowclaim_runs" WHERE id = ?

-- list_runs
SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, error FROM "rowclaim_runs" WHERE id < ? AND (? IS NULL OR task = ?) AND (? IS NULL OR state = ?) ORDER BY id DESC LIMIT ?

-- last_run
SELECT id, task, slot, rerun, is_manual, state, reason, slots, token, fence, worker, created_at, finished_at, error FROM "rowclaim_runs" WHERE task = ? AND state <> 'skipped' ORDER BY slot DESC, rerun DESC LIMIT 1

-- lock_schedule
SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, asked_at, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_schedules" WHERE task = ?

-- schedule
SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, asked_at, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_schedules" WHERE task = ?

-- insert_schedule
INSERT INTO "rowclaim_schedules" (cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, task, accounted_until, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)

-- change_schedule
UPDATE "rowclaim_schedules" SET accounted_until = CASE WHEN cron = ? AND zone = ? THEN accounted_until ELSE CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 END, cron = ?, zone = ?, missed = ?, cap = ?, catch_up_for = ?, grace = ?, lease_for = ?, max_run = ?, updated_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE task = ?

-- delete_schedule
DELETE FROM "rowclaim_schedules" WHERE task = ?

-- list_schedules
SELECT task, cron, zone, missed, cap, catch_up_for, grace, lease_for, max_run, accounted_until, paused_at, asked_at, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_schedules" ORDER BY task LIMIT ?

-- account_schedule
UPDATE "rowclaim_schedules" SET accounted_until = ? WHERE task = ? AND accounted_until < ?

-- ask_schedule
UPDATE "rowclaim_schedules" SET asked_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE task = ?

-- clear_asked
UPDATE "rowclaim_schedules" SET asked_at = NULL WHERE task = ? AND asked_at = ?

-- pause_schedule
UPDATE "rowclaim_schedules" SET paused_at = CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 WHERE task = ? AND paused_at IS NULL

-- resume_schedule
UPDATE "rowclaim_schedules" SET paused_at = NULL WHERE task = ? AND paused_at IS NOT NULL

-- reserve
UPDATE "rowclaim_limits" SET next_at = MAX(next_at, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) + ? WHERE name = ? AND next_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?

-- reserved
SELECT next_at - CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 FROM "rowclaim_limits" WHERE name = ?

-- insert_limit
INSERT INTO "rowclaim_limits" (name, next_at) VALUES (?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 + ?)

-- prunable_effects
SELECT id FROM "rowclaim_effects" WHERE id > ? AND state IN ('succeeded', 'failed') AND finished_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ? ORDER BY id LIMIT ?

-- prune_effects
DELETE FROM "rowclaim_effects" WHERE {ids} AND state IN ('succeeded', 'failed')

-- prunable_runs
SELECT id FROM "rowclaim_runs" WHERE id > ? AND state <> 'started' AND finished_at < CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 - ? ORDER BY id LIMIT ?

-- prune_runs
DELETE FROM "rowclaim_runs" WHERE {ids} AND state <> 'started'

