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
         * Work behind an HTTP request or a line of a crontab: takes back what dead workers held, works until nothing waits or
         * a limit is reached, and says what it did. Otherwise as {@see work()}.
         *
         * @param array<string, callable(Job): mixed> $handlers by queue
         * @param string|null $token what a request must bring, 16 bytes or more; null for crontabs: {@see Runner::run()}
         * @param string|null $name one runner of this name at a time, the others are answered 409; null lets any number work
         *                          side by side
         * @param int|float|null $maxSeconds no job is begun that would not fit into this time, by how long the others took; less
         *                                   than max_execution_time, where PHP has one
         * @throws Exception\InvalidException for a shorter token, a wrong name, and handlers that cannot be called
         */
        public function runner(array $handlers, ?string $token = null, ?string $name = null, ?int $batch = null, ?float $maxSeconds = null, ?int $maxJobs = null, ?float $lease = null, ?float $maxRun = null, ?string $finish = null): Runner {}

        /**
         * Has an effect on the outside world happen once: calls $send, unless the ledger says that it has happened, and writes
         * down what came of it. That it is being sent is written down before the call; when the process dies in between, a
         * later call finds it unknown and does what $onUnknown says. Nothing is sent again blindly.
         *
         * What $send throws is thrown on, after it was recorded: {@see NotSent} as failed (a later call sends it), anything
         * else, and `exit()` and fatal errors, as unknown. A response that has no JSON form is not kept: the effect is recorded
         * as succeeded with `{"unencodable": "<type>"}`, and an InvalidException says so.
         *
         * @param string $key 1 to 191 bytes, compared byte for byte: the same key is the same effect. Also the key for the provider
         * @param mixed $request what is asked of the provider, as a payload; only a digest of it is kept. Under the same key
         *                       another request is refused; order of members and blanks do not count
         * @param callable(Effect): mixed $send what it returns is the provider's response, kept as a payload up to 1 MB
         * @param (callable(Effect): mixed)|null $ask for 'ask': returns the provider's response when it has happened, throws
         *                                            {@see NotSent} when it has not (it is sent then), anything else when
         *                                            the provider cannot say
         * @param string|null $onUnknown what is done about an effect of which nobody knows: 'hold' (a person decides, see
         *                               {@see Engine::resolveEffect()}; the default), 'ask' ($ask decides) or 'retry' (sent
         *                               again under the same key, for a provider that knows the key and does a thing once)
         * @param int|float|null $lease seconds, 1 or more; 60 when null: a sender that is silent for longer counts as lost. It
         *                              is renewed in the background
         * @param int|float|null $wait seconds to wait for another sender of the same key; 0 when null
         * @param Job|Row|null $completes of this engine: completed in the transaction that records the success; see {@see Job::once()}
         * @return Receipt it has happened, now or before
         * @throws Exception\BusyException another process is sending it right now
         * @throws Exception\UnknownException nobody knows whether it has happened
         * @throws Exception\LostException a person or another sender has decided while it was sent
         * @throws Exception\InvalidException also when the key was used for another request
         * @throws Exception\UnavailableException also when it was sent and could not be written down yet: that is tried further,
         *                                        as long as the process lives
         */
        public function once(string $key, mixed $request, mixed $send, mixed $ask = null, ?string $onUnknown = null, ?float $lease = null, ?float $wait = null, mixed $completes = null): Receipt {}

        /** An effect as it stands in the ledger; null when there is none. */
        public function effect(string $key): ?EffectRecord {}

        /**
         * Effects as they stand in the ledger, newest first.
         *
         * @param string|null $state 'pending', 'sending', 'succeeded', 'failed' or 'unknown'
         * @param int|null $before only ids below this one: the last id of the page before
         * @param int|null $limit 1 to 10,000; 100 when null
         * @return list<EffectRecord>
         */
        public function effects(?string $state = null, ?int $before = null, ?int $limit = null): array {}

        /**
         * A person's word on an effect that is unknown: it has happened, or it has not, and the next {@see once()} sends it.
         *
         * @param mixed $response the provider's response, where it has happened and is known; null: none. 1 MB at most
         * @return bool false when it does not stand so any more
         * @throws Exception\NotFoundException
         */
        public function resolveEffect(string $key, bool $happened, mixed $response = null): bool {}

        /**
         * Runs a planned time of a task once: calls $run unless the slot has had its run, or an earlier run of the task goes on.
         * Its lease is renewed in the background. What $run throws is thrown on, after the run was recorded as failed.
         *
         * @param string $task 1 to 187 bytes
         * @param int|float|string|\DateTimeInterface $slot the planned time: seconds since 1970, or text as in RFC 3339 with its
         *                                                  zone, such as `2026-11-30T08:00:00+08:00`
         * @param callable(Run): mixed $run
         * @param int|float|null $lease seconds, 1 or more; 60 when null: a run that is silent for longer counts as lost
         * @param int|float|null $maxRun no renewal goes past this many seconds from the start
         * @param bool $manual a person wants it: it is marked as such, and runs although the slot has had its run
         * @return RunRecord the record of the slot. State 'succeeded': it ran, now or before; 'skipped' with reason 'busy': an
         *                   earlier run goes on
         * @throws Exception\InvalidException also for a text without a zone
         */
        public function runSlot(string $task, mixed $slot, mixed $run, ?float $lease = null, ?float $maxRun = null, bool $manual = false): RunRecord {}

        /**
         * The history of runs, newest first.
         *
         * @param string|null $state 'started', 'succeeded', 'failed', 'lost' or 'skipped'
         * @param int|null $before only ids below this one: the last id of the page before
         * @param int|null $limit 1 to 10,000; 100 when null
         * @return list<RunRecord>
         */
        public function runs(?string $task = null, ?string $state = null, ?int $before = null, ?int $limit = null): array {}

        /**
         * Records a schedule, or changes it: repeat it at every start. A changed expression or zone counts from now on; what is
         * due and a pause stay otherwise.
         *
         * @param string $task 1 to 187 bytes
         * @param string $cron five fields, or six with seconds first: minute, hour, day, month, day of the week; `L`, `W` and `#`
         *                     are known
         * @param string $zone the zone the expression is read in: `UTC`, `+08:00`, `Asia/Shanghai`
         * @param string|null $missed slots that nobody ran in time: 'skip' (recorded as skipped; the default), 'once' (the newest
         *                            is run) or 'all' (oldest first, $cap of them in one pass)
         * @param int|null $cap 1 to 1,000; 10 when null
         * @param int|float|null $catchUp slots older than so many seconds are never made up for; not less than $grace
         * @param int|float|null $grace a slot so many seconds late is on time, 1 to 86,400; 90 when null
         * @param int|float|null $lease of its runs, as for {@see runSlot()}
         * @param int|float|null $maxRun of its runs
         * @throws Exception\InvalidException naming the option
         */
        public function schedule(string $task, string $cron, string $zone, ?string $missed = null, ?int $cap = null, ?float $catchUp = null, ?float $grace = null, ?float $lease = null, ?float $maxRun = null): ScheduleRecord {}

        /**
         * One pass over the schedules of the handlers' tasks, in this order: runs what is due, each slot once however many
         * processes look. A handler that throws fails its run, and the pass goes on. SIGTERM and SIGINT end the pass after the
         * run in hand; a second one ends the process.
         *
         * @param array<string, callable(Run): mixed> $handlers by task
         * @param int|float|null $maxSeconds no run is begun after this time
         * @return list<RunRecord> what ran in this pass; why one failed is its $error
         * @throws Exception\NotFoundException for a task without a schedule, when its turn comes
         */
        public function runDue(array $handlers, ?float $maxSeconds = null): array {}

        /**
         * Schedules in the order of their names.
         *
         * @param int|null $limit 1 to 10,000; all when null
         * @return list<ScheduleRecord>
         */
        public function schedules(?int $limit = null): array {}

        /** Deletes a schedule; its history stays. @return bool false when there was none */
        public function unschedule(string $task): bool {}

        /**
         * Stops a schedule: its slots are recorded as skipped until it is resumed.
         *
         * @return bool false when it is paused already
         * @throws Exception\NotFoundException
         */
        public function pauseSchedule(string $task): bool {}

        /**
         * Starts a paused schedule again; slots that came meanwhile are recorded as skipped.
         *
         * @return bool false when it was not paused
         * @throws Exception\NotFoundException
         */
        public function resumeSchedule(string $task): bool {}

        /**
         * Has the next {@see runDue()} run a task at once, marked as manual, also when it is paused.
         *
         * @throws Exception\NotFoundException
         */
        public function askRun(string $task): void {}

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
         * Takes a lease: one holder at a time for a name, by the database's clock. It is renewed in the background until it is
         * released or its object goes. Who holds a busy one is in {@see leases()}.
         *
         * @param string $name 1 to 191 bytes; compared byte for byte
         * @param int|float $for seconds it is held without a renewal, 1 or more
         * @param int|float|null $wait seconds to wait for another holder to go
         * @return Lease|null null: somebody else holds it
         */
        public function lease(string $name, float $for, ?float $wait = null): ?Lease {}

        /**
         * Leases in the order of their names, those that were given back too.
         *
         * @param int|null $limit 1 to 10,000; 100 when null
         * @return list<LeaseRecord>
         */
        public function leases(?int $limit = null): array {}

        /**
         * Waits until the next one of a limit may go: at most $limit of that name in any $per seconds, of all workers together.
         * Places come one behind the other at equal distances, by the database's clock, without bursts. A place that is not used
         * is lost.
         *
         * @param string $name 1 to 191 bytes: the same name is the same limit
         * @param int $limit 1 to 1,000,000
         * @param int|float|null $per 0.001 to 86,400; 1 when null
         * @param int|float|null $wait 60 when null
         * @return bool false at once, and no place is taken, when the next one is farther away than $wait seconds
         * @throws Exception\InvalidException naming the option
         */
        public function throttle(string $name, int $limit, ?float $per = null, ?float $wait = null): bool {}

        /**
         * Makes a fenced write on any table of your own: the row of $key gets $set and $fence, unless its fence is newer. A row
         * that is not there is created. A write with the fence that is stored is accepted: it is the same holder's.
         *
         * {@see Lease::guard()}, {@see Job::guard()} and {@see Row::guard()} bring their fence along.
         *
         * @param string $table `table` or `database.table`
         * @param array<string, mixed> $key columns of the primary key or of a unique one, and their values
         * @param array<string, mixed> $set columns and their values, as for {@see Table}
         * @param string $fenceColumn whole-number column that keeps the fence; NULL is older than any
         * @return bool false: a newer fence has written, and nothing was changed
         * @throws Exception\InvalidException naming the column that does not fit, or for a key that is not unique
         * @throws Exception\SchemaException there is no such table
         * @throws Exception\DuplicateException the new row violates another unique key
         */
        public function guard(string $table, array $key, array $set, string $fenceColumn, int $fence): bool {}

        /**
         * The UPDATE of {@see guard()} for a connection the application has open, in its own transaction. It creates no row. It
         * was accepted when it matched a row; a connection that counts changed rows only answers 0 for a repeat with the same
         * values (PDO: MYSQL_ATTR_FOUND_ROWS counts matched ones).
         *
         * @param array<string, mixed> $key
         * @param array<string, mixed> $set
         * @return array{string, list<int|string|null>} SQL with `?` places, and their values
         * @throws Exception\UnsupportedException for bytes that are not UTF-8
         */
        public function planGuard(string $table, array $key, array $set, string $fenceColumn, int $fence): array {}

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
         * Fails jobs in one step, for good: they are dead, whatever attempts are left.
         *
         * @param list<int> $ids
         * @param string|\Throwable $error
         * @return array<int, bool> by id; false: lost
         */
        public function reject(array $ids, mixed $error): array {}

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
         * Failed for good: it is dead, whatever attempts are left. For what no repetition mends; {@see Engine::retry()} brings it
         * back.
         *
         * @param string|\Throwable $error a throwable is kept as "Class: message"
         * @return bool false: lost
         */
        public function reject(mixed $error): bool {}

        /**
         * Given back without blame: the attempt is not counted.
         *
         * @param int|float|null $delay seconds in which it is not handed out again
         * @return bool false: lost
         */
        public function release(?float $delay = null): bool {}

        /**
         * Has an effect happen once, and completes this job in the transaction that records it: neither is there without the
         * other. When it has happened before, nothing is sent and the job is completed. Otherwise as {@see Engine::once()}.
         *
         * @param callable(Effect): mixed $send
         * @param (callable(Effect): mixed)|null $ask
         * @return Receipt completed false: the job was lost meanwhile; what happened is recorded all the same
         */
        public function once(string $key, mixed $request, mixed $send, mixed $ask = null, ?string $onUnknown = null, ?float $lease = null, ?float $wait = null): Receipt {}

        /**
         * Makes a write on any table of your own with the fence of this claim of the job; otherwise as {@see Engine::guard()}.
         *
         * @param array<string, mixed> $key
         * @param array<string, mixed> $set
         * @return bool false: a later owner has written, and nothing was changed
         */
        public function guard(string $table, array $key, array $set, string $fenceColumn): bool {}

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
         * Work on rows behind an HTTP request or a line of a crontab, as {@see Engine::runner()}.
         *
         * @param callable(Row): mixed $handler
         * @param string|null $token what a request must bring, 16 bytes or more; null for crontabs: {@see Runner::run()}
         * @param string|null $name one runner of this name at a time, the others are answered 409; null lets any number work
         *                          side by side
         * @param array<string, mixed>|null $where
         * @param string|list<string>|null $order
         */
        public function runner(mixed $handler, ?string $token = null, ?string $name = null, ?int $batch = null, ?float $maxSeconds = null, ?int $maxJobs = null, ?float $lease = null, ?float $maxRun = null, ?string $finish = null, ?array $where = null, mixed $order = null): Runner {}

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
         * Fails rows in one step, for good: they are failed, whatever attempts are left.
         *
         * @param list<int|string> $keys
         * @param string|\Throwable $error
         * @return array<int|string, bool> by key; false: lost
         * @throws Exception\InvalidException when the mapping has no `failed`
         */
        public function reject(array $keys, mixed $error): array {}

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
         * Failed for good: it is failed, whatever attempts are left. For what no repetition mends; {@see Table::retry()} brings it
         * back.
         *
         * @param string|\Throwable $error a throwable is kept as "Class: message"
         * @return bool false: lost
         * @throws Exception\InvalidException when the mapping has no `failed`
         */
        public function reject(mixed $error): bool {}

        /**
         * Given back without blame: the attempt is not counted.
         *
         * @param int|float|null $delay seconds in which it is not handed out again; needs `available_at`
         * @return bool false: lost
         */
        public function release(?float $delay = null): bool {}

        /**
         * Has an effect happen once, and completes this row in the transaction that records it: neither is there without the
         * other. When it has happened before, nothing is sent and the row is completed. Otherwise as {@see Engine::once()}.
         *
         * @param callable(Effect): mixed $send
         * @param (callable(Effect): mixed)|null $ask
         * @return Receipt completed false: the row was lost meanwhile; what happened is recorded all the same
         * @throws Exception\InvalidException also for rows that recur: those set their next time themselves
         */
        public function once(string $key, mixed $request, mixed $send, mixed $ask = null, ?string $onUnknown = null, ?float $lease = null, ?float $wait = null): Receipt {}

        /**
         * Makes a write on any table of your own with the fence of this claim of the row; otherwise as {@see Engine::guard()}.
         *
         * @param array<string, mixed> $key
         * @param array<string, mixed> $set
         * @return bool false: a later owner has written, and nothing was changed
         * @throws Exception\InvalidException also when the mapping names no `fence`
         */
        public function guard(string $table, array $key, array $set, string $fenceColumn): bool {}

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

    /**
     * A lease by name in its holder's hands, made by {@see Engine::lease()}: `if ($lease = $engine->lease('report', for: 90))`.
     *
     * It is renewed in the background, and given back when its object goes. Does not cross a fork: in the child it is left
     * alone. A script that is killed gives nothing back; the lease ends by itself then.
     */
    final class Lease
    {
        public readonly string $name;
        /** 128 random bits as a UUID, of this holding. */
        public readonly string $token;
        /** Above that of every earlier holder: for writes that a late holder must not make, see {@see guard()}. */
        public readonly int $fence;
        /** True once a renewal was refused, or after it was released: somebody else may hold it now. */
        public readonly bool $lost;
        /** For how many seconds it is surely held from now on; 0.0 when lost. */
        public readonly float $validFor;

        /** Renews it now; false when it is lost. The heartbeat does it by itself. */
        public function renew(): bool {}

        /** Gives it back. @return bool false: it was lost, or given back, before */
        public function release(): bool {}

        /**
         * Makes a write on any table of your own with this lease's fence; otherwise as {@see Engine::guard()}.
         *
         * @param array<string, mixed> $key
         * @param array<string, mixed> $set
         * @return bool false: a later holder has written, and nothing was changed
         */
        public function guard(string $table, array $key, array $set, string $fenceColumn): bool {}
    }

    /** A lease as it stands in the table. */
    final class LeaseRecord
    {
        public readonly string $name;
        /** Who holds or last held it, for people: the engine's option `worker`. */
        public readonly string $holder;
        /** The last fence. */
        public readonly int $fence;
        /** When it was last acquired, in seconds since 1970-01-01T00:00Z, on the database's clock. */
        public readonly float $acquiredAt;
        /** Until when it is or was held. */
        public readonly float $leaseUntil;
        /** Held now. */
        public readonly bool $held;
    }

    /** An effect in the hands of its sender: what `$send` and `$ask` of {@see Engine::once()} are called with. */
    final class Effect
    {
        /** Its key: hand it to the provider as its idempotency key. */
        public readonly string $key;
        /** Which try this is, from 1. */
        public readonly int $attempts;
        /** For how many seconds the ledger surely holds it for this sender; 0.0 after the answer. */
        public readonly float $validFor;
    }

    /** That an effect has happened. */
    final class Receipt
    {
        public readonly string $key;
        /** The provider's response, decoded as by json_decode($rawResponse, true), once; null for none. */
        public readonly mixed $response;
        /** The response as JSON text; null when an earlier one was over 1 MB, or a person has said that it happened. */
        public readonly ?string $rawResponse;
        /** How often it was begun. */
        public readonly int $attempts;
        /** This call has sent it, or asked; otherwise it had happened before. */
        public readonly bool $fresh;
        /** For an effect that completes a job: whether the job was still ours; null without a job. */
        public readonly ?bool $completed;
    }

    /** An effect as it stands in the ledger. Instants are seconds since 1970-01-01T00:00Z, on the database's clock. */
    final class EffectRecord
    {
        public readonly int $id;
        public readonly string $key;
        /** 'pending', 'sending', 'succeeded', 'failed' (it surely has not happened) or 'unknown'. */
        public readonly string $state;
        /** How often it was begun. */
        public readonly int $attempts;
        /** Who sends or last sent it, for people: the engine's option `worker`. */
        public readonly string $holder;
        /** The response, decoded; null before it has succeeded, and when it was over 1 MB. */
        public readonly mixed $response;
        /** What went wrong last. */
        public readonly ?string $error;
        /** While it is being sent: when its sender counts as lost. */
        public readonly float $leaseUntil;
        /** When it was first begun. */
        public readonly float $createdAt;
        /** When it was last begun. */
        public readonly float $startedAt;
        /** When it ended; null while it is being sent. */
        public readonly ?float $finishedAt;
    }

    /** For `$send` to throw: it surely has not happened, and may be sent again. */
    class NotSent extends \RuntimeException {}

    /**
     * For a handler of `work` to throw: the job or row has failed for good, whatever attempts are left.
     *
     * {@see Exception\DecodeException} means the same there: a payload that cannot be read.
     */
    class Reject extends \RuntimeException {}

    /**
     * A run in its process's hands: what the functions of {@see Engine::runSlot()} and {@see Engine::runDue()} are called with.
     * Does not cross a fork: in the child it is left alone.
     */
    final class Run
    {
        public readonly int $id;
        public readonly string $task;
        /** The planned time, in seconds since 1970; of a run that a person asked for, when that was. */
        public readonly float $slot;
        /** Above that of every earlier run of the task: for writes that a late run must not make. */
        public readonly int $fence;
        /** 128 random bits as a UUID. */
        public readonly string $token;
        /** A person asked for it. */
        public readonly bool $manual;
        /** True once a renewal was refused, or after it ended: the task may run elsewhere now. */
        public readonly bool $lost;
        /** For how many seconds it surely is the only run of its task; 0.0 when lost. */
        public readonly float $validFor;

        /**
         * Makes a write on any table of your own with this run's fence; otherwise as {@see Engine::guard()}.
         *
         * @param array<string, mixed> $key
         * @param array<string, mixed> $set
         * @return bool false: a later run has written, and nothing was changed
         */
        public function guard(string $table, array $key, array $set, string $fenceColumn): bool {}
    }

    /** A run as it stands in the history. Instants are seconds since 1970-01-01T00:00Z, on the database's clock. */
    final class RunRecord
    {
        public readonly int $id;
        public readonly string $task;
        /** The planned time. */
        public readonly float $slot;
        /** 0, or counts what people ran again of the same slot. */
        public readonly int $rerun;
        /** A person asked for it. */
        public readonly bool $manual;
        /** 'started', 'succeeded', 'failed', 'lost' (its process was silent past the lease) or 'skipped'. */
        public readonly string $state;
        /** Why it was skipped: 'busy', 'missed' or 'disabled'. */
        public readonly ?string $reason;
        /** More than 1: it stands for so many missed slots, of which $slot is the last. */
        public readonly int $slots;
        /** The fence of its lease; null for a skipped one. */
        public readonly ?int $fence;
        /** Who ran or skipped it, for people: the engine's option `worker`. */
        public readonly string $worker;
        /** When it began, or was skipped. */
        public readonly float $startedAt;
        /** When it ended; null while it goes on. */
        public readonly ?float $finishedAt;
        /** Seconds from its start to its end; null while it goes on and for a skipped one. */
        public readonly ?float $duration;
        /** What went wrong; of a throwable "Class: message". */
        public readonly ?string $error;
    }

    /** A schedule as it stands. Instants are seconds since 1970-01-01T00:00Z, on the database's clock; spans are seconds. */
    final class ScheduleRecord
    {
        public readonly string $task;
        public readonly string $cron;
        public readonly string $zone;
        /** 'skip', 'once' or 'all'. */
        public readonly string $missed;
        public readonly int $cap;
        public readonly ?float $catchUp;
        public readonly float $grace;
        public readonly float $lease;
        public readonly ?float $maxRun;
        /** Every slot up to here has its row in the history. */
        public readonly float $accountedUntil;
        /** Since when it is paused. */
        public readonly ?float $pausedAt;
        /** Since when a person wants it run at once. */
        public readonly ?float $askedAt;
        /** The next slot; null when it is paused or never comes again. */
        public readonly ?float $nextAt;
        /** The newest slot that was run. */
        public readonly ?RunRecord $last;
    }

    /** Work that a request starts, made by {@see Engine::runner()} and {@see Table::runner()}. */
    final class Runner
    {
        /**
         * Works when the request may, and says what to answer. From here on the request goes on when its client hangs up.
         *
         * 200: it worked; the body has `ok, claimed, completed, failed, released, lost, recovered, seconds, more`, of which
         * `more` says that something is left to do. 403: the token is missing or wrong. 405: not POST. 409: another runner of
         * the name is at work. 503: the database is away. 500: anything else went wrong; `error` says what.
         *
         * @param string $method `$_SERVER['REQUEST_METHOD']`
         * @param string|null $token the token, or the Authorization header with `Bearer` and the token
         * @throws Exception\InvalidException the runner has no token to compare with
         * @throws Exception\ConfigException maxSeconds is missing or not less than max_execution_time
         */
        public function handle(string $method, ?string $token = null): RunnerAnswer {}

        /**
         * Works without being asked for a token, for crontabs; otherwise as {@see handle()}.
         *
         * @throws Exception\ConfigException maxSeconds is missing or not less than max_execution_time
         */
        public function run(): RunnerAnswer {}
    }

    /** What is answered to a request. */
    final class RunnerAnswer
    {
        /** 200, 403, 405, 409, 500 or 503. */
        public readonly int $status;
        /** JSON text; without tokens, payloads and passwords. */
        public readonly string $body;
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
        /** 'config', 'unsupported', 'schema', 'invalid', 'duplicate', 'not_found', 'lost', 'busy', 'unknown', 'contention', 'unavailable', 'interrupted', 'decode' or 'unexpected'. */
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

    /** Somebody else is at it right now. */
    class BusyException extends RowclaimException {}

    /** Whether it has happened cannot be known: a person or the provider must say. */
    class UnknownException extends RowclaimException {}

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
