<?php

/**
 * The extension `rowclaim`, for editors and static analysis. Compared with the loaded extension by tests/StubTest.php.
 *
 * Durations are seconds, whole or broken; instants are seconds since 1970-01-01T00:00Z. What is null or left out stays
 * at the engine's default. Text is UTF-8. Every method may throw a {@see \Rowclaim\Exception\RowclaimException}:
 * `UnavailableException` and `ContentionException` when the same call can succeed later (`$retryable`),
 * `SchemaException` when migrations are missing, `InvalidException` for wrong input.
 */

namespace Rowclaim {

    /**
     * A handle on one database. The connections behind it belong to the process, are made on first use and shared by all
     * handles with the same DSN and options, over the requests of a php-fpm worker too.
     */
    final class Engine
    {
        /**
         * Connects, and proves that the server answers.
         *
         * @param string|null $dsn `mysql://user:password@host:port/database?option=value`, `mariadb://…`,
         *                         `sqlite:///absolute/path`, `sqlite:relative/path`, `sqlite::memory:`; null: rowclaim.dsn of php.ini
         * @param array<string, scalar|null>|null $options options of the DSN by name; they weigh more than the DSN, which
         *                                                 weighs more than php.ini
         * @throws Exception\ConfigException wrong DSN, option, password or database
         */
        public static function connect(?string $dsn = null, ?array $options = null): Engine {}

        /**
         * Creates a job; with a key, only once.
         *
         * @param string $queue 1 to 64 bytes
         * @param mixed $payload null, scalars, arrays, stdClass, JsonSerializable, backed enums, {@see Json}; no NaN, no infinity
         * @param string|null $key business key, 1 to 191 bytes: with the same queue and key the job is created once
         * @param string|int|float|null $unique how long the key lives: 'forever', 'active' (until done, dead or cancelled),
         *                                      'until_claimed', or seconds
         * @param int|float|null $delay seconds before the first attempt
         * @param int|float|\DateTimeInterface|null $runAt or the instant of the first attempt
         * @param int|null $priority smaller runs first
         * @param int|null $maxAttempts attempts before the job is dead
         */
        public function create(string $queue, mixed $payload, ?string $key = null, mixed $unique = null, ?float $delay = null, mixed $runAt = null, ?int $priority = null, ?int $maxAttempts = null): Created {}

        /**
         * Creates many jobs; one answer a job, in order. A repeat after an error creates only what is missing.
         *
         * @param iterable<array{payload: mixed, key?: string|null, unique?: string|int|float|null, delay?: int|float|null, runAt?: int|float|\DateTimeInterface|null, priority?: int|null, maxAttempts?: int|null}> $jobs
         * @return list<Created>
         */
        public function createMany(string $queue, iterable $jobs): array {}

        /**
         * SQL and values that create a job on a connection the application has open, in its own transaction.
         *
         * @param string|null $unique as for create(), without seconds
         * @return array{string, list<int|string|null>} SQL with `?` places, and their values
         * @throws Exception\UnsupportedException for a key that lives for seconds
         */
        public function planCreate(string $queue, mixed $payload, ?string $key = null, mixed $unique = null, ?float $delay = null, ?int $priority = null, ?int $maxAttempts = null): array {}

        /**
         * Takes up to $limit jobs. The claim is empty when nothing waits.
         *
         * @param string|list<string> $queues asked in this order within one priority
         * @param int|null $limit 1 to 10,000; 100 when null
         * @param int|float|null $lease seconds, 1 or more
         * @param int|float|null $maxRun no renewal goes past this many seconds from the start
         * @param int|null $priority only jobs of this priority
         * @param array{int, int}|null $partition [k, n]: only jobs whose id leaves k when divided by n
         * @param string|null $onLost 'retry' (at least once, the default): a job whose lease runs out is done again. 'hold' (at most
         *   once): one that was begun by then waits in state 'held' for {@see Engine::resolve()}, and handing a job out costs a write
         */
        public function claim(mixed $queues, ?int $limit = null, ?float $lease = null, ?float $maxRun = null, ?int $priority = null, ?array $partition = null, ?string $onLost = null): Claim {}

