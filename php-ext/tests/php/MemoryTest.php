<?php

declare(strict_types=1);

/** A long-running worker does not grow. */
final class MemoryTest extends TableTestCase
{
    public function test_twenty_thousand_jobs_leave_no_memory_behind(): void
    {
        [$place, $options] = $this->place('sqlite::memory:');
        [$exit, $out, $errors] = $this->script('
            function rss(): int { preg_match("/VmRSS:\s+(\d+)/", file_get_contents("/proc/self/status"), $m); return (int) $m[1]; }
            $e = Engine::connect($argv[1], json_decode($argv[2], true));
            $round = function (int $times) use ($e) {
                for ($i = 0; $i < $times; $i++) {
                    $e->create("q", ["i" => $i, "text" => "some text"], key: "k$i", unique: "active");
                    foreach ($e->claim("q", limit: 10) as $job) { $job->payload["i"] === $i || exit(9); $job->complete(); }
                    try { $e->claim("q", limit: 0); } catch (Rowclaim\Exception\InvalidException $x) { unset($x); }
                    if ($i % 500 === 0) { $e->prune(0); }
                }
                $e->prune(0);
            };
            $round(5000); $rss = rss(); $php = memory_get_usage();
            $round(20000); echo rss() - $rss, " ", memory_get_usage() - $php;', [$place, (string) json_encode($options)]);
        self::assertSame([0, ''], [$exit, $errors]);
        [$rss, $php] = array_map('intval', explode(' ', $out));
        self::assertLessThan(2048, $rss, 'KiB of the process');
        self::assertLessThan(1024, $php, 'bytes of PHP');
    }

    public function test_work_leaves_no_memory_behind(): void
    {
        [$place, $options] = $this->place('sqlite::memory:');
        [$exit, $out, $errors] = $this->script('
            $e = Engine::connect($argv[1], json_decode($argv[2], true));
            $round = function () use ($e) {
                for ($n = 0; $n < 10; $n++) {
                    $e->createMany("q", array_map(fn ($i) => ["payload" => ["i" => $i]], range(1, 100)));
                    $e->work(["q" => fn (Job $j) => $j->payload["i"] % 10 ? null : throw new DomainException("x")], untilEmpty: true);
                    foreach ($e->jobs("q") as $job) { $e->cancel($job["id"]); }
                    $e->prune(0);
                }
            };
            $round(); $php = memory_get_usage();
            $round(); echo memory_get_usage() - $php;', [$place, (string) json_encode($options)]);
        self::assertSame([0, ''], [$exit, $errors]);
        self::assertLessThan(1024, (int) $out, 'bytes of PHP');
    }

    public function test_rows_of_a_user_s_table_leave_no_memory_behind(): void
    {
        $this->open('sqlite:', ['heartbeat' => false]);
        $this->targets(100);
        [$exit, $out, $errors] = $this->script('
            $t = Engine::connect($argv[1], json_decode($argv[2], true))->table($argv[3], json_decode($argv[4], true));
            $round = function (int $times) use ($t) {
                for ($n = 0; $n < $times; $n++) {
                    $claim = $t->claim(where: ["task_id" => [1, 2], "deleted_at" => null], order: ["-id"]);
                    foreach ($claim as $row) {
                        $all = $row->toArray();
                        foreach ($row as $column => $value) { $row[$column] === $all[$column] || exit(9); }
                        try { $row["nothing"]; } catch (Rowclaim\Exception\InvalidException $x) { unset($x); }
                        $row->key % 20 || $row->release();
                    }
                    $t->takeBack() === 95 || exit(8);
                    count($t->rows(limit: 10)) === 10 && json_encode($t->row(1)) && print_r($t->row(2), true) || exit(7);
                    try { $claim->complete(set: ["note" => []]); } catch (TypeError $x) { unset($x); }
                    unset($claim, $row, $all);
                }
            };
            $round(20); $php = memory_get_usage();
            $round(60); echo memory_get_usage() - $php;', [$this->dsn, (string) json_encode($this->options), $this->name, (string) json_encode(['attempts' => null, 'max_attempts' => null] + self::MAPPING)]);
        self::assertSame([0, ''], [$exit, $errors]);
        self::assertLessThan(1024, (int) $out, 'bytes of PHP');
    }
}
