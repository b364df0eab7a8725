<?php
/**
 * The poller by hand, done with care: a team that knows the traps, on the same table beside Rowclaim.
 *
 * Each job is taken by a guarded UPDATE of its own whose row count decides; locked_by holds a random token; before the send
 * the lock is extended where it is still ours, and the result is written where it is still ours. The sessions count
 * matched rows, since locked_until has whole seconds. It does not take over jobs whose lock is over: Rowclaim does.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

const TYPES = ['express.query', 'refund.query'];

/** Runs a statement again when it was the victim of a deadlock or a lock wait; true when it matched its one row. */
function wrote(PDO $db, string $sql, array $values): bool
{
    for (;;) {
        try {
            $statement = $db->prepare($sql);
            $statement->execute($values);
            return $statement->rowCount() === 1;
        } catch (PDOException $e) {
            if (!in_array($e->errorInfo[1] ?? 0, [1020, 1205, 1213], true)) {
                throw $e;
            }
        }
    }
}

/** @return list<array<string, mixed>> what the guarded update gave us */
function take(PDO $db, string $type, string $token): array
{
    $select = $db->prepare(
        "SELECT * FROM polling_jobs WHERE type = ? AND status = 'pending' AND next_run_at <= ? ORDER BY next_run_at, id LIMIT "
        . (int) scaled('BATCH', 100)
    );
    $select->execute([$type, time()]);
    $guarded = "UPDATE polling_jobs SET status = 'running', locked_by = ?, locked_until = ?, attempts = attempts + 1
        WHERE id = ? AND status = 'pending' AND attempts = ?";
    $until = time() + scaled('STALE_SECONDS', 600);
    return array_filter(
        $select->fetchAll(),
        fn (array $job) => wrote($db, $guarded, [$token, $until, $job['id'], $job['attempts']]),
    );
}

function run(PDO $db, array $job, string $token): void
{
    $mine = "WHERE id = ? AND locked_by = ? AND status = 'running'";
    $until = time() + scaled('STALE_SECONDS', 600);
    if (!wrote($db, "UPDATE polling_jobs SET locked_until = ? $mine", [$until, $job['id'], $token])) {
        return;
    }
    $freed = 'locked_by = NULL, locked_until = NULL';
    $attempts = $job['attempts'] + 1;
    try {
        send($job['business_key']);
        $error = null;
    } catch (RuntimeException $e) {
        $error = $e->getMessage();
    }
    if ($error === null) {
        $set = "status = 'succeeded', $freed, finished_at = ?";
        $done = wrote($db, "UPDATE polling_jobs SET $set $mine", [time(), $job['id'], $token]);
        noted($done ? 'done' : 'refused', $job['business_key']);
    } elseif ($attempts >= $job['max_attempts']) {
        $set = "status = 'failed', $freed, finished_at = ?, last_error = ?";
        wrote($db, "UPDATE polling_jobs SET $set $mine", [time(), $error, $job['id'], $token]);
    } else {
        $wait = min(scaled('BACKOFF_CAP', 3600), scaled('BACKOFF_BASE', 120) * 2 ** ($attempts - 1));
        $set = "status = 'pending', $freed, next_run_at = ?, last_error = ?";
        wrote($db, "UPDATE polling_jobs SET $set $mine", [time() + $wait, $error, $job['id'], $token]);
    }
}

$db = database(foundRows: true);
foreach (wake_ups() as $_) {
    foreach (TYPES as $type) {
        $token = bin2hex(random_bytes(16));
        foreach (take($db, $type, $token) as $job) {
            run($db, $job, $token);
        }
    }
}