        /**
         * Claims batches and calls the handler of a job's queue for each job, until a limit is reached or SIGTERM or SIGINT
         * comes. A handler that returns completes its job, one that throws fails it; it may also finish the job itself. What
         * is held and not started is released before it returns. A second signal ends the process.
         *
         * @param array<string, callable(Job): mixed> $handlers by queue
         * @param int|null $batch jobs at most in one claim
         * @param int|float|null $maxSeconds stop after this time
         * @param int|null $maxJobs stop after this many jobs
         * @param bool $untilEmpty stop when nothing waits
         * @param int|float|null $maxIdle longest pause in seconds when nothing waits
         * @param string|null $finish 'group' (the background thread writes outcomes together) or 'each' (durable before the next job)
         * @param string|null $onLost as for {@see Engine::claim()}. With 'hold' a job whose handler leaves by exit is not given back,
         *   and 'each' leaves fewer that are done but held; an exception still fails the job, and it is tried again
         */
        public function work(array $handlers, ?int $batch = null, ?float $maxSeconds = null, ?int $maxJobs = null, bool $untilEmpty = false, ?float $lease = null, ?float $maxRun = null, ?float $maxIdle = null, ?string $finish = null, ?string $onLost = null): Summary {}

        /**
         * A table of your own by a mapping, checked against the table at once. Of the mapping, `status`, `pending`,
         * `processing`, `done` and `token` are needed.
         *
         * | entry | is |
         * |---|---|
         * | `key` | column that is unique and not NULL; the primary key when left out |
         * | `status` | column that says where a row stands |
         * | `pending`, `processing`, `done` | its values in a row that waits, is held, is done. Rows whose `done` is `pending` recur |
         * | `failed` | its value in a row that is out of attempts; without it a failed row waits again |
         * | `on_lost`, `held` | 'hold' (at most once) and the status of rows that were begun when their lease ran out: they wait for {@see Table::resolve()}. 'retry' (at least once) when left out: they are done again |
         * | `token` | column that names the claim that holds the row: text of 32 characters or more, or 16 bytes |
         * | `claimed_at`, `lease_until`, `finished_at` | columns with times, which are written: DATETIME, TIMESTAMP or whole numbers |
         * | `locked_by` | column that says who holds the row, for people |
         * | `attempts`, `max_attempts` | column that counts attempts; their limit: a number, or the column that says it |
         * | `available_at` | column with the time before which the row is not handed out; NULL is at once |
         * | `error` | column for what went wrong last |
         * | `priority` | column to order by, smaller first |
         * | `fence` | column with a number that every claim of the row raises |
         * | `scope` | array of columns and values: only rows with these are ever touched |
         * | `columns` | list of the columns that rows come with; all when left out |
         * | `zone` | zone of DATETIME columns: `UTC`, `+08:00`, `Asia/Shanghai` |
         * | `unit` | unit of whole-number times: `seconds` (default) or `milliseconds` |
         * | `recover_after` | seconds after which rows that other code left held come back |
         * | `backoff_base`, `backoff_cap`, `lease` | seconds; the engine's when left out |
         * | `registry` | 'off': claims are not recorded in Rowclaim's own tables, and the lease is in the row |
         * | `dsn` | DSN of the table's own database: the table belongs to an engine of its own then |
         *
         * @param string $name `table` or `database.table`
         * @param array{key?: string, status: string, pending: scalar, processing: scalar, done: scalar, failed?: scalar, on_lost?: 'retry'|'hold', held?: scalar, token: string, claimed_at?: string, lease_until?: string, locked_by?: string, attempts?: string, max_attempts?: int|string, available_at?: string, error?: string, finished_at?: string, priority?: string, fence?: string, scope?: array<string, scalar|null>, columns?: list<string>, zone?: string, unit?: 'seconds'|'milliseconds', recover_after?: int|float, backoff_base?: int|float, backoff_cap?: int|float, lease?: int|float, registry?: bool|'on'|'off', dsn?: string} $mapping
         * @throws Exception\ConfigException naming the entry and the column that do not fit, with the DDL that mends it
         * @throws Exception\SchemaException there is no such table
         */
        public function table(string $name, array $mapping): Table {}

