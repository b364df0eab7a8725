<?php
/**
 * A worker of `rowclaim demo`: claim a batch, send each message, say how it ended.
 *
 * The demo tells it everything by environment variables and closes its stdin when it shall stop. It prints a JSON line
 * when it lost its patience with the provider, and its counts at the end.
 */

declare(strict_types=1);

use Rowclaim\Engine;
use Rowclaim\Job;

final class GaveUp extends RuntimeException
{
}

/** Sends one message; throws when the provider does not take it. */
function send(Job $job, string $url, string $worker, float $timeout): void
{
    $context = stream_context_create(['http' => [
        'method' => 'POST',
        'header' => [
            'Content-Type: application/json',
            "X-Worker: $worker",
            "X-Job: $job->id",
            "X-Attempt: $job->attempts",
            'Connection: close',
        ],
        'content' => json_encode($job->payload, JSON_THROW_ON_ERROR),
        'timeout' => $timeout,
        'ignore_errors' => true,
        'protocol_version' => 1.1,
    ]]);
    $started = hrtime(true);
    $answer = @file_get_contents($url, false, $context);
    $status = (int) (explode(' ', $http_response_header[0] ?? '')[1] ?? 0);
    if ($answer === false || $status === 0) {
        $seconds = (hrtime(true) - $started) / 1e9;
        throw $seconds >= $timeout ? new GaveUp('no answer from the provider') : new RuntimeException('provider unreachable');
    }
    if ($status !== 200) {
        throw new RuntimeException("the provider answered $status");
    }
}

/** Waits a little; false when the demo has closed our stdin. */
function shall_go_on(int $microseconds): bool
{
    $read = [STDIN];
    $write = $except = null;
    if (stream_select($read, $write, $except, 0, $microseconds) === 0) {
        return true;
    }
    fread(STDIN, 1024);
    return !feof(STDIN);
}

$queue = getenv('DEMO_QUEUE');
$url = getenv('DEMO_URL');
$worker = getenv('DEMO_WORKER');
$batch = (int) getenv('DEMO_BATCH');
$lease = (float) getenv('DEMO_LEASE');
$timeout = (float) getenv('DEMO_TIMEOUT');
$counts = ['completed' => 0, 'failed' => 0, 'refused' => 0];

$engine = Engine::connect(getenv('ROWCLAIM_DSN'));
$idle = 0;
while (shall_go_on($idle)) {
    $idle = 100_000;
    foreach ($engine->claim($queue, limit: $batch, lease: $lease) as $job) {
        $idle = 0;
        $error = null;
        try {
            send($job, $url, $worker, $timeout);
        } catch (RuntimeException $thrown) {
            $error = $thrown;
        }
        // Outside of the try: a fault of the engine must not look like one of the provider.
        if ($error === null) {
            $accepted = $job->complete();
            $counts['completed'] += (int) $accepted;
        } else {
            if ($error instanceof GaveUp) {
                echo json_encode(['gave_up' => $job->payload['recipient'], 'attempt' => $job->attempts]), "\n";
            }
            $accepted = $job->fail($error);
            $counts['failed']++;
        }
        if (!$accepted) {   // the lease ran out meanwhile, and another worker owns the job now
            $counts['refused']++;
            fwrite(STDERR, "late write refused for job $job->id\n");
        }
    }
}
echo json_encode($counts), "\n";
