<?php

declare(strict_types=1);

use Rowclaim\{Engine, Job, Record, Reject, Row, RowClaim, Table};

/** Claims on tables that people already have. */
final class TableTest extends TableTestCase
{
    /** @dataProvider databases */
    public function test_the_doctor_names_what_is_missing(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(1);
        $found = $this->table($engine)->doctor(filters: ['task_id']);
        self::assertSame(['severity', 'code', 'subject', 'message', 'consequence', 'fix'], array_keys($found[0]));
        $index = array_values(array_filter($found, fn (array $finding) => $finding['code'] === 'missing-index'))[0];
        self::assertStringContainsString('task_id', $index['fix']);
        self::assertContains('server', array_column($engine->doctor(), 'subject'));
    }

    /** @dataProvider databases */
    public function test_rows_are_handed_out_with_their_columns_and_completed_with_new_ones(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(5);
        $table = $this->table($engine);
        self::assertInstanceOf(Table::class, $table);
        self::assertSame($this->name, $table->name);
        $claim = $table->claim(limit: 2, lease: 30, maxRun: 3600);
        self::assertInstanceOf(Iterator::class, $claim);
        self::assertCount(2, $claim);
        self::assertIsInt($claim->id);
        self::assertSame([false, false], [$claim->isEmpty(), $claim->lost]);
        self::assertEqualsWithDelta(28, $claim->validFor, 2);
        $rows = iterator_to_array($claim);
        self::assertSame([0, 1], array_keys($rows));
        $row = $rows[0];
        self::assertInstanceOf(Row::class, $row);
        self::assertSame([1, 1, 3, 1, $claim->token], [$row->key, $row->attempts, $row->maxAttempts, $row->fence, $row->token]);
        self::assertSame([1, 1, 'sms', 'open1', 1, null], [$row['id'], $row['task_id'], $row['kind'], $row['openid'], $row['status'], $row['note']]);
        self::assertSame($claim->token, $row['cron_token']);
        self::assertEqualsWithDelta(0, self::secondsTo($row['send_at']), 5);
        self::assertFalse($row->finished());
        self::assertInstanceOf(RowClaim::class, $row->claim());
        self::assertSame($claim->token, $row->claim()->token);
        self::assertTrue($row->complete(set: ['note' => 'O\'Reilly "`; 😀', 'deleted_at' => new DateTimeImmutable('2026-03-04 05:06:07+02:00')]));
        self::assertTrue($row->finished());
        self::assertTrue($row->complete(), 'the same again is accepted');
        self::assertFalse($row->fail('late'), 'another outcome is not');
        self::assertTrue($rows[1]->complete());
        self::assertSame([1 => 2, 2, 0, 0, 0], array_map('intval', $this->stored()));
        self::assertSame(['O\'Reilly "`; 😀', null], array_slice($this->stored('note'), 0, 2));
        self::assertSame('2026-03-04 03:06:07', $this->stored('deleted_at')[1]);
        self::assertEqualsWithDelta(0, self::secondsTo($this->stored('sent_at')[1]), 5);
    }

