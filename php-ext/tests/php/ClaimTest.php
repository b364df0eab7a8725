<?php

declare(strict_types=1);

use Rowclaim\{Claim, Engine};

/** A claim and its jobs in a worker's hands. */
final class ClaimTest extends RowclaimTestCase
{
    /** @dataProvider databases */
    public function test_jobs_are_handed_out_in_order_with_what_they_know(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $id = $engine->create('q', ['n' => 1], key: 'k', maxAttempts: 3)->id;
        $claim = $engine->claim('q', limit: 10, lease: 30, maxRun: 3600);
        self::assertInstanceOf(Iterator::class, $claim);
        self::assertCount(1, $claim);
        self::assertFalse($claim->isEmpty());
        self::assertMatchesRegularExpression('/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/', $claim->token);
        self::assertIsInt($claim->id);
        self::assertFalse($claim->lost);
        self::assertGreaterThan(25, $claim->validFor);
        self::assertLessThanOrEqual(30, $claim->validFor);
        $seen = iterator_to_array($claim);
        self::assertSame([0], array_keys($seen));
        $job = $seen[0];
        self::assertSame(
            [$id, 'q', 'k', ['n' => 1], '{"n":1}', 1, 3, 0, 1, 0, $claim->token],
            [$job->id, $job->queue, $job->key, $job->payload, $job->rawPayload, $job->attempts, $job->maxAttempts, $job->lost, $job->fence, $job->priority, $job->token]
        );
        self::assertEqualsWithDelta(microtime(true), $job->createdAt, 5);
        self::assertFalse($job->finished());
        self::assertSame($claim->token, $job->claim()->token);
        self::assertTrue($job->complete());
        self::assertTrue($job->complete(), 'the same again is accepted');
        self::assertFalse($job->fail('late'), 'another outcome is not');
        self::assertTrue($job->finished());
        self::assertSame('done', $engine->job($id)['state']);
    }

    /** @dataProvider databases */
    public function test_an_empty_claim_is_harmless(string $dsn): void
    {
        $claim = $this->engine($dsn)->claim('q');
        self::assertTrue($claim->isEmpty());
        self::assertCount(0, $claim);
        self::assertSame([null, null, false, 0.0], [$claim->token, $claim->id, $claim->lost, $claim->validFor]);
        self::assertSame([], iterator_to_array($claim));
        self::assertSame([[], []], [$claim->complete(), $claim->release()]);
    }

    /** @dataProvider databases */
    public function test_leaving_a_foreach_releases_what_was_not_started(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $ids = self::fill($engine, 5);
        foreach ($engine->claim('q') as $position => $job) {
            if ($position === 1) {
                break;
            }
            $job->complete();
        }
        // $job is still set, and held.
        self::assertSame(array_combine($ids, ['done', 'claimed', 'ready', 'ready', 'ready']), self::states($engine));
        self::assertSame([1, 0], [$engine->job($ids[1])['attempts'], $engine->job($ids[2])['attempts']]);
        self::assertTrue($job->complete());
    }

    /** @dataProvider databases */
    public function test_an_exception_out_of_a_foreach_releases_what_was_not_started(string $dsn): void
    {
        $engine = $this->engine($dsn);
        self::fill($engine, 3);
        self::assertThrows(DomainException::class, function () use ($engine): void {
            foreach ($engine->claim('q') as $job) {
                throw new DomainException('out');
            }
        });
        self::assertSame(['claimed', 'ready', 'ready'], array_values(self::states($engine)));
    }

    /** @dataProvider databases */
    public function test_a_claim_lives_as_long_as_one_of_its_objects(string $dsn): void
    {
        $engine = $this->engine($dsn);
        self::fill($engine, 3);
        $claim = $engine->claim('q');
        $claim->rewind();
        $other = $claim->current()->claim();
        unset($claim);
        self::assertSame(['claimed' => 3], array_count_values(self::states($engine)));
        unset($other);
        self::assertSame(['claimed' => 1, 'ready' => 2], array_count_values(self::states($engine)));
    }

