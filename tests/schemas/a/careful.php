<?php
/**
 * Bulk sending by hand, done with care: a team that knows the traps, on the same table beside Rowclaim.
 *
 * A batch is taken by one UPDATE that names the state and writes a random token; what is sent is what the token is found
 * on; each send begins with "is it still mine?", each result is written only where the token still stands. The sessions
 * count matched rows: send_at has whole seconds, and a row that is changed to what it was counts as untouched otherwise.
 * It does not take anybody's zombies back, its own neither: that is left to Rowclaim.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

date_default_timezone_set('Asia/Shanghai');

/** Runs a statement again when it was the victim of a deadlock or a lock wait; its affected rows. */
function write(PDO $db, string $sql, array $values): int
{
    for (;;) {
        try {
            $statement = $db->prepare($sql);
            $statement->execute($values);
            return $statement->rowCount();
        } catch (PDOException $e) {
            if (!in_array($e->errorInfo[1] ?? 0, [1020, 1205, 1213], true)) {
                throw $e;
            }
        }
    }
}

function send_batch(PDO $db, int $taskId): void
{
    $token = bin2hex(random_bytes(16));
    $limit = (int) scaled('BATCH', 100);
    write(
        $db,
        "UPDATE xxx_task_target SET status = 1, cron_token = ?, send_at = ?
         WHERE task_id = ? AND status = 0 ORDER BY id LIMIT $limit",
        [$token, date('Y-m-d H:i:s'), $taskId],
    );
    $mine = $db->prepare(
        'SELECT id, openid FROM xxx_task_target WHERE task_id = ? AND cron_token = ? AND status = 1 ORDER BY id'
    );
    $mine->execute([$taskId, $token]);
    $still = 'UPDATE xxx_task_target SET send_at = ? WHERE id = ? AND cron_token = ? AND status = 1';
    $sent = 'UPDATE xxx_task_target SET status = 2, send_at = ? WHERE id = ? AND cron_token = ? AND status = 1';
    foreach ($mine->fetchAll() as $target) {
        if (write($db, $still, [date('Y-m-d H:i:s'), $target['id'], $token]) !== 1) {
            continue;
        }
        send($target['openid']);
        $accepted = write($db, $sent, [date('Y-m-d H:i:s'), $target['id'], $token]) === 1;
        noted($accepted ? 'done' : 'refused', $target['openid']);
    }
}

$db = database(foundRows: true);
foreach (wake_ups() as $_) {
    foreach ($db->query('SELECT id FROM xxx_task WHERE status < 2 ORDER BY RAND()')->fetchAll() as $task) {
        send_batch($db, $task['id']);
    }
}
