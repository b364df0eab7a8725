<?php

declare(strict_types=1);

use PHPUnit\Framework\TestCase;
use Rowclaim\Engine;
use Rowclaim\Exception\RowclaimException;

/** Engines on every database of the environment, each test with tables of its own; scripts in processes of their own. */
abstract class RowclaimTestCase extends TestCase
{
    /** @var list<string> */
    private array $files = [];

    /** @return array<string, array{string}> name => [DSN]; SQLite's file is made by place() */
    public static function databases(): array
    {
        $found = ['sqlite' => ['sqlite:']];
        foreach (['mariadb' => 'ROWCLAIM_TEST_MARIADB', 'mysql' => 'ROWCLAIM_TEST_MYSQL'] as $name => $variable) {
            if ((string) getenv($variable) !== '') {
                $found[$name] = [(string) getenv($variable)];
            }
        }
        return $found;
    }

    /** @param array<string, scalar> $options */
    protected function engine(string $dsn = 'sqlite:', array $options = []): Engine
    {
        [$dsn, $options] = $this->place($dsn, $options);
        $engine = Engine::connect($dsn, $options);
        $engine->migrate();
        return $engine;
    }

    /**
     * @param array<string, scalar> $options
     * @return array{string, array<string, scalar>}
     */
    protected function place(string $dsn = 'sqlite:', array $options = []): array
    {
        if ($dsn === 'sqlite:') {
            $dsn .= $this->file('.db');
            $options += ['synchronous' => 'normal'];
        }
        return [$dsn, $options + ['prefix' => 't' . bin2hex(random_bytes(6)) . '_']];
    }

    protected function file(string $suffix): string
    {
        $file = sys_get_temp_dir() . '/rowclaim-test-' . bin2hex(random_bytes(8)) . $suffix;
        $this->files[] = $file;
        return $file;
    }

    protected function tearDown(): void
    {
        foreach ($this->files as $file) {
            foreach (['', '-wal', '-shm', '-journal'] as $more) {
                @unlink($file . $more);
            }
        }
        $this->files = [];
        gc_collect_cycles();
    }

    protected static function extension(): string
    {
        return (string) getenv('ROWCLAIM_EXTENSION');
    }

    /**
     * Starts PHP code in a process of its own.
     *
     * @param list<string> $arguments seen as $argv[1], …
     * @param list<string> $php options of PHP
     * @return array{resource, array<int, resource>}
     */
    protected function start(string $code, array $arguments = [], array $php = []): array
    {
        $file = $this->file('.php');
        file_put_contents($file, "<?php\nuse Rowclaim\\{Engine, Job, Json};\n" . $code);
        $command = [PHP_BINARY, '-d', 'extension=' . self::extension(), '-d', 'display_errors=stderr', '-d', 'log_errors=0', ...$php, $file, ...$arguments];
        $process = proc_open($command, [0 => ['file', '/dev/null', 'r'], 1 => ['pipe', 'w'], 2 => ['pipe', 'w']], $pipes);
        self::assertIsResource($process);
        return [$process, $pipes];
    }

    /**
     * Waits for a process; kills it when it hangs.
     *
     * @param array{resource, array<int, resource>} $started
     * @return array{int, string, string} exit code (negative: signal), output, errors
     */
    protected function finish(array $started, float $within = 30): array
    {
        [$process, $pipes] = $started;
        $texts = [1 => '', 2 => ''];
        foreach ($pipes as $pipe) {
            stream_set_blocking($pipe, false);
        }
        $until = microtime(true) + $within;
        do {
            usleep(2000);
            $status = proc_get_status($process);
            foreach (array_keys($texts) as $number) {
                $texts[$number] .= stream_get_contents($pipes[$number]);
            }
            if (microtime(true) > $until) {
                proc_terminate($process, SIGKILL);
                self::fail("the process hangs: {$texts[1]}{$texts[2]}");
            }
        } while ($status['running']);
        foreach (array_keys($texts) as $number) {
            $texts[$number] .= stream_get_contents($pipes[$number]);
        }
        return [$status['signaled'] ? -$status['termsig'] : $status['exitcode'], $texts[1], $texts[2]];
    }

    /**
     * @param list<string> $arguments
     * @param list<string> $php
     * @return array{int, string, string}
     */
    protected function script(string $code, array $arguments = [], array $php = []): array
    {
        return $this->finish($this->start($code, $arguments, $php));
    }

    /** Waits until something is so. */
    protected static function until(callable $isSo, string $what, float $within = 20): void
    {
        $until = microtime(true) + $within;
        while (!$isSo()) {
            if (microtime(true) > $until) {
                self::fail("waited in vain for: $what");
            }
            usleep(5000);
        }
    }

    /** @param class-string<Throwable> $class */
    protected static function assertThrows(string $class, callable $code, string $message = ''): Throwable
    {
        try {
            $code();
        } catch (Throwable $thrown) {
            self::assertSame($class, get_class($thrown), $thrown->getMessage());
            if ($message !== '') {
                self::assertStringContainsString($message, $thrown->getMessage());
            }
            return $thrown;
        }
        self::fail("$class was not thrown: $message");
    }

    protected static function assertRefused(string $kind, callable $code, string $message = ''): RowclaimException
    {
        $class = 'Rowclaim\\Exception\\' . str_replace('_', '', ucwords($kind, '_')) . 'Exception';
        $thrown = self::assertThrows($class, $code, $message);
        self::assertInstanceOf(RowclaimException::class, $thrown);
        self::assertSame($kind, $thrown->kind);
        self::assertNotSame('', $thrown->getMessage());
        return $thrown;
    }

    /** @return array<int, string> id => state */
    protected static function states(Engine $engine): array
    {
        $states = array_column($engine->jobs(limit: 10000), 'state', 'id');
        ksort($states);
        return $states;
    }

    /** @return list<int> ids of new jobs with the payloads 1 to $jobs */
    protected static function fill(Engine $engine, int $jobs, string $queue = 'q'): array
    {
        $fields = array_map(fn (int $n) => ['payload' => $n], range(1, $jobs));
        return array_map(fn ($created) => $created->id, $engine->createMany($queue, $fields));
    }
}
