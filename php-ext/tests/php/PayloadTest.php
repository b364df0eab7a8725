<?php

declare(strict_types=1);

use Rowclaim\Json;

enum Colour: string
{
    case Red = 'red';
}

enum Plain
{
    case One;
}

final class ToJson implements JsonSerializable
{
    public function __construct(private mixed $value)
    {
    }

    public function jsonSerialize(): mixed
    {
        return $this->value instanceof Throwable ? throw $this->value : $this->value;
    }
}

/** Payloads come out as they went in. */
final class PayloadTest extends RowclaimTestCase
{
    /** @return iterable<string, array{mixed, string, mixed}> value, JSON text, value that comes out */
    public static function payloads(): iterable
    {
        yield 'zero' => [0, '0', 0];
        yield 'null' => [null, 'null', null];
        yield 'false' => [false, 'false', false];
        yield 'empty text' => ['', '""', ''];
        yield 'list' => [[], '[]', []];
        yield 'object' => [new stdClass(), '{}', []];
        yield 'broken one' => [1.0, '1.0', 1.0];
        yield 'sum' => [0.1 + 0.2, '0.30000000000000004', 0.1 + 0.2];
        yield 'NUL' => ["\0", '"\u0000"', "\0"];
        yield 'minus zero' => [-0.0, '-0.0', -0.0];
        yield 'huge' => [1e300, '1e300', 1e300];
        yield 'largest' => [PHP_INT_MAX, '9223372036854775807', PHP_INT_MAX];
        yield 'smallest' => [PHP_INT_MIN, '-9223372036854775808', PHP_INT_MIN];
        yield 'emoji' => ["\u{1F60A}", "\"\u{1F60A}\"", "\u{1F60A}"];
        yield 'escapes' => ["a\"b\\c/\n\t", '"a\"b\\\\c/\n\t"', "a\"b\\c/\n\t"];
        yield 'order of keys' => [['z' => 1, 'a' => 2, '7' => 3], '{"z":1,"a":2,"7":3}', ['z' => 1, 'a' => 2, 7 => 3]];
        yield 'gap in list' => [[0 => 'a', 2 => 'b'], '{"0":"a","2":"b"}', [0 => 'a', 2 => 'b']];
        yield 'nested' => [['a' => [1, [true, null]], 'b' => (object) ['c' => []]], '{"a":[1,[true,null]],"b":{"c":[]}}', ['a' => [1, [true, null]], 'b' => ['c' => []]]];
        yield 'enum' => [['c' => Colour::Red], '{"c":"red"}', ['c' => 'red']];
        yield 'serializable' => [new ToJson(['x' => new ToJson(1.0)]), '{"x":1.0}', ['x' => 1.0]];
        $raw = " {\"b\" : 1.50,\n\"a\":18446744073709551615}";
        yield 'raw' => [new Json($raw), $raw, ['b' => 1.5, 'a' => 18446744073709551615.0]];
        yield 'raw inside' => [['x' => new Json('[ 1 ]')], '{"x":[ 1 ]}', ['x' => [1]]];
        $big = '[899999999999999990,9223372036854775807,9223372036854775808,18446744073709551615]';
        yield 'big numbers' => [new Json($big), $big, [899999999999999990, PHP_INT_MAX, 9223372036854775808.0, 18446744073709551615.0]];
        yield '70,000 bytes' => [str_repeat('x', 70000), '"' . str_repeat('x', 70000) . '"', str_repeat('x', 70000)];
    }

    /** @dataProvider databases */
    public function test_every_payload_is_stored_and_read_byte_for_byte(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $expected = [];
        foreach (self::payloads() as $name => [$value, $json, $out]) {
            $expected[$engine->create('q', $value)->id] = [$name, $json, $out];
        }
        $seen = 0;
        foreach ($engine->claim('q', limit: 1000) as $job) {
            [$name, $json, $out] = $expected[$job->id];
            // '1e300' and '1e+300' are the same number.
            self::assertSame($json, str_replace('e+', 'e', $job->rawPayload), $name);
            self::assertSame(var_export($out, true), var_export($job->payload, true), $name);
            self::assertSame($job->rawPayload, $engine->job($job->id)['payload'], $name);
            $seen++;
        }
        self::assertSame(count($expected), $seen);
    }