    /** @dataProvider databases */
    public function test_rows_are_chosen_and_ordered_by_columns(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(9);
        $this->sql("UPDATE $this->name SET deleted_at = '2026-01-01 00:00:00' WHERE id IN (1, 2)");
        $table = $this->table($engine);
        $claimed = fn (mixed ...$arguments) => (function () use ($table, $arguments) {
            $claim = $table->claim(...$arguments);
            $keys = self::keys($claim);
            $claim->release();
            $claim->release($keys);
            // Giving back sets the time from which a row may be had, and rows are had in the order of their times.
            $this->sql("UPDATE $this->name SET next_at = NULL");
            return $keys;
        })();
        self::assertSame([1, 3, 5, 7, 9], $claimed(where: ['task_id' => 1]));
        self::assertSame([3, 9], $claimed(where: ['task_id' => '1', 'kind' => 'mail']));
        self::assertSame([1, 2, 3], $claimed(limit: 3, where: ['kind' => ['sms', 'mail', 'fax']]));
        self::assertSame([4, 6, 8], $claimed(where: ['deleted_at' => null, 'task_id' => 2]));
        self::assertSame([2], $claimed(where: ['deleted_at' => new DateTime('2026-01-01T01:00:00+01:00'), 'task_id' => 2]));
        self::assertSame([9, 8], $claimed(2, [], '-id'));
        self::assertSame([9, 6, 3, 8, 7], $claimed(limit: 5, order: ['kind', '-id']));
        self::assertSame([2, 5, 8], $claimed(partition: [2, 3]));
        self::assertSame([], $claimed(where: ['task_id' => 42]));
        foreach (['task_id' => 'task_id takes', 'no' => '"no"', 'status' => 'status is the engine', 'task_id = 1 OR 1' => 'has no column'] as $column => $message) {
            self::assertRefused('invalid', fn () => $table->claim(where: [$column => '1 OR 1=1']), $message);
        }
        self::assertRefused('invalid', fn () => $table->claim(where: ['kind' => []]), 'kind');
        self::assertRefused('invalid', fn () => $table->claim(where: ['task_id' => NAN]), 'task_id');
        self::assertRefused('invalid', fn () => $table->claim(order: 'id DESC; DROP TABLE x'), 'has no column');
        self::assertRefused('invalid', fn () => $table->claim(order: ['id', "\xFF"]), 'order');
        self::assertRefused('invalid', fn () => $table->claim(limit: 0), 'limit');
        self::assertRefused('invalid', fn () => $table->claim(lease: 0.5), 'lease');
        self::assertRefused('invalid', fn () => $table->claim(partition: [1]), 'partition');
        self::assertThrows(TypeError::class, fn () => $table->claim(where: ['kind' => [['sms']]]), 'kind');
        self::assertThrows(TypeError::class, fn () => $table->claim(order: 5), 'order');
        self::assertSame(array_fill(1, 9, 0), array_map('intval', $this->stored()));
        self::assertSame(array_fill(1, 9, 0), array_map('intval', $this->stored('tries')), 'giving back is no attempt');
    }

    /** @dataProvider databases */
    public function test_a_failed_row_waits_and_ends_as_failed_when_its_attempts_are_used_up(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(2);
        $table = $this->table($engine, ['max_attempts' => 2, 'backoff_base' => 100, 'backoff_cap' => 3600]);
        [$first, $second] = iterator_to_array($table->claim());
        self::assertTrue($first->fail(new DomainException('no such number 😀')));
        self::assertTrue($second->fail('try later', delay: 1000));
        self::assertSame(['DomainException: no such number 😀', 'try later'], array_values($this->stored('fault')));
        $waits = array_map(self::secondsTo(...), $this->stored('next_at'));
        self::assertEqualsWithDelta(100, $waits[1], 5);
        self::assertEqualsWithDelta(1000, $waits[2], 5);
        self::assertTrue($table->claim()->isEmpty());
        $this->sql("UPDATE $this->name SET next_at = '2026-01-01 00:00:00' WHERE id = 1");
        foreach ($table->claim() as $row) {
            self::assertSame([1, 2, 2], [$row->key, $row->attempts, $row->fence]);
            self::assertTrue($row->fail('again'));
        }
        self::assertSame(['3', '0'], array_map('strval', array_values($this->stored())));
        self::assertSame([2, 1], array_map(fn (Record $row) => $row->attempts, $table->rows()));
    }

