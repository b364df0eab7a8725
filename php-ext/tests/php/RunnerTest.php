<?php

declare(strict_types=1);

use Rowclaim\{Engine, Job, Row, Runner, RunnerAnswer};

/** The door for HTTP requests and crontabs: who may work, and what is answered. */
final class RunnerTest extends TableTestCase
{
    private const TOKEN = '0123456789abcdef-secret';

    /** @return array<string, mixed> the answer's members, without its seconds */
    private static function body(RunnerAnswer $answer): array
    {
        $body = json_decode($answer->body, true, flags: JSON_THROW_ON_ERROR);
        if (isset($body['seconds'])) {
            self::assertIsNumeric($body['seconds']);
            unset($body['seconds']);
        }
        return $body;
    }

    /** @dataProvider databases */
    public function test_only_a_post_with_the_token_works(string $dsn): void
    {
        $engine = $this->open($dsn);
        self::fill($engine, 3);
        $runner = $engine->runner(['q' => fn () => null], token: self::TOKEN);
        foreach ([['GET', self::TOKEN, 405], ['PUT', null, 405], ['POST', null, 403], ['POST', '', 403], ['POST', 'Bearer wrong', 403], ['POST', substr(self::TOKEN, 0, -1), 403], ['POST', "\xFF", 403], ["\xFF", self::TOKEN, 405]] as [$method, $token, $status]) {
            $answer = $runner->handle($method, $token);
            self::assertSame([$status, false], [$answer->status, self::body($answer)['ok']]);
            self::assertStringNotContainsString('0123456789', $answer->body);
        }
        self::assertSame(403, $runner->handle('POST')->status);
        self::assertSame(['ready' => 3], array_count_values(self::states($engine)), 'nothing has worked');
        $answer = $runner->handle('POST', 'Bearer ' . self::TOKEN);
        self::assertSame([200, ['ok' => true, 'claimed' => 3, 'completed' => 3, 'failed' => 0, 'released' => 0, 'lost' => 0, 'recovered' => 0, 'more' => false]], [$answer->status, self::body($answer)]);
        self::assertSame([200, 0], [$runner->handle('POST', self::TOKEN)->status, self::body($runner->handle('POST', self::TOKEN))['claimed']]);
        self::assertStringNotContainsString(self::TOKEN, print_r($runner, true) . var_export(json_encode($runner), true));
    }

    /** @dataProvider databases */
    public function test_the_answer_says_what_was_done_and_whether_there_is_more(string $dsn): void
    {
        $engine = $this->open($dsn, ['backoff_base' => 60]);
        self::fill($engine, 5);
        $runner = $engine->runner(['q' => function (Job $job): void {
            $job->payload !== 2 || throw new DomainException('no');
        }], token: self::TOKEN, maxJobs: 3);
        self::assertSame(['ok' => true, 'claimed' => 3, 'completed' => 2, 'failed' => 1, 'released' => 0, 'lost' => 0, 'recovered' => 0, 'more' => true], self::body($runner->handle('POST', self::TOKEN)));
        $answer = self::body($runner->handle('POST', self::TOKEN));
        self::assertSame([2, false], [$answer['completed'], $answer['more']], 'what waits for its next attempt is not due');
        // What a dead worker held is taken back first.
        [$id] = self::fill($engine, 1);
        $this->script(self::CONNECT . 'foreach ($e->claim("q", lease: 1) as $job) { posix_kill(getmypid(), SIGKILL); }', $this->here());
        self::until(fn () => $engine->stats()['expiredClaims'] === 1, 'the lease is over');
        $answer = self::body($runner->handle('POST', self::TOKEN));
        self::assertSame([1, 'ready'], [$answer['recovered'], self::states($engine)[$id]]);
    }

    /** @dataProvider databases */
    public function test_one_runner_of_a_name_works_at_a_time(string $dsn): void
    {
        $engine = $this->open($dsn);
        self::fill($engine, 1);
        $inside = null;
        $make = fn (string $name, callable $handler) => $engine->runner(['q' => $handler], token: self::TOKEN, name: $name);
        $runner = $make('nightly', function () use ($make, &$inside): void {
            $inside = [$make('nightly', self::uncalled())->handle('POST', self::TOKEN), $make('hourly', self::uncalled())->handle('POST', self::TOKEN)];
        });
        self::assertSame(200, $runner->handle('POST', self::TOKEN)->status);
        self::assertSame([409, 200], [$inside[0]->status, $inside[1]->status]);
        self::assertSame('another runner is at work', self::body($inside[0])['error']);
        self::assertSame(200, $make('nightly', self::uncalled())->handle('POST', self::TOKEN)->status, 'its name is free again');
    }

