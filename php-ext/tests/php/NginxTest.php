<?php

declare(strict_types=1);

use Rowclaim\Engine;

/** The files of examples/runner, behind a real nginx and a real php-fpm, asked by curl. */
final class NginxTest extends RowclaimTestCase
{
    private const EXAMPLES = __DIR__ . '/../../examples/runner';
    private const TOKEN = '6f0c9a52d1be43f7a1c2';
    private const CONNECT = '$e = Engine::connect($argv[1], json_decode($argv[2], true));';
    /** Writes down what it does, takes as long as its payload says, and speaks to a client that may be gone. */
    private const HANDLERS = '<?php
        return ["q" => function (Rowclaim\Job $job): void {
            usleep((int) ($job->payload["seconds"] * 1e6));
            file_put_contents(__DIR__ . "/done", "$job->id " . file_get_contents("php://input") . "\n", FILE_APPEND | LOCK_EX);
            if ($job->payload["speaks"] ?? false) { echo str_repeat("output ", 10000); flush(); }
        }];';

    private string $folder;
    private string $dsn;
    private string $url;
    private Engine $engine;
    /** @var list<resource> */
    private array $servers = [];

    /** An example file, with what a user would change changed. */
    private static function example(string $name, array $changes = []): string
    {
        $text = (string) file_get_contents(self::EXAMPLES . "/$name");
        foreach ($changes as $from => $to) {
            self::assertStringContainsString($from, $text, "$name has nothing to change");
            $text = str_replace($from, $to, $text);
        }
        return $text;
    }

    private static function command(string $name, string $what): string
    {
        $path = trim((string) shell_exec("PATH=\$PATH:/usr/sbin:/usr/local/sbin command -v $name"));
        self::assertNotSame('', $path, "$what is missing: run tests/setup.sh");
        return $path;
    }

    /** @param list<string> $command */
    private function serve(array $command): void
    {
        $log = ['file', "$this->folder/server.log", 'a'];
        $process = proc_open($command, [['file', '/dev/null', 'r'], $log, $log], $pipes);
        self::assertIsResource($process);
        $this->servers[] = $process;
    }

