<?php

declare(strict_types=1);

use Rowclaim\{Engine, Run, RunRecord};

/** Runs and schedules: a slot once, a task never twice at once, and the history says what happened. */
final class ScheduleTest extends TableTestCase
{
    /** 2025-11-30T00:00Z */
    private const SLOT = 1764460800;

    /** The last look at the schedules was so many seconds ago. */
    private function away(int $seconds): void
    {
        $since = $this->isSqlite() ? "accounted_until - $seconds * 1000000" : "accounted_until - INTERVAL $seconds SECOND";
        $this->sql("UPDATE {$this->options['prefix']}schedules SET accounted_until = $since");
    }

    /** @return list<string> task, state and reason or error, oldest first */
    private static function history(Engine $engine): array
    {
        $runs = array_reverse($engine->runs(limit: 1000));
        return array_map(fn (RunRecord $run) => trim("$run->task $run->state $run->reason$run->error"), $runs);
    }

    /** @dataProvider databases */
    public function test_a_slot_runs_once(string $dsn): void
    {
        $engine = $this->open($dsn);
        $seen = null;
        $record = $engine->runSlot('report', self::SLOT, function (Run $run) use (&$seen, $engine): void {
            $seen = $run;
            self::assertSame(['report', (float) self::SLOT, false, false], [$run->task, $run->slot, $run->manual, $run->lost]);
            self::assertTrue($run->fence > 0 && strlen($run->token) === 36 && $run->validFor > 55 && $run->validFor <= 60);
            self::assertSame(['started', null, null], [$engine->runs()[0]->state, $engine->runs()[0]->finishedAt, $engine->runs()[0]->duration]);
            usleep(20_000);
        });
        self::assertTrue($seen->lost && $seen->validFor === 0.0, 'it has ended');
        self::assertSame([$seen->id, 'report', (float) self::SLOT, 0, false, 'succeeded', null, 1, $seen->fence, null], [$record->id, $record->task, $record->slot, $record->rerun, $record->manual, $record->state, $record->reason, $record->slots, $record->fence, $record->error]);
        self::assertTrue($record->worker !== '' && $record->startedAt < $record->finishedAt && $record->duration >= 0.02);
        // The same instant in every form.
        foreach ([(float) self::SLOT, '2025-11-30T00:00:00Z', '2025-11-30T08:00:00+08:00', new DateTimeImmutable('2025-11-30 01:00', new DateTimeZone('Europe/Copenhagen')), new DateTime('@' . self::SLOT)] as $slot) {
            self::assertSame($record->id, $engine->runSlot('report', $slot, self::uncalled())->id);
        }
        self::assertSame('succeeded', $engine->runSlot('report', self::SLOT + 0.5, fn () => 1)->state);
        $again = $engine->runSlot('report', self::SLOT, fn (Run $run) => self::assertTrue($run->manual), manual: true);
        self::assertSame([1, true, 'succeeded'], [$again->rerun, $again->manual, $again->state]);
        self::assertCount(3, $engine->runs('report', 'succeeded'));
        self::assertCount(1, $engine->runs('report', before: $again->id, limit: 1));
        self::assertSame([[], []], [$engine->runs('other'), $engine->runs(state: 'failed')]);
    }

    /** @dataProvider databases */
    public function test_what_a_run_throws_is_recorded_and_thrown_on(string $dsn): void
    {
        $engine = $this->open($dsn);
        $mine = new DomainException('the shop is closed');
        self::assertSame($mine, self::assertThrows(DomainException::class, fn () => $engine->runSlot('a', self::SLOT, fn () => throw $mine)));
        self::assertSame(['a failed DomainException: the shop is closed'], self::history($engine));
        self::assertSame('failed', $engine->runSlot('a', self::SLOT, self::uncalled())->state, 'one start for a slot');
        $this->script(self::CONNECT . '$e->runSlot("a", ' . self::SLOT . ' + 60, fn () => exit(3));', $this->here());
        [, $out] = $this->script(self::CONNECT . '$e->runSlot("a", ' . self::SLOT . ' + 120, fn () => str_repeat("x", 64 << 20));', $this->here(), ['-d', 'memory_limit=24M']);
        $ended = 'a failed the script ended in the middle';
        self::assertSame(['a failed DomainException: the shop is closed', $ended, $ended], self::history($engine), $out);
        self::assertSame('succeeded', $engine->runSlot('a', self::SLOT + 180, fn () => 1)->state, 'its lease was given back');
    }