        /**
         * The mappings that claims were made by, by name of the table.
         *
         * @return list<array{id: int, name: string, mapping: array<string, mixed>, createdAt: float}>
         */
        public function tables(): array {}

        /**
         * Looks at the server and Rowclaim's tables for what is wrong, or will be; changes nothing. A right the account lacks
         * is never an error.
         *
         * @return list<array{severity: 'note'|'warning'|'fault', code: string, subject: string, message: string, consequence: string, fix: ?string}>
         */
        public function doctor(): array {}

        /**
         * Takes the jobs of expired claims back now. Claims do it by themselves from time to time.
         *
         * @return array{claims: int, returned: int, dead: int, held: int}
         */
        public function recover(): array {}

        /**
         * A job as it stands in the table; null when there is none.
         *
         * @return array{id: int, queue: string, key: string|null, priority: int, state: 'ready'|'claimed'|'done'|'dead'|'cancelled'|'held', payload: string, attempts: int, maxAttempts: int, lost: int, fence: int, readyAt: float|null, createdAt: float, finishedAt: float|null, lastError: string|null, claimId: int|null}|null
         */
        public function job(int $id): ?array {}

        /**
         * Jobs as they stand in the table, newest first.
         *
         * @param string|null $state 'ready', 'claimed', 'done', 'dead', 'cancelled' or 'held'
         * @param int|null $before only ids below this one: the last id of the page before
         * @param int|null $limit 1 to 10,000; 100 when null
         * @return list<array{id: int, queue: string, key: string|null, priority: int, state: string, payload: string, attempts: int, maxAttempts: int, lost: int, fence: int, readyAt: float|null, createdAt: float, finishedAt: float|null, lastError: string|null, claimId: int|null}>
         */
        public function jobs(?string $queue = null, ?string $state = null, ?int $before = null, ?int $limit = null): array {}

        /**
         * Attempts of a job that did not succeed, oldest first, 1,000 at most.
         *
         * @return list<array{fence: int, outcome: 'failed'|'lost'|'released', final: bool, worker: string, claimedAt: float|null, endedAt: float, error: string|null}>
         */
        public function attempts(int $id): array {}

        /**
         * Puts a dead job back with all its attempts; with $force a claimed one too, whose owner is fenced off. A job in state
         * 'held' is never put back by it: {@see Engine::resolve()}.
         *
         * @return bool false when it does not stand so any more
         * @throws Exception\NotFoundException|Exception\DuplicateException a newer job holds its key
         */
        public function retry(int $id, bool $force = false): bool {}

        /**
         * Says of held jobs, which were begun when their lease ran out, whether they were sent: those that were are done, the
         * others are handed out again, and the attempt is not counted.
         *
         * @param list<int> $ids
         * @return array<int, bool> by id; false: it is not held, or not any more
         */
        public function resolve(array $ids, bool $sent): array {}

        /**
         * Takes a waiting, dead or held job out; with $force a claimed one too, whose owner is fenced off.
         *
         * @return bool false when it does not stand so any more
         * @throws Exception\NotFoundException
         */
        public function cancel(int $id, bool $force = false): bool {}

        /**
         * Deletes jobs and claims that ended longer ago than $olderThan seconds.
         *
         * @param int|null $batch rows in one DELETE, 1 to 10,000
         * @return array{jobs: int, claims: int, attempts: int}
         */
        public function prune(float $olderThan, ?int $batch = null): array {}

