<?php

declare(strict_types=1);

/*
 * One HTTP request works off what waits: POST with the token, from a timer, a monitor or another application.
 *
 *     curl -X POST -H 'Authorization: Bearer …' https://shop.example/rowclaim/runner
 *
 * Put it outside of the document root; nginx.conf beside it has the one address that leads here. The DSN comes from
 * rowclaim.dsn, the token from the environment: php-fpm.conf sets both. Without a token in the environment every request is
 * refused.
 */

use Rowclaim\Engine;

$answer = Engine::connect()->runner(
    require __DIR__ . '/handlers.php',
    token: getenv('ROWCLAIM_RUNNER_TOKEN') ?: null,
    name: 'runner',                                // one at a time: the others are answered 409 at once
    maxSeconds: 45,                                // less than every time limit of php-fpm, nginx and the client
    batch: 20,
)->handle($_SERVER['REQUEST_METHOD'], $_SERVER['HTTP_AUTHORIZATION'] ?? null);

http_response_code($answer->status);
header('Content-Type: application/json');
header('Cache-Control: no-store');
if ($answer->status === 405) {
    header('Allow: POST');
}
echo $answer->body, "\n";