    /** @dataProvider databases */
    public function test_what_no_repetition_mends_is_rejected(string $dsn): void
    {
        $engine = $this->open($dsn, ['backoff_base' => 0]);
        $this->targets(5);
        $table = $this->table($engine);
        $claim = $table->claim(limit: 2);
        [$first, $second] = iterator_to_array($claim, false);
        self::assertTrue($first->reject(new DomainException('no such number')));
        self::assertTrue($first->reject('again'), 'a repeat is accepted');
        self::assertFalse($first->complete());
        self::assertSame([$second->key => true], $claim->reject([$second->key], 'by key'));
        $endless = $this->table($engine, ['failed' => null, 'max_attempts' => null])->claim(limit: 1);
        $keys = self::keys($endless);
        self::assertRefused('invalid', fn () => $endless->reject($keys, 'x'), 'reject needs failed in the mapping');
        $endless->release($keys);
        $summary = $table->work(function (Row $row): void {
            $row->key === 4 && throw new Reject('gone');
        }, untilEmpty: true);
        self::assertSame([2, 1], [$summary->completed, $summary->failed]);
        self::assertSame([1 => 3, 2 => 3, 3 => 2, 4 => 3, 5 => 2], array_map('intval', $this->stored()));

        $ids = self::fill($engine, 4);
        $this->sql("UPDATE {$this->options['prefix']}jobs SET payload = '{\"order\":' WHERE id = $ids[3]");
        $summary = $engine->work(['q' => fn (Job $job) => match ($job->id) {
            $ids[0] => throw new Reject('no such order'),
            $ids[1] => $job->reject('by hand'),
            default => $job->payload,
        }], untilEmpty: true);
        self::assertSame([1, 3, 0], [$summary->completed, $summary->failed, $summary->lost]);
        $dead = array_column($engine->jobs(state: 'dead'), null, 'id');
        self::assertSame([$ids[3] => 1, $ids[1] => 1, $ids[0] => 1], array_column($dead, 'attempts', 'id'));
        self::assertSame(['Rowclaim\\Reject: no such order', 'by hand'], [$dead[$ids[0]]['lastError'], $dead[$ids[1]]['lastError']]);
        self::assertStringStartsWith('Rowclaim\\Exception\\DecodeException: ', $dead[$ids[3]]['lastError']);
        self::assertSame(RuntimeException::class, get_parent_class(Reject::class));
    }

    /** @dataProvider databases */
    public function test_a_row_that_is_given_back_waits_without_an_attempt_counted(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(3);
        $table = $this->table($engine);
        foreach ($table->claim() as $row) {
            self::assertTrue($row->release(delay: 500));
            break;
        }
        self::assertSame([0, 0, 0], array_map('intval', array_values($this->stored('tries'))));
        self::assertEqualsWithDelta(500, self::secondsTo($this->stored('next_at')[1]), 5);
        self::assertSame([2, 3], self::keys($table->claim()), 'what was not started was given back at once');
    }

    /** @dataProvider databases */
    public function test_many_are_finished_at_once_by_key(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(7);
        $table = $this->table($engine);
        $claim = $table->claim();
        $claim->rewind();
        self::assertSame([3 => true, 2 => true], $claim->complete([3, '2'], set: ['note' => 'many']), 'as the column has them');
        self::assertSame([4 => true], $claim->fail([4], new RuntimeException('bad'), delay: 60));
        self::assertRefused('invalid', fn () => $claim->complete([1, 99]), '99');
        self::assertSame([5 => true, 6 => true, 7 => true], $claim->release(delay: 60));
        self::assertSame([1 => true], $claim->complete());
        self::assertSame([], $claim->complete());
        self::assertSame([1 => false], $claim->release([1]));
        self::assertSame([2, 2, 2, 0, 0, 0, 0], array_map('intval', array_values($this->stored())));
        self::assertSame([null, 'many', 'many', null], array_slice(array_values($this->stored('note')), 0, 4));
        self::assertSame('RuntimeException: bad', $this->stored('fault')[4]);
        $empty = $table->claim();
        self::assertSame([true, null, null, 0.0], [$empty->isEmpty(), $empty->token, $empty->id, $empty->validFor]);
        self::assertSame([[], []], [$empty->complete(), $empty->release()]);
    }

