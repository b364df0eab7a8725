<?php

declare(strict_types=1);

use Rowclaim\{Engine, Record, Row};

enum Channel: string
{
    case Mail = 'mail';
}

/** What a column holds goes in and comes out unharmed; what it cannot hold is refused by its name. */
final class TableValueTest extends TableTestCase
{
    private const ALL = 'id BIGINT NOT NULL PRIMARY KEY, status VARCHAR(10) NOT NULL, token VARCHAR(36) NULL, i INT NULL, big BIGINT UNSIGNED NULL,
        f DOUBLE NULL, d DECIMAL(30, 10) NULL, s VARCHAR(64) NULL, b BLOB NULL, t DATETIME NULL, n INT NULL';
    private const MAP = ['status' => 'status', 'pending' => 'new', 'processing' => 'busy', 'done' => 'done', 'token' => 'token', 'zone' => 'UTC'];

    private function all(): void
    {
        $charset = $this->isSqlite() ? '' : 'DEFAULT CHARSET = utf8mb4';
        $columns = $this->isSqlite() ? self::ALL : str_replace('t DATETIME', 't DATETIME(6)', self::ALL);
        $this->sql("CREATE TABLE $this->name ($columns) $charset");
    }

    /** @return array<string, mixed> */
    private function values(): array
    {
        return ['i' => -7, 'big' => $this->isSqlite() ? PHP_INT_MAX : '18446744073709551615', 'f' => 0.1, 'd' => '12345678901234567890.0123456789',
            's' => "O'Reilly \\ \"`; 😀\r\n", 'b' => "\0\xFF\x80'\"\\😀\n", 't' => '2026-03-04 05:06:07', 'n' => null];
    }

    /** @dataProvider databases */
    public function test_values_of_every_type_come_out_as_they_were_put_in(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->all();
        $this->sql("INSERT INTO $this->name (id, status) VALUES (1, 'new')");
        $table = $engine->table($this->name, self::MAP);
        $values = $this->values();
        foreach ($table->claim() as $row) {
            self::assertNull($row['s']);
            self::assertTrue($row->complete(set: $values));
        }
        $record = $table->row(1);
        self::assertInstanceOf(Record::class, $record);
        if ($this->isSqlite()) {
            // SQLite keeps decimals as floats.
            $values['d'] = 12345678901234567890.0123456789;
        } else {
            $values['t'] .= '.000000';
        }
        self::assertSame($values, array_diff_key($record->toArray(), ['id' => 0, 'status' => 0, 'token' => 0]));
        // The same as other code sees it.
        $hex = $this->sql("SELECT HEX(s) AS s, HEX(b) AS b FROM $this->name")[0];
        self::assertSame([strtoupper(bin2hex($values['s'])), strtoupper(bin2hex($values['b']))], [$hex['s'], $hex['b']]);
    }

    /** @dataProvider databases */
    public function test_values_that_other_code_wrote_are_read_whole(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->all();
        $sql = "INSERT INTO $this->name VALUES (1, 'new', NULL, 2147483647, 9223372036854775807, -2.5, 0.5, 'ä😀', X'00FF', '2026-03-04 05:06:07.250000', NULL)";
        $this->sql($sql);
        foreach ($engine->table($this->name, self::MAP)->claim() as $row) {
            self::assertSame([2147483647, PHP_INT_MAX, -2.5], [$row['i'], $row['big'], $row['f']]);
            self::assertSame($this->isSqlite() ? 0.5 : '0.5000000000', $row['d']);
            self::assertSame(['ä😀', "\0\xFF", '2026-03-04 05:06:07.250000', null], [$row['s'], $row['b'], $row['t'], $row['n']]);
        }
    }

