<?php

declare(strict_types=1);

use Rowclaim\{Created, Engine, Job, Summary};

/** Every verb of the engine, on every database. */
final class EngineTest extends RowclaimTestCase
{
    /** @dataProvider databases */
    public function test_a_job_is_created_once_by_key(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $first = $engine->create('q', ['order' => 1], key: 'order:1');
        $again = $engine->create('q', ['order' => 2], key: 'order:1');
        self::assertInstanceOf(Created::class, $first);
        self::assertSame([false, true, 'ready'], [$first->exists, $again->exists, $again->state]);
        self::assertSame($first->id, $again->id);
        self::assertSame('{"order":1}', $engine->job($first->id)['payload']);
        self::assertSame(['id' => $first->id, 'exists' => false, 'state' => 'ready'], json_decode((string) json_encode($first), true));
        self::assertNotSame($first->id, $engine->create('other', 1, key: 'order:1')->id);
        self::assertNotSame($first->id, $engine->create('q', 1, key: 'ORDER:1')->id, 'keys are bytes');
    }

    /** @dataProvider databases */
    public function test_a_created_job_has_what_was_given(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $plain = $engine->job($engine->create('q', null)->id);
        $expected = ['queue' => 'q', 'key' => null, 'priority' => 0, 'state' => 'ready', 'payload' => 'null', 'attempts' => 0, 'maxAttempts' => 20,
            'lost' => 0, 'fence' => 0, 'finishedAt' => null, 'lastError' => null, 'claimId' => null];
        self::assertSame($expected, array_intersect_key($plain, $expected));
        self::assertEqualsWithDelta(microtime(true), $plain['createdAt'], 5);
        $at = new DateTimeImmutable('2031-02-03 04:05:06.789012', new DateTimeZone('+09:00'));
        $full = $engine->job($engine->create('q', 1, key: "k\u{1F60A}", unique: 'active', runAt: $at, priority: -3, maxAttempts: 7)->id);
        self::assertSame(["k\u{1F60A}", -3, 7], [$full['key'], $full['priority'], $full['maxAttempts']]);
        self::assertEqualsWithDelta((float) $at->format('U.u'), $full['readyAt'], 0.001);
        $early = $engine->job($engine->create('q', 1, runAt: new DateTime('1969-12-31 23:59:54.75 UTC'))->id);
        self::assertEqualsWithDelta(-5.25, $early['readyAt'], 0.001);
        $later = $engine->job($engine->create('q', 1, delay: 2.5)->id);
        self::assertEqualsWithDelta($later['createdAt'] + 2.5, $later['readyAt'], 0.01);
        self::assertEqualsWithDelta(1900000000, $engine->job($engine->create('q', 1, runAt: 1900000000)->id)['readyAt'], 0.001);
    }

    /** @dataProvider databases */
    public function test_a_key_lives_as_long_as_unique_says(string $dsn): void
    {
        $engine = $this->engine($dsn);
        foreach (['forever' => true, 'active' => false, 'until_claimed' => false] as $unique => $remains) {
            $first = $engine->create($unique, 1, key: 'k', unique: $unique);
            self::assertTrue($engine->create($unique, 1, key: 'k', unique: $unique)->exists);
            self::assertSame([$first->id => true], $engine->claim($unique)->complete());
            self::assertSame($remains, $engine->create($unique, 1, key: 'k', unique: $unique)->exists, $unique);
        }
        self::assertFalse($engine->create('timed', 1, key: 'k', unique: 3600)->exists);
        self::assertTrue($engine->create('timed', 1, key: 'k', unique: 3600.5)->exists);
    }

    /** @dataProvider databases */
    public function test_many_are_created_in_order(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $old = $engine->create('q', 'old', key: 'k1');
        $jobs = (function () {
            for ($i = 0; $i < 1200; $i++) {
                yield ['payload' => $i, 'key' => "k$i", 'priority' => $i % 3, 'maxAttempts' => 3, 'delay' => null];
            }
        })();
        $answers = $engine->createMany('q', $jobs);
        self::assertCount(1200, $answers);
        self::assertSame($old->id, $answers[1]->id);
        self::assertSame([1 => true], array_filter(array_map(fn (Created $created) => $created->exists, $answers)));
        self::assertSame('777', $engine->job($answers[777]->id)['payload']);
        self::assertSame([], $engine->createMany('q', []));
        self::assertRefused('invalid', fn () => $engine->createMany('q', [['payload' => 1, 'colour' => 2]]), 'colour');
        self::assertRefused('invalid', fn () => $engine->createMany('q', [['key' => 'a']]), 'job 0 has no payload');
        self::assertThrows(TypeError::class, fn () => $engine->createMany('q', [['payload' => 1], 'x']), 'job 1 must be of type array');
        self::assertThrows(TypeError::class, fn () => $engine->createMany('q', [['payload' => 1, 'delay' => 'soon']]), 'delay');
        $broken = (function () {
            yield ['payload' => 1, 'key' => 'never'];
            throw new DomainException('in the generator');
        })();
        self::assertThrows(DomainException::class, fn () => $engine->createMany('q', $broken), 'in the generator');
        self::assertFalse($engine->create('q', 1, key: 'never')->exists);
    }