    /** @dataProvider databases */
    public function test_rows_that_were_begun_at_most_once_are_held_and_resolved(string $dsn): void
    {
        $engine = $this->open($dsn, ['heartbeat' => false]);
        $this->targets(4);
        $table = $this->table($engine, ['on_lost' => 'hold', 'held' => 9]);
        $claim = $table->claim(limit: 3, lease: 1);
        $claim->rewind();
        $begun = [$claim->current()];
        $claim->next();
        $begun[] = $claim->current();
        $recovered = [];
        self::until(function () use ($table, &$recovered) {
            $recovered = $table->recover();
            return $recovered['claims'] === 1;
        }, 'the end of the lease');
        self::assertSame(['claims' => 1, 'returned' => 1, 'dead' => 0, 'held' => 2], $recovered);
        self::assertSame([9, 9, 0, 0], array_map('intval', array_values($this->stored())));
        self::assertFalse($begun[0]->complete());
        self::assertSame(0, $table->retry());
        [$first, $second] = array_map(fn ($row) => $row->key, $begun);
        self::assertSame([$first => true], $table->resolve([$first], true));
        self::assertSame([$first => false, $second => true], $table->resolve([(string) $first, $second], sent: false));
        self::assertSame([2, 0, 0, 0], array_map('intval', array_values($this->stored())));
        self::assertRefused('invalid', fn () => $this->table($engine)->resolve([1], true), 'has no held');
        self::assertRefused('config', fn () => $this->table($engine, ['on_lost' => 'hold']), 'on_lost hold needs held');
        unset($claim, $begun);
    }

    /** @dataProvider databases */
    public function test_a_late_owner_is_refused_and_the_newer_one_kept(string $dsn): void
    {
        $engine = $this->open($dsn, ['heartbeat' => false]);
        $this->targets(2);
        $late = $this->table($engine)->claim(lease: 1);
        $late->rewind();
        $row = $late->current();
        $other = $this->table($this->another(['worker' => 'newer']));
        $recovered = ['claims' => 0, 'returned' => 0, 'dead' => 0, 'held' => 0];
        self::until(function () use ($other, &$recovered) {
            $recovered = $other->recover();
            return $recovered['claims'] === 1;
        }, 'the end of the lease');
        self::assertSame(['claims' => 1, 'returned' => 2, 'dead' => 0, 'held' => 0], $recovered);
        $newer = $other->claim();
        self::assertCount(2, $newer);
        self::assertFalse($row->complete(set: ['note' => 'late']));
        self::assertFalse($row->fail('late'));
        self::assertFalse($row->release());
        $late->next();
        self::assertFalse($late->valid(), 'nothing more is handed out');
        self::assertFalse($late->renew());
        self::assertTrue($late->lost);
        self::assertSame([1 => true, 2 => true], $newer->complete(set: ['note' => 'newer']));
        self::assertSame(['newer', 'newer'], array_values($this->stored('note')));
        self::assertSame([2, 2], array_map('intval', array_values($this->stored('fence'))));
    }

    /** @dataProvider databases */
    public function test_remaining_is_about_rows_that_wait_or_are_held(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(2);
        $table = $this->table($engine);
        self::assertTrue($table->remaining(['task_id' => 1]));
        self::assertFalse($table->remaining(where: ['task_id' => 42]));
        $claim = $table->claim(where: ['task_id' => 1]);
        self::assertTrue($table->remaining(['task_id' => 1]), 'held');
        $claim->complete();
        self::assertFalse($table->remaining(['task_id' => 1]));
        self::assertTrue($table->remaining());
    }

    /** @dataProvider databases */
    public function test_rows_that_other_code_left_behind_come_back(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(4);
        $now = gmdate('Y-m-d H:i:s');
        $this->sql(
            "UPDATE $this->name SET status = 1, cron_token = 'host:4711', send_at = NULL WHERE id = 1",
            "UPDATE $this->name SET status = 1, send_at = '2026-01-01 00:00:00' WHERE id = 2",
            "UPDATE $this->name SET status = 1, cron_token = 'host:4712', send_at = '$now' WHERE id = 3",
        );
        $table = $this->table($engine);
        self::assertSame(2, $table->recover()['returned']);
        self::assertSame([0, 0, 1, 0], array_map('intval', array_values($this->stored())));
        self::assertSame([1, 2, 4], self::keys($table->claim(order: 'id')));
    }

