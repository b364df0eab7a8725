<?php

declare(strict_types=1);

use Rowclaim\{Claim, Effect, Engine, Job, Lease, NotSent, Reject};
use Rowclaim\Exception\RowclaimException;

/** Runs the stories of tests/scenarios, which Rust and Python run too. */
final class ScenarioTest extends TableTestCase
{
    /** Fields of steps whose names differ in PHP. */
    private const NAMES = [
        'max_attempts' => 'maxAttempts', 'run_at' => 'runAt', 'max_run' => 'maxRun', 'last_error' => 'lastError', 'on_unknown' => 'onUnknown',
    ];
    private const OPTIONS = ['key', 'unique', 'delay', 'run_at', 'priority', 'max_attempts'];

    /** @var array<string, int> */
    private array $jobs = [];
    /** @var array<string, Claim> */
    private array $claims = [];
    /** @var array<string, Lease> */
    private array $leases = [];
    /** @var array<string, list<Job>> what was handed out so far */
    private array $handed = [];

    /** @return iterable<string, array{string, string}> */
    public static function stories(): iterable
    {
        foreach (glob(__DIR__ . '/../../../tests/scenarios/*.json') ?: [] as $file) {
            foreach (self::databases() as $name => [$dsn]) {
                yield basename($file, '.json') . " on $name" => [$file, $dsn];
            }
        }
    }

    /** @dataProvider stories */
    public function test_a_story(string $file, string $dsn): void
    {
        $story = json_decode((string) file_get_contents($file), flags: JSON_THROW_ON_ERROR);
        $engine = $this->open($dsn, (array) ($story->options ?? []));
        $this->steps($engine, $story->name, $story->steps);
        $this->claims = $this->leases = $this->handed = $this->jobs = [];
    }

    /** @param list<object> $steps */
    private function steps(Engine $engine, string $place, array $steps): void
    {
        foreach ($steps as $number => $step) {
            $where = "$place, step $number ($step->do)";
            $expected = in_array($step->do, ['fail', 'reject'], true) ? null : ($step->error ?? null);
            try {
                $answer = $this->take($engine, $where, $step);
            } catch (RowclaimException $thrown) {
                self::assertSame($expected, $thrown->kind, "$where: {$thrown->getMessage()}");
                continue;
            }
            self::assertNull($expected, "$where: no error came");
            if (property_exists($step, 'expect')) {
                $this->compare($where, $step->expect, $answer);
            }
        }
    }

    private function compare(string $where, mixed $expected, mixed $answer): void
    {
        if (!is_object($expected)) {
            self::assertSame($expected, $answer, $where);
            return;
        }
        foreach ((array) $expected as $name => $value) {
            if ($name === 'same_as') {
                self::assertSame($this->jobs[$value], $answer['id'], $where);
                continue;
            }
            if ($name === 'above') {
                self::assertGreaterThan($this->leases[$value]->fence, $answer['fence'], $where);
                continue;
            }
            self::assertArrayHasKey($name, $answer, $where);
            self::assertSame(json_encode($value), json_encode($answer[$name]), "$where: $name");
        }
    }

    /** @return array<string, mixed> the fields of a step under PHP's names */
    private static function some(object $step, string ...$names): array
    {
        $found = [];
        foreach ($names as $name) {
            if (property_exists($step, $name)) {
                $found[self::NAMES[$name] ?? $name] = $step->$name;
            }
        }
        return $found;
    }