    /** @dataProvider databases */
    public function test_a_slot_that_finds_the_task_busy_is_skipped(string $dsn): void
    {
        $engine = $this->open($dsn);
        $inside = [];
        $engine->runSlot('a', self::SLOT, function () use ($engine, &$inside): void {
            foreach ([self::SLOT, self::SLOT + 60, self::SLOT + 60] as $slot) {
                $record = $engine->runSlot('a', $slot, self::uncalled());
                $inside[] = "$record->state $record->reason";
            }
            self::assertSame('succeeded', $engine->runSlot('b', self::SLOT, fn () => 1)->state, 'leases are by task');
        });
        self::assertSame(['started ', 'skipped busy', 'skipped busy'], $inside);
        // A run that was killed is lost when its lease is over.
        [$exit] = $this->script(self::CONNECT . '$e->runSlot("a", ' . self::SLOT . ' + 120, fn () => posix_kill(getmypid(), SIGKILL), lease: 1);', $this->here());
        self::assertSame(-SIGKILL, $exit);
        $minute = 2;
        self::until(function () use ($engine, &$minute): bool {
            $minute++;
            return $engine->runSlot('a', self::SLOT + 60 * $minute, fn () => 1)->state === 'succeeded';
        }, 'the lease is over');
        self::assertContains('a lost lease expired', self::history($engine));
    }

    /** @dataProvider databases */
    public function test_what_is_due_runs_once_and_a_handler_that_throws_does_not_end_the_pass(string $dsn): void
    {
        $engine = $this->open($dsn);
        $plan = $engine->schedule('good', '* * * * *', 'UTC', missed: 'all', cap: 3, catchUp: 3600, grace: 60, lease: 30, maxRun: 300);
        self::assertSame(['good', '* * * * *', 'UTC', 'all', 3, 3600.0, 60.0, 30.0, 300.0], [$plan->task, $plan->cron, $plan->zone, $plan->missed, $plan->cap, $plan->catchUp, $plan->grace, $plan->lease, $plan->maxRun]);
        self::assertSame([null, null, null], [$plan->pausedAt, $plan->askedAt, $plan->last]);
        self::assertTrue($plan->nextAt > $plan->accountedUntil && fmod($plan->nextAt, 60.0) === 0.0);
        $plan = $engine->schedule('bad', '*/5 * * * *', 'Asia/Shanghai');
        self::assertSame(['skip', 10, null, 90.0, 60.0, null], [$plan->missed, $plan->cap, $plan->catchUp, $plan->grace, $plan->lease, $plan->maxRun], 'what the core has where nothing is said');
        $handlers = ['bad' => fn () => throw new DomainException('no'), 'good' => fn (Run $run) => null];
        self::assertSame([], $engine->runDue($handlers), 'nothing is due before the first slot');
        $this->away(600);
        $engine->schedule('bad', '*/5 * * * *', 'Asia/Shanghai', missed: 'once');
        $ran = $engine->runDue($handlers);
        self::assertSame(['bad failed DomainException: no', 'good succeeded ', 'good succeeded ', 'good succeeded '], array_map(fn ($run) => "$run->task $run->state $run->error", $ran));
        self::assertSame([60.0, 60.0], [$ran[2]->slot - $ran[1]->slot, $ran[3]->slot - $ran[2]->slot]);
        self::assertSame([], $engine->runDue(['good' => self::uncalled()], maxSeconds: 0));
        $records = $engine->schedules();
        self::assertSame([['bad', 'good'], 'failed', 'succeeded'], [array_map(fn ($plan) => $plan->task, $records), $records[0]->last->state, $records[1]->last->state]);
        self::assertCount(1, $engine->schedules(limit: 1));
        self::assertRefused('not_found', fn () => $engine->runDue(['nothing' => self::uncalled()]), 'nothing');
        self::assertTrue($engine->unschedule('bad'));
        self::assertFalse($engine->unschedule('bad'));
    }

