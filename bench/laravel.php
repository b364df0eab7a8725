<?php
// A worker on Laravel's database queue: pop (reserve under a lock), run a handler that does nothing, delete.
// Everything is Laravel's own code; the loop around it is barer than `queue:work`, in Laravel's favour.
//
// Usage: laravel.php check | laravel.php DSN TABLE. Lines on stdin: `fill N`, `go`; each is answered by a number of jobs.
declare(strict_types=1);

use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Queue\DatabaseQueue;
use Illuminate\Queue\Jobs\DatabaseJob;

error_reporting(E_ALL & ~E_DEPRECATED);
foreach (['Illuminate/Container', 'Illuminate/Database', 'Illuminate/Queue'] as $package) {
    if (stream_resolve_include_path("$package/autoload.php") === false) {
        fwrite(STDERR, "laravel.php: $package is not installed\n");
        exit(1);
    }
    require_once "$package/autoload.php";
}
if (!extension_loaded('pdo_mysql')) {
    fwrite(STDERR, "laravel.php: pdo_mysql is not installed\n");
    exit(1);
}
if ($argv[1] === 'check') {
    exit(0);
}

final class Nothing
{
    /** @param array<string, mixed> $data */
    public function fire(DatabaseJob $job, array $data): void
    {
        $job->delete();
    }
}

[, $dsn, $table] = $argv;
$parts = parse_url($dsn);
$container = new Container();
Container::setInstance($container);
$capsule = new Manager($container);
$capsule->addConnection([
    'driver' => 'mysql', 'host' => $parts['host'], 'port' => $parts['port'] ?? 3306, 'database' => ltrim($parts['path'], '/'),
    'username' => $parts['user'] ?? 'root', 'password' => $parts['pass'] ?? '', 'charset' => 'utf8mb4',
    'collation' => 'utf8mb4_unicode_ci', 'prefix' => '', 'strict' => true,
]);
$connection = $capsule->getConnection();
$connection->getPdo();
$queue = new DatabaseQueue($connection, $table, 'default', 90);
$queue->setContainer($container);
$queue->setConnectionName('database');

echo "ready\n";
while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    $jobs = 0;
    if ($words[0] === 'fill') {
        $jobs = (int) $words[1];
        $queue->bulk(array_fill(0, $jobs, 'Nothing@fire'), ['order_id' => 10001, 'note' => str_repeat('x', 92)]);
    } else {
        while (($job = $queue->pop()) !== null) {
            $job->fire();
            $jobs++;
        }
    }
    echo "$jobs\n";
}