    /** @dataProvider databases */
    public function test_php_values_become_what_the_column_takes(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->all();
        $this->sql("INSERT INTO $this->name (id, status, i, f, s, b) VALUES (1, 'new', 5, 5, 'x', 'x')");
        $table = $engine->table($this->name, self::MAP);
        foreach ($table->claim(where: ['i' => '5', 's' => 'x']) as $row) {
            $at = new DateTimeImmutable('2026-03-04 05:06:07.123456', new DateTimeZone('Asia/Shanghai'));
            self::assertTrue($row->complete(set: ['i' => true, 'f' => 3, 's' => Channel::Mail, 'b' => 'text', 't' => $at, 'n' => false, 'd' => 1.5]));
        }
        $record = $table->row(1);
        self::assertSame([1, 3.0, 'mail', 'text', 0], [$record['i'], $record['f'], $record['s'], $record['b'], $record['n']]);
        self::assertSame('2026-03-03 21:06:07' . ($this->isSqlite() ? '' : '.123456'), $record['t']);
        self::assertEquals(1.5, $record['d']);
    }

    /** @dataProvider databases */
    public function test_what_a_column_cannot_hold_is_refused_by_name(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->all();
        $this->sql("INSERT INTO $this->name (id, status) VALUES (1, 'new')");
        $table = $engine->table($this->name, self::MAP);
        $claim = $table->claim();
        $claim->rewind();
        $row = $claim->current();
        $refused = ['i' => '1; DROP TABLE x', 'n' => 1.5, 'big' => '99999999999999999999', 'f' => NAN, 'd' => 'much', 't' => 'tomorrow', 'no' => 1,
            'status' => 'new', 'token' => 'mine', 'id' => 5, "s'; DROP" => 1, "\0" => 1, 5 => 'list'];
        foreach ($refused as $column => $value) {
            $shown = $column === "\0" ? 'has no column' : addcslashes((string) $column, '');
            self::assertRefused('invalid', fn () => $row->complete(set: [$column => $value]), $shown);
        }
        self::assertRefused('invalid', fn () => $row->complete(set: ["\xFF" => 1]), 'UTF-8');
        self::assertThrows(TypeError::class, fn () => $row->complete(set: ['s' => ['a']]), 's must be of type');
        self::assertThrows(TypeError::class, fn () => $row->complete(set: ['s' => new stdClass()]), 'stdClass given');
        self::assertRefused('invalid', fn () => $row->complete(delay: 5), 'delay');
        self::assertRefused('invalid', fn () => $row->complete(delay: -1), 'delay');
        self::assertRefused('invalid', fn () => $row->fail('x', delay: 5), 'available_at');
        self::assertSame('busy', $table->row(1)['status'], 'nothing was written');
        self::assertTrue($row->complete());
    }

    /** @dataProvider databases */
    public function test_a_row_is_a_read_only_array(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(1);
        $table = $this->table($engine, ['columns' => ['id', 'openid', 'note']]);
        foreach ($table->claim() as $row) {
            foreach ([$row, $table->row(1)] as $one) {
                self::assertInstanceOf(ArrayAccess::class, $one);
                self::assertNotInstanceOf(Countable::class, $one);
                self::assertTrue(isset($one['openid']));
                self::assertFalse(isset($one['note']), 'as in an array, NULL is not set');
                self::assertFalse(isset($one['nothing']) || isset($one[0]) || isset($one[null]));
                self::assertSame(['open1', 'none', 'none'], [$one['openid'] ?? 'none', $one['note'] ?? 'none', $one['nothing'] ?? 'none']);
                self::assertSame(['id' => 1, 'openid' => 'open1', 'note' => null], $one->toArray());
                self::assertSame($one->toArray(), iterator_to_array($one));
                self::assertSame('{"id":1,"openid":"open1","note":null}', json_encode($one));
                self::assertStringContainsString('[openid] => open1', print_r($one, true));
                self::assertRefused('invalid', fn () => $one['status'], 'id, openid, note');
                self::assertRefused('invalid', fn () => $one[0], 'id, openid, note');
                self::assertRefused('invalid', function () use ($one): void {
                    $one['openid'] = 'mine';
                }, 'read-only');
                self::assertRefused('invalid', function () use ($one): void {
                    $one[] = 'mine';
                }, 'read-only');
                self::assertRefused('invalid', function () use ($one): void {
                    unset($one['openid']);
                }, 'read-only');
                self::assertThrows(Error::class, function () use ($one): void {
                    $one->status = 2;
                }, 'dynamic property');
                foreach ([fn () => clone $one, fn () => serialize($one), fn () => new (get_class($one))(), fn () => $one->key = 5] as $refused) {
                    self::assertNotNull($this->thrown($refused));
                }
                self::assertSame('open1', $one['openid']);
            }
        }
        foreach ([$table, $table->claim()] as $one) {
            foreach ([fn () => clone $one, fn () => serialize($one), fn () => new (get_class($one))()] as $refused) {
                self::assertNotNull($this->thrown($refused));
            }
        }
    }

