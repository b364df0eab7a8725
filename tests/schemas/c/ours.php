<?php
/**
 * The poller on Rowclaim: the job of original.php. The back-off, the limit of attempts and the columns are in jobs.json;
 * locked_by holds the claim's token instead of host:pid.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

use Rowclaim\{Engine, Table};

const TYPES = ['express.query', 'refund.query'];

function poll(Table $jobs, string $type): void
{
    foreach ($jobs->claim(limit: (int) scaled('BATCH', 100), where: ['type' => $type], lease: scaled('LEASE', 60)) as $row) {
        try {
            send($row['business_key']);
            $error = null;
        } catch (RuntimeException $thrown) {
            $error = $thrown;
        }
        // Outside of the try: a fault of the engine must not look like one of the provider.
        $accepted = $error === null ? $row->complete() : $row->fail($error);
        if (!$accepted) {
            noted('refused', $row['business_key']);
        } elseif ($error === null) {
            noted('done', $row['business_key']);
        }
    }
}

$engine = Engine::connect(getenv('ROWCLAIM_DSN'));
$jobs = $engine->table(...mapping(__DIR__ . '/jobs.json'));
foreach (wake_ups() as $_) {
    foreach (TYPES as $type) {
        poll($jobs, $type);
    }
}