    public function test_a_claim_is_handed_out_once(): void
    {
        $engine = $this->engine();
        self::fill($engine, 3);
        $claim = $engine->claim('q');
        foreach ($claim as $job) {
            break;
        }
        self::assertSame($job, $claim->current());
        self::assertRefused('invalid', fn () => iterator_to_array($claim), 'rewound');
        $claim->next();
        self::assertSame([true, 1], [$claim->valid(), $claim->key()]);
        $claim->next();
        $claim->next();
        self::assertSame([false, null, null], [$claim->valid(), $claim->key(), $claim->current()]);
    }

    /** @dataProvider databases */
    public function test_many_are_finished_at_once(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $ids = self::fill($engine, 6);
        $claim = $engine->claim('q');
        $claim->rewind();
        self::assertSame([$ids[1] => true, $ids[2] => true], $claim->complete([$ids[1], $ids[2]]));
        self::assertSame([$ids[3] => true], $claim->fail([$ids[3]], new RuntimeException('bad'), delay: 60));
        self::assertSame([$ids[4] => true, $ids[5] => true], $claim->release(delay: 60));
        self::assertSame([$ids[0] => true], $claim->complete());
        self::assertSame([], $claim->complete());
        self::assertSame(['done', 'done', 'done', 'ready', 'ready', 'ready'], array_values(self::states($engine)));
        self::assertSame('RuntimeException: bad', $engine->job($ids[3])['lastError']);
        self::assertSame([1, 0], [$engine->job($ids[3])['attempts'], $engine->job($ids[4])['attempts']]);
        self::assertSame(0, $engine->stats()['queues']['q']['due'] ?? 0);
        self::assertSame([$ids[0] => false], $claim->release([$ids[0]]));
    }

    /** @dataProvider databases */
    public function test_another_claim_s_job_is_refused(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $ids = self::fill($engine, 2);
        $first = $engine->claim('q', limit: 1);
        $second = $engine->claim('q', limit: 1);
        self::assertNotSame($first->token, $second->token);
        self::assertRefused('invalid', fn () => $first->complete([$ids[1]]), (string) $ids[1]);
        self::assertSame([$ids[1] => true], $second->complete([$ids[1]]));
    }

    /** @dataProvider databases */
    public function test_two_workers_never_hold_the_same_job(string $dsn): void
    {
        [$place, $options] = $this->place($dsn);
        $engine = Engine::connect($place, $options);
        $engine->migrate();
        $ids = self::fill($engine, 300);
        $code = '$e = Engine::connect($argv[1], json_decode($argv[2], true)); $n = [];
            $e->work(["q" => function (Job $j) use (&$n) { $n[] = $j->id; usleep(300); }], batch: 10, untilEmpty: true); echo json_encode($n);';
        $workers = [];
        for ($n = 0; $n < 2; $n++) {
            $workers[] = $this->start($code, [$place, (string) json_encode($options)]);
        }
        $seen = [];
        foreach ($workers as $worker) {
            [$exit, $out, $errors] = $this->finish($worker);
            self::assertSame([0, ''], [$exit, $errors]);
            $seen[] = json_decode($out, true);
        }
        $all = array_merge(...$seen);
        sort($all);
        self::assertSame($ids, $all);
    }

    /** @dataProvider databases */
    public function test_a_late_owner_is_refused_and_the_newer_one_kept(string $dsn): void
    {
        $engine = $this->engine($dsn, ['heartbeat' => false, 'backoff_base' => 0]);
        $ids = self::fill($engine, 2);
        $late = $engine->claim('q', lease: 1);
        $late->rewind();
        $job = $late->current();
        usleep(1_100_000);
        self::assertSame(['claims' => 1, 'returned' => 2, 'dead' => 0, 'held' => 0], $engine->recover());
        $newer = $engine->claim('q');
        self::assertCount(2, $newer);
        self::assertFalse($job->complete());
        $late->next();
        self::assertFalse($late->valid(), 'nothing more is handed out');
        self::assertTrue($late->lost);
        self::assertFalse($late->renew());
        self::assertSame(0.0, $late->validFor);
        self::assertSame([$ids[0] => true, $ids[1] => true], $newer->complete());
        self::assertSame(['lost'], array_column($engine->attempts($ids[0]), 'outcome'));
    }