    /** @dataProvider databases */
    public function test_a_planned_creation_runs_on_the_application_s_connection(string $dsn): void
    {
        [$place, $options] = $this->place($dsn);
        $engine = Engine::connect($place, $options);
        $engine->migrate();
        [$sql, $bindings] = $engine->planCreate('q', ['n' => 1], key: 'k', delay: 0, priority: 4, maxAttempts: 2);
        $pdo = $this->pdo($place);
        foreach ([false, true] as $isCommitted) {
            $pdo->beginTransaction();
            $pdo->prepare($sql)->execute($bindings);
            $isCommitted ? $pdo->commit() : $pdo->rollBack();
            self::assertSame($isCommitted ? 1 : 0, count($engine->jobs('q')));
        }
        $job = $engine->jobs('q')[0];
        self::assertSame(['k', '{"n":1}', 4, 2], [$job['key'], $job['payload'], $job['priority'], $job['maxAttempts']]);
        self::assertTrue($engine->create('q', 1, key: 'k')->exists);
        self::assertRefused('unsupported', fn () => $engine->planCreate('q', 1, key: 'x', unique: 60));
    }

    private function pdo(string $dsn): PDO
    {
        $errors = [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION];
        if (str_starts_with($dsn, 'sqlite:')) {
            return new PDO($dsn, options: $errors);
        }
        $parts = parse_url($dsn);
        $place = sprintf('mysql:host=%s;port=%d;dbname=%s;charset=utf8mb4', $parts['host'], $parts['port'] ?? 3306, ltrim($parts['path'], '/'));
        return new PDO($place, urldecode($parts['user'] ?? 'root'), urldecode($parts['pass'] ?? ''), $errors);
    }

    /** @dataProvider databases */
    public function test_claims_go_by_queue_priority_and_partition(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $ids = [];
        foreach ([['a', 1], ['a', 0], ['b', 0], ['b', 1]] as [$queue, $priority]) {
            $ids[] = $engine->create($queue, [$queue, $priority], priority: $priority)->id;
        }
        $claim = $engine->claim(['a', 'b'], limit: 3);
        self::assertCount(3, $claim);
        self::assertSame([$ids[1], $ids[2], $ids[0]], array_map(fn (Job $job) => $job->id, iterator_to_array($claim)));
        $claim->release([$ids[0], $ids[1], $ids[2]]);
        unset($claim);
        $claim = $engine->claim(['a', 'b'], priority: 1);
        self::assertCount(2, $claim);
        unset($claim);
        $parts = [];
        foreach ([0, 1] as $k) {
            foreach ($engine->claim(['a', 'b'], partition: [$k, 2]) as $job) {
                self::assertSame($k, $job->id % 2);
                $parts[] = $job->id;
            }
        }
        sort($parts);
        self::assertSame($ids, $parts);
        self::assertRefused('invalid', fn () => $engine->claim('a', partition: [1]), 'partition');
        self::assertRefused('invalid', fn () => $engine->claim('a', partition: [2, 2]), 'partition');
        self::assertRefused('invalid', fn () => $engine->claim([]), 'queue');
    }