        /**
         * What waits, runs and is dead, by queue; with $exact all jobs by state, which scans the table. `capped`: there are
         * more than were counted.
         *
         * @return array{queues: array<string, array{due: int, delayed: int, claimed: int, dead: int, held: int, capped: bool, oldestDue: float|null, exact?: array<string, int>}>, openClaims: int, expiredClaims: int}
         */
        public function stats(bool $exact = false): array {}

        /**
         * Brings the tables to the newest version. Safe in two processes at once.
         *
         * @return array{from: int, to: int} versions; 0 is no tables
         */
        public function migrate(): array {}

        /** The SQL of the whole schema, for people who apply it with their own tool. */
        public function schemaSql(): string {}

        /** Waits until every outcome given to group finish before is written. */
        public function flush(): void {}

        /**
         * Writes what is pending and closes the connections, within $limit seconds. Handles with the same configuration are
         * closed with it, and claims from before are refused; connect again.
         *
         * @param int|float|null $limit 2 when null
         */
        public function close(?float $limit = null): void {}

        /** Name and version of the server. */
        public function serverVersion(): string {}
    }

    /**
     * A batch of jobs with one token and one lease, handed out one by one by foreach, once. Past the time until which it is
     * surely valid it is renewed before a further job is handed out, and ends when that is refused. When the last object of
     * a claim goes, what was not started is released: `break` is enough. Does not cross a fork.
     *
     * @implements \Iterator<int, Job>
     */
    final class Claim implements \Iterator, \Countable
    {
        /** Id of its row in the claims table; null when empty. */
        public readonly ?int $id;
        /** 128 random bits as a UUID; null when empty. */
        public readonly ?string $token;
        /** True once a renewal was refused: somebody else may own the jobs now. */
        public readonly bool $lost;
        /** For how many seconds it is surely valid from now on; 0.0 when lost or empty. */
        public readonly float $validFor;

        /** @return Job|null */
        public function current(): mixed {}

        /** Its position. */
        public function key(): ?int {}

        public function next(): void {}

        /** @throws Exception\InvalidException when it was started already */
        public function rewind(): void {}

        public function valid(): bool {}

        /** Jobs in it, handed out or not. */
        public function count(): int {}

        /** True when nothing waited. */
        public function isEmpty(): bool {}

        /** Renews the lease now; false when it is lost. The heartbeat does it by itself. */
        public function renew(): bool {}

        /**
         * Completes jobs in one step; durable when it returns.
         *
         * @param list<int>|null $ids null: all that are not finished
         * @return array<int, bool> by id; false: lost
         */
        public function complete(?array $ids = null): array {}

        /**
         * Fails jobs in one step.
         *
         * @param list<int> $ids
         * @param string|\Throwable $error
         * @param int|float|null $delay seconds instead of the back-off
         * @return array<int, bool> by id; false: lost
         */
        public function fail(array $ids, mixed $error, ?float $delay = null): array {}

        /**
         * Gives jobs back without blame: the attempt is not counted.
         *
         * @param list<int>|null $ids null: all that were not started
         * @param int|float|null $delay seconds in which they are not handed out again
         * @return array<int, bool> by id; false: lost
         */
        public function release(?array $ids = null, ?float $delay = null): array {}
    }

    /** One job of a claim, in a worker's hands. */
    final class Job
    {
        public readonly int $id;
        public readonly string $queue;
        /** The business key as given. */
        public readonly ?string $key;
        /**
         * Decoded as by json_decode($rawPayload, true), once: objects are arrays, whole numbers beyond 64 bits are floats.
         * Reading it throws a DecodeException for text that PHP cannot read.
         */
        public readonly mixed $payload;
        /** JSON text, byte for byte as it was created. */
        public readonly string $rawPayload;
        /** Attempts so far, this one included. */
        public readonly int $attempts;
        /** Attempts before the job is dead. */
        public readonly int $maxAttempts;
        /** How often a lease on it ran out. */
        public readonly int $lost;
        /** The fence of this claim of the job: every later claim has a larger one. */
        public readonly int $fence;
        public readonly int $priority;
        /** The claim's token. */
        public readonly ?string $token;
        /** Seconds since 1970-01-01T00:00Z. */
        public readonly float $createdAt;

