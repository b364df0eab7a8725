<?php
// A worker through the PHP extension. Usage: worker.php work|claims DSN BATCH COUNT
// `work`: a round works the queue off with a handler that does nothing; the answer is the number of jobs.
// `claims`: a round is COUNT claims of BATCH jobs; the answer is their times in microseconds.
declare(strict_types=1);

[, $mode, $dsn, $batch, $count] = $argv;
[$batch, $count] = [(int) $batch, (int) $count];
$engine = Rowclaim\Engine::connect($dsn);

echo "ready\n";
while (fgets(STDIN) !== false) {
    if ($mode === 'work') {
        echo $engine->work(['q' => fn ($job) => null], batch: $batch, untilEmpty: true)->completed, "\n";
        continue;
    }
    $times = [];
    for ($i = 0; $i < $count; $i++) {
        $since = hrtime(true);
        $claim = $engine->claim('q', limit: $batch);
        $times[] = (hrtime(true) - $since) / 1000;
        if (count($claim) !== $batch) {
            throw new RuntimeException("a claim of $batch got " . count($claim) . ' jobs');
        }
        $claim->complete();
    }
    $engine->flush();
    echo implode(' ', $times), "\n";
}
