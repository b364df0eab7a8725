<?php

declare(strict_types=1);

use Rowclaim\{Engine, Lease, LeaseRecord};

/** Leases by name: one holder at a time, a fence that only grows, and nothing left behind by whoever goes. */
final class LeaseTest extends TableTestCase
{
    private function expire(): void
    {
        $this->sql("UPDATE {$this->options['prefix']}leases SET lease_until = acquired_at");
    }

    private static function assertFree(Engine $engine, string $name): void
    {
        $lease = $engine->lease($name, for: 60);
        self::assertNotNull($lease, "$name is held");
        $lease->release();
    }

    /** @dataProvider databases */
    public function test_one_holds_it_and_the_others_are_told_that_it_is_busy(string $dsn): void
    {
        $engine = $this->open($dsn, ['worker' => 'first']);
        $second = $this->another(['worker' => 'second']);
        $lease = $engine->lease('nightly', for: 90);
        self::assertInstanceOf(Lease::class, $lease);
        self::assertSame(['nightly', false], [$lease->name, $lease->lost]);
        self::assertMatchesRegularExpression('/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/', $lease->token);
        self::assertIsInt($lease->fence);
        self::assertEqualsWithDelta(88, $lease->validFor, 2);
        self::assertNull($second->lease('nightly', for: 90));
        self::assertNull($engine->lease('nightly', 90), 'not twice by the same engine either');
        self::assertNotNull($second->lease("NIGHTLY 夜", for: 1.5), 'names are bytes');
        [$free, $held] = $engine->leases();
        self::assertInstanceOf(LeaseRecord::class, $held);
        self::assertSame(['NIGHTLY 夜', 'second', false], [$free->name, $free->holder, $free->held], 'given back: nobody kept the object');
        self::assertSame(['nightly', 'first', true, $lease->fence], [$held->name, $held->holder, $held->held, $held->fence]);
        self::assertEqualsWithDelta(microtime(true), $held->acquiredAt, 5);
        self::assertEqualsWithDelta($held->acquiredAt + 90, $held->leaseUntil, 0.01);
        self::assertCount(1, $engine->leases(limit: 1));
        self::assertTrue($lease->renew());
        self::assertTrue($lease->release());
        self::assertSame([true, 0.0], [$lease->lost, $lease->validFor]);
        self::assertFalse($lease->release());
        self::assertFalse($lease->renew());
        $next = $second->lease('nightly', for: 90);
        self::assertGreaterThan($lease->fence, $next->fence);
        self::assertNotSame($lease->token, $next->token);
        unset($lease);
        self::assertNull($engine->lease('nightly', for: 90), 'a holder that is over takes nothing away');
    }

    /** @dataProvider databases */
    public function test_a_late_holder_is_lost_and_releases_nothing(string $dsn): void
    {
        $engine = $this->open($dsn, ['heartbeat' => false]);
        $second = $this->another(['worker' => 'second']);
        $late = $engine->lease('report', for: 60);
        $this->expire();
        self::assertTrue($late->renew(), 'nobody took it meanwhile');
        $this->expire();
        $owner = $second->lease('report', for: 60);
        self::assertGreaterThan($late->fence, $owner->fence);
        self::assertFalse($late->lost, 'it was not asked yet');
        self::assertFalse($late->renew());
        self::assertSame([true, 0.0], [$late->lost, $late->validFor]);
        self::assertFalse($late->release());
        unset($late);
        self::assertNull($engine->lease('report', for: 60));
        $this->sql("DELETE FROM {$this->options['prefix']}leases");
        self::assertTrue($owner->renew(), 'the row is put back');
        self::assertNull($engine->lease('report', for: 60));
    }

    /** @dataProvider databases */
    public function test_whoever_waits_gets_it_when_its_holder_goes(string $dsn): void
    {
        $engine = $this->open($dsn);
        $mark = $this->file('.mark');
        $holder = $this->start(self::CONNECT . '$lease = $e->lease("a", for: 60); touch($argv[3]); usleep(700_000); $lease->release(); echo $lease->fence;', $this->here($mark));
        self::until(fn () => file_exists($mark), 'the holder');
        $since = microtime(true);
        self::assertNull($engine->lease('a', for: 60, wait: 0.2));
        self::assertGreaterThan(0.19, microtime(true) - $since);
        $lease = $engine->lease('a', for: 60, wait: 20);
        self::assertNotNull($lease);
        self::assertLessThan(5, microtime(true) - $since);
        [$exit, $fence] = $this->finish($holder);
        self::assertSame([0, true], [$exit, $lease->fence > (int) $fence]);
    }

    /** @dataProvider databases */
    public function test_it_is_renewed_in_the_background_while_php_is_busy(string $dsn): void
    {
        $engine = $this->open($dsn);
        $lease = $engine->lease('a', for: 1);
        $until = microtime(true) + 2.5;
        while (microtime(true) < $until) {
            hash('sha256', random_bytes(1000));
        }
        self::assertNull($this->another(['worker' => 'second'])->lease('a', for: 1));
        self::assertGreaterThan(0, $lease->validFor);
        self::assertFalse($lease->lost);
    }