    private function take(Engine $engine, string $where, object $step): mixed
    {
        switch ($step->do) {
            case 'create':
                $created = $engine->create($step->queue, $step->payload ?? null, ...self::some($step, ...self::OPTIONS));
                if (isset($step->as)) {
                    $this->jobs[$step->as] = $created->id;
                }
                return ['id' => $created->id, 'exists' => $created->exists, 'state' => $created->state];
            case 'create_many':
                $jobs = array_map(fn (object $job) => self::some($job, 'payload', ...self::OPTIONS), $step->jobs);
                return ['exists' => array_map(fn ($one) => $one->exists, $engine->createMany($step->queue, $jobs))];
            case 'claim':
                return $this->claim($engine, $step);
            case 'complete':
                return $this->job($step)->complete();
            case 'fail':
                return $this->job($step)->fail($step->error ?? '', $step->delay ?? null);
            case 'reject':
                return $this->job($step)->reject($step->error);
            case 'lease':
                return $this->lease($engine, $step);
            case 'lost':
                return $this->leases[$step->lease]->lost;
            case 'throttle':
                return $engine->throttle($step->name, $step->limit, ...self::some($step, 'per', 'wait'));
            case 'leases':
                $names = ['held' => [], 'free' => []];
                foreach ($engine->leases(...self::some($step, 'limit')) as $lease) {
                    $names[$lease->held ? 'held' : 'free'][] = $lease->name;
                }
                return $names;
            case 'guard':
                return $this->guard($engine, $step);
            case 'once':
                return $this->effect($engine, $step);
            case 'effect':
                $effect = $engine->effect($step->key);
                return ['state' => $effect->state, 'attempts' => $effect->attempts, 'response' => $effect->response];
            case 'resolve_effect':
                return $engine->resolveEffect(...self::some($step, 'key', 'happened', 'response'));
            case 'run_slot':
                return $this->runSlot($engine, $where, $step);
            case 'runs':
                $runs = $engine->runs(...self::some($step, 'task', 'state'));
                $of = fn (string $what) => array_map(fn ($run) => $run->$what, $runs);
                return ['states' => $of('state'), 'reasons' => $of('reason')];
            case 'sql':
                $rows = $this->sql(preg_replace('/\{(\w+)\}/', $this->options['prefix'] . '$1', $step->statement));
                return $rows === [] ? null : (int) current($rows[0]);
            case 'release':
                if (isset($step->lease)) {
                    return $this->leases[$step->lease]->release();
                }
                return $this->job($step)->release($step->delay ?? null);
            case 'renew':
                return isset($step->lease) ? $this->leases[$step->lease]->renew() : $this->claims[$step->claim]->renew();
            case 'recover':
                return $engine->recover();
            case 'retry':
            case 'cancel':
                return $engine->{$step->do}($this->jobs[$step->job], $step->force ?? false);
            case 'job':
                $job = $engine->job($this->jobs[$step->job]);
                foreach (self::NAMES as $there => $here) {
                    $job[$there] = $job[$here] ?? null;
                }
                return $job;
            case 'attempts':
                return ['outcomes' => array_column($engine->attempts($this->jobs[$step->job]), 'outcome')];
            case 'wait':
                usleep((int) round($step->seconds * 1e6));
                return null;
            case 'work':
                return $this->work($engine, $step);
        }
        self::fail("unknown step $step->do");
    }

    /** @return array<string, mixed> */
    private function claim(Engine $engine, object $step): array
    {
        $claim = $engine->claim($step->queue, ...self::some($step, 'limit', 'priority', 'lease', 'max_run', 'partition'));
        $name = $step->as ?? uniqid();
        [$this->claims[$name], $this->handed[$name]] = [$claim, []];
        $answer = ['count' => count($claim)];
        if (array_intersect(array_keys((array) ($step->expect ?? [])), ['payloads', 'keys', 'attempts', 'fences']) !== []) {
            // PHP sees jobs by being handed them.
            $jobs = $this->handed[$name] = iterator_to_array($claim);
            $answer['payloads'] = array_map(fn (Job $job) => json_decode($job->rawPayload), $jobs);
            $answer['keys'] = array_map(fn (Job $job) => $job->key, $jobs);
            $answer['attempts'] = array_map(fn (Job $job) => $job->attempts, $jobs);
            $answer['fences'] = array_map(fn (Job $job) => $job->fence, $jobs);
        }
        return $answer;
    }

