<?php
/**
 * Bulk sending by hand. Cron starts it every minute; it works for 50 seconds, and the next start goes on. Support starts
 * it beside cron with --task-id=42 when a customer is in a hurry; that run does not ask for the task lock.
 *
 * What the team thinks protects it: a task is locked by lock_at, and who finds its own time in there has the lock; a
 * batch of targets gets status 1 and a cron_token before the first send; zombies come back after ten minutes.
 *
 * Where it fails:
 *   1. lock_task: lock_at has whole seconds. Cron starts all servers in the same one, and each finds "its" time.
 *   2. send_batch: the targets are read first and marked afterwards, by id, and sent from the list that was read. Who
 *      read the same list between the two sends it too. The token is written and never asked for.
 *   3. reset_zombies: time proves nothing. The owner may only be slow, and goes on when its targets are somebody else's.
 *   4. Unlocking and finishing name the task's id only, so anybody's late write counts.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

date_default_timezone_set('Asia/Shanghai');

function lock_task(PDO $db): ?int
{
    $stale = date('Y-m-d H:i:s', time() - (int) scaled('STALE_SECONDS', 600));
    $find = $db->prepare(
        'SELECT id FROM xxx_task WHERE status IN (0, 1) AND (lock_at IS NULL OR lock_at < ?) ORDER BY id LIMIT 1'
    );
    $find->execute([$stale]);
    $id = $find->fetchColumn();
    if ($id === false) {
        return null;
    }
    $now = date('Y-m-d H:i:s');
    $db->prepare('UPDATE xxx_task SET lock_at = ?, status = 1 WHERE id = ? AND (lock_at IS NULL OR lock_at < ?)')
        ->execute([$now, $id, $stale]);
    // rowCount() was 0 now and then although we had the lock, so look what is in there.
    $check = $db->prepare('SELECT lock_at FROM xxx_task WHERE id = ?');
    $check->execute([$id]);
    return $check->fetchColumn() === $now ? $id : null;                   // FAULT 1
}

function reset_zombies(PDO $db, int $taskId): void
{
    $stale = date('Y-m-d H:i:s', time() - (int) scaled('STALE_SECONDS', 600));
    $db->prepare('UPDATE xxx_task_target SET status = 0, cron_token = NULL WHERE task_id = ? AND status = 1 AND send_at < ?')
        ->execute([$taskId, $stale]);                                     // FAULT 3
}

/** Sends a batch; how many there were. */
function send_batch(PDO $db, int $taskId): int
{
    $read = $db->prepare('SELECT id, openid FROM xxx_task_target WHERE task_id = ? AND status = 0 ORDER BY id LIMIT '
        . (int) scaled('BATCH', 100));
    $read->execute([$taskId]);
    $targets = $read->fetchAll();
    if (!$targets) {
        return 0;
    }
    $ids = implode(',', array_column($targets, 'id'));
    $db->prepare("UPDATE xxx_task_target SET status = 1, cron_token = ?, send_at = ? WHERE id IN ($ids)")
        ->execute([md5(uniqid('', true)), date('Y-m-d H:i:s')]);          // FAULT 2

    $sent = $db->prepare('UPDATE xxx_task_target SET status = 2, send_at = ? WHERE id = ?');
    $failed = $db->prepare('UPDATE xxx_task_target SET status = 3, send_at = ? WHERE id = ?');
    foreach ($targets as $target) {
        try {
            send($target['openid']);
            $sent->execute([date('Y-m-d H:i:s'), $target['id']]);
            noted('done', $target['openid']);
        } catch (RuntimeException $e) {
            if ($e instanceof PDOException) {
                throw $e;
            }
            $failed->execute([date('Y-m-d H:i:s'), $target['id']]);
        }
    }
    return count($targets);
}

function finish_or_unlock(PDO $db, int $taskId, bool $locked): void
{
    $left = $db->prepare('SELECT COUNT(*) FROM xxx_task_target WHERE task_id = ? AND status IN (0, 1)');
    $left->execute([$taskId]);
    if ($left->fetchColumn() === 0) {
        $db->prepare('UPDATE xxx_task SET status = 2, lock_at = NULL, finished_count = finished_count + 1 WHERE id = ?')
            ->execute([$taskId]);                                         // FAULT 4
        noted('task_done', $taskId);
    } elseif ($locked) {
        $db->prepare('UPDATE xxx_task SET lock_at = NULL WHERE id = ?')->execute([$taskId]);
    }
}

function wake_up(PDO $db, ?int $byHand): void
{
    $taskId = $byHand ?? lock_task($db);
    if ($taskId === null) {
        return;
    }
    $status = $db->prepare('SELECT status FROM xxx_task WHERE id = ?');
    $status->execute([$taskId]);
    if ($status->fetchColumn() === 2) {
        return;
    }
    $until = microtime(true) + scaled('WORK_SECONDS', 50);
    do {
        reset_zombies($db, $taskId);
        $count = send_batch($db, $taskId);
    } while ($count > 0 && microtime(true) < $until);
    finish_or_unlock($db, $taskId, $byHand === null);
}

$options = getopt('', ['task-id:']);
$byHand = isset($options['task-id']) ? (int) $options['task-id'] : null;
$db = database();
foreach (wake_ups() as $_) {
    wake_up($db, $byHand);
}