    private function thrown(callable $code): ?Throwable
    {
        try {
            $code();
        } catch (Throwable $thrown) {
            return $thrown;
        }
        return null;
    }

    /** @dataProvider databases */
    public function test_a_wrong_mapping_is_refused_by_entry_and_column(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(1);
        $this->sql("UPDATE $this->name SET note = 'stays'");
        $cases = [
            'status is missing' => [],
            'token is missing' => array_diff_key(self::MAPPING, ['token' => 0]),
            'colour is unknown' => ['colour' => 1] + self::MAPPING,
            '0 is unknown' => ['status'] + self::MAPPING,
            'pending cannot be' => ['pending' => [0]] + self::MAPPING,
            'recover_after cannot be -1' => ['recover_after' => -1] + self::MAPPING,
            'registry cannot be "maybe"' => ['registry' => 'maybe'] + self::MAPPING,
            'max_attempts cannot be 0' => ['max_attempts' => 0] + self::MAPPING,
            'scope cannot be' => ['scope' => 'task_id = 1'] + self::MAPPING,
            'columns cannot be' => ['columns' => []] + self::MAPPING,
            "pending is NaN" => ['pending' => NAN] + self::MAPPING,
            "scope['x'] is an object of Closure" => ['scope' => ['x' => fn () => 1]] + self::MAPPING,
            'token is not UTF-8' => ['token' => "\xFF"] + self::MAPPING,
            'dsn must be a string' => ['dsn' => []] + self::MAPPING,
            'zone nowhere' => ['zone' => 'nowhere'] + self::MAPPING,
            'token: column tries' => ['token' => 'tries'] + self::MAPPING,
            'status: ' => ['status' => 'no_such'] + self::MAPPING,
            'no column "id; DROP' => ['key' => 'id; DROP TABLE x'] + self::MAPPING,
            'no column "status` = 1 OR `1' => ['status' => 'status` = 1 OR `1'] + self::MAPPING,
            'no column "cron_token\\"' => ['token' => 'cron_token"'] + self::MAPPING,
            'claimed_at' => ['claimed_at' => 'openid'] + self::MAPPING,
            'max_attempts needs' => ['attempts' => null] + self::MAPPING,
            'processing must differ' => ['processing' => 0] + self::MAPPING,
            'column status takes' => ['pending' => "0' OR '1'='1"] + self::MAPPING,
        ];
        foreach ($cases as $message => $mapping) {
            self::assertRefused('config', fn () => $engine->table($this->name, $mapping), (string) $message);
        }
        foreach (["$this->name`; DROP TABLE x", "$this->name\" --", 'no_such_table', "$this->name WHERE 1"] as $name) {
            self::assertRefused('schema', fn () => $engine->table($name, self::MAPPING));
        }
        foreach (['', "a\0b", str_repeat('x', 65)] as $name) {
            self::assertRefused('config', fn () => $engine->table($name, self::MAPPING), 'name');
        }
        self::assertRefused('invalid', fn () => $engine->table("\xFF", self::MAPPING), 'UTF-8');
        $elsewhere = self::assertRefused('unavailable', fn () => $engine->table($this->name, ['dsn' => 'mysql://app:geheim@127.0.0.1:1/x'] + self::MAPPING));
        self::assertStringNotContainsString('geheim', $elsewhere->getMessage());
        self::assertSame(['stays'], array_values($this->stored('note')));
        self::assertSame('stays', $this->table($engine, ['scope' => []])->row(1)['note'], 'an empty scope is none');
    }