        /** Done; durable when it returns. @return bool false: lost, somebody else owns the job now */
        public function complete(): bool {}

        /**
         * Failed: comes back after the back-off, or is dead when its attempts are used up.
         *
         * @param string|\Throwable $error a throwable is kept as "Class: message"
         * @param int|float|null $delay seconds instead of the back-off
         * @return bool false: lost
         */
        public function fail(mixed $error, ?float $delay = null): bool {}

        /**
         * Given back without blame: the attempt is not counted.
         *
         * @param int|float|null $delay seconds in which it is not handed out again
         * @return bool false: lost
         */
        public function release(?float $delay = null): bool {}

        /** True when it was finished through this claim, or its finish is on the way. */
        public function finished(): bool {}

        /** The claim it belongs to. */
        public function claim(): Claim {}
    }

    /**
     * A table of your own. Values of columns go in as null, bool (1 and 0), int, float, string, DateTimeInterface and backed
     * enum; what a column does not take is refused by its name, before any SQL.
     *
     * In $where a column has one value, or a list of which any will do; null is IS NULL:
     * `['task_id' => 42, 'type' => ['sms', 'mail'], 'deleted_at' => null]`.
     */
    final class Table
    {
        /** As it was given. */
        public readonly string $name;

        /**
         * Takes up to $limit rows. The claim is empty when nothing waits.
         *
         * @param int|null $limit 1 to 10,000; 100 when null
         * @param array<string, mixed>|null $where
         * @param string|list<string>|null $order columns, '-column' for descending; by priority and time when null; the key comes last
         * @param int|float|null $lease seconds, 1 or more
         * @param int|float|null $maxRun no renewal goes past this many seconds from the start
         * @param array{int, int}|null $partition [k, n]: only rows whose key leaves k when divided by n
         */
        public function claim(?int $limit = null, ?array $where = null, mixed $order = null, ?float $lease = null, ?float $maxRun = null, ?array $partition = null): RowClaim {}

        /**
         * Claims batches and calls the handler for each row, as {@see Engine::work()} does. Rows that recur are completed by
         * the handler, which knows their next time.
         *
         * @param callable(Row): mixed $handler
         * @param int|null $batch rows at most in one claim
         * @param int|float|null $maxSeconds stop after this time
         * @param int|null $maxJobs stop after this many rows
         * @param bool $untilEmpty stop when nothing waits
         * @param int|float|null $maxIdle longest pause in seconds when nothing waits
         * @param string|null $finish 'group' (the background thread writes outcomes together) or 'each' (durable before the next row)
         * @param array<string, mixed>|null $where
         * @param string|list<string>|null $order
         */
        public function work(mixed $handler, ?int $batch = null, ?float $maxSeconds = null, ?int $maxJobs = null, bool $untilEmpty = false, ?float $lease = null, ?float $maxRun = null, ?float $maxIdle = null, ?string $finish = null, ?array $where = null, mixed $order = null): Summary {}

        /**
         * Whether any row waits or is in a claim; stops at the first one. Failed rows and those that wait for a person do not count.
         *
         * @param array<string, mixed>|null $where
         */
        public function remaining(?array $where = null): bool {}

        /**
         * Looks at the server, Rowclaim's tables and this table for what is wrong, or will be; changes nothing.
         *
         * @param string|list<string>|null $filters columns that claims on it filter by; the index has to have them
         * @return list<array{severity: 'note'|'warning'|'fault', code: string, subject: string, message: string, consequence: string, fix: ?string}>
         */
        public function doctor(mixed $filters = null): array {}