    /** @dataProvider databases */
    public function test_rows_of_a_table_have_their_runner(string $dsn): void
    {
        $engine = $this->open($dsn);
        $this->targets(4);
        $runner = $this->table($engine)->runner(fn (Row $row) => $row->key !== 3 || throw new DomainException('no'), token: self::TOKEN, name: 'targets', maxJobs: 1, where: ['task_id' => 1], order: '-id');
        $first = self::body($runner->handle('POST', self::TOKEN));
        self::assertSame([1, 0, 1, true], [$first['claimed'], $first['completed'], $first['failed'], $first['more']]);
        $this->sql("UPDATE $this->name SET status = 2 WHERE id = 3");
        $second = self::body($runner->handle('POST', self::TOKEN));
        self::assertSame([1, 1, false], [$second['claimed'], $second['completed'], $second['more']]);
        self::assertEquals([1 => 2, 2 => 0, 3 => 2, 4 => 0], $this->stored(), 'only the rows of its conditions');
    }

    /** @dataProvider databases */
    public function test_a_crontab_needs_no_token(string $dsn): void
    {
        $engine = $this->open($dsn);
        self::fill($engine, 2);
        $runner = $engine->runner(['q' => fn () => null], maxJobs: 1);
        self::assertRefused('invalid', fn () => $runner->handle('POST', null), 'needs a runner with a token');
        self::assertSame([200, 1], [($answer = $runner->run())->status, self::body($answer)['completed']]);
        self::assertSame(1, self::body($engine->runner(['q' => fn () => null], token: self::TOKEN)->run())['completed']);
    }

    public function test_what_is_wrong_is_refused_when_it_is_made_or_answered_as_500(): void
    {
        $engine = $this->open('sqlite:');
        $cases = [
            'at least 16 bytes' => fn () => $engine->runner(['q' => fn () => 1], token: 'short'),
            'token is not UTF-8' => fn () => $engine->runner(['q' => fn () => 1], token: str_repeat("\xFF", 16)),
            '1 to 191 bytes' => fn () => $engine->runner(['q' => fn () => 1], name: ''),
            'the handler of queue q cannot be called' => fn () => $engine->runner(['q' => 5]),
            'maxSeconds' => fn () => $engine->runner(['q' => fn () => 1], maxSeconds: -1),
            'finish must be each or group' => fn () => $engine->runner(['q' => fn () => 1], finish: 'later'),
        ];
        foreach ($cases as $message => $code) {
            self::assertRefused('invalid', $code, $message);
        }
        $answer = $engine->runner(['q' => fn () => 1], batch: 0)->run();
        self::assertSame([500, 'invalid'], [$answer->status, self::body($answer)['kind']]);
        $bare = Engine::connect('sqlite::memory:', ['migrate' => 'never']);
        $answer = $bare->runner(['q' => fn () => 1], token: self::TOKEN, name: 'x')->handle('POST', self::TOKEN);
        self::assertSame([500, 'schema'], [$answer->status, self::body($answer)['kind']]);
    }