    /** @dataProvider databases */
    public function test_names_and_values_that_look_like_sql_are_only_names_and_values(string $dsn): void
    {
        $engine = $this->open($dsn);
        $quote = $this->isSqlite() ? fn (string $name) => '"' . str_replace('"', '""', $name) . '"' : fn (string $name) => '`' . str_replace('`', '``', $name) . '`';
        $this->name = "x`y\"z'" . bin2hex(random_bytes(4));
        $table = $quote($this->name);
        $status = 'st`at"us\'; --';
        $sql = 'CREATE TABLE %s (id INT NOT NULL PRIMARY KEY, %s VARCHAR(40) NOT NULL, %s VARCHAR(36) NULL, %s VARCHAR(40) NULL)';
        $this->sql(sprintf($sql, $table, $quote($status), $quote('to?ken'), $quote('{list} :a $1')), "INSERT INTO $table VALUES (1, '0'' OR ''1''=''1', NULL, NULL), (2, 'safe', NULL, NULL)");
        try {
            $mapped = $engine->table($this->name, ['status' => $status, 'token' => 'to?ken', 'pending' => "0' OR '1'='1", 'processing' => '1; --', 'done' => "2`\"'\\"]);
            $claim = $mapped->claim(where: ['{list} :a $1' => null], order: ['-{list} :a $1', $status]);
            self::assertSame([1], self::keys($claim));
            $evil = "'; DROP TABLE x; --?`\"\\";
            self::assertSame([1 => true], $claim->complete(set: ['{list} :a $1' => $evil]));
            self::assertSame([$evil, "2`\"'\\"], [$mapped->row(1)['{list} :a $1'], $mapped->row(1)[$status]]);
            self::assertSame([1], array_map(fn (Record $row) => $row->key, $mapped->rows(where: ['{list} :a $1' => [$evil, 'x']])));
            self::assertSame('safe', $mapped->row(2)[$status]);
        } finally {
            $this->sql("DROP TABLE $table");
            $this->name = 'gone';
        }
    }

    /** @dataProvider databases */
    public function test_keys_may_be_text_or_bytes(string $dsn): void
    {
        $engine = $this->open($dsn);
        foreach (['VARCHAR(20)' => ['12', 'a', 'ö'], 'VARBINARY(20)' => ["\0\xFF", "\x31\x32", "a'b"]] as $type => $keys) {
            $literal = fn (string $key) => $type === 'VARCHAR(20)' ? "('$key', 0, NULL)" : "(X'" . bin2hex($key) . "', 0, NULL)";
            $create = "CREATE TABLE $this->name (k $type NOT NULL PRIMARY KEY, status INT NOT NULL, token VARCHAR(36) NULL)";
            $this->sql($create, "INSERT INTO $this->name VALUES " . implode(', ', array_map($literal, $keys)));
            $table = $engine->table($this->name, ['registry' => 'on', 'status' => 'status', 'token' => 'token', 'pending' => 0, 'processing' => 1, 'done' => 2]);
            $claim = $table->claim();
            $seen = self::keys($claim);
            sort($keys, SORT_STRING);
            sort($seen, SORT_STRING);
            self::assertSame($keys, $seen, $type);
            $answers = $claim->complete($seen);
            // PHP makes an int of the array key '12'; the column takes it all the same.
            self::assertSame(array_map('strval', $keys), array_map('strval', array_keys($answers)), $type);
            self::assertSame($answers, $claim->complete(array_keys($answers)), $type);
            self::assertSame($keys[1], $table->row($keys[1])->key, $type);
            self::assertFalse($table->remaining());
            $this->sql("DROP TABLE $this->name");
            $this->name .= 'b';
        }
    }
}