        /**
         * Takes the rows of expired claims back now, and those that other code left held for longer than `recover_after`.
         * Claims do it by themselves from time to time.
         *
         * @return array{claims: int, returned: int, dead: int, held: int}
         */
        public function recover(): array {}

        /**
         * Puts failed rows back with all their attempts: those of $keys, or up to $limit.
         *
         * @param list<int|string>|null $keys
         * @param array<string, mixed>|null $where
         * @param int|null $limit 100 when null
         * @return int how many
         */
        public function retry(?array $keys = null, ?array $where = null, ?int $limit = null): int {}

        /**
         * Takes held rows away from their owners, whose writes are refused from then on, and puts them back at once. For a
         * person who knows that the owner is gone.
         *
         * @param list<int|string>|null $keys
         * @param array<string, mixed>|null $where
         * @param int|null $limit 100 when null
         * @return int how many
         */
        public function takeBack(?array $keys = null, ?array $where = null, ?int $limit = null): int {}

        /**
         * Says of rows in the mapping's `held` status, which were begun when their lease ran out, whether they were sent: those
         * that were are done, the others are handed out again, and the attempt is not counted.
         *
         * @param list<int|string> $keys
         * @return array<int|string, bool> by key; false: it does not wait for a person, or not any more
         * @throws Exception\InvalidException the mapping has no `held`
         */
        public function resolve(array $keys, bool $sent): array {}

        /**
         * Rows as they stand, in the order of their keys.
         *
         * @param array<string, mixed>|null $where
         * @param int|string|null $status only rows with this value in the status column
         * @param int|string|null $after only keys above this one: the last key of the page before
         * @param int|null $limit 1 to 10,000; 100 when null
         * @return list<Record>
         */
        public function rows(?array $where = null, mixed $status = null, mixed $after = null, ?int $limit = null): array {}

        /**
         * A row as it stands; null when there is none.
         *
         * @param int|string $key
         */
        public function row(mixed $key): ?Record {}
    }

    /**
     * A batch of rows with one token and one lease; as {@see Claim}, with rows that are finished by key.
     *
     * @implements \Iterator<int, Row>
     */
    final class RowClaim implements \Iterator, \Countable
    {
        /** Id of its row in the claims table, below 0 without a registry; null when empty. */
        public readonly ?int $id;
        /** 128 random bits as a UUID; null when empty. */
        public readonly ?string $token;
        /** True once a renewal was refused: somebody else may own the rows now. */
        public readonly bool $lost;
        /** For how many seconds it is surely valid from now on; 0.0 when lost or empty. */
        public readonly float $validFor;

        /** @return Row|null */
        public function current(): mixed {}

        /** Its position. */
        public function key(): ?int {}

        public function next(): void {}

        /** @throws Exception\InvalidException when it was started already */
        public function rewind(): void {}

        public function valid(): bool {}

        /** Rows in it, handed out or not. */
        public function count(): int {}

        /** True when nothing waited. */
        public function isEmpty(): bool {}

        /** Renews the lease now; false when it is lost. The heartbeat does it by itself. */
        public function renew(): bool {}

        /**
         * Completes rows in one step; durable when it returns.
         *
         * @param list<int|string>|null $keys null: all that are not finished
         * @param array<string, mixed>|null $set columns and values, the same for every row
         * @param int|float|null $delay for rows that recur: seconds in which they are not handed out again
         * @return array<int|string, bool> by key; false: lost
         */
        public function complete(?array $keys = null, ?array $set = null, ?float $delay = null): array {}

        /**
         * Fails rows in one step.
         *
         * @param list<int|string> $keys
         * @param string|\Throwable $error
         * @param int|float|null $delay seconds instead of the back-off; needs `available_at`
         * @return array<int|string, bool> by key; false: lost
         */
        public function fail(array $keys, mixed $error, ?float $delay = null): array {}