    /** @dataProvider databases */
    public function test_five_megabytes_come_back_whole(string $dsn): void
    {
        $engine = $this->engine($dsn);
        $payload = base64_encode(random_bytes(3_900_000));
        $engine->create('q', $payload);
        foreach ($engine->claim('q') as $job) {
            self::assertSame(sha1($payload), sha1($job->payload));
            self::assertTrue($job->complete());
        }
    }

    /** @dataProvider databases */
    public function test_a_payload_over_the_server_s_packet_is_refused_and_the_connection_lives(string $dsn): void
    {
        $engine = $this->engine($dsn);
        if ($dsn === 'sqlite:') {
            self::assertFalse($engine->create('q', str_repeat('x', 20_000_000))->exists);
            return;
        }
        self::assertRefused('invalid', fn () => $engine->create('q', str_repeat('x', 80_000_000)), 'payload too large');
        self::assertFalse($engine->create('q', 'small')->exists);
        self::assertCount(1, $engine->jobs('q'));
    }

    public function test_a_payload_is_copied_on_write(): void
    {
        $engine = $this->engine();
        $engine->create('q', ['a' => [1, 2]]);
        foreach ($engine->claim('q') as $job) {
            $copy = $job->payload;
            $copy['a'][] = 3;
            self::assertSame(['a' => [1, 2]], $job->payload);
        }
    }

    public function test_values_without_json_are_refused_by_place(): void
    {
        $engine = $this->engine();
        $deep = [];
        for ($i = 0; $i < 512; $i++) {
            $deep = [$deep];
        }
        $endless = ['x' => 1];
        $endless['self'] = &$endless;
        $cases = [
            'payload is NaN' => NAN,
            "payload['a'][1] is NaN or infinite" => ['a' => [1, INF]],
            'payload is not UTF-8 at byte 1' => "D\xFCsseldorf",
            "payload['x'] has the key '\\xff', which is not UTF-8" => ['x' => ["\xFF" => 1]],
            "payload['f'] is a resource" => ['f' => fopen('php://memory', 'r')],
            'payload[0] is an object of Closure' => [fn () => 1],
            'payload is an object of ArrayObject' => new ArrayObject([1]),
            'payload is an object of Plain' => Plain::One,
            'is nested deeper than 512' => $deep,
            'nested deeper than 512' => $endless,
        ];
        foreach ($cases as $message => $payload) {
            self::assertRefused('invalid', fn () => $engine->create('q', $payload), $message);
        }
        $thrown = new DomainException('nine');
        self::assertSame($thrown, self::assertThrows(DomainException::class, fn () => $engine->create('q', [new ToJson($thrown)])));
        self::assertRefused('invalid', fn () => new Json('{"a":'), 'not JSON');
        self::assertRefused('invalid', fn () => new Json('1, 2'), 'not JSON');
        self::assertRefused('invalid', fn () => new Json("\"\xFF\""), 'UTF-8');
        self::assertSame([], $engine->jobs('q'));
    }

    public function test_the_deepest_nesting_goes_in_and_out(): void
    {
        $engine = $this->engine();
        $deep = [];
        for ($i = 0; $i < 511; $i++) {
            $deep = [$deep];
        }
        $engine->create('q', $deep);
        foreach ($engine->claim('q') as $job) {
            self::assertSame(json_encode($deep), $job->rawPayload);
            self::assertSame($deep, $job->payload);
        }
    }

    public function test_what_php_cannot_read_is_a_decode_exception_and_the_text_is_there(): void
    {
        $engine = $this->engine();
        $text = str_repeat('[', 600) . str_repeat(']', 600);
        $engine->create('q', new Json($text));
        foreach ($engine->claim('q') as $job) {
            self::assertRefused('decode', fn () => $job->payload);
            self::assertSame($text, $job->rawPayload);
        }
    }
}
