<?php

declare(strict_types=1);

/** Requests of one php-fpm worker share the engine and its connections. */
final class FpmTest extends RowclaimTestCase
{
    private const PAGE = '
        $e = Rowclaim\Engine::connect(options: json_decode(base64_decode("%s"), true));
        $e->migrate();
        $id = $e->create("q", 1)->id;
        if (isset($_GET["exit"])) { foreach ($e->claim("q") as $job) { exit("left"); } }
        foreach ($e->claim("q") as $job) { $job->complete(); }
        $open = array_filter(array_map(fn ($fd) => (string) @readlink($fd), glob("/proc/self/fd/*")), fn ($to) => str_contains($to, "socket:") || str_contains($to, ".db"));
        echo json_encode(["pid" => getmypid(), "id" => $id, "files" => count($open), "state" => $e->job($id)["state"]]);';

    /** @dataProvider databases */
    public function test_two_requests_share_an_engine(string $dsn): void
    {
        $version = PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION;
        $fpm = trim((string) shell_exec("PATH=\$PATH:/usr/sbin:/usr/local/sbin command -v php-fpm$version || command -v php-fpm"));
        $client = trim((string) shell_exec('command -v cgi-fcgi'));
        self::assertNotSame('', $fpm, 'php-fpm is missing: run tests/setup.sh');
        self::assertNotSame('', $client, 'cgi-fcgi is missing: run tests/setup.sh');
        [$place, $options] = $this->place($dsn);
        $folder = $this->file('.dir');
        mkdir($folder);
        if ($dsn === 'sqlite:') {
            $place = "sqlite:$folder/jobs.db";
        }
        // As root the worker is another user, and SQLite writes beside its file.
        chmod($folder, 0777);
        $script = "$folder/page.php";
        file_put_contents($script, '<?php' . sprintf(self::PAGE, base64_encode((string) json_encode($options))));
        $user = posix_getuid() === 0 ? "user = nobody\ngroup = nogroup\n" : '';
        file_put_contents("$folder/fpm.conf", "[global]\nerror_log = $folder/log\ndaemonize = no\n[www]\nlisten = $folder/socket\npm = static\npm.max_children = 1\n$user");
        $null = ['file', '/dev/null', 'w'];
        $process = proc_open([$fpm, '-n', '-F', '-y', "$folder/fpm.conf", '-d', 'extension=' . self::extension(), '-d', "rowclaim.dsn=$place"], [['file', '/dev/null', 'r'], $null, $null], $pipes);
        try {
            self::until(fn () => file_exists("$folder/socket"), 'php-fpm');
            $ask = function (string $query = '') use ($client, $folder, $script): string {
                $answer = (string) shell_exec("REQUEST_METHOD=GET SCRIPT_FILENAME=$script QUERY_STRING=$query $client -bind -connect $folder/socket 2>&1");
                return trim((string) preg_replace('/^.*?\r\n\r\n/s', '', $answer));
            };
            $answers = [];
            for ($n = 0; $n < 3; $n++) {
                $text = $ask();
                $answers[] = json_decode($text, true) ?? self::fail($text);
            }
            self::assertSame('left', $ask('exit=1'), 'a request may end with a claim in its hands');
            $answers[] = json_decode($ask(), true);
            self::assertCount(1, array_unique(array_column($answers, 'pid')), 'one worker');
            self::assertCount(4, array_unique(array_column($answers, 'id')));
            self::assertSame(['done'], array_values(array_unique(array_column($answers, 'state'))));
            $files = array_column($answers, 'files');
            self::assertCount(1, array_unique(array_slice($files, 1)), 'no connection more in later requests: ' . implode(' ', $files));
        } finally {
            proc_terminate($process, SIGTERM);
            for ($n = 0; $n < 500 && proc_get_status($process)['running']; $n++) {
                usleep(20_000);
            }
            proc_terminate($process, SIGKILL);
            proc_close($process);
            array_map('unlink', glob("$folder/*") ?: []);
            rmdir($folder);
        }
    }
}
