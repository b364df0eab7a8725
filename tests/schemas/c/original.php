<?php
/**
 * The poller, as a ThinkPHP command (Db::name('polling_jobs')… is written out in SQL). One process per type was the plan;
 * today supervisor runs eight of them.
 *
 * What the team thinks protects it: locked_by and locked_until. A job that runs is locked for some minutes, a job whose
 * lock is over may be taken by others, and everybody signs with host:pid.
 *
 * Where it fails:
 *   1. take: between the SELECT and the UPDATE others read the same jobs. The UPDATE names ids only, the last one to write
 *      is "locked_by", and all of them run what they have read. (attempts goes up once for each of them, too.)
 *   2. Taking a job over asks the time only, and nobody extends locked_until: a slow owner is not a dead one.
 *   3. finish: the result is written by id, whoever owns the job by now.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

const TYPES = ['express.query', 'refund.query'];

/** @return list<array<string, mixed>> */
function take(PDO $db, string $type): array
{
    $limit = (int) scaled('BATCH', 100);
    $now = time();
    $select = $db->prepare(
        "SELECT * FROM polling_jobs WHERE type = ? AND next_run_at <= ?
         AND (status = 'pending' OR (status = 'running' AND locked_until < ?)) ORDER BY next_run_at, id LIMIT $limit"
    );                                                                    // FAULT 2
    $select->execute([$type, $now, $now]);
    $jobs = $select->fetchAll();
    if ($jobs) {
        $ids = implode(',', array_column($jobs, 'id'));
        $db->prepare(
            "UPDATE polling_jobs SET status = 'running', locked_by = ?, locked_until = ?, attempts = attempts + 1
             WHERE id IN ($ids)"
        )->execute([gethostname() . ':' . getmypid(), $now + scaled('STALE_SECONDS', 600)]);    // FAULT 1
    }
    return $jobs;
}

function finish(PDO $db, array $job, ?string $error): void
{
    $attempts = $job['attempts'] + 1;
    $freed = 'locked_by = NULL, locked_until = NULL';
    if ($error === null) {
        $db->prepare("UPDATE polling_jobs SET status = 'succeeded', $freed, finished_at = ? WHERE id = ?")
            ->execute([time(), $job['id']]);                              // FAULT 3
        noted('done', $job['business_key']);
    } elseif ($attempts >= $job['max_attempts']) {
        $db->prepare("UPDATE polling_jobs SET status = 'failed', $freed, finished_at = ?, last_error = ? WHERE id = ?")
            ->execute([time(), $error, $job['id']]);
    } else {
        $wait = min(scaled('BACKOFF_CAP', 3600), scaled('BACKOFF_BASE', 120) * 2 ** ($attempts - 1));   // 2, 4, 8 … minutes
        $db->prepare("UPDATE polling_jobs SET status = 'pending', $freed, next_run_at = ?, last_error = ? WHERE id = ?")
            ->execute([time() + $wait, $error, $job['id']]);
    }
}

$db = database();
foreach (wake_ups() as $_) {
    foreach (TYPES as $type) {
        foreach (take($db, $type) as $job) {
            try {
                send($job['business_key']);
                $error = null;
            } catch (RuntimeException $e) {
                $error = $e->getMessage();
            }
            finish($db, $job, $error);
        }
    }
}
