<?php

declare(strict_types=1);

use Rowclaim\Engine;
use Rowclaim\Exception\{InvalidException, RowclaimException};

final class ExtendedException extends InvalidException
{
    public function __construct(string $message, public readonly string $more = 'more')
    {
        parent::__construct($message, 9, new LogicException('before'));
    }
}

/** One class for each kind of error, with what the error knows. */
final class ExceptionTest extends RowclaimTestCase
{
    public function test_every_kind_has_its_class(): void
    {
        $kinds = Rowclaim\error_kinds();
        self::assertSame(
            ['config', 'unsupported', 'schema', 'invalid', 'duplicate', 'not_found', 'lost', 'busy', 'unknown', 'contention', 'unavailable', 'interrupted', 'decode', 'unexpected'],
            array_keys($kinds)
        );
        foreach ($kinds as $kind => $class) {
            self::assertSame('Rowclaim\\Exception\\' . str_replace('_', '', ucwords($kind, '_')) . 'Exception', $class);
            self::assertSame(RowclaimException::class, get_parent_class($class));
            self::assertFalse((new ReflectionClass($class))->isFinal());
        }
        self::assertSame(RuntimeException::class, get_parent_class(RowclaimException::class));
        $registered = array_filter(get_declared_classes(), fn (string $class) => str_starts_with($class, 'Rowclaim\\Exception\\'));
        self::assertCount(count($kinds) + 1, $registered);
    }

    public function test_an_exception_has_place_trace_and_properties(): void
    {
        $engine = $this->engine();
        [$line, $thrown] = [__LINE__, self::assertRefused('invalid', fn () => $engine->claim('q', limit: 0), 'limit')];
        self::assertSame([__FILE__, $line], [$thrown->getFile(), $thrown->getLine()]);
        self::assertSame(['claim', 'claim'], [$thrown->getTrace()[0]['function'], $thrown->operation]);
        self::assertSame([false, null, 0], [$thrown->retryable, $thrown->serverCode, $thrown->getCode()]);
        self::assertThrows(Error::class, function () use ($thrown): void {
            $thrown->kind = 'other';
        }, 'readonly');
    }

    public function test_exceptions_can_be_made_and_extended_by_php(): void
    {
        $caught = null;
        try {
            throw new ExtendedException('mine');
        } catch (RowclaimException $caught) {
        }
        self::assertSame(['mine', 9, 'more', 'before', __FILE__], [$caught->getMessage(), $caught->getCode(), $caught->more, $caught->getPrevious()->getMessage(), $caught->getFile()]);
    }