    /** @dataProvider databases */
    public function test_failed_jobs_come_back_until_they_are_dead_and_people_put_them_back(string $dsn): void
    {
        $engine = $this->engine($dsn, ['backoff_base' => 0]);
        $id = $engine->create('q', 1, maxAttempts: 2)->id;
        foreach (['first', 'second'] as $error) {
            foreach ($engine->claim('q') as $job) {
                self::assertTrue($job->fail(new DomainException($error)));
            }
        }
        $row = $engine->job($id);
        self::assertSame(['dead', 2, 'DomainException: second'], [$row['state'], $row['attempts'], $row['lastError']]);
        $attempts = $engine->attempts($id);
        self::assertSame(['failed', 'failed'], array_column($attempts, 'outcome'));
        $finals = array_column($attempts, 'final');
        sort($finals);
        self::assertSame([false, true], $finals);
        self::assertSame([$id], array_column($engine->jobs(state: 'dead'), 'id'));
        self::assertTrue($engine->retry($id));
        self::assertFalse($engine->retry($id));
        self::assertSame('ready', $engine->job($id)['state']);
        self::assertTrue($engine->cancel($id));
        self::assertFalse($engine->cancel($id));
        self::assertSame('cancelled', $engine->job($id)['state']);
        self::assertRefused('not_found', fn () => $engine->retry($id + 1000));
        self::assertRefused('not_found', fn () => $engine->cancel($id + 1000));
        self::assertNull($engine->job($id + 1000));
    }

    /** @dataProvider databases */
    public function test_a_retry_into_a_taken_key_is_a_duplicate(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $id = $engine->create('q', 1, key: 'k', unique: 'active', maxAttempts: 1)->id;
        foreach ($engine->claim('q') as $job) {
            $job->fail('no');
        }
        self::assertFalse($engine->create('q', 2, key: 'k', unique: 'active')->exists);
        self::assertRefused('duplicate', fn () => $engine->retry($id));
    }

    /** @dataProvider databases */
    public function test_a_held_job_is_taken_away_by_force_only(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $id = $engine->create('q', 1)->id;
        $claim = $engine->claim('q');
        self::assertFalse($engine->cancel($id));
        self::assertTrue($engine->cancel($id, force: true));
        self::assertSame([$id => false], $claim->complete());
    }

    /** @dataProvider databases */
    public function test_jobs_are_listed_in_pages(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $ids = self::fill($engine, 7);
        $page = array_column($engine->jobs('q', limit: 3), 'id');
        self::assertSame(array_reverse(array_slice($ids, 4)), $page);
        self::assertSame(array_reverse(array_slice($ids, 1, 3)), array_column($engine->jobs('q', before: end($page), limit: 3), 'id'));
        self::assertSame([], $engine->jobs('nothing'));
        self::assertRefused('invalid', fn () => $engine->jobs(state: 'lazy'), 'lazy');
        self::assertRefused('invalid', fn () => $engine->jobs(limit: 0));
    }

    /** @dataProvider databases */
    public function test_stats_count_by_queue_and_pruning_takes_what_is_over(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $engine->createMany('q', [['payload' => 1], ['payload' => 2], ['payload' => 3], ['payload' => 4, 'delay' => 60]]);
        $claim = $engine->claim('q', limit: 2);
        $stats = $engine->stats();
        $queue = $stats['queues']['q'];
        self::assertSame([1, 1, 2, 0, false], [$queue['due'], $queue['delayed'], $queue['claimed'], $queue['dead'], $queue['capped']]);
        self::assertSame([1, 0], [$stats['openClaims'], $stats['expiredClaims']]);
        self::assertIsFloat($queue['oldestDue']);
        self::assertArrayNotHasKey('exact', $queue);
        $claim->complete();
        $exact = $engine->stats(exact: true)['queues']['q']['exact'];
        self::assertSame([2, 2], [$exact['done'], $exact['ready']]);
        self::assertSame(0, $engine->prune(3600)['jobs']);
        usleep(2000);
        $engine->flush();
        self::assertSame(2, $engine->prune(0, batch: 1)['jobs']);
        self::assertRefused('invalid', fn () => $engine->prune(0, batch: 0));
        self::assertRefused('invalid', fn () => $engine->prune(-1), 'olderThan');
    }

    /** @dataProvider databases */
    public function test_work_runs_until_empty(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $engine->create('b', 'x', maxAttempts: 1);
        $seen = [];
        foreach (['each', 'group'] as $finish) {
            self::fill($engine, 25, 'a');
            $summary = $engine->work([
                'a' => function (Job $job) use (&$seen): void {
                    $seen[] = $job->id;
                },
                'b' => fn (Job $job) => throw new DomainException('boom'),
            ], batch: 10, untilEmpty: true, finish: $finish);
            self::assertInstanceOf(Summary::class, $summary);
            self::assertSame([25, 0, 0], [$summary->completed, $summary->released, $summary->lost]);
            self::assertSame($finish === 'each' ? 1 : 0, $summary->failed);
        }
        self::assertCount(50, array_unique($seen));
        $failed = $engine->jobs('b')[0];
        self::assertSame(['dead', 'DomainException: boom'], [$failed['state'], $failed['lastError']]);
        self::assertSame(50, $engine->stats(true)['queues']['a']['exact']['done']);
    }

