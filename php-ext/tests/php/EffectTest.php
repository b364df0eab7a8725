<?php

declare(strict_types=1);

use Rowclaim\{Effect, Engine, Job, NotSent, Receipt, Row};

/** The effect ledger: nothing is sent twice blindly, and what nobody knows is said. */
final class EffectTest extends TableTestCase
{
    private const REQUEST = ['to' => '+4512345678', 'text' => 'hello'];

    /** @return array{mixed, ?string, int, bool, ?bool} */
    private static function all(Receipt $receipt): array
    {
        return [$receipt->response, $receipt->rawResponse, $receipt->attempts, $receipt->fresh, $receipt->completed];
    }

    /** A sender that is killed with the provider's answer in its hands. */
    private function killed(string $key): void
    {
        $log = $this->file('.log');
        [$exit] = $this->script(self::CONNECT . '
            $e->once($argv[3], ["to" => "+4512345678", "text" => "hello"], function () use ($argv) {
                file_put_contents($argv[4], "sent\n", FILE_APPEND);
                posix_kill(getmypid(), SIGKILL);
            }, lease: 1);', $this->here($key, $log));
        self::assertSame([-SIGKILL, "sent\n"], [$exit, file_get_contents($log)]);
    }

    /** @dataProvider databases */
    public function test_a_second_call_gets_the_stored_response(string $dsn): void
    {
        $engine = $this->open($dsn);
        $seen = null;
        $receipt = $engine->once('sms:1', self::REQUEST, function (Effect $effect) use (&$seen): array {
            $seen = [$effect->key, $effect->attempts, $effect->validFor > 55 && $effect->validFor <= 60];
            return ['id' => 7, 'cost' => 1.0];
        });
        self::assertSame(['sms:1', 1, true], $seen);
        self::assertSame('sms:1', $receipt->key);
        self::assertSame([['id' => 7, 'cost' => 1.0], '{"id":7,"cost":1.0}', 1, true, null], self::all($receipt));
        $again = $engine->once('sms:1', ['text' => 'hello', 'to' => '+4512345678'], self::uncalled());
        self::assertSame([['id' => 7, 'cost' => 1.0], '{"id":7,"cost":1.0}', 1, false, null], self::all($again), 'the order of members does not count');
        self::assertSame([null, 'null', 1, true, null], self::all($engine->once('sms:2', self::REQUEST, fn () => null)), 'another key is another effect');
        self::assertSame([null, 'null', 1, false, null], self::all($engine->once('sms:2', self::REQUEST, self::uncalled())));
        $thrown = self::assertRefused('invalid', fn () => $engine->once('sms:1', ['to' => '+4587654321'], self::uncalled()), 'sms:1 was begun with another request');
        self::assertStringNotContainsString('4587', $thrown->getMessage());
        $record = $engine->effect('sms:1');
        self::assertSame(['sms:1', 'succeeded', 1, ['id' => 7, 'cost' => 1.0], null], [$record->key, $record->state, $record->attempts, $record->response, $record->error]);
        self::assertTrue($record->holder !== '' && $record->createdAt <= $record->finishedAt && $record->startedAt < $record->leaseUntil);
        self::assertNull($engine->effect('sms:3'));
        $keys = fn (array $effects) => array_map(fn ($effect) => $effect->key, $effects);
        self::assertSame(['sms:2', 'sms:1'], $keys($engine->effects()));
        self::assertSame(['sms:1'], $keys($engine->effects('succeeded', before: $engine->effect('sms:2')->id, limit: 5)));
        self::assertSame([], $engine->effects('failed'));
    }

    /** @dataProvider databases */
    public function test_what_surely_was_not_sent_is_sent_again(string $dsn): void
    {
        $engine = $this->open($dsn);
        $mine = new NotSent('number refused', 42, new LogicException('before'));
        self::assertSame($mine, self::assertThrows(NotSent::class, fn () => $engine->once('a', self::REQUEST, fn () => throw $mine)), 'the very object');
        self::assertSame([42, 'before', __LINE__ - 2], [$mine->getCode(), $mine->getPrevious()?->getMessage(), $mine->getLine()]);
        self::assertSame(['failed', 'number refused'], [$engine->effect('a')->state, $engine->effect('a')->error]);
        $receipt = $engine->once('a', self::REQUEST, fn (Effect $effect) => $effect->attempts);
        self::assertSame([2, '2', 2, true, null], self::all($receipt));
        self::assertNull($engine->effect('a')->error);
        $extended = new class() extends NotSent {};
        self::assertSame($extended, self::assertThrows($extended::class, fn () => $engine->once('b', 1, fn () => throw $extended)));
        self::assertSame('failed', $engine->effect('b')->state);
        self::assertSame(RuntimeException::class, get_parent_class(NotSent::class));
    }

    /** @dataProvider databases */
    public function test_any_other_exception_leaves_it_unknown_and_held_for_a_person(string $dsn): void
    {
        $engine = $this->open($dsn);
        $timeout = new DomainException('timed out after 30 s');
        self::assertSame($timeout, self::assertThrows(DomainException::class, fn () => $engine->once('t', self::REQUEST, fn () => throw $timeout)));
        self::assertSame(['unknown', 'DomainException: timed out after 30 s'], [$engine->effect('t')->state, $engine->effect('t')->error]);
        self::assertThrows(ArgumentCountError::class, fn () => $engine->once('u', self::REQUEST, fn () => strtoupper()));
        $thrown = self::assertRefused('unknown', fn () => $engine->once('t', self::REQUEST, self::uncalled()), 'nobody knows whether effect t has happened (DomainException: timed out after 30 s)');
        self::assertSame([false, 'once'], [$thrown->retryable, $thrown->operation]);
        self::assertSame(['u', 't'], array_map(fn ($effect) => $effect->key, $engine->effects('unknown')));
        self::assertTrue($engine->resolveEffect('t', true, ['id' => 9]));
        self::assertFalse($engine->resolveEffect('t', false), 'it is decided');
        self::assertSame([['id' => 9], '{"id":9}', 1, false, null], self::all($engine->once('t', self::REQUEST, self::uncalled())));
        self::assertTrue($engine->resolveEffect('u', false));
        self::assertSame('pending', $engine->effect('u')->state);
        self::assertSame(2, $engine->once('u', self::REQUEST, fn () => 1)->attempts);
        self::assertRefused('not_found', fn () => $engine->resolveEffect('v', true));
        self::assertRefused('invalid', fn () => $engine->resolveEffect('u', false, 1), 'has a response');
    }

    /** @dataProvider databases */
    public function test_a_sender_that_is_killed_between_call_and_record_has_sent_once(string $dsn): void
    {
        $engine = $this->open($dsn);
        foreach (['hold', 'ask', 'ask first', 'retry'] as $key) {
            $this->killed($key);
        }
        self::until(fn () => count($engine->effects('unknown')) === 4, 'the leases are over');
        self::assertRefused('unknown', fn () => $engine->once('hold', self::REQUEST, self::uncalled()), 'hold');
        self::assertRefused('unknown', fn () => $engine->once('hold', self::REQUEST, self::uncalled(), onUnknown: 'hold'), 'hold');
        $receipt = $engine->once('ask', self::REQUEST, self::uncalled(), fn (Effect $effect) => [$effect->key, $effect->attempts], 'ask');
        self::assertSame([['ask', 2], '["ask",2]', 2, true, null], self::all($receipt), 'the provider had it');
        $steps = [];
        $receipt = $engine->once('ask first', self::REQUEST, function () use (&$steps) {
            $steps[] = 'sent';
            return 1;
        }, function () use (&$steps) {
            $steps[] = 'asked';
            throw new NotSent('no such message');
        }, 'ask');
        self::assertSame([['asked', 'sent'], 2], [$steps, $receipt->attempts]);
        self::assertSame([3, '3', 2, true, null], self::all($engine->once('retry', self::REQUEST, fn () => 3, onUnknown: 'retry')));
    }

    public function test_a_provider_that_cannot_say_leaves_it_unknown(): void
    {
        $engine = $this->open('sqlite:');
        $this->assertThrows(DomainException::class, fn () => $engine->once('k', 1, fn () => throw new DomainException('x')));
        $away = new LengthException('the provider is away');
        self::assertSame($away, self::assertThrows(LengthException::class, fn () => $engine->once('k', 1, self::uncalled(), fn () => throw $away, 'ask')));
        self::assertSame(['unknown', 'LengthException: the provider is away', 2], [$engine->effect('k')->state, $engine->effect('k')->error, $engine->effect('k')->attempts]);
        self::assertRefused('invalid', fn () => $engine->once('k', 1, self::uncalled(), fn () => fopen(__FILE__, 'r'), 'ask'), 'effect k has happened and is recorded as succeeded');
        self::assertSame(['unencodable' => 'resource'], $engine->effect('k')->response);
    }

    /** @dataProvider databases */
    public function test_one_that_is_being_sent_is_busy_or_waited_for(string $dsn): void
    {
        $engine = $this->open($dsn);
        $marks = [$this->file('.mark'), $this->file('.mark')];
        $sender = $this->start(self::CONNECT . '
            echo $e->once("k", 1, function () use ($argv) { touch($argv[3]); while (!file_exists($argv[4])) { usleep(1000); clearstatcache(); } return "done"; })->fresh;',
            $this->here(...$marks));
        self::until(fn () => file_exists($marks[0]), 'the sender');
        $since = microtime(true);
        $thrown = self::assertRefused('busy', fn () => $engine->once('k', 1, self::uncalled(), wait: 0.3), 'effect k is being sent by');
        self::assertTrue($thrown->retryable && microtime(true) - $since >= 0.3);
        self::assertSame(['sending', null], [$engine->effect('k')->state, $engine->effect('k')->finishedAt]);
        touch($marks[1]);
        self::assertSame(['done', false], [$engine->once('k', 1, self::uncalled(), wait: 20)->response, $engine->once('k', 1, self::uncalled())->fresh]);
        self::assertSame([0, '1', ''], $this->finish($sender));
        $inside = null;
        $engine->once('nested', 1, function () use ($engine, &$inside): void {
            $inside = self::assertRefused('busy', fn () => $engine->once('nested', 1, self::uncalled()));
        });
        self::assertNotNull($inside);
    }

    /** @dataProvider databases */
    public function test_a_job_is_completed_with_its_effect(string $dsn): void
    {
        $engine = $this->open($dsn, ['backoff_base' => 0]);
        $ids = self::fill($engine, 4);
        $sent = [];
        $receipts = [];
        $summary = $engine->work(['q' => function (Job $job) use (&$sent, &$receipts): void {
            $receipts[] = $job->once("sms:$job->id", $job->payload, function (Effect $effect) use ($job, &$sent): string {
                $sent[] = $job->id;
                self::assertFalse($job->finished());
                return "id$job->id";
            });
            self::assertTrue($job->finished());
            $job->payload < 4 || throw new RuntimeException('too late to matter');
        }], maxJobs: 4);
        self::assertSame([$ids, array_fill_keys($ids, 'done')], [$sent, self::states($engine)]);
        self::assertSame([4, 4, 0], [$summary->claimed, $summary->completed, $summary->failed]);
        self::assertSame([["id$ids[0]", "\"id$ids[0]\"", 1, true, true]], [self::all($receipts[0])]);

        // It happened before the worker died: the job that comes back is completed without sending.
        [$id] = self::fill($engine, 1);
        $engine->once('before', 1, fn () => 7);
        foreach ($engine->claim('q') as $job) {
            self::assertSame([7, '7', 1, false, true], self::all($job->once('before', 1, self::uncalled())));
        }
        self::assertSame('done', self::states($engine)[$id]);

        // Not sent: neither is there.
        [$id] = self::fill($engine, 1);
        foreach ($engine->claim('q') as $job) {
            self::assertThrows(NotSent::class, fn () => $job->once('refused', 1, fn () => throw new NotSent()));
            self::assertSame([false, 'Rowclaim\\NotSent'], [$job->finished(), $engine->effect('refused')->error]);
            self::assertTrue($engine->cancel($id, force: true));
            $receipt = $engine->once('refused', 1, fn () => 8, completes: $job);
            self::assertSame([8, '8', 2, true, false], self::all($receipt), 'the job was taken away, the truth is kept');
            self::assertRefused('invalid', fn () => $this->another(['lease' => 77])->once('other', 1, self::uncalled(), completes: $job), 'another engine');
        }
        self::assertNull($engine->effect('other'));
    }

    /** @dataProvider databases */
    public function test_a_row_is_completed_with_its_effect(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(3);
        $table = $this->table($engine);
        foreach ($table->claim() as $row) {
            $send = fn () => $row['openid'];
            $receipt = $row->key === 1 ? $engine->once("row:$row->key", 1, $send, completes: $row) : $row->once("row:$row->key", 1, $send);
            self::assertSame(["open$row->key", true], [$receipt->response, $receipt->completed]);
        }
        self::assertEquals([1 => 2, 2 => 2, 3 => 2], $this->stored());
        $recurs = $this->table($engine, ['pending' => 2, 'done' => 2, 'failed' => 3]);
        foreach ($recurs->claim(limit: 1) as $row) {
            self::assertRefused('invalid', fn () => $row->once('recurs', 1, self::uncalled()));
        }
    }

    /** @dataProvider databases */
    public function test_a_response_without_a_json_form_is_said_and_recorded_as_succeeded(string $dsn): void
    {
        $engine = $this->open($dsn);
        $cases = [
            'Closure' => [fn () => fn () => 1, 'response is an object of Closure'],
            'float' => [fn () => NAN, 'response is NaN'],
            'array' => [fn () => ['a' => ["\xFF"]], "response['a'][0] is not UTF-8"],
            'class@anonymous' => [fn () => new class() {}, 'class@anonymous'],
            'JsonSerializable@anonymous' => [fn () => new class() implements JsonSerializable {
                public function jsonSerialize(): mixed
                {
                    throw new DomainException('no form today');
                }
            }, 'DomainException: no form today'],
        ];
        foreach ($cases as $type => [$send, $why]) {
            $thrown = self::assertRefused('invalid', fn () => $engine->once($type, 1, $send), "effect $type has happened and is recorded as succeeded");
            self::assertStringContainsString($why, $thrown->getMessage());
            self::assertSame([['unencodable' => $type], 'succeeded'], [$engine->effect($type)->response, $engine->effect($type)->state]);
            self::assertFalse($engine->once($type, 1, self::uncalled())->fresh);
        }
    }

    public function test_wrong_input_is_refused_before_anything_is_sent(): void
    {
        $engine = $this->open('sqlite:');
        $never = self::uncalled();
        $cases = [
            '1 to 191 bytes' => fn () => $engine->once('', 1, $never),
            'key is not UTF-8' => fn () => $engine->once("\xFF", 1, $never),
            'request is NaN' => fn () => $engine->once('k', NAN, $never),
            'send cannot be called' => fn () => $engine->once('k', 1, 'no_such_function'),
            'ask cannot be called' => fn () => $engine->once('k', 1, $never, 'no_such_function', 'ask'),
            "onUnknown: 'ask' needs" => fn () => $engine->once('k', 1, $never, onUnknown: 'ask'),
            "with onUnknown: 'ask' only" => fn () => $engine->once('k', 1, $never, $never),
            'hold, ask or retry' => fn () => $engine->once('k', 1, $never, onUnknown: 'guess'),
            'lease must be' => fn () => $engine->once('k', 1, $never, lease: 0.5),
            'wait must be' => fn () => $engine->once('k', 1, $never, wait: -1),
            'state sent is none of' => fn () => $engine->effects('sent'),
            'limit must not be negative' => fn () => $engine->effects(limit: -1),
        ];
        foreach ($cases as $message => $code) {
            self::assertRefused('invalid', $code, $message);
        }
        self::assertThrows(TypeError::class, fn () => $engine->once('k', 1, $never, completes: 5), 'completes must be of type Rowclaim\Job|Rowclaim\Row|null, int given');
        self::assertThrows(TypeError::class, fn () => $engine->once('k', 1, $never, completes: $engine), 'Rowclaim\Engine given');
        self::assertSame([], $engine->effects());
    }

    /** @return array<string, array{string, string}> */
    public static function endings(): array
    {
        return ['exit' => ['exit(3);', ''], 'fatal' => ['str_repeat("x", 64 << 20);', 'Allowed memory size'], 'user error' => ['trigger_error("no", E_USER_ERROR);', 'no']];
    }

    /** @dataProvider endings */
    public function test_a_script_that_ends_in_the_middle_leaves_it_unknown_at_once(string $ending, string $message): void
    {
        foreach (self::databases() as [$dsn]) {
            $engine = $this->open($dsn, ['backoff_base' => 0]);
            [$id] = self::fill($engine, 1);
            [, $out, $errors] = $this->script(self::CONNECT . '
                register_shutdown_function(fn () => print(" " . $e->effect("k")->state));
                $e->work(["q" => function (Job $job) use ($e) { $job->once("k", 1, function () { ' . $ending . ' }); }]);
                echo "not reached";', $this->here(), ['-d', 'memory_limit=24M']);
            self::assertStringContainsString($message, $out . $errors);
            self::assertStringEndsWith(' unknown', $out);
            self::assertSame(['unknown', 'the script ended in the middle', 'ready'], [$engine->effect('k')->state, $engine->effect('k')->error, self::states($engine)[$id]]);
            [, $out] = $this->script(self::CONNECT . '
                $e->once("j", 1, fn () => new class implements JsonSerializable { function jsonSerialize(): mixed { exit("left"); } });', $this->here());
            self::assertSame(['left', 'succeeded'], [$out, $engine->effect('j')->state], 'it had happened');
            $this->tearDown();
        }
    }

    /** @dataProvider databases */
    public function test_a_signal_handler_that_throws_does_not_cut_the_record(string $dsn): void
    {
        $engine = $this->open($dsn, ['lock_timeout' => 8]);
        $marks = [$this->file('.mark'), $this->file('.mark')];
        $holder = $this->start('
            while (!file_exists($argv[2])) { usleep(1000); clearstatcache(); }
            if (str_starts_with($argv[1], "sqlite:")) { $pdo = new PDO($argv[1]); $pdo->exec("BEGIN IMMEDIATE"); }
            else { $p = parse_url($argv[1]); $pdo = new PDO("mysql:host={$p["host"]};port={$p["port"]};dbname=" . ltrim($p["path"], "/"), $p["user"], $p["pass"] ?? "");
                $pdo->exec("LOCK TABLES {$argv[4]}effects WRITE"); }
            touch($argv[3]); sleep(3);', [$this->dsn, ...$marks, $this->options['prefix']]);
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, fn () => throw new DomainException("alarm"));
            try {
                $e->once("k", 1, function () use ($argv) {
                    touch($argv[3]);
                    while (!file_exists($argv[4])) { usleep(1000); clearstatcache(); }
                    pcntl_alarm(1);
                    return 7;
                });
                echo "not reached";
            } catch (DomainException $x) { echo $x->getMessage(), " ", $e->effect("k")->state; }', $this->here(...$marks));
        $this->finish($holder);
        self::assertSame([0, 'alarm succeeded', ''], $answer);
        self::assertSame(7, $engine->once('k', 1, self::uncalled())->response);
    }

    /** @dataProvider databases */
    public function test_a_forked_child_leaves_the_parent_s_effect_alone(string $dsn): void
    {
        $engine = $this->open($dsn);
        [$id] = self::fill($engine, 1);
        [$exit, $out, $errors] = $this->script(self::CONNECT . '
            $parent = getmypid();
            foreach ($e->claim("q") as $job) {
                try {
                    $receipt = $job->once("k", 1, function (Rowclaim\Effect $effect) use ($e) {
                        foreach (["exit", "return", "throw"] as $way) {
                            if (($pid = pcntl_fork()) === 0) {
                                if ($effect->key !== "k" || $e->effect("k")->state !== "sending") { exit(9); }
                                if ($way === "exit") { exit(5); }
                                if ($way === "throw") { throw new LengthException(); }
                                return "child";
                            }
                            pcntl_waitpid($pid, $status);
                            echo $way, pcntl_wexitstatus($status), $e->effect("k")->state, " ";
                        }
                        return "parent";
                    });
                } catch (Rowclaim\Exception\InvalidException $x) {
                    exit($parent !== getmypid() && str_contains($x->getMessage(), "fork") ? 7 : 8);
                } catch (LengthException $x) {
                    exit($parent !== getmypid() ? 6 : 8);
                }
                echo $receipt->response, $receipt->completed;
            }', $this->here());
        self::assertSame([0, 'exit5sending return7sending throw6sending parent1', ''], [$exit, substr($out, -49), $errors], $out);
        self::assertSame(['succeeded', 1, 'done'], [$engine->effect('k')->state, $engine->effect('k')->attempts, self::states($engine)[$id]]);
    }
}
