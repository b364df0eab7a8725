<?php

declare(strict_types=1);

/*
 * A minute's work from a crontab or a systemd timer: runs the tasks that are due, then works off what waits.
 *
 * Any number of machines may run it every minute: each slot of a task runs once, and one of them works. The exit status is 0
 * when it worked or another one does. It ends by itself within the minute; SIGTERM ends it after the job in hand.
 */

use Rowclaim\{Engine, Run};

$engine = Engine::connect();                       // rowclaim.dsn of php.ini, or: php -d 'rowclaim.dsn="mysql://…"'
$engine->schedule('nightly-report', '30 2 * * *', 'Asia/Shanghai', missed: 'once', maxRun: 3600);

$runs = $engine->runDue([
    'nightly-report' => function (Run $run): void {
        error_log('the report of ' . date('Y-m-d', (int) $run->slot));
    },
], maxSeconds: 10);
foreach ($runs as $run) {
    printf("%s %s %s\n", $run->task, $run->state, $run->error ?? '');
}

$answer = $engine->runner(require __DIR__ . '/handlers.php', name: 'cron', maxSeconds: 40)->run();
echo $answer->body, "\n";
exit(in_array($answer->status, [200, 409], true) ? 0 : 1);
