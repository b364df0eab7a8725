<?php
/**
 * Sending to receivers, as it stands in the handle() of an artisan command; the model's calls are written out in SQL:
 *
 *     $receivers = Receiver::where('status', 0)->limit(100)->get();
 *     foreach ($receivers as $receiver) {
 *         $receiver->update(['status' => 1]);
 *         $sms->send($receiver->phone);
 *         $receiver->update(['status' => 2, 'processed_at' => now()]);
 *     }
 *
 * What the team thinks protects it: ->everyMinute()->withoutOverlapping() in the scheduler, and status 1 before the send.
 * Where it fails: the scheduler's lock is in the file cache, so each server and each worker of supervisor has its own. All
 * read the same first hundred, and the UPDATE (FAULT) names the id only: nobody learns that somebody else was first.
 */

declare(strict_types=1);

require __DIR__ . '/../surroundings.php';

function handle(PDO $db): void
{
    $limit = (int) scaled('BATCH', 100);
    $receivers = $db->query("SELECT * FROM receivers WHERE status = 0 LIMIT $limit")->fetchAll();
    $processing = $db->prepare('UPDATE receivers SET status = 1, updated_at = NOW() WHERE id = ?');
    $processed = $db->prepare('UPDATE receivers SET status = 2, processed_at = NOW(), updated_at = NOW() WHERE id = ?');
    foreach ($receivers as $receiver) {
        $processing->execute([$receiver['id']]);                          // FAULT
        send($receiver['phone']);
        $processed->execute([$receiver['id']]);
        noted('done', $receiver['phone']);
    }
}

$db = database();
foreach (wake_ups() as $_) {
    handle($db);
}