    public function test_what_is_wrong_with_a_connection_is_told(): void
    {
        self::assertRefused('config', fn () => Engine::connect(), 'rowclaim.dsn');
        self::assertRefused('config', fn () => Engine::connect('pgsql://x/y'), 'pgsql');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:', ['colour' => 1]), 'colour');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:?colour=1'), 'colour');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:', ['pool' => []]), 'pool');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:', ['lease' => 0.5]), 'lease');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:', ['migrate' => true]), 'migrate');
        self::assertRefused('config', fn () => Engine::connect('sqlite::memory:', ["a\0b" => 1]), 'a\0b');
        $thrown = self::assertRefused('unavailable', fn () => Engine::connect('mysql://app:geheim@127.0.0.1:1/x'));
        self::assertTrue($thrown->retryable);
        self::assertStringNotContainsString('geheim', $thrown->getMessage());
    }

    /** @dataProvider databases */
    public function test_what_a_server_refuses_is_told(string $dsn): void
    {
        if ($dsn === 'sqlite:') {
            $this->expectException(RowclaimException::class);
            Engine::connect('sqlite:/nowhere/at/all/x.db');
            return;
        }
        $wrong = self::assertRefused('config', fn () => Engine::connect((string) preg_replace('~//[^@/]*@~', '//app:geheim@', $dsn)));
        self::assertSame([1045, 1045], [$wrong->serverCode, $wrong->getCode()]);
        self::assertStringNotContainsString('geheim', $wrong->getMessage());
        $unknown = self::assertRefused('config', fn () => Engine::connect((string) preg_replace('~/[^/?]*(\?|$)~', '/no_such_database$1', $dsn)));
        self::assertContains($unknown->serverCode, [1049, 1044]);
        [$place, $options] = $this->place($dsn);
        $engine = Engine::connect($place, $options);
        self::assertRefused('schema', fn () => $engine->claim('q'), 'migrat');
    }

    /** @dataProvider databases */
    public function test_wrong_input_is_refused(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $cases = [
            'limit must be from' => fn () => $engine->claim('q', limit: 0),
            'limit must not be negative' => fn () => $engine->claim('q', limit: -1),
            'lease must be from' => fn () => $engine->claim('q', lease: 0.5),
            'lease' => fn () => $engine->claim('q', lease: NAN),
            'max_run' => fn () => $engine->claim('q', lease: 60, maxRun: 30),
            'maxRun' => fn () => $engine->claim('q', maxRun: -1),
            'priority must be' => fn () => $engine->claim('q', priority: 40000),
            'key must have' => fn () => $engine->create('q', 1, key: str_repeat('k', 192)),
            'key' => fn () => $engine->create('q', 1, key: ''),
            'key is not UTF-8' => fn () => $engine->create('q', 1, key: "\xFF"),
            'queue must have' => fn () => $engine->create(str_repeat('q', 65), 1),
            'queue' => fn () => $engine->claim(''),
            'queue is not UTF-8' => fn () => $engine->create("\xFF", 1),
            'unique must be' => fn () => $engine->create('q', 1, key: 'k', unique: 'sometimes'),
            'unique needs a key' => fn () => $engine->create('q', 1, unique: 'active'),
            'delay' => fn () => $engine->create('q', 1, delay: -1),
            'delay must be' => fn () => $engine->create('q', 1, delay: INF),
            'runAt is outside' => fn () => $engine->create('q', 1, runAt: 1e15),
            'delay or run_at' => fn () => $engine->create('q', 1, delay: 5, runAt: 1900000000),
            'max_attempts' => fn () => $engine->create('q', 1, maxAttempts: 0),
            'priority' => fn () => $engine->create('q', 1, priority: 32768),
        ];
        foreach ($cases as $message => $code) {
            self::assertRefused('invalid', $code, $message);
        }
        self::assertSame([], $engine->jobs());
        self::assertFalse($engine->create(str_repeat('q', 64), 1, key: str_repeat('k', 191))->exists);
        self::assertThrows(TypeError::class, fn () => $engine->create('q', 1, runAt: 'tomorrow'), 'runAt');
        self::assertThrows(TypeError::class, fn () => $engine->create('q', 1, key: 'k', unique: []), 'unique');
        self::assertThrows(TypeError::class, fn () => $engine->claim(5), 'queues');
        self::assertThrows(ArgumentCountError::class, fn () => $engine->create('q'));
    }

    /** @dataProvider databases */
    public function test_a_claim_from_before_a_close_is_refused(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $engine->create('q', 1);
        $claim = $engine->claim('q', lease: 1);
        $engine->close();
        self::assertRefused('invalid', fn () => $claim->complete(), 'clos');
        self::assertRefused('invalid', fn () => $claim->renew(), 'clos');
        self::assertRefused('invalid', fn () => $engine->serverVersion(), 'connect again');
    }

    public function test_an_error_text_may_be_a_throwable_or_any_text(): void
    {
        $engine = $this->engine('sqlite:', ['backoff_base' => 0]);
        $id = $engine->create('q', 1)->id;
        $errors = [
            'plain' => 'plain',
            "bad \u{FFFD} bytes" => "bad \xFF bytes",
            'DomainException: text' => new DomainException('text'),
            'LogicException' => new LogicException(),
            '@anonymous: x' => new class ('x') extends Exception {},
        ];
        foreach ($errors as $expected => $error) {
            foreach ($engine->claim('q') as $job) {
                self::assertTrue($job->fail($error, delay: 0));
            }
            self::assertStringEndsWith($expected, $engine->job($id)['lastError']);
        }
        foreach ($engine->claim('q') as $job) {
            self::assertThrows(TypeError::class, fn () => $job->fail([]), 'error');
        }
    }
}
