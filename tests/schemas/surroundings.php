<?php
/**
 * What stands around the batch jobs here: cron, the provider's client, the database's address. It claims and locks
 * nothing, so that a job's own file shows all it does about that.
 *
 * `scaled` is the one thing to know: jobs are written with the numbers of production, and the tests put smaller ones in
 * their place, so that a minute lasts a second.
 */

declare(strict_types=1);

/** The production value, or what the tests set instead. */
function scaled(string $name, int $production): int|float
{
    $set = getenv("SCALED_$name");
    return $set === false ? $production : $set + 0;
}

/** A connection; `$foundRows` makes rowCount() count matched rows instead of changed ones. */
function database(bool $foundRows = false): PDO
{
    $dsn = parse_url(getenv('ROWCLAIM_DSN'));
    $name = ltrim($dsn['path'], '/');
    $where = "mysql:host={$dsn['host']};port={$dsn['port']};dbname=$name;charset=utf8mb4";
    return new PDO($where, $dsn['user'], $dsn['pass'] ?? '', [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
        PDO::MYSQL_ATTR_FOUND_ROWS => $foundRows,
    ]);
}

/**
 * Table and mapping of a file, for Engine::table.
 *
 * @return array{string, array<string, mixed>}
 */
function mapping(string $file): array
{
    $read = json_decode(file_get_contents($file), true, flags: JSON_THROW_ON_ERROR);
    foreach (json_decode(getenv('SCALED_MAPPING') ?: '{}', true) as $key => $value) {
        if (isset($read['mapping'][$key])) {
            $read['mapping'][$key] = $value;
        }
    }
    return [$read['table'], $read['mapping']];
}

/**
 * Cron: one round of the caller's loop is one start of the job. Waits for the test's sign, ends when it closes our stdin.
 *
 * @return Generator<int>
 */
function wake_ups(): Generator
{
    noted('ready', getmypid());
    fgets(STDIN);
    for ($round = 1; !feof(STDIN); $round++) {
        yield $round;
        $read = [STDIN];
        $write = $except = null;
        if (stream_select($read, $write, $except, 0, 50_000) > 0) {
            fread(STDIN, 1024);
        }
    }
}

/** Asks the provider to send; throws when it does not take it. */
function send(string $target): void
{
    $context = stream_context_create(['http' => [
        'method' => 'POST',
        'header' => ['Content-Type: application/json', 'X-Worker: ' . getenv('SCHEMA_WORKER'), 'Connection: close'],
        'content' => json_encode(['target' => $target]),
        'timeout' => 30,
        'ignore_errors' => true,
        'protocol_version' => 1.1,
    ]]);
    $answer = @file_get_contents(getenv('SCHEMA_URL'), false, $context);
    $status = (int) (explode(' ', $http_response_header[0] ?? '')[1] ?? 0);
    if ($answer === false || $status !== 200) {
        throw new RuntimeException("the provider answered $status");
    }
}

/** Tells the test what this process believes: ready, done, refused or task_done. */
function noted(string $what, string|int $target): void
{
    fwrite(STDOUT, json_encode([$what => $target]) . "\n");
}