    /** @dataProvider databases */
    public function test_whoever_goes_gives_it_back_unless_it_is_killed(string $dsn): void
    {
        $engine = $this->open($dsn);
        $lease = $engine->lease('a', for: 60);
        $lease = null;
        self::assertFree($engine, 'a');
        foreach (['exit(3);' => 3, 'throw new Exception("x");' => 255, 'trigger_error("x", E_USER_ERROR);' => 255, '(function () use ($e) { $own = $e->lease("b", for: 60); })();' => 0] as $ending => $code) {
            [$exit] = $this->script(self::CONNECT . '$lease = $e->lease("a", for: 60); if (!$lease) { exit(9); } ' . $ending, $this->here());
            self::assertSame($code, $exit, $ending);
            self::assertFree($engine, 'a');
        }
        $this->script(self::CONNECT . '$lease = $e->lease("a", for: 1.5); posix_kill(getmypid(), SIGKILL);', $this->here());
        self::assertNull($engine->lease('a', for: 60));
        self::assertNotNull($engine->lease('a', for: 60, wait: 20));
    }

    /** @dataProvider databases */
    public function test_a_forked_child_leaves_the_parent_s_lease_alone(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->sql("CREATE TABLE $this->name (id INT NOT NULL PRIMARY KEY, value INT NULL, fence BIGINT NULL)");
        [$exit, $out, $errors] = $this->script(self::CONNECT . '
            $lease = $e->lease("a", for: 60);
            for ($n = 0; $n < 2; $n++) {
                if (($pid = pcntl_fork()) === 0) {
                    if ($n === 0) exit(0);
                    foreach ([fn () => $lease->renew(), fn () => $lease->release(), fn () => $lease->guard($argv[3], ["id" => 1], ["value" => 1], "fence")] as $i => $call) {
                        try { $call(); exit(20 + $i); } catch (Rowclaim\Exception\InvalidException $x) {}
                    }
                    unset($lease);
                    if ($e->lease("a", for: 60) !== null) exit(30);
                    $own = $e->lease("b", for: 60);
                    exit($own->guard($argv[3], ["id" => 2], ["value" => 2], "fence") ? 0 : 31);
                }
                pcntl_waitpid($pid, $status); echo pcntl_wexitstatus($status), " ";
            }
            echo json_encode([$lease->renew(), $lease->guard($argv[3], ["id" => 1], ["value" => 1], "fence"), $e->lease("a", for: 60)]);
            foreach ($e->leases() as $one) { echo " ", $one->name, $one->held ? " held" : " free"; }', $this->here($this->name));
        self::assertSame([0, '0 0 [true,true,null] a held b free', ''], [$exit, $out, $errors]);
        self::assertFree($engine, 'a');
    }

    public function test_what_a_signal_handler_throws_ends_the_wait(): void
    {
        $engine = $this->open('sqlite:');
        $lease = $engine->lease('a', for: 60);
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, function () { throw new DomainException("alarm"); });
            pcntl_alarm(1); $t = microtime(true);
            try { $e->lease("a", for: 60, wait: 20); } catch (DomainException $x) { echo $x->getMessage(), " ", microtime(true) - $t < 3 ? "soon" : "late"; }', $this->here());
        self::assertSame([0, 'alarm soon', ''], $answer);
        self::assertTrue($lease->release());
    }

    /** @dataProvider databases */
    public function test_what_is_wrong_is_no_busy(string $dsn): void
    {
        $engine = $this->open($dsn);
        self::assertRefused('invalid', fn () => $engine->lease('', for: 60), '1 to 191 bytes');
        self::assertRefused('invalid', fn () => $engine->lease(str_repeat('n', 192), for: 60), '1 to 191 bytes');
        self::assertNotNull($engine->lease(str_repeat('n', 191), for: 60));
        self::assertRefused('invalid', fn () => $engine->lease("\xFF", for: 60), 'name is not UTF-8');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: 0), 'lease must be');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: 0.99), 'lease must be');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: 40_000_000), 'lease must be');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: -1), 'for');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: NAN), 'for');
        self::assertRefused('invalid', fn () => $engine->lease('a', for: 60, wait: -0.5), 'wait');
        self::assertRefused('invalid', fn () => $engine->leases(0), 'limit');
        self::assertRefused('invalid', fn () => $engine->leases(limit: -1), 'limit');
        self::assertRefused('invalid', fn () => $engine->leases(limit: 10_001), 'limit');
        self::assertThrows(TypeError::class, fn () => $engine->lease('a', for: 'soon'));
        self::assertThrows(ArgumentCountError::class, fn () => $engine->lease('a'));
        self::assertThrows(Exception::class, fn () => new Lease());
        $lease = $engine->lease('a', for: 60);
        self::assertThrows(Exception::class, function () use ($lease) { $lease->fence = 5; });
        self::assertThrows(Exception::class, fn () => serialize($lease));
        self::assertThrows(Error::class, fn () => clone $lease);
        $engine->close();
        self::assertRefused('invalid', fn () => $engine->lease('b', for: 60), 'closed');
        self::assertRefused('invalid', fn () => $engine->leases(), 'closed');
        self::assertRefused('invalid', fn () => $lease->renew(), 'closed');
        self::assertRefused('invalid', fn () => $lease->release(), 'closed');
        unset($lease);
        $engine = $this->another([]);
        self::assertNull($engine->lease('a', for: 60), 'it ends by itself');
        $this->sql("DROP TABLE {$this->options['prefix']}leases");
        self::assertRefused('schema', fn () => $engine->lease('b', for: 60));
        self::assertRefused('schema', fn () => $engine->leases());
    }
}
