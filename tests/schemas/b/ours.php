<?php
/**
 * Sending to receivers on Rowclaim: the handle() of original.php with a claim instead of ->limit(100)->get().
 *
 * withoutOverlapping() may go: any number of these run beside each other, on any number of servers.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

use Rowclaim\{Engine, Table};

function handle(Table $receivers): void
{
    foreach ($receivers->claim(limit: (int) scaled('BATCH', 100), lease: scaled('LEASE', 60)) as $row) {
        send($row['phone']);
        noted($row->complete() ? 'done' : 'refused', $row['phone']);      // processed_at is written by the mapping
    }
}

$engine = Engine::connect(getenv('ROWCLAIM_DSN'));
$receivers = $engine->table(...mapping(__DIR__ . '/receivers.json'));
foreach (wake_ups() as $_) {
    handle($receivers);
}
