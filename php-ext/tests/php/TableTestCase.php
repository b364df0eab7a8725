<?php

declare(strict_types=1);

use Rowclaim\{Engine, Row, RowClaim, Table};

/**
 * Tables of users, made by plain SQL beside the engine.
 *
 * On SQLite that is done in another process: two SQLite libraries in one do not see each other's locks.
 */
abstract class TableTestCase extends RowclaimTestCase
{
    /** What xxx_task_target and its like have, in SQL that every database takes. */
    private const TARGETS = 'id BIGINT NOT NULL PRIMARY KEY, task_id INT NOT NULL, kind VARCHAR(20) NOT NULL, openid VARCHAR(64) NOT NULL,
        status INT NOT NULL, cron_token VARCHAR(36) NULL, send_at DATETIME NULL, tries INT NOT NULL, next_at DATETIME NULL,
        fault TEXT NULL, sent_at DATETIME NULL, deleted_at DATETIME NULL, fence BIGINT NOT NULL, note VARCHAR(64) NULL';
    protected const MAPPING = [
        'key' => 'id', 'status' => 'status', 'pending' => 0, 'processing' => 1, 'done' => 2, 'failed' => 3, 'token' => 'cron_token',
        'claimed_at' => 'send_at', 'attempts' => 'tries', 'max_attempts' => 3, 'available_at' => 'next_at', 'error' => 'fault',
        'finished_at' => 'sent_at', 'fence' => 'fence', 'zone' => 'UTC', 'recover_after' => 600, 'backoff_base' => 0,
    ];

    private const CHILD = '
        $pdo = new PDO("sqlite:" . substr($argv[1], 7), options: [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_TIMEOUT => 20]);
        $answer = [];
        foreach (unserialize(file_get_contents($argv[2])) as $sql) { $answer = $pdo->query($sql)->fetchAll(PDO::FETCH_ASSOC); }
        echo serialize($answer);';

    /** For scripts that get here() as arguments. */
    protected const CONNECT = '$e = Engine::connect($argv[1], json_decode($argv[2], true));';

    protected string $dsn;
    protected string $name;
    /** @var array<string, scalar> */
    protected array $options;
    private ?PDO $pdo = null;

    /** @param array<string, scalar> $options */
    protected function open(string $dsn, array $options = []): Engine
    {
        [$this->dsn, $this->options] = $this->place($dsn, $options);
        $this->name = 'x' . bin2hex(random_bytes(6));
        if (!$this->isSqlite()) {
            $at = parse_url($this->dsn);
            $where = "mysql:host={$at['host']};port={$at['port']};dbname=" . ltrim($at['path'], '/') . ';charset=utf8mb4';
            $this->pdo = new PDO($where, $at['user'] ?? 'root', $at['pass'] ?? '');
        }
        return $this->another([]);
    }

    /** @param array<string, scalar> $options an engine of its own on the same database */
    protected function another(array $options): Engine
    {
        $engine = Engine::connect($this->dsn, $options + $this->options);
        $engine->migrate();
        return $engine;
    }

    /** @return list<string> arguments of a script that connects as this test does, and more */
    protected function here(string ...$more): array
    {
        return [$this->dsn, (string) json_encode($this->options), ...$more];
    }

    protected static function uncalled(): callable
    {
        return fn () => self::fail('must not be called');
    }

    protected function isSqlite(): bool
    {
        return str_starts_with($this->dsn, 'sqlite:');
    }

    protected function tearDown(): void
    {
        if ($this->pdo !== null) {
            $this->sql("DROP TABLE IF EXISTS `$this->name`");
            foreach ($this->sql("SELECT table_name AS t FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '{$this->options['prefix']}%'") as $own) {
                $this->sql("DROP TABLE `{$own['t']}`");
            }
            $this->pdo = null;
        }
        parent::tearDown();
    }

    /** @return list<array<string, mixed>> rows of the last statement */
    protected function sql(string ...$statements): array
    {
        if ($this->pdo === null) {
            $file = $this->file('.sql');
            file_put_contents($file, serialize($statements));
            [$exit, $out, $errors] = $this->script(self::CHILD, [$this->dsn, $file]);
            self::assertSame([0, ''], [$exit, $errors]);
            return unserialize($out);
        }
        foreach ($statements as $statement) {
            $answer = $this->pdo->query($statement);
            $rows = $answer->columnCount() > 0 ? $answer->fetchAll(PDO::FETCH_ASSOC) : [];
            $answer->closeCursor();
        }
        return $rows ?? [];
    }

    /** Makes the table with $rows rows: tasks 1 and 2 and kinds sms and mail by turns. */
    protected function targets(int $rows): void
    {
        $values = array_map(function (int $id): string {
            $kind = $id % 3 === 0 ? 'mail' : 'sms';
            return sprintf("(%d, %d, '%s', 'open%d', 0, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL)", $id, 2 - $id % 2, $kind, $id);
        }, range(1, $rows));
        $charset = $this->isSqlite() ? '' : 'DEFAULT CHARSET = utf8mb4';
        $this->sql("CREATE TABLE $this->name (" . self::TARGETS . ") $charset", "INSERT INTO $this->name VALUES " . implode(', ', $values));
    }

    /** @param array<string, mixed> $mapping what differs from MAPPING */
    protected function table(Engine $engine, array $mapping = []): Table
    {
        return $engine->table($this->name, $mapping + self::MAPPING);
    }

    /** @return array<int, mixed> id => a column, as it is stored */
    protected function stored(string $column = 'status'): array
    {
        return array_column($this->sql("SELECT id, $column AS c FROM $this->name ORDER BY id"), 'c', 'id');
    }

    /** @return list<int|string> */
    protected static function keys(RowClaim $claim): array
    {
        return array_map(fn (Row $row) => $row->key, iterator_to_array($claim, false));
    }

    /** Seconds from now until a time as it is stored in UTC. */
    protected static function secondsTo(string $moment): int
    {
        return strtotime("$moment UTC") - time();
    }
}