    /** @dataProvider databases */
    public function test_a_row_that_recurs_comes_back_at_its_next_time(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(3);
        $table = $this->table($engine, ['done' => 0, 'failed' => null, 'max_attempts' => null]);
        [$first, $second, $third] = iterator_to_array($table->claim());
        self::assertRefused('invalid', fn () => $first->complete(), 'next_at');
        self::assertTrue($first->complete(delay: 3600));
        self::assertTrue($second->complete(set: ['next_at' => new DateTimeImmutable('+2 hours'), 'note' => 'ran']));
        self::assertTrue($third->complete(['next_at' => '2026-01-01 00:00:00']));
        self::assertTrue($third->complete(['next_at' => '2026-01-01 00:00:00']), 'the same again is accepted');
        $waits = array_map(self::secondsTo(...), $this->stored('next_at'));
        self::assertEqualsWithDelta(3600, $waits[1], 5);
        self::assertEqualsWithDelta(7200, $waits[2], 5);
        self::assertSame([3], self::keys($table->claim()));
        $plain = $this->table($engine)->claim();
        self::assertTrue($plain->isEmpty());
    }

    /** @dataProvider databases */
    public function test_a_person_can_look_at_rows_put_failed_ones_back_and_take_held_ones_away(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(6);
        $table = $this->table($engine, ['max_attempts' => 1]);
        foreach ($table->claim(where: ['task_id' => 1]) as $row) {
            $row->fail('over');
        }
        $claim = $table->claim(limit: 2);
        self::assertSame([1, 3, 5], array_map(fn (Record $row) => $row->key, $table->rows(status: 3)));
        self::assertSame([4, 5], array_map(fn (Record $row) => $row['id'], $table->rows(after: 3, limit: 2)));
        self::assertSame([6], array_map(fn (Record $row) => $row->key, $table->rows(where: ['task_id' => 2], status: 0)));
        self::assertRefused('invalid', fn () => $table->rows(limit: 0), 'limit');
        $record = $table->row('3');
        self::assertInstanceOf(Record::class, $record);
        self::assertSame([3, 1, 1, 1, 'over'], [$record->key, $record->attempts, $record->maxAttempts, $record->fence, $record['fault']]);
        self::assertNull($table->row(99));
        self::assertRefused('invalid', fn () => $table->row('3 OR 1=1'), 'id');

        self::assertSame(1, $table->retry([5, 2, 99]), 'only failed ones');
        self::assertSame(1, $table->retry(where: ['task_id' => 1], limit: 1));
        self::assertSame(1, $table->retry());
        self::assertRefused('invalid', fn () => $table->retry([1], ['task_id' => 1]), 'both');
        self::assertRefused('invalid', fn () => $this->table($engine, ['failed' => null, 'max_attempts' => null])->retry(), 'failed');
        self::assertRefused('invalid', fn () => $table->retry(limit: -1), 'limit');
        self::assertSame([0, 0, 0], array_map(fn (int $id) => $table->row($id)->attempts, [1, 3, 5]));

        self::assertSame(1, $table->takeBack(keys: ['2']));
        self::assertSame([2 => false, 4 => true], $claim->complete(), 'the owner is refused');
        self::assertSame(0, $table->takeBack(where: ['task_id' => 1]));
        self::assertSame([0, 0, 0, 2, 0, 0], array_map('intval', array_values($this->stored())));
    }

    /** @dataProvider databases */
    public function test_work_hands_rows_to_a_handler(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(9);
        $table = $this->table($engine, ['max_attempts' => 1]);
        $seen = [];
        $summary = $table->work(function (Row $row) use (&$seen) {
            $seen[] = $row['id'];
            match (true) {
                $row->key === 1 => throw new DomainException('refused'),
                $row->key === 3 => $row->complete(set: ['note' => 'by itself']),
                default => 'ignored',
            };
        }, batch: 2, untilEmpty: true, where: ['task_id' => 1], order: '-id');
        self::assertSame([9, 7, 5, 3, 1], $seen);
        self::assertSame([5, 4, 1, 0, false], [$summary->claimed, $summary->completed, $summary->failed, $summary->lost, $summary->stopped]);
        self::assertSame([3, 0, 2, 0, 2, 0, 2, 0, 2], array_map('intval', array_values($this->stored())));
        self::assertSame('DomainException: refused', $this->stored('fault')[1]);
        self::assertSame('by itself', $this->stored('note')[3]);

        $each = $table->work(function (Row $row) use ($table) {
            $claim = $row->claim();
            self::assertCount(3, $claim);
            unset($claim);
            $row->key === 2 ? $row->release(delay: 60) : null;
        }, finish: 'each', maxJobs: 3, maxSeconds: 20);
        self::assertSame([3, 2, 1], [$each->claimed, $each->completed, $each->released]);
        self::assertRefused('invalid', fn () => $table->work('no such function', untilEmpty: true), 'called');
        self::assertRefused('invalid', fn () => $table->work(fn () => 1, batch: -1), 'batch');
        self::assertRefused('invalid', fn () => $table->work(fn () => 1, finish: 'never'), 'finish');
        self::assertRefused('invalid', fn () => $table->work(fn () => 1, where: ['no' => 1], untilEmpty: true), '"no"');
    }

