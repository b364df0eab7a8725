<?php

declare(strict_types=1);

use Rowclaim\Engine;

/** Signals, exit, fatal errors and fork: whatever ends a worker, no job stays behind. */
final class ProcessTest extends RowclaimTestCase
{
    private const CONNECT = '$e = Engine::connect($argv[1], json_decode($argv[2], true));';

    /** @return array{string, string, Engine, string} DSN, options as JSON, engine, prefix */
    private function filled(string $dsn, int $jobs, array $more = []): array
    {
        [$place, $options] = $this->place($dsn);
        $engine = Engine::connect($place, $options);
        $engine->migrate();
        self::fill($engine, $jobs);
        return [$place, (string) json_encode($options + $more), $engine, $options['prefix']];
    }

    /** @dataProvider databases */
    public function test_sigterm_ends_work_after_the_job_in_hand(string $dsn): void
    {
        [$place, $options, $engine] = $this->filled($dsn, 50);
        $mark = $this->file('.mark');
        $worker = $this->start(self::CONNECT . '
            $s = $e->work(["q" => function (Job $j) use ($argv) { touch($argv[3]); $until = microtime(true) + 0.3; while (microtime(true) < $until) usleep(1000); }], batch: 20);
            echo json_encode($s);', [$place, $options, $mark]);
        self::until(fn () => file_exists($mark), 'the first job');
        proc_terminate($worker[0], SIGTERM);
        [$exit, $out, $errors] = $this->finish($worker, 10);
        self::assertSame([0, ''], [$exit, $errors]);
        $summary = json_decode($out, true);
        self::assertSame([20, 1, 19], [$summary['claimed'], $summary['completed'], $summary['released']]);
        self::assertSame(['done' => 1, 'ready' => 49], array_count_values(self::states($engine)));
        self::assertSame(0, $engine->stats()['openClaims']);
    }

    public function test_sigint_ends_work_while_nothing_waits(): void
    {
        [$place, $options] = $this->filled('sqlite:', 1);
        $mark = $this->file('.mark');
        $worker = $this->start(self::CONNECT . '
            $s = $e->work(["q" => fn () => touch($argv[3])], maxIdle: 30); echo $s->completed;', [$place, $options, $mark]);
        self::until(fn () => file_exists($mark), 'the job');
        usleep(200_000);
        proc_terminate($worker[0], SIGINT);
        self::assertSame([0, '1', ''], $this->finish($worker, 5));
    }

    public function test_a_second_signal_ends_the_process(): void
    {
        [$place, $options, $engine] = $this->filled('sqlite:', 3);
        $mark = $this->file('.mark');
        $worker = $this->start(self::CONNECT . '
            $e->work(["q" => function () use ($argv) { touch($argv[3]); for (;;) { usleep(1000); } }]);', [$place, $options, $mark]);
        self::until(fn () => file_exists($mark), 'the job');
        proc_terminate($worker[0], SIGTERM);
        usleep(200_000);
        self::assertTrue(proc_get_status($worker[0])['running']);
        proc_terminate($worker[0], SIGTERM);
        self::assertSame(-SIGTERM, $this->finish($worker, 5)[0]);
        self::assertSame(['claimed' => 3], array_count_values(self::states($engine)));
    }

    public function test_signals_do_afterwards_what_they_did_before_and_the_application_s_handler_runs_too(): void
    {
        [$place, $options] = $this->filled('sqlite:', 2);
        $answer = $this->script(self::CONNECT . '
            $e->work(["q" => function () { posix_kill(getmypid(), SIGTERM); }], maxJobs: 1); echo "drained ";
            pcntl_async_signals(true);
            pcntl_signal(SIGTERM, function () { echo "handler "; });
            $s = $e->work(["q" => function () { posix_kill(getmypid(), SIGTERM); }]); echo $s->completed, " ";
            posix_kill(getmypid(), SIGTERM); echo "again ";
            pcntl_signal(SIGTERM, SIG_DFL);
            posix_kill(getmypid(), SIGTERM); echo "not reached";', [$place, $options]);
        self::assertSame([-SIGTERM, 'drained handler 1 handler again ', ''], $answer);
    }

    public function test_what_a_signal_handler_throws_ends_a_wait_for_work(): void
    {
        [$place, $options] = $this->filled('sqlite:', 1);
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, function () { throw new DomainException("alarm"); });
            pcntl_alarm(1); $t = microtime(true);
            try { $e->work(["nothing" => fn () => 1], maxIdle: 20); } catch (DomainException $x) { echo $x->getMessage(), " ", microtime(true) - $t < 3 ? "soon" : "late"; }
            echo " ", $e->job(1)["state"];', [$place, $options]);
        self::assertSame([0, 'alarm soon ready', ''], $answer);
    }

    /** @dataProvider databases */
    public function test_what_a_signal_handler_throws_ends_a_wait_for_a_lock(string $dsn): void
    {
        [$place, $options, , $prefix] = $this->filled($dsn, 1, ['lock_timeout' => 8]);
        $mark = $this->file('.mark');
        // Another process holds the lock: the two SQLite libraries in one process do not see each other's.
        $holder = $this->start('
            if (str_starts_with($argv[1], "sqlite:")) { $pdo = new PDO($argv[1]); $pdo->exec("BEGIN IMMEDIATE"); }
            else { $p = parse_url($argv[1]); $pdo = new PDO("mysql:host={$p["host"]};port={$p["port"]};dbname=" . ltrim($p["path"], "/"), $p["user"], $p["pass"] ?? "");
                $pdo->exec("LOCK TABLES {$argv[3]}jobs WRITE"); }
            touch($argv[2]); sleep(20);', [$place, $mark, $prefix]);
        self::until(fn () => file_exists($mark), 'the lock');
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, function () { throw new DomainException("alarm"); });
            pcntl_alarm(1); $t = microtime(true);
            try { $e->create("q", 1); echo "created"; } catch (Throwable $x) { echo $x->getMessage(), " ", microtime(true) - $t < 3 ? "soon" : "late"; }', [$place, $options]);
        proc_terminate($holder[0], SIGKILL);
        $this->finish($holder);
        self::assertSame([0, 'alarm soon', ''], $answer);
    }

    /** @return array<string, array{string, string, int, list<string>}> code, what is said, exit code, options of PHP */
    public static function endings(): array
    {
        return [
            'exit' => ['exit(3);', '', 3, []],
            'die in a nested call' => ['array_map(function () { die("bye"); }, [1]);', 'bye', 0, []],
            'E_USER_ERROR' => ['trigger_error("user error", E_USER_ERROR);', 'user error', 255, []],
            'memory limit' => ['str_repeat("x", 64 << 20);', 'Allowed memory size', 255, ['-d', 'memory_limit=24M']],
            'time limit' => ['set_time_limit(1); for (;;);', 'Maximum execution time', 255, []],
            'fatal error' => ['eval("interface I {} class A extends I {}");', 'cannot extend interface', 255, []],
        ];
    }

    /**
     * @dataProvider endings
     * @param list<string> $php
     */
    public function test_a_handler_that_ends_the_script_leaves_nothing_claimed(string $ending, string $message, int $code, array $php): void
    {
        foreach (self::databases() as $name => [$dsn]) {
            foreach (['each', 'group'] as $finish) {
                [$place, $options, $engine] = $this->filled($dsn, 20);
                [$exit, $out, $errors] = $this->script(self::CONNECT . '
                    register_shutdown_function(function () use ($e) { echo " shutdown ", $e->stats()["openClaims"]; });
                    $e->work(["q" => function (Job $j) { if ($j->payload == 3) { ' . $ending . ' } }], batch: 10, finish: $argv[3]);
                    echo "not reached";', [$place, $options, $finish], $php);
                self::assertSame($code, $exit, "$out$errors");
                self::assertStringContainsString($message, $out . $errors);
                self::assertStringEndsWith(' shutdown 0', $out, "$name, $finish: the claims are over before the shutdown functions run");
                self::assertSame(['done' => 2, 'ready' => 18], array_count_values(self::states($engine)), "$name, $finish");
                self::assertSame([1, 1], array_column($engine->jobs('q', state: 'done'), 'attempts'));
                self::assertSame([0], array_values(array_unique(array_column($engine->jobs('q', state: 'ready'), 'attempts'))), 'no blame');
            }
        }
    }

    public function test_a_script_that_ends_inside_a_foreach_leaves_only_the_started_job(): void
    {
        foreach (['exit(3);', 'trigger_error("x", E_USER_ERROR);', 'throw new Exception("x");'] as $ending) {
            [$place, $options, $engine] = $this->filled('sqlite:', 5);
            $this->script(self::CONNECT . 'foreach ($e->claim("q") as $i => $job) { if ($i == 1) { ' . $ending . ' } $job->complete(); }', [$place, $options]);
            self::assertSame(['done', 'claimed', 'ready', 'ready', 'ready'], array_values(self::states($engine)), $ending);
        }
    }

    /** @dataProvider databases */
    public function test_a_forked_child_has_its_own_connections_and_the_parent_s_survive(string $dsn): void
    {
        [$place, $options, $engine] = $this->filled($dsn, 6);
        $started = microtime(true);
        [$exit, $out, $errors] = $this->script(self::CONNECT . '
            $claim = $e->claim("q", limit: 2); $claim->rewind(); $job = $claim->current();
            for ($n = 0; $n < 2; $n++) {
                if (($pid = pcntl_fork()) === 0) {
                    if ($n === 0) exit(0);
                    $own = $e->claim("q", limit: 1);
                    if (count($own->complete()) !== 1) exit(10);
                    foreach ([fn () => $claim->complete(), fn () => $claim->next(), fn () => $claim->renew(), fn () => $job->complete()] as $i => $call) {
                        try { $call(); exit(20 + $i); } catch (Rowclaim\Exception\InvalidException $x) {}
                    }
                    unset($claim, $job);
                    exit($e->work(["q" => fn () => null], maxJobs: 1)->completed === 1 ? 0 : 30);
                }
                pcntl_waitpid($pid, $status); echo pcntl_wexitstatus($status), " ";
            }
            echo json_encode(array_values($claim->complete())), " ";
            // A child that returns into frames of the parent.
            $parent = getmypid();
            try {
                $s = $e->work(["q" => function (Job $j) { if (pcntl_fork() === 0) { return; } pcntl_wait($status); echo pcntl_wexitstatus($status), " "; }], maxJobs: 1, finish: "each");
            } catch (Rowclaim\Exception\InvalidException $x) {
                exit($parent !== getmypid() && $e->stats()["queues"]["q"]["claimed"] === 1 ? 7 : 8);
            }
            echo "parent ", $s->completed;', [$place, $options]);
        self::assertSame([0, '0 0 [true,true] 7 parent 1', ''], [$exit, substr($out, -26), $errors], $out);
        self::assertLessThan(10, microtime(true) - $started);
        self::assertSame(['done' => 5, 'ready' => 1], array_count_values(self::states($engine)));
    }

    /** @dataProvider databases */
    public function test_pending_outcomes_are_written_at_the_end_of_work(string $dsn): void
    {
        [$place, $options, $engine] = $this->filled($dsn, 10);
        [$exit] = $this->script(self::CONNECT . '
            $e->work(["q" => function (Job $j) { if ($j->payload === 10) { posix_kill(getmypid(), SIGTERM); } }]);', [$place, $options]);
        self::assertSame(0, $exit);
        self::assertSame(['done' => 10], array_count_values(self::states($engine)));
    }

    public function test_php_ini_weighs_less_than_the_dsn_and_that_less_than_options(): void
    {
        [$place, $options] = $this->filled('sqlite:', 1);
        $answer = $this->script('
            $options = json_decode($argv[1], true);
            foreach ([[null, []], [null, ["lease" => 9]], [ini_get("rowclaim.dsn") . "?lease=30", []]] as [$dsn, $more]) {
                $claim = Engine::connect($dsn, $more + $options)->claim("q"); echo round($claim->validFor), " "; unset($claim);
            }
            var_dump(ini_set("rowclaim.dsn", "x"));', [$options], ['-d', "rowclaim.dsn=$place", '-d', 'rowclaim.lease=200', '-d', 'rowclaim.pool=2']);
        self::assertSame([0, "199 8 29 bool(false)\n", ''], $answer);
    }

    public function test_phpinfo_shows_no_password(): void
    {
        foreach (['mysql://app:geheim@h/d', 'mysql://app:ge@heim@h/d?x=1', 'mysql://app:ge/heim@h/d', 'mysql://app:g?eheim@h/d'] as $dsn) {
            [, $out] = $this->script('phpinfo(INFO_MODULES);', [], ['-d', "rowclaim.dsn=\"$dsn\""]);
            self::assertStringContainsString('rowclaim support => enabled', $out);
            self::assertSame(1, preg_match('/^rowclaim\.dsn => .*$/m', $out, $line));
            self::assertStringStartsWith('rowclaim.dsn => mysql://', $line[0]);
            self::assertStringNotContainsString('heim', $line[0]);
        }
    }
}