    /** Starts both servers; nothing outside of a temporary folder is read or written, and nothing listens elsewhere. */
    private function open(string $dsn, string $seconds = '20'): void
    {
        [$dsn, $options] = $this->place($dsn);
        $this->folder = $this->file('.dir');
        mkdir($this->folder);
        // As root the workers are another user, and SQLite writes beside its file.
        chmod($this->folder, 0777);
        $this->dsn = (str_starts_with($dsn, 'sqlite:') ? "sqlite:$this->folder/jobs.db" : $dsn) . '?prefix=' . $options['prefix'];
        $this->engine = Engine::connect($this->dsn);
        $this->engine->migrate();
        array_map(fn (string $file) => chmod($file, 0666), glob("$this->folder/jobs.db*") ?: []);

        file_put_contents("$this->folder/handlers.php", self::HANDLERS);
        file_put_contents("$this->folder/runner.php", self::example('runner.php', ['maxSeconds: 45' => "maxSeconds: $seconds"]));
        $version = PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
        $isRoot = posix_getuid() === 0;
        file_put_contents("$this->folder/fpm.conf", "[global]\nerror_log = $this->folder/fpm.log\ndaemonize = no\n" . self::example('php-fpm.conf', [
            "user = www-data\ngroup = www-data\n" => $isRoot ? "user = nobody\ngroup = nogroup\n" : '',
            "listen.owner = www-data\nlisten.group = www-data\n" => $isRoot ? "listen.owner = nobody\nlisten.group = nogroup\n" : '',
            '/run/php/rowclaim-runner.sock' => "$this->folder/socket",
            'mysql://app:secret@127.0.0.1/shop' => $this->dsn,
            'change me: openssl rand -hex 32' => self::TOKEN,
            '120s' => (string) (3 * (int) $seconds) . 's',
        ]));
        $this->serve([self::command("php-fpm$version || command -v php-fpm", 'php-fpm'), '-n', '-F', '-y', "$this->folder/fpm.conf", '-d', 'extension=' . self::extension()]);

        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $address = (string) stream_socket_get_name($listener, false);
        fclose($listener);
        $this->url = "http://$address/rowclaim/runner";
        mkdir("$this->folder/temp");
        chmod("$this->folder/temp", 0777);
        $places = implode('', array_map(fn (string $of) => "{$of}_temp_path $this->folder/temp; ", ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']));
        copy('/etc/nginx/fastcgi_params', "$this->folder/fastcgi_params");
        $location = self::example('nginx.conf', ['/srv/shop/rowclaim' => $this->folder, '/run/php/rowclaim-runner.sock' => "$this->folder/socket"]);
        file_put_contents("$this->folder/nginx.conf", ($isRoot ? "user nobody nogroup;\n" : '') . "daemon off; pid $this->folder/nginx.pid; error_log $this->folder/nginx.log;
            events {}
            http { $places access_log off; server { listen $address; $location } }");
        $this->serve([self::command('nginx', 'nginx'), '-p', $this->folder, '-c', "$this->folder/nginx.conf", '-e', "$this->folder/nginx.log"]);
        self::until(fn () => file_exists("$this->folder/socket") && @stream_socket_client("tcp://$address") !== false, 'nginx and php-fpm');
    }

    protected function tearDown(): void
    {
        foreach (array_reverse($this->servers) as $server) {
            proc_terminate($server, SIGTERM);
            for ($n = 0; $n < 500 && proc_get_status($server)['running']; $n++) {
                usleep(10_000);
            }
            proc_terminate($server, SIGKILL);
            proc_close($server);
        }
        $this->servers = [];
        if (isset($this->folder)) {
            $this->engine->close();
            array_map(fn (string $file) => is_dir($file) ? rmdir($file) : unlink($file), glob("$this->folder/*") ?: []);
            rmdir($this->folder);
            unset($this->folder);
        }
        parent::tearDown();
    }

    /** @return list<int> */
    private function create(int $jobs, float $seconds, array $more = []): array
    {
        $payloads = array_fill(0, $jobs, ['payload' => ['seconds' => $seconds] + $more]);
        return array_map(fn ($created) => $created->id, $this->engine->createMany('q', $payloads));
    }

    /**
     * Asks with curl, so many at once.
     *
     * @param list<string> $options
     * @return list<array{int, float, string, int}> status, seconds, what was said, curl's exit code
     */
    private function curl(array $options, int $times = 1): array
    {
        $command = [self::command('curl', 'curl'), '--silent', '--write-out', '\n%{http_code} %{time_total}', ...$options, $this->url];
        $asked = [];
        for ($n = 0; $n < $times; $n++) {
            $asked[] = [proc_open($command, [['file', '/dev/null', 'r'], ['pipe', 'w'], ['file', '/dev/null', 'w']], $pipes), $pipes[1]];
        }
        $answers = [];
        foreach ($asked as [$process, $pipe]) {
            $text = (string) stream_get_contents($pipe);
            [$status, $seconds] = explode(' ', substr((string) strrchr($text, "\n"), 1));
            $answers[] = [(int) $status, (float) $seconds, substr($text, 0, (int) strrpos($text, "\n")), proc_close($process)];
        }
        return $answers;
    }

    /** @return list<string> */
    private static function post(string $token = self::TOKEN): array
    {
        return ['--request', 'POST', '--header', "Authorization: Bearer $token"];
    }

    /** @return list<int> ids in the order they were done */
    private function done(): array
    {
        return array_map('intval', @file("$this->folder/done") ?: []);
    }

    private function assertOnce(array $ids): void
    {
        $done = $this->done();
        sort($done);
        self::assertSame($ids, $done, 'each job once');
        self::assertSame(['done'], array_values(array_unique(self::states($this->engine))));
    }

    private function log(): string
    {
        return implode('', array_map(fn (string $log) => (string) @file_get_contents("$this->folder/$log"), ['fpm.log', 'nginx.log', 'server.log']));
    }

    /** @dataProvider databases */
    public function test_who_may_work_and_one_at_a_time(string $dsn): void
    {
        $this->open($dsn);
        $ids = $this->create(30, 0.1);
        [[$status, , $text]] = $this->curl(['--include']);
        self::assertSame(405, $status, $text . $this->log());
        self::assertStringContainsString("\r\nAllow: POST\r\n", $text);
        self::assertStringContainsString("\r\nContent-Type: application/json\r\n", $text);
        self::assertStringContainsString("\r\nCache-Control: no-store\r\n", $text);
        self::assertSame([403, 403], [$this->curl(self::post('wrong'))[0][0], $this->curl(['--request', 'POST'])[0][0]]);
        self::assertSame([], $this->done());

        $answers = $this->curl(self::post(), 20);
        usort($answers, fn (array $a, array $b) => $a[0] <=> $b[0]);
        self::assertSame([200, ...array_fill(0, 19, 409)], array_column($answers, 0), $this->log());
        $worked = json_decode($answers[0][2], true);
        self::assertSame([true, 30, 30, false], [$worked['ok'], $worked['claimed'], $worked['completed'], $worked['more']]);
        self::assertGreaterThan(3, $answers[0][1]);
        self::assertLessThan($answers[0][1] - 1, max(array_column(array_slice($answers, 1), 1)), 'they are told at once, not when the work is over');
        self::assertSame(['ok' => false, 'error' => 'another runner is at work'], array_diff_key(json_decode($answers[1][2], true), ['holder' => 0]));
        $this->assertOnce($ids);
    }

    /** @dataProvider databases */
    public function test_a_client_that_hangs_up_does_not_cut_the_work(string $dsn): void
    {
        $this->open($dsn);
        $ids = $this->create(10, 0.15, ['speaks' => true]);
        [[, , , $exit]] = $this->curl(['--max-time', '0.3', ...self::post()]);
        self::assertSame(28, $exit, 'curl has given up');
        self::until(fn () => count($this->done()) === 10, 'the work goes on');
        self::until(fn () => !$this->engine->leases()[0]->held, 'the runner is over');
        $this->assertOnce($ids);
        self::assertSame(array_fill(0, 10, 1), array_column($this->engine->jobs('q'), 'attempts'));
        // The same through a connection that is cut: curl is killed.
        $more = $this->create(5, 0.15, ['speaks' => true]);
        $curl = proc_open([self::command('curl', 'curl'), '--silent', ...self::post(), $this->url], [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['file', '/dev/null', 'w']], $pipes);
        self::until(fn () => count($this->done()) > 10, 'it works');
        proc_terminate($curl, SIGKILL);
        proc_close($curl);
        self::until(fn () => count($this->done()) === 15 && !$this->engine->leases()[0]->held, 'the work goes on');
        $this->assertOnce([...$ids, ...$more]);
        // What came in with the request is there in the handlers.
        $this->create(1, 0);
        self::assertSame(200, $this->curl([...self::post(), '--data', 'a=1'])[0][0]);
        self::assertStringEndsWith(' a=1', rtrim((string) file_get_contents("$this->folder/done")));
        self::assertStringNotContainsString('terminating', $this->log());
    }

    /** @dataProvider databases */
    public function test_the_work_ends_before_php_fpm_ends_it(string $dsn): void
    {
        $this->open($dsn, '2');
        $ids = $this->create(60, 0.1);
        $rounds = 0;
        do {
            [[$status, $seconds, $text]] = $this->curl(self::post());
            self::assertSame(200, $status, $text . $this->log());
            self::assertLessThan(6, $seconds);
            $rounds++;
        } while (json_decode($text, true)['more']);
        self::assertGreaterThan(2, $rounds, '6 seconds of work do not fit into 2');
        self::assertStringNotContainsString('terminating', $this->log());
        $this->assertOnce($ids);
    }

    /** The lines of the crontab and the timer's command do what they say. */
    public function test_the_other_examples_work(): void
    {
        $this->open('sqlite:');
        $ids = $this->create(3, 0);
        file_put_contents("$this->folder/cron.php", self::example('cron.php'));
        file_put_contents("$this->folder/authorization", 'Authorization: Bearer ' . self::TOKEN);
        $php = implode(' ', array_map('escapeshellarg', [PHP_BINARY, '-d', 'extension=' . self::extension(), '-d', "rowclaim.dsn=\"$this->dsn\"", '-d', 'error_log=/dev/null']));
        $changes = ['php /srv/shop/rowclaim' => "$php $this->folder", '/var/log/rowclaim.log' => "$this->folder/cron.log", 'https://shop.example/rowclaim/runner' => $this->url, '/etc/rowclaim/authorization' => "$this->folder/authorization"];
        $lines = preg_grep('/^[^#]/', explode("\n", trim(self::example('crontab', $changes)))) ?: [];
        self::assertCount(2, $lines);
        foreach ($lines as $line) {
            self::assertSame(1, preg_match('/^\* \* \* \* \*  (.+)$/', $line, $matches));
            exec('exec sh -c ' . escapeshellarg($matches[1]), $output, $exit);
            self::assertSame(0, $exit, $line . file_get_contents("$this->folder/cron.log"));
        }
        // The first has worked, for the second nothing was left.
        $said = array_values(array_filter(explode("\n", (string) file_get_contents("$this->folder/cron.log"))));
        self::assertSame([true, 3, true, 0], [json_decode($said[0], true)['ok'], json_decode($said[0], true)['completed'], json_decode($said[1], true)['ok'], json_decode($said[1], true)['claimed']]);
        self::assertSame(['30 2 * * *'], array_map(fn ($plan) => $plan->cron, $this->engine->schedules()));
        $this->engine->askRun('nightly-report');
        $command = substr((string) strstr(self::example('rowclaim.service', ['/usr/bin/php /srv/shop/rowclaim' => "$php $this->folder"]), 'ExecStart='), 10);
        exec((string) strtok($command, "\n"), $output, $exit);
        self::assertSame([0, 'nightly-report succeeded'], [$exit, $output[0] ?? null]);
        $this->assertOnce($ids);

        // The example's own handlers.
        file_put_contents("$this->folder/handlers.php", self::example('handlers.php'));
        $this->engine->create('order_sync', ['order_id' => 10001]);
        $sms = $this->engine->create('sms', ['to' => '+4512345678', 'text' => 'hello'])->id;
        self::assertSame(2, json_decode($this->curl(self::post())[0][2], true)['completed'] ?? null, $this->log());
        self::assertSame(['id' => "sms:$sms"], $this->engine->effect("sms:$sms")->response);

        $verify = trim((string) shell_exec('command -v systemd-analyze'));
        self::assertNotSame('', $verify, 'systemd-analyze is missing: run tests/setup.sh');
        $units = implode(' ', array_map(fn (string $unit) => escapeshellarg(self::EXAMPLES . "/$unit"), ['rowclaim.service', 'rowclaim.timer']));
        exec("$verify verify $units 2>&1", $complaints, $exit);
        self::assertSame(0, $exit, implode("\n", $complaints));
    }
}