    /** @dataProvider databases */
    public function test_what_was_begun_at_most_once_is_held_and_resolved(string $dsn): void
    {
        $engine = $this->engine($dsn, ['heartbeat' => false, 'backoff_base' => 60]);
        $ids = self::fill($engine, 4);
        $claim = $engine->claim('q', lease: 1, onLost: 'hold');
        $begun = [];
        foreach ($claim as $job) {
            $begun[] = $job;
            if (count($begun) === 3) {
                break;
            }
        }
        self::assertTrue($begun[0]->complete());
        usleep(1_100_000);
        self::assertSame(['claims' => 1, 'returned' => 1, 'dead' => 0, 'held' => 2], $engine->recover());
        self::assertSame(['done', 'held', 'held', 'ready'], array_map(fn (int $id) => $engine->job($id)['state'], $ids));
        self::assertSame(2, $engine->stats()['queues']['q']['held']);
        self::assertSame([$ids[2], $ids[1]], array_column($engine->jobs(state: 'held'), 'id'));
        self::assertSame([['lost', 'lease expired after it was started']], array_map(fn ($a) => [$a['outcome'], $a['error']], $engine->attempts($ids[1])));
        self::assertFalse($begun[1]->complete(), 'a late owner is lost');
        self::assertFalse($engine->retry($ids[1], force: true));
        self::assertSame([$ids[1] => true, $ids[0] => false, 999 => false], $engine->resolve([$ids[1], $ids[0], 999], true));
        self::assertSame([$ids[1] => false, $ids[2] => true], $engine->resolve([$ids[1], $ids[2]], false));
        self::assertSame(['done', 'done', 'ready', 'ready'], array_map(fn (int $id) => $engine->job($id)['state'], $ids));
        $again = $engine->claim('q', onLost: 'retry');
        self::assertEqualsCanonicalizing([[$ids[2], 1], [$ids[3], 1]], array_map(fn ($job) => [$job->id, $job->attempts], iterator_to_array($again)));
        self::assertRefused('invalid', fn () => $engine->claim('q', onLost: 'keep'), 'on_lost must be retry or hold');
    }

    /** @dataProvider databases */
    public function test_a_handler_that_exits_leaves_what_was_begun_to_be_held(string $dsn): void
    {
        [$place, $options] = $this->place($dsn);
        $engine = Engine::connect($place, ['heartbeat' => false] + $options);
        $engine->migrate();
        $ids = self::fill($engine, 2);
        $code = '$e = Engine::connect($argv[1], json_decode($argv[2], true)); $e->work(["q" => fn () => exit(0)], lease: 1, onLost: $argv[3]);';
        foreach (['retry' => ['ready', 'ready'], 'hold' => ['claimed', 'ready']] as $onLost => $states) {
            self::assertSame([0, '', ''], $this->script($code, [$place, (string) json_encode($options), $onLost]));
            self::assertEqualsCanonicalizing($states, array_map(fn (int $id) => $engine->job($id)['state'], $ids), $onLost);
        }
        self::until(fn () => $engine->recover()['held'] === 1, 'the end of the lease');
    }

    /** @dataProvider databases */
    public function test_a_heartbeat_keeps_a_claim_while_php_sleeps(string $dsn): void
    {
        $engine = $this->engine($dsn);
        self::fill($engine, 1);
        $claim = $engine->claim('q', lease: 1);
        usleep(2_200_000);
        self::assertSame(0, $engine->recover()['claims']);
        self::assertFalse($claim->lost);
        self::assertTrue($claim->renew());
        self::assertSame([true], array_values($claim->complete()));
    }

    public function test_properties_cannot_be_written_and_objects_not_made(): void
    {
        $engine = $this->engine();
        $created = $engine->create('q', 1);
        $claim = $engine->claim('q');
        $claim->rewind();
        foreach ([[$claim->current(), 'id'], [$claim->current(), 'payload'], [$claim, 'token'], [$created, 'exists']] as [$object, $property]) {
            $before = $object->$property;
            $refusals = [
                function () use ($object, $property): void {
                    $object->$property = 5;
                },
                fn () => clone $object,
                fn () => serialize($object),
                fn () => new (get_class($object))(),
            ];
            foreach ($refusals as $number => $refused) {
                $thrown = null;
                try {
                    $refused();
                } catch (Throwable $thrown) {
                }
                self::assertNotNull($thrown, get_class($object) . "::$property, $number");
            }
            self::assertSame($before, $object->$property);
        }
    }
}
