<?php
/**
 * Bulk sending on Rowclaim: the job of original.php, with the same cron, the same 50 seconds and the same --task-id.
 *
 * Two layers of one thing. The task is a claim of one row of xxx_task: one cron run works on a task, however many start.
 * The targets are claims of rows of xxx_task_target: they keep runs by hand apart from cron, which the task's claim
 * cannot. Zombies need no code: a dead run's rows come back when its lease is over, a slow one's lease is renewed.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

use Rowclaim\{Engine, Row, Table};

/** Sends what there is to send, for 50 seconds at most; true when nothing is pending or being sent any more. */
function send_targets(Table $targets, int $taskId): bool
{
    $until = microtime(true) + scaled('WORK_SECONDS', 50);
    $limit = (int) scaled('BATCH', 100);
    do {
        $count = 0;
        foreach ($targets->claim(limit: $limit, where: ['task_id' => $taskId], lease: scaled('LEASE', 60)) as $row) {
            $count++;
            send_one($row);
        }
        if ($count === 0 && !$targets->remaining(where: ['task_id' => $taskId])) {
            return true;
        }
        usleep($count === 0 ? 20_000 : 0);    // another run is still sending: it, or we after its death, will finish
    } while (microtime(true) < $until);
    return false;
}

function send_one(Row $row): void
{
    try {
        send($row['openid']);
        $error = null;
    } catch (RuntimeException $thrown) {
        $error = $thrown;
    }
    // Outside of the try: a fault of the engine must not look like one of the provider.
    if ($error !== null) {
        $row->fail($error);
    } else {
        noted($row->complete() ? 'done' : 'refused', $row['openid']);
    }
}

$options = getopt('', ['task-id:']);
$engine = Engine::connect(getenv('ROWCLAIM_DSN'));
$tasks = $engine->table(...mapping(__DIR__ . '/tasks.json'));
$targets = $engine->table(...mapping(__DIR__ . '/targets.json'));

foreach (wake_ups() as $_) {
    if (isset($options['task-id'])) {
        send_targets($targets, (int) $options['task-id']);    // does not hold the task, so it does not finish it either
        continue;
    }
    foreach ($tasks->claim(limit: 1, lease: scaled('LEASE', 60)) as $task) {
        if (!send_targets($targets, $task['id'])) {
            $task->release();                                 // the next cron run goes on
        } elseif ($task->complete(set: ['finished_count' => $task['finished_count'] + 1])) {
            noted('task_done', $task['id']);
        }
    }
}
