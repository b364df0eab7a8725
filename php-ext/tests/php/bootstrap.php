<?php

declare(strict_types=1);

if (!extension_loaded('rowclaim')) {
    fwrite(STDERR, "the extension rowclaim is not loaded: run php-ext/tests/run.sh\n");
    exit(2);
}

require __DIR__ . '/RowclaimTestCase.php';
require __DIR__ . '/TableTestCase.php';
