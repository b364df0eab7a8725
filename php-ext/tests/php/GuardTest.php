<?php

declare(strict_types=1);

use Rowclaim\Engine;

enum Paper: string
{
    case Daily = 'daily';
}

/** Fenced writes: a late writer changes nothing, whatever its fence comes from. */
final class GuardTest extends TableTestCase
{
    private const RESULTS = 'id INT NOT NULL PRIMARY KEY, kind VARCHAR(20) NULL UNIQUE, total INT NULL, price DECIMAL(10, 2) NULL,
        made_at DATETIME NULL, data BLOB NULL, fence BIGINT NULL';

    private function results(string $dsn): Engine
    {
        $engine = $this->open($dsn, ['heartbeat' => false, 'backoff_base' => 0]);
        $this->sql("CREATE TABLE $this->name (" . self::RESULTS . ')' . ($this->isSqlite() ? '' : ' DEFAULT CHARSET = utf8mb4'));
        return $engine;
    }

    /** @dataProvider databases */
    public function test_a_late_holder_of_a_lease_writes_nothing(string $dsn): void
    {
        $engine = $this->results($dsn);
        $this->sql("INSERT INTO $this->name (id, total) VALUES (1, 5)");
        $late = $engine->lease('report', for: 60);
        $this->sql("UPDATE {$this->options['prefix']}leases SET lease_until = acquired_at");
        $owner = $this->another(['worker' => 'second'])->lease('report', for: 60);
        foreach ([1 => 'a row that nobody has fenced', 2 => 'none'] as $id => $there) {
            self::assertTrue($late->guard($this->name, ['id' => $id], ['total' => 1], 'fence'), "$there: the owner has not written yet");
            self::assertTrue($owner->guard($this->name, key: ['id' => $id], set: ['total' => 2], fenceColumn: 'fence'));
            self::assertFalse($late->guard($this->name, ['id' => $id], ['total' => 3], 'fence'));
            self::assertTrue($owner->guard($this->name, ['id' => $id], ['total' => 2], 'fence'), 'the same again');
            self::assertTrue($owner->guard($this->name, ['id' => "$id"], ['total' => 4], 'fence'));
            self::assertFalse($engine->guard($this->name, ['id' => $id], ['total' => 5], 'fence', fence: $owner->fence - 1));
        }
        $owner->release();
        self::assertTrue($owner->guard($this->name, ['id' => 2], ['total' => 6], 'fence'), 'nobody newer has written');
        self::assertSame([1 => 4, 6], array_map('intval', $this->stored('total')));
        self::assertSame([1 => $owner->fence, $owner->fence], array_map('intval', $this->stored('fence')));
    }

    /** @dataProvider databases */
    public function test_values_are_converted_as_for_mapped_tables(string $dsn): void
    {
        $engine = $this->results($dsn);
        $set = ['total' => true, 'price' => '12.50', 'made_at' => '2026-03-04 05:06:07', 'data' => "\xFF\x00", 'kind' => 'O\'Reilly "`; 😀'];
        self::assertTrue($engine->guard($this->name, ['id' => '1'], $set, 'fence', 1));
        self::assertSame([[1, 12.5, '2026-03-04 05:06:07', 'FF00', 'O\'Reilly "`; 😀']], array_map(
            fn (array $row) => [(int) $row['total'], (float) $row['price'], substr($row['made_at'], 0, 19), $row['x'], $row['kind']],
            $this->sql("SELECT total, price, made_at, HEX(data) AS x, kind FROM $this->name"),
        ));
        self::assertTrue($engine->guard($this->name, ['kind' => $set['kind']], ['total' => null, 'data' => null], 'fence', 2), 'by a unique key');
        self::assertSame([null, null], array_values($this->sql("SELECT total, data FROM $this->name")[0]));
        self::assertTrue($engine->guard($this->name, ['id' => 1], ['kind' => Paper::Daily], 'fence', 2));
        self::assertSame([1 => 'daily'], $this->stored('kind'));
        self::assertRefused('duplicate', fn () => $engine->guard($this->name, ['id' => 2], ['kind' => 'daily'], 'fence', 1));
    }

    /** @dataProvider databases */
    public function test_jobs_and_rows_bring_their_fence_along(string $dsn): void
    {
        $engine = $this->open($dsn, ['heartbeat' => false, 'backoff_base' => 0]);
        $this->targets(2);
        $results = "{$this->options['prefix']}results";
        $this->sql("CREATE TABLE $results (" . self::RESULTS . ')');
        $owner = fn (string $what) => fn ($held) => $held->guard($results, ['id' => $what === 'job' ? 1 : 2], ['total' => $held->fence], 'fence');

        $id = $engine->create('q', 1)->id;
        [$late] = iterator_to_array($engine->claim('q'));
        self::assertTrue($owner('job')($late));
        self::assertTrue($engine->retry($id, force: true));
        [$job] = iterator_to_array($engine->claim('q'));
        self::assertTrue($owner('job')($job));
        self::assertFalse($owner('job')($late));
        self::assertTrue($job->complete());
        self::assertTrue($owner('job')($job), 'a fence outlives its claim');

        $table = $this->table($engine);
        [$late] = iterator_to_array($table->claim(limit: 1));
        self::assertSame(1, $table->takeBack([1]));
        [$row] = iterator_to_array($table->claim(limit: 1));
        self::assertSame($late->key, $row->key);
        self::assertTrue($owner('row')($row));
        self::assertFalse($owner('row')($late));
        self::assertSame([[1, $job->fence, $job->fence], [2, $row->fence, $row->fence]], array_map(
            fn (array $one) => array_map('intval', array_values($one)),
            $this->sql("SELECT id, total, fence FROM $results ORDER BY id"),
        ));
        $mapping = self::MAPPING;
        unset($mapping['fence']);
        foreach ($engine->table($this->name, $mapping)->claim(limit: 1) as $unfenced) {
            self::assertRefused('invalid', fn () => $owner('row')($unfenced), 'names no fence column');
            self::assertTrue($unfenced->complete());
        }
    }

