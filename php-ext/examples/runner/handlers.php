<?php

declare(strict_types=1);

/* What is done for the jobs of each queue, for runner.php and cron.php. */

use Rowclaim\{Effect, Job};

return [
    'order_sync' => function (Job $job): void {
        // What throws fails its job, which comes back after a while; the others go on.
        error_log("order {$job->payload['order_id']} is synced");
    },
    'sms' => function (Job $job): void {
        // Sent once, whatever happens to this process; the job is completed in the same step.
        $job->once("sms:$job->id", $job->payload, function (Effect $effect) use ($job): array {
            error_log("{$job->payload['to']}: {$job->payload['text']} ($effect->key is the provider's idempotency key)");
            return ['id' => $effect->key];
        });
    },
];
