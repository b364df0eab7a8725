<?php

declare(strict_types=1);

/** The stub says what the extension has. */
final class StubTest extends RowclaimTestCase
{
    /**
     * @param list<string> $arguments
     * @return array<string, mixed>
     */
    private static function surface(array $arguments): array
    {
        $command = implode(' ', array_map('escapeshellarg', [PHP_BINARY, ...$arguments]));
        $text = (string) shell_exec("$command 2>&1");
        return json_decode($text, true) ?? self::fail($text);
    }

    public function test_the_stub_and_the_extension_are_the_same(): void
    {
        $script = __DIR__ . '/surface.php';
        $loaded = self::surface(['-d', 'extension=' . self::extension(), $script]);
        $written = self::surface([$script, (string) realpath(__DIR__ . '/../../stubs/rowclaim.stub.php')]);
        self::assertGreaterThan(15, count($loaded));
        foreach ($loaded as $class => $surface) {
            // Properties that are read through a getter have no type that PHP knows of.
            foreach ($surface['properties'] ?? [] as $property => $type) {
                if ($type === '' && isset($written[$class]['properties'][$property])) {
                    self::assertNotSame('', $written[$class]['properties'][$property], "$class::$property");
                    $written[$class]['properties'][$property] = '';
                }
            }
        }
        self::assertSame(json_encode($loaded, JSON_PRETTY_PRINT), json_encode($written, JSON_PRETTY_PRINT));
    }
}