    /** @dataProvider databases */
    public function test_a_planned_guard_runs_on_the_application_s_connection(string $dsn): void
    {
        $engine = $this->results($dsn);
        $this->sql("INSERT INTO $this->name (id, total, fence) VALUES (1, 5, 7)");
        $rows = function (array $planned): int {
            $file = $this->file('.plan');
            file_put_contents($file, serialize($planned));
            [$exit, $out, $errors] = $this->script('
                if (str_starts_with($argv[1], "sqlite:")) { $pdo = new PDO("sqlite:" . substr($argv[1], 7)); }
                else { $p = parse_url($argv[1]); $pdo = new PDO("mysql:host={$p["host"]};port={$p["port"]};dbname=" . ltrim($p["path"], "/"), $p["user"] ?? "root", $p["pass"] ?? ""); }
                $pdo->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
                [$sql, $bindings] = unserialize(file_get_contents($argv[2]));
                $pdo->beginTransaction(); $statement = $pdo->prepare($sql); $statement->execute($bindings); $pdo->commit();
                echo $statement->rowCount();', [$this->dsn, $file]);
            self::assertSame([0, ''], [$exit, $errors]);
            return (int) $out;
        };
        $plan = fn (int $total, int $fence) => $engine->planGuard($this->name, ['id' => 1], ['total' => $total, 'kind' => null], 'fence', $fence);
        [$sql, $bindings] = $plan(9, 6);
        self::assertStringStartsWith('UPDATE ', $sql);
        self::assertSame([9, null, 6, 1, 6], $bindings);
        self::assertSame(substr_count($sql, '?'), count($bindings));
        self::assertSame([0, 1, 1, 0], [$rows($plan(9, 6)), $rows($plan(10, 7)), $rows($plan(11, 8)), $rows($plan(12, 7))]);
        self::assertSame([1 => 11], array_map('intval', $this->stored('total')));
        $none = $engine->planGuard($this->name, ['id' => 2], ['total' => 1], 'fence', 99);
        self::assertSame(0, $rows($none), 'it creates nothing');
        self::assertRefused('unsupported', fn () => $engine->planGuard($this->name, ['id' => 1], ['data' => "\xFF"], 'fence', 1), 'guard');
        self::assertRefused('invalid', fn () => $engine->planGuard($this->name, ['total' => 1], ['kind' => 'x'], 'fence', 1), 'key');
    }

    /** @dataProvider databases */
    public function test_what_does_not_fit_is_refused_by_its_name(string $dsn): void
    {
        $engine = $this->results($dsn);
        $lease = $engine->lease('a', for: 60);
        $guard = fn (array $key = ['id' => 1], array $set = ['total' => 1], string $fence = 'fence', ?string $table = null) => $lease->guard($table ?? $this->name, $key, $set, $fence);
        self::assertRefused('schema', fn () => $guard(table: 'nowhere'), 'nowhere');
        self::assertRefused('invalid', fn () => $guard(key: ['total' => 1], set: ['kind' => 'x']), '(total) is no primary or unique key');
        self::assertRefused('invalid', fn () => $guard(key: []), 'key');
        self::assertRefused('invalid', fn () => $guard(key: [5]), 'has no column "0"');
        self::assertRefused('invalid', fn () => $guard(key: ['id' => '1 OR 1=1']), 'column id');
        self::assertRefused('invalid', fn () => $guard(set: []), 'nothing to write');
        self::assertRefused('invalid', fn () => $guard(set: ['x; DROP TABLE y' => 1]), 'has no column');
        self::assertRefused('invalid', fn () => $guard(set: ['total' => 'many']), 'column total');
        self::assertRefused('invalid', fn () => $guard(set: ['fence' => 1]), 'fence');
        self::assertRefused('invalid', fn () => $guard(set: ['id' => 2]), 'id');
        self::assertRefused('invalid', fn () => $guard(fence: 'kind'), 'no whole number');
        self::assertRefused('invalid', fn () => $guard(fence: 'version'), 'version');
        self::assertRefused('invalid', fn () => $guard(fence: "\xFF"), 'fenceColumn');
        self::assertRefused('invalid', fn () => $guard(set: ["\xFF" => 1]), 'set');
        self::assertThrows(TypeError::class, fn () => $guard(set: ['total' => [1]]), 'set: total');
        self::assertThrows(TypeError::class, fn () => $guard(key: ['id' => new stdClass()]), 'key: id');
        self::assertSame([], $this->stored("total"));
        $engine->close();
        self::assertRefused('invalid', fn () => $guard(), 'closed');
        self::assertRefused('invalid', fn () => $engine->guard($this->name, ['id' => 1], ['total' => 1], 'fence', 1), 'closed');
        self::assertRefused('invalid', fn () => $engine->planGuard($this->name, ['id' => 1], ['total' => 1], 'fence', 1), 'closed');
    }
}