    /** @return array<string, mixed> */
    private function lease(Engine $engine, object $step): array
    {
        $lease = $engine->lease($step->name, for: $step->lease, wait: $step->wait ?? null);
        if ($lease === null) {
            return ['acquired' => false];
        }
        if (isset($step->as)) {
            $this->leases[$step->as] = $lease;
        }
        return ['acquired' => true, 'fence' => $lease->fence];
    }

    /** What a function of an effect does. */
    private static function does(?object $what): Closure
    {
        return function (Effect $effect) use ($what): mixed {
            self::assertNotNull($what, "effect $effect->key must not be sent");
            $told = current((array) $what);
            return match (key((array) $what)) {
                'respond' => $told,
                'not_sent' => throw new NotSent($told),
                'raise' => throw new RuntimeException($told),
            };
        };
    }

    /** @return array<string, mixed> */
    private function effect(Engine $engine, object $step): array
    {
        $options = self::some($step, 'on_unknown', 'lease');
        if (isset($step->ask)) {
            $options['ask'] = self::does($step->ask);
        }
        $by = isset($step->claim) ? $this->job($step) : $engine;
        try {
            $receipt = $by->once($step->key, $step->request, self::does($step->send ?? null), ...$options);
        } catch (NotSent $thrown) {
            return ['raised' => $thrown->getMessage()];
        } catch (RuntimeException $thrown) {
            if ($thrown instanceof RowclaimException || $thrown::class !== RuntimeException::class) {
                throw $thrown;
            }
            return ['raised' => $thrown->getMessage()];
        }
        return [
            'fresh' => $receipt->fresh, 'attempts' => $receipt->attempts, 'completed' => $receipt->completed,
            'response' => $receipt->response,
        ];
    }

    /** @return array<string, mixed> */
    private function runSlot(Engine $engine, string $where, object $step): array
    {
        $ran = false;
        $run = function () use ($engine, $where, $step, &$ran): void {
            $ran = true;
            $this->steps($engine, $where, $step->inside ?? []);
            if (isset($step->raise)) {
                throw new RuntimeException($step->raise);
            }
        };
        try {
            $record = $engine->runSlot($step->task, $step->slot, $run, ...self::some($step, 'lease', 'max_run', 'manual'));
        } catch (RuntimeException $thrown) {
            if ($thrown instanceof RowclaimException || $thrown::class !== RuntimeException::class) {
                throw $thrown;
            }
            return ['ran' => $ran, 'raised' => $thrown->getMessage()];
        }
        return [
            'ran' => $ran, 'state' => $record->state, 'reason' => $record->reason, 'rerun' => $record->rerun,
            'manual' => $record->manual,
        ];
    }

    private function guard(Engine $engine, object $step): bool
    {
        $write = [$this->options['prefix'] . $step->table, (array) $step->key, (array) $step->set, $step->fence_column ?? 'fence'];
        return match (true) {
            isset($step->lease) => $this->leases[$step->lease]->guard(...$write),
            isset($step->claim) => $this->job($step)->guard(...$write),
            default => $engine->guard(...$write, fence: $step->fence),
        };
    }

    private function job(object $step): Job
    {
        $claim = $this->claims[$step->claim];
        while (!isset($this->handed[$step->claim][$step->index])) {
            $this->handed[$step->claim] === [] ? $claim->rewind() : $claim->next();
            self::assertTrue($claim->valid(), 'the job is not handed out any more');
            $this->handed[$step->claim][] = $claim->current();
        }
        return $this->handed[$step->claim][$step->index];
    }

    /** @return array<string, mixed> */
    private function work(Engine $engine, object $step): array
    {
        $turn = 0;
        $handler = function (Job $job) use ($step, &$turn): void {
            match ($step->outcomes[$turn++ % count($step->outcomes)]) {
                'complete' => null,
                'fail' => throw new RuntimeException('boom'),
                'reject' => throw new Reject('boom'),
                // Not before the story is over.
                'release' => $job->release(60),
            };
        };
        $summary = $engine->work(array_fill_keys((array) $step->queue, $handler), batch: $step->limit ?? null, untilEmpty: true);
        return json_decode((string) json_encode($summary), true);
    }
}