    /** @dataProvider databases */
    public function test_processes_that_look_at_once_run_each_slot_once(string $dsn): void
    {
        $engine = $this->open($dsn);
        $engine->schedule('t', '* * * * *', 'UTC', missed: 'all', cap: 1000);
        $this->away(1800);
        $workers = array_map(fn () => $this->start(self::CONNECT . '
            foreach ($e->runDue(["t" => fn () => usleep(2000)]) as $run) { echo $run->id, " "; }', $this->here()), range(1, 4));
        $ids = [];
        foreach ($workers as $worker) {
            [$exit, $out, $errors] = $this->finish($worker);
            self::assertSame([0, ''], [$exit, $errors]);
            $ids = [...$ids, ...explode(' ', trim($out))];
        }
        $ids = array_filter([...$ids, ...array_map(fn ($run) => $run->id, $engine->runDue(['t' => fn () => 1]))]);
        self::assertSame(count($ids), count(array_unique($ids)), 'none twice');
        self::assertContains(count($ids), [30, 31]);
        self::assertCount(count($ids), $engine->runs('t', 'succeeded', limit: 100));
    }

    /** @dataProvider databases */
    public function test_a_person_pauses_resumes_and_asks_for_a_run(string $dsn): void
    {
        $engine = $this->open($dsn);
        $engine->schedule('t', '* * * * *', '+08:00');
        self::assertSame([true, false], [$engine->pauseSchedule('t'), $engine->pauseSchedule('t')]);
        $this->away(300);
        self::assertSame([], $engine->runDue(['t' => self::uncalled()]));
        $plan = $engine->schedules()[0];
        self::assertTrue($plan->pausedAt > $plan->accountedUntil && $plan->nextAt === null);
        self::assertSame(['skipped disabled'], array_values(array_unique(array_map(fn ($run) => "$run->state $run->reason", $engine->runs()))));
        $engine->askRun('t');
        self::assertNotNull($engine->schedules()[0]->askedAt);
        [$run] = $engine->runDue(['t' => fn (Run $run) => self::assertTrue($run->manual)]);
        self::assertSame([true, 'succeeded'], [$run->manual, $run->state]);
        self::assertSame([true, false], [$engine->resumeSchedule('t'), $engine->resumeSchedule('t')]);
        foreach (['pauseSchedule', 'resumeSchedule', 'askRun'] as $verb) {
            self::assertRefused('not_found', fn () => $engine->$verb('nothing'));
        }
    }

    /** @dataProvider databases */
    public function test_sigterm_ends_a_pass_after_the_run_in_hand_and_exit_ends_it_at_once(string $dsn): void
    {
        $engine = $this->open($dsn);
        $engine->schedule('t', '* * * * *', 'UTC', missed: 'all', cap: 1000);
        $this->away(600);
        $answer = $this->script(self::CONNECT . '
            echo count($e->runDue(["t" => function () { posix_kill(getmypid(), SIGTERM); usleep(1000); }])), " ";
            $e->runDue(["t" => function () { echo "left"; exit(4); }]);', $this->here());
        self::assertSame([4, '1 left', ''], $answer);
        self::assertSame(['t succeeded', 't failed the script ended in the middle'], self::history($engine));
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, fn () => throw new LengthException("alarm"));
            $runs = $e->runDue(["t" => function () { static $n = 0; if (++$n === 1) { posix_kill(getmypid(), SIGALRM); pcntl_signal_dispatch(); } if ($n === 2) { posix_kill(getmypid(), SIGTERM); } }]);
            echo json_encode(array_map(fn ($run) => [$run->state, $run->error], $runs));', $this->here());
        self::assertSame([0, '[["failed","LengthException: alarm"],["succeeded",null]]', ''], $answer);
    }

    /** @dataProvider databases */
    public function test_a_forked_child_leaves_the_parent_s_run_alone(string $dsn): void
    {
        $engine = $this->open($dsn);
        [$exit, $out, $errors] = $this->script(self::CONNECT . '
            $parent = getmypid();
            try {
                $record = $e->runSlot("t", ' . self::SLOT . ', function (Rowclaim\Run $run) use ($e) {
                    foreach (["exit", "return", "throw"] as $way) {
                        if (($pid = pcntl_fork()) === 0) {
                            if ($run->task !== "t" || $e->runs()[0]->state !== "started") { exit(9); }
                            if ($way === "exit") { exit(5); }
                            if ($way === "throw") { throw new LengthException(); }
                            return;
                        }
                        pcntl_waitpid($pid, $status);
                        echo $way, pcntl_wexitstatus($status), $e->runs()[0]->state, " ";
                    }
                });
            } catch (Rowclaim\Exception\InvalidException $x) {
                exit($parent !== getmypid() && str_contains($x->getMessage(), "fork") ? 7 : 8);
            } catch (LengthException $x) {
                exit($parent !== getmypid() ? 6 : 8);
            }
            echo $record->state;', $this->here());
        self::assertSame([0, 'exit5started return7started throw6started succeeded', ''], [$exit, substr($out, -51), $errors], $out);
        self::assertSame(['t succeeded'], self::history($engine));
    }

    /** @dataProvider databases */
    public function test_a_signal_handler_that_throws_does_not_cut_the_end_of_a_run(string $dsn): void
    {
        $engine = $this->open($dsn, ['lock_timeout' => 8]);
        $marks = [$this->file('.mark'), $this->file('.mark')];
        $holder = $this->start('
            while (!file_exists($argv[2])) { usleep(1000); clearstatcache(); }
            if (str_starts_with($argv[1], "sqlite:")) { $pdo = new PDO($argv[1]); $pdo->exec("BEGIN IMMEDIATE"); }
            else { $p = parse_url($argv[1]); $pdo = new PDO("mysql:host={$p["host"]};port={$p["port"]};dbname=" . ltrim($p["path"], "/"), $p["user"], $p["pass"] ?? "");
                $pdo->exec("LOCK TABLES {$argv[4]}runs WRITE"); }
            touch($argv[3]); sleep(3);', [$this->dsn, ...$marks, $this->options['prefix']]);
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, fn () => throw new DomainException("alarm"));
            try {
                $e->runSlot("t", 0, function () use ($argv) {
                    touch($argv[3]);
                    while (!file_exists($argv[4])) { usleep(1000); clearstatcache(); }
                    pcntl_alarm(1);
                });
                echo "not reached";
            } catch (DomainException $x) { echo $x->getMessage(), " ", $e->runs()[0]->state; }', $this->here(...$marks));
        $this->finish($holder);
        self::assertSame([0, 'alarm succeeded', ''], $answer);
        self::assertSame('succeeded', $engine->runSlot('t', 60, fn () => 1)->state, 'its lease was given back');
    }

    /** @dataProvider databases */
    public function test_a_late_run_cannot_write(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->sql("CREATE TABLE $this->name (id INT NOT NULL PRIMARY KEY, total INT NOT NULL, fence BIGINT NULL)", "INSERT INTO $this->name VALUES (1, 0, NULL)");
        $kept = null;
        $engine->runSlot('t', self::SLOT, function (Run $run) use (&$kept): void {
            self::assertTrue($run->guard($this->name, ['id' => 1], ['total' => 5], 'fence'));
            $kept = $run;
        });
        $engine->runSlot('t', self::SLOT + 60, fn (Run $run) => self::assertTrue($run->guard($this->name, ['id' => 1], ['total' => 6], 'fence')));
        self::assertFalse($kept->guard($this->name, ['id' => 1], ['total' => 7], 'fence'));
        self::assertEquals([1 => 6], $this->stored('total'));
    }

    public function test_wrong_input_is_refused(): void
    {
        $engine = $this->open('sqlite:');
        $never = self::uncalled();
        $cases = [
            '1 to 187 bytes' => fn () => $engine->runSlot('', 1, $never),
            '"2026-11-30T08:00:00" is not an instant with its zone' => fn () => $engine->runSlot('t', '2026-11-30T08:00:00', $never),
            '"1764460800" is not an instant' => fn () => $engine->runSlot('t', '1764460800', $never),
            'slot is outside of the years 1000 to 9999' => fn () => $engine->runSlot('t', 1e15, $never),
            'lease must be' => fn () => $engine->runSlot('t', 1, $never, lease: 0),
            'max_run must not be shorter' => fn () => $engine->runSlot('t', 1, $never, lease: 60, maxRun: 1),
            'run cannot be called' => fn () => $engine->runSlot('t', 1, 'no_such_function'),
            'state running is none of' => fn () => $engine->runs(state: 'running'),
            'cron expression "every day"' => fn () => $engine->schedule('t', 'every day', 'UTC'),
            'zone Mars/Olympus' => fn () => $engine->schedule('t', '* * * * *', 'Mars/Olympus'),
            'missed never is none of skip, once, all' => fn () => $engine->schedule('t', '* * * * *', 'UTC', missed: 'never'),
            'cap must be from 1 to 1000, not -1' => fn () => $engine->schedule('t', '* * * * *', 'UTC', cap: -1),
            'cap must be' => fn () => $engine->schedule('t', '* * * * *', 'UTC', cap: 0),
            'grace must be' => fn () => $engine->schedule('t', '* * * * *', 'UTC', grace: 0),
            'catchUp must be' => fn () => $engine->schedule('t', '* * * * *', 'UTC', catchUp: -5),
            'the handler of task t cannot be called' => fn () => $engine->runDue(['t' => 'no_such_function']),
        ];
        foreach ($cases as $message => $code) {
            self::assertRefused('invalid', $code, $message);
        }
        self::assertThrows(ArgumentCountError::class, fn () => $engine->schedule('t', '* * * * *'), '');
        self::assertThrows(TypeError::class, fn () => $engine->runSlot('t', [], $never), 'slot must be of type');
        self::assertSame([[], []], [$engine->runs(), $engine->schedules()]);
    }
}
