<?php
/**
 * Inspections that come again and again, by hand: each node asks every second which jobs are due and runs them.
 *
 * What the team thinks protects it: only jobs with locked = 0 are read, a job is locked before it runs, and lock_node says
 * by whom. A lock older than ten minutes belongs to a dead node and is opened.
 *
 * Where it fails:
 *   1. run_due: the nodes read the same due jobs; the UPDATE names the id only, without locked = 0 and without a look at
 *      the row count. It succeeds for every node, and again for a job that another node has finished meanwhile.
 *   2. open_stale_locks: time proves nothing; the node may only be slow.
 *   3. finish writes by id, with a next_run_time counted from the row that was read: a late node turns the clock back, and
 *      slots that have run are run again.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

date_default_timezone_set('Asia/Shanghai');

function open_stale_locks(PDO $db): void
{
    $stale = date('Y-m-d H:i:s', time() - (int) scaled('STALE_SECONDS', 600));
    $db->prepare('UPDATE inspection_job SET locked = 0, lock_node = NULL WHERE locked = 1 AND lock_time < ?')
        ->execute([$stale]);                                              // FAULT 2
}

function run_due(PDO $db): void
{
    $due = $db->prepare(
        "SELECT * FROM inspection_job WHERE status = 'RUNNING' AND locked = 0 AND next_run_time <= ?
         ORDER BY next_run_time, id LIMIT " . (int) scaled('BATCH', 20)
    );
    $due->execute([date('Y-m-d H:i:s')]);
    $lock = $db->prepare('UPDATE inspection_job SET locked = 1, lock_node = ?, lock_time = ? WHERE id = ?');
    foreach ($due->fetchAll() as $job) {
        $now = (new DateTimeImmutable())->format('Y-m-d H:i:s.u');
        $lock->execute([gethostname() . ':' . getmypid(), $now, $job['id']]);    // FAULT 1
        try {
            $slot = substr($job['next_run_time'], 0, 19);
            send("{$job['id']}@$slot");
            finish($db, $job);
            noted('done', "{$job['id']}@$slot");
        } catch (PDOException $e) {
            throw $e;
        } catch (RuntimeException $e) {
            $db->prepare('UPDATE inspection_job SET locked = 0, retry_count = retry_count + 1, next_run_time = ? WHERE id = ?')
                ->execute([date('Y-m-d H:i:s', time() + $job['retry_interval_seconds']), $job['id']]);
        }
    }
}

function finish(PDO $db, array $job): void
{
    $next = (new DateTimeImmutable($job['next_run_time']))->modify("+{$job['interval_seconds']} seconds");
    $db->prepare(
        'UPDATE inspection_job SET locked = 0, lock_node = NULL, lock_time = NULL, retry_count = 0, next_run_time = ?,
         last_slot = ? WHERE id = ?'
    )->execute([$next->format('Y-m-d H:i:s.v'), $job['next_run_time'], $job['id']]);    // FAULT 3
}

$db = database();
foreach (wake_ups() as $_) {
    open_stale_locks($db);
    run_due($db);
}