    /** @dataProvider databases */
    public function test_sigterm_ends_work_after_the_row_in_hand(string $dsn): void
    {
        $this->open($dsn);
        $this->targets(20);
        $arguments = [$this->dsn, (string) json_encode($this->options), $this->name, (string) json_encode(self::MAPPING)];
        [$exit, $out, $errors] = $this->script('
            $t = Engine::connect($argv[1], json_decode($argv[2], true))->table($argv[3], json_decode($argv[4], true));
            $s = $t->work(fn (Rowclaim\Row $row) => $row->key === 4 ? posix_kill(getmypid(), SIGTERM) : null, batch: 10);
            echo json_encode([$s->completed, $s->released, $s->stopped]);', $arguments);
        self::assertSame([0, '[4,6,true]', ''], [$exit, $out, $errors]);
        self::assertEquals([0 => 16, 2 => 4], array_count_values(array_map('intval', $this->stored())));
    }

    /** @dataProvider databases */
    public function test_two_workers_never_hold_the_same_row(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(200);
        $arguments = [$this->dsn, (string) json_encode($this->options), $this->name, (string) json_encode(self::MAPPING)];
        $code = '$t = Engine::connect($argv[1], json_decode($argv[2], true))->table($argv[3], json_decode($argv[4], true)); $seen = [];
            while (!($claim = $t->claim(limit: 10))->isEmpty()) { foreach ($claim as $row) { $seen[] = $row["id"]; usleep(300); $row->complete(); } }
            echo json_encode($seen);';
        $workers = [$this->start($code, $arguments), $this->start($code, $arguments)];
        $seen = [];
        foreach ($workers as $worker) {
            [$exit, $out, $errors] = $this->finish($worker);
            self::assertSame([0, ''], [$exit, $errors]);
            $seen[] = json_decode($out, true);
        }
        $all = array_merge(...$seen);
        sort($all);
        self::assertSame(range(1, 200), $all);
        self::assertFalse($this->table($engine)->remaining());
    }

    public function test_a_table_can_be_in_a_database_of_its_own(): void
    {
        $engine = $this->open('sqlite:');
        [$here, $this->dsn] = [$this->dsn, 'sqlite:' . $this->file('.db')];
        $this->targets(1);
        $table = $this->table($engine, ['dsn' => "$this->dsn?prefix=other_"]);
        $engine->close();
        self::assertSame([1], self::keys($table->claim()));
        self::assertSame([$this->name], array_column(Engine::connect("$this->dsn?prefix=other_")->tables(), 'name'));
        $engine = Engine::connect($here, $this->options);
        self::assertSame([], $engine->tables());
        self::assertRefused('schema', fn () => $this->table($engine), $this->name);
    }

    /** @dataProvider databases */
    public function test_the_registry_knows_what_is_mapped(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(1);
        self::assertSame([], $engine->tables());
        $this->table($engine, ['scope' => ['task_id' => 1]])->claim();
        $tables = $engine->tables();
        self::assertSame([$this->name], array_column($tables, 'name'));
        self::assertSame(['id', 'name', 'mapping', 'createdAt'], array_keys($tables[0]));
        self::assertEqualsWithDelta(microtime(true), $tables[0]['createdAt'], 5);
        self::assertEquals(self::MAPPING + ['scope' => ['task_id' => 1]], $tables[0]['mapping']);
    }
}