    /** @dataProvider databases */
    public function test_work_stops_at_its_limits_and_gives_the_rest_back(string $dsn): void
    {
        $engine = $this->engine($dsn);
        self::fill($engine, 30);
        $summary = $engine->work(['q' => fn () => null], batch: 20, maxJobs: 5);
        self::assertSame([5, 25], [$summary->completed, $engine->stats()['queues']['q']['due']]);
        $summary = $engine->work(['q' => fn () => usleep(60_000)], batch: 20, maxSeconds: 0.2);
        // No job is begun that would not fit, so it may end a job's length earlier.
        self::assertGreaterThanOrEqual(0.1, $summary->seconds);
        self::assertLessThan(5, $summary->seconds);
        self::assertSame($summary->claimed, $summary->completed + $summary->released);
        self::assertSame(25 - $summary->completed, $engine->stats()['queues']['q']['due']);
    }

    /** @dataProvider databases */
    public function test_a_handler_may_finish_its_job_itself(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $engine->createMany('q', [['payload' => 'complete'], ['payload' => 'fail'], ['payload' => 'release']]);
        $summary = $engine->work(['q' => function (Job $job): void {
            match ($job->payload) {
                'complete' => $job->complete(),
                'fail' => $job->fail('no', delay: 60),
                'release' => $job->release(60),
            };
            $job->finished() || throw new LogicException('not finished');
        }], untilEmpty: true);
        self::assertSame([3, 1, 1, 1], [$summary->claimed, $summary->completed, $summary->failed, $summary->released]);
    }

    public function test_wrong_handlers_and_words_are_refused(): void
    {
        $engine = $this->engine();
        self::assertRefused('invalid', fn () => $engine->work(['q' => 'no_such_function']), 'queue q');
        self::assertRefused('invalid', fn () => $engine->work([]), 'queue');
        self::assertRefused('invalid', fn () => $engine->work(['q' => fn () => 1], finish: 'later'), 'later');
        self::assertRefused('invalid', fn () => $engine->work(['q' => fn () => 1], maxJobs: 0));
        self::assertRefused('invalid', fn () => $engine->work(['q' => fn () => 1], maxSeconds: -1), 'maxSeconds');
    }

    public function test_the_schema_can_be_printed_and_migrated_once(): void
    {
        $engine = $this->engine();
        self::assertStringContainsString('CREATE TABLE', $engine->schemaSql());
        $again = $engine->migrate();
        self::assertSame($again['from'], $again['to']);
        self::assertGreaterThan(0, $again['to']);
        self::assertStringContainsString('SQLite', $engine->serverVersion());
    }

    public function test_engines_are_shared_by_configuration(): void
    {
        $first = Engine::connect('sqlite::memory:');
        $first->create('q', 1, key: 'k');
        self::assertTrue(Engine::connect('sqlite::memory:')->create('q', 1, key: 'k')->exists);
        self::assertFalse(Engine::connect('sqlite::memory:', ['lease' => 77])->create('q', 1, key: 'k')->exists);
        $first->close();
        self::assertFalse(Engine::connect('sqlite::memory:')->create('q', 1, key: 'k')->exists);
    }

    public function test_arguments_are_converted_as_php_does_where_the_caller_is_not_strict(): void
    {
        $engine = $this->engine();
        // eval() is not strict; this file is.
        $create = eval('return fn ($engine) => $engine->create("12", 1, key: 77, delay: "0.0", priority: "3", maxAttempts: 2.0);');
        $job = $engine->job($create($engine)->id);
        self::assertSame(['12', '77', 3, 2], [$job['queue'], $job['key'], $job['priority'], $job['maxAttempts']]);
        self::assertThrows(TypeError::class, eval('return fn () => $engine->claim("q", limit: "many");') ?? fn () => null);
        self::assertThrows(TypeError::class, fn () => $engine->create('q', 1, priority: '3'), 'priority');
        self::assertThrows(TypeError::class, fn () => $engine->create('q', 1, key: 77), 'key');
        self::assertThrows(TypeError::class, fn () => $engine->create(null, 1), 'queue');
        self::assertFalse($engine->create('q', 1, delay: 1)->exists, 'an int for a float is never wrong');
    }
}
