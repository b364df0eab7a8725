<?php
/**
 * Inspections on Rowclaim: the nodes of original.php. `locked` is the mapped status: 0 waits, 1 runs, and finishing puts it
 * back to 0 with the next time in the same statement, so a slot is over for all or for nobody.
 *
 * Which slot is meant is counted from last_slot. next_run_time only says when to look next: a retry, and the back-off after
 * a dead node's run, move it.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

use Rowclaim\{Engine, Row, Table};

function run_due(Table $jobs): void
{
    foreach ($jobs->claim(limit: (int) scaled('BATCH', 20), lease: scaled('LEASE', 60)) as $row) {
        $planned = later($row['last_slot'], $row['interval_seconds']);
        $slot = $row->key . '@' . substr($planned, 0, 19);
        try {
            send($slot);
            $error = null;
        } catch (RuntimeException $thrown) {
            $error = $thrown;
        }
        // Outside of the try: a fault of the engine must not look like one of the provider.
        if ($error !== null) {
            $row->fail($error, delay: $row['retry_interval_seconds']);
        } else {
            noted(finish($row, $planned) ? 'done' : 'refused', $slot);
        }
    }
}

/** Slot by slot from the planned time, so that a late run does not move the later ones. */
function finish(Row $row, string $planned): bool
{
    return $row->complete(set: ['next_run_time' => later($planned, $row['interval_seconds']), 'last_slot' => $planned]);
}

function later(string $time, int $seconds): string
{
    return (new DateTimeImmutable($time))->modify("+$seconds seconds")->format('Y-m-d H:i:s.v');
}

$engine = Engine::connect(getenv('ROWCLAIM_DSN'));
$jobs = $engine->table(...mapping(__DIR__ . '/jobs.json'));
foreach (wake_ups() as $_) {
    run_due($jobs);
}