        /**
         * Gives rows back without blame: the attempt is not counted.
         *
         * @param list<int|string>|null $keys null: all that were not started
         * @param int|float|null $delay seconds in which they are not handed out again; needs `available_at`
         * @return array<int|string, bool> by key; false: lost
         */
        public function release(?array $keys = null, ?float $delay = null): array {}
    }

    /**
     * One row of a claim, in a worker's hands: a read-only array of its columns as they stood when it was claimed.
     *
     * BIGINT UNSIGNED beyond 63 bits, DECIMAL, dates and times are strings, BLOB and BINARY strings of bytes. A column that
     * is not there throws an InvalidException; isset is false for it, and for NULL.
     *
     * @implements \ArrayAccess<string, int|float|string|null>
     * @implements \IteratorAggregate<string, int|float|string|null>
     */
    final class Row implements \ArrayAccess, \IteratorAggregate, \JsonSerializable
    {
        /** The value of its key column. */
        public readonly int|string $key;
        /** Attempts so far, this one included; 1 where they are not mapped. */
        public readonly int $attempts;
        /** Attempts before the row is failed; null: no limit. */
        public readonly ?int $maxAttempts;
        /** The fence of this claim of the row: every later claim has a larger one; 0 where it is not mapped. */
        public readonly int $fence;
        /** The claim's token. */
        public readonly ?string $token;

        public function offsetExists(mixed $offset): bool {}

        /** @throws Exception\InvalidException for a column that the row comes without */
        public function offsetGet(mixed $offset): mixed {}

        /** @throws Exception\InvalidException always */
        public function offsetSet(mixed $offset, mixed $value): void {}

        /** @throws Exception\InvalidException always */
        public function offsetUnset(mixed $offset): void {}

        /** Over columns and values, for foreach. */
        public function getIterator(): \Traversable {}

        /** @return array<string, int|float|string|null> columns and values, in order */
        public function toArray(): array {}

        /** @return array<string, int|float|string|null> */
        public function jsonSerialize(): array {}

        /** @return array<string, mixed> what var_dump shows */
        public function __debugInfo(): array {}

        /**
         * Done; durable when it returns.
         *
         * @param array<string, mixed>|null $set columns of the row and their values, written in the same step
         * @param int|float|null $delay for a row that recurs: seconds in which it is not handed out again; $set may have the
         *                              time instead
         * @return bool false: lost, somebody else owns the row now, and nothing was written
         */
        public function complete(?array $set = null, ?float $delay = null): bool {}

        /**
         * Failed: comes back after the back-off, or is failed when its attempts are used up.
         *
         * @param string|\Throwable $error a throwable is kept as "Class: message"
         * @param int|float|null $delay seconds instead of the back-off; needs `available_at`
         * @return bool false: lost
         */
        public function fail(mixed $error, ?float $delay = null): bool {}

        /**
         * Given back without blame: the attempt is not counted.
         *
         * @param int|float|null $delay seconds in which it is not handed out again; needs `available_at`
         * @return bool false: lost
         */
        public function release(?float $delay = null): bool {}

        /** True when it was finished through this claim, or its finish is on the way. */
        public function finished(): bool {}

        /** The claim it belongs to. */
        public function claim(): RowClaim {}
    }

    /**
     * A row as it stood when it was read: a read-only array of its columns, with values as in {@see Row}.
     *
     * @implements \ArrayAccess<string, int|float|string|null>
     * @implements \IteratorAggregate<string, int|float|string|null>
     */
    final class Record implements \ArrayAccess, \IteratorAggregate, \JsonSerializable
    {
        /** The value of its key column. */
        public readonly int|string $key;
        /** Attempts so far; 1 where they are not mapped. */
        public readonly int $attempts;
        /** Attempts before the row is failed; null: no limit. */
        public readonly ?int $maxAttempts;
        /** The fence of its last claim; 0 where it is not mapped. */
        public readonly int $fence;