    /** @dataProvider databases */
    public function test_without_the_database_it_answers_503(string $dsn): void
    {
        if ($dsn === 'sqlite:') {
            self::assertArrayHasKey('sqlite', self::databases(), 'a file does not go away');
            return;
        }
        $this->open($dsn);
        $at = parse_url($this->dsn);
        $port = $this->file('.port');
        // Passes bytes on until it is killed.
        $proxy = $this->start('
            $server = stream_socket_server("tcp://127.0.0.1:0");
            file_put_contents($argv[2] . ".part", explode(":", stream_socket_get_name($server, false))[1]);
            rename($argv[2] . ".part", $argv[2]);
            $pairs = [];
            for (;;) {
                $read = [$server, ...array_merge(...array_values($pairs))];
                $none = null;
                stream_select($read, $none, $none, 1);
                foreach ($read as $from) {
                    if ($from === $server) { $pairs[] = [stream_socket_accept($server), stream_socket_client("tcp://" . $argv[1])]; continue; }
                    foreach ($pairs as $key => $pair) {
                        if (in_array($from, $pair, true)) {
                            $bytes = fread($from, 65536);
                            if ($bytes === "" || $bytes === false) { array_map("fclose", $pair); unset($pairs[$key]); continue; }
                            fwrite($pair[0] === $from ? $pair[1] : $pair[0], $bytes);
                        }
                    }
                }
            }', ["{$at['host']}:{$at['port']}", $port]);
        self::until(fn () => file_exists($port), 'the proxy');
        $engine = Engine::connect(str_replace(":{$at['port']}/", ':' . file_get_contents($port) . '/', $this->dsn), $this->options);
        $runner = $engine->runner(['q' => fn () => 1], token: self::TOKEN, name: 'x');
        self::assertSame(200, $runner->handle('POST', self::TOKEN)->status);
        proc_terminate($proxy[0], SIGKILL);
        $this->finish($proxy);
        $answer = $runner->handle('POST', self::TOKEN);
        self::assertSame([503, 'unavailable'], [$answer->status, self::body($answer)['kind']]);
        $engine->close(0.1);
    }

    /** @dataProvider databases */
    public function test_a_script_that_ends_in_the_middle_gives_the_name_back_first(string $dsn): void
    {
        $engine = $this->open($dsn);
        foreach (['exit(3);', 'str_repeat("x", 64 << 20);', 'trigger_error("no", E_USER_ERROR);'] as $ending) {
            self::fill($engine, 3);
            [, $out] = $this->script(self::CONNECT . '
                register_shutdown_function(function () use ($e) { echo " ", $e->leases()[0]->held ? "held" : "free", $e->stats()["openClaims"]; });
                $e->runner(["q" => function () { ' . $ending . ' }], name: "x")->run();
                echo "not reached";', $this->here(), ['-d', 'memory_limit=24M']);
            self::assertStringEndsWith(' free0', $out);
            self::assertSame(200, $engine->runner(['q' => fn () => 1], name: 'x')->run()->status);
        }
        self::assertSame(['done' => 9], array_count_values(self::states($engine)));
    }

    /** @dataProvider databases */
    public function test_sigterm_ends_it_after_the_job_in_hand_and_it_answers(string $dsn): void
    {
        $engine = $this->open($dsn);
        self::fill($engine, 5);
        $answer = $this->script(self::CONNECT . '
            $answer = $e->runner(["q" => fn () => posix_kill(getmypid(), SIGTERM)], name: "x")->run();
            $body = json_decode($answer->body, true); echo $answer->status, $body["completed"], $body["released"], json_encode($body["more"]);', $this->here());
        self::assertSame([0, '20014true', ''], $answer);
        // What the application's own handler throws while nothing waits is thrown on.
        $answer = $this->script(self::CONNECT . '
            pcntl_signal(SIGALRM, fn () => throw new DomainException("alarm"));
            try { $e->runner(["q" => function () { posix_kill(getmypid(), SIGALRM); usleep(1000); }], name: "x", finish: "each")->run(); echo "not reached"; }
            catch (DomainException $x) { echo $x->getMessage(), $e->leases()[0]->held ? "held" : "free"; }', $this->here());
        self::assertContains($answer, [[0, 'alarmfree', ''], [0, 'not reached', '']], 'it may end before a wait is long enough for the signal');
    }

    public function test_php_s_own_time_limit_must_leave_the_work_its_time(): void
    {
        $this->open('sqlite:');
        $code = self::CONNECT . '
            foreach ([null, 30, 31, 29.9] as $seconds) {
                foreach (["run" => [], "handle" => ["POST", "' . self::TOKEN . '"]] as $verb => $arguments) {
                    try { echo $e->runner(["q" => fn () => 1], token: "' . self::TOKEN . '", maxSeconds: $seconds)->$verb(...$arguments)->status; }
                    catch (Rowclaim\Exception\ConfigException $x) { echo $x->getMessage(); }
                    echo "\n";
                }
            }
            echo ini_get("ignore_user_abort"), " ";
            set_time_limit(0);
            echo $e->runner(["q" => fn () => 1])->run()->status;';
        $refused = "maxSeconds must be less than max_execution_time, which is 30\n";
        self::assertSame([0, str_repeat($refused, 6) . "200\n200\n1 200", ''], $this->script($code, $this->here(), ['-d', 'max_execution_time=30']));
    }

    public function test_runners_leave_no_memory_behind(): void
    {
        $this->open('sqlite:');
        [$exit, $out, $errors] = $this->script(self::CONNECT . '
            $n = 0;
            $round = function (int $times) use ($e, &$n) {
                for ($i = 0; $i < $times; $i++) {
                    $n++;
                    $e->create("q", ["n" => $n]);
                    $runner = $e->runner(["q" => function (Job $job) { $job->once("e$job->id", 1, fn () => ["id" => $job->id])->response["id"] === $job->id || exit(9); }], token: "' . self::TOKEN . '", name: "x");
                    $runner->handle("POST", "' . self::TOKEN . '")->status === 200 || exit(8);
                    try { $e->once("u$n", 1, fn () => throw new DomainException("x")); } catch (DomainException $x) { unset($x); }
                    try { $e->once("n$n", 1, fn () => throw new Rowclaim\NotSent("x")); } catch (Rowclaim\NotSent $x) { unset($x); }
                    try { $e->once("j$n", 1, fn () => fn () => 1); } catch (Rowclaim\Exception\InvalidException $x) { unset($x); }
                    $e->once("u$n", 1, fn () => 1, fn () => throw new Rowclaim\NotSent("x"), "ask")->fresh || exit(7);
                    $e->runSlot("t", $n, fn (Rowclaim\Run $run) => $run->id)->state === "succeeded" || exit(6);
                    try { $e->runSlot("t", -$n, fn () => throw new DomainException("x")); } catch (DomainException $x) { unset($x); }
                    count($e->effects(limit: 2)) + count($e->runs(limit: 2)) === 4 || exit(5);
                }
            };
            $round(20); $php = memory_get_usage();
            $round(60); echo memory_get_usage() - $php;', $this->here());
        self::assertSame([0, ''], [$exit, $errors]);
        self::assertLessThan(1024, (int) $out, 'bytes of PHP');
    }
}