        public function offsetExists(mixed $offset): bool {}

        /** @throws Exception\InvalidException for a column that the row comes without */
        public function offsetGet(mixed $offset): mixed {}

        /** @throws Exception\InvalidException always */
        public function offsetSet(mixed $offset, mixed $value): void {}

        /** @throws Exception\InvalidException always */
        public function offsetUnset(mixed $offset): void {}

        /** Over columns and values, for foreach. */
        public function getIterator(): \Traversable {}

        /** @return array<string, int|float|string|null> columns and values, in order */
        public function toArray(): array {}

        /** @return array<string, int|float|string|null> */
        public function jsonSerialize(): array {}

        /** @return array<string, mixed> what var_dump shows */
        public function __debugInfo(): array {}
    }

    /** The answer to a creation. */
    final class Created
    {
        public readonly int $id;
        /** True when a job with this queue and key was there already; nothing was written then. */
        public readonly bool $exists;
        /** Where that job stands: 'ready', 'claimed', 'done', 'dead', 'cancelled' or 'held'. */
        public readonly string $state;
    }

    /** What a work() did. */
    final class Summary
    {
        public readonly int $claimed;
        public readonly int $completed;
        public readonly int $failed;
        /** Given back: by handlers, and those not started. */
        public readonly int $released;
        /** Claim lost before the outcome was written. */
        public readonly int $lost;
        /** It ended because SIGTERM or SIGINT came: a loop around `work` should end too. */
        public readonly bool $stopped;
        public readonly float $seconds;
    }

    /** JSON text that becomes a payload, or a part of one, byte for byte. */
    final class Json implements \Stringable
    {
        public readonly string $text;

        /** @throws Exception\InvalidException when it is not one JSON document in UTF-8 */
        public function __construct(string $text) {}

        public function __toString(): string {}
    }

    /**
     * The exception class of each kind of error, by kind.
     *
     * @internal for the tests
     * @return array<string, class-string>
     */
    function error_kinds(): array {}
}

namespace Rowclaim\Exception {

    /** What everything here throws; one subclass for each kind. */
    class RowclaimException extends \RuntimeException
    {
        /** 'config', 'unsupported', 'schema', 'invalid', 'duplicate', 'not_found', 'lost', 'contention', 'unavailable', 'interrupted', 'decode' or 'unexpected'. */
        public readonly string $kind;
        /** Whether the same call can succeed later without a change of input or configuration. */
        public readonly bool $retryable;
        /** The verb that failed, for instance 'claim'; empty outside of verbs. */
        public readonly string $operation;
        /** The server's own error code, where it gave one; also getCode(). */
        public readonly ?int $serverCode;
    }

    /** The configuration cannot work: DSN, option, password, server setting. */
    class ConfigException extends RowclaimException {}

    /** This server or this build cannot do it. */
    class UnsupportedException extends RowclaimException {}

    /** Tables are missing, too old, or newer than the code. */
    class SchemaException extends RowclaimException {}

    /** The caller's input or use is wrong. */
    class InvalidException extends RowclaimException {}

    /** A unique key is taken. */
    class DuplicateException extends RowclaimException {}

    /** The named job or claim does not exist. */
    class NotFoundException extends RowclaimException {}

    /** Somebody else owns it now. */
    class LostException extends RowclaimException {}

    /** Deadlock or lock wait; seen only when the retries inside were used up. */
    class ContentionException extends RowclaimException {}

    /** The server cannot be reached, or went away. */
    class UnavailableException extends RowclaimException {}

    /** The wait was stopped. */
    class InterruptedException extends RowclaimException {}

    /** A stored value is not what it should be. */
    class DecodeException extends RowclaimException {}

    /** A fault of Rowclaim, or a server error nobody has sorted yet. */
    class UnexpectedException extends RowclaimException {}
}
