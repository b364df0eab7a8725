-- every role

SELECT `id`, `attempts`, 3, `fence` FROM `targets` WHERE `status` = ? AND `task_id` = ? AND (`available_at` IS NULL OR `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND) ORDER BY `available_at`, `id` LIMIT ?

UPDATE `targets` SET `status` = ?, `cron_token` = ?, `send_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND, `lease_until` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND, `locked_by` = ?, `attempts` = CASE WHEN COALESCE(`attempts`, 0) < ? THEN COALESCE(`attempts`, 0) + 1 ELSE `attempts` END, `fence` = COALESCE(`fence`, 0) + 1 WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ? AND (`available_at` IS NULL OR `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND)

SELECT `id`, `attempts`, 3, `fence` FROM `targets` WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ? AND (`available_at` IS NULL OR `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND) ORDER BY `id` FOR UPDATE SKIP LOCKED

SELECT `id`, `task_id`, `openid`, `status`, `cron_token`, `send_at`, `lease_until`, `locked_by`, `attempts`, `available_at`, `error`, `finished_at`, `priority`, `fence`, `result`, `id`, `attempts`, 3, `fence` FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ?, `lease_until` = NULL, `locked_by` = NULL, `finished_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `send_at` = NULL, `lease_until` = NULL, `locked_by` = NULL, `available_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND, `error` = ?, `attempts` = CASE WHEN `attempts` > 0 THEN `attempts` - 1 ELSE 0 END WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

SELECT `id`, `attempts`, 3, `fence` FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ? ORDER BY `id` FOR UPDATE

SELECT `id`, `status` = ?, `status` = ?, `status` = ?, `status` = ?, `cron_token` = ?, `cron_token` IS NULL FROM `targets` WHERE (`id` IN (?))

SELECT EXISTS (SELECT 1 FROM `targets` WHERE `status` = ? AND `task_id` = ?) OR EXISTS (SELECT 1 FROM `targets` WHERE `status` = ? AND `task_id` = ?)

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `send_at` = NULL, `lease_until` = NULL, `locked_by` = NULL, `finished_at` = NULL WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ?

UPDATE `targets` SET `status` = ?, `error` = ?, `finished_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ? AND (`attempts` >= ? OR `attempts` >= 3)

UPDATE `targets` SET `status` = ?, `error` = ?, `finished_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND, `lease_until` = NULL, `locked_by` = NULL WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `lease_until` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

SELECT `id`, `attempts`, 3, `fence`, `cron_token`, `locked_by` FROM `targets` WHERE `status` = ? AND `task_id` = ? AND (`lease_until` IS NULL OR `lease_until` < '1970-01-02 00:00:00' OR `lease_until` < UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND) ORDER BY `id` LIMIT ?

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `send_at` = NULL, `lease_until` = NULL, `locked_by` = NULL, `error` = ? WHERE (`id` IN (?)) AND `cron_token` IS NULL AND `status` = ? AND `task_id` = ? AND (`lease_until` IS NULL OR `lease_until` < '1970-01-02 00:00:00' OR `lease_until` < UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND)

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `error` = ?, `lease_until` = NULL, `locked_by` = NULL WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

SELECT `id` FROM `targets` WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ? ORDER BY `id` FOR UPDATE

UPDATE `targets` SET `status` = ?, `finished_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ?

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `send_at` = NULL, `lease_until` = NULL, `locked_by` = NULL, `attempts` = CASE WHEN `attempts` > 0 THEN `attempts` - 1 ELSE 0 END WHERE (`id` IN (?)) AND `status` = ? AND `task_id` = ?

-- an index that holds status and time

SELECT `id`, 0, 9223372036854775807, 0, `id` FROM `targets` FORCE INDEX (`due`) WHERE `status` = ? AND `available_at` IS NULL ORDER BY `id` LIMIT ? FOR UPDATE SKIP LOCKED

SELECT `id`, 0, 9223372036854775807, 0, `available_at` FROM `targets` FORCE INDEX (`due`) WHERE `status` = ? AND `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND ORDER BY `available_at`, `id` LIMIT ? FOR UPDATE SKIP LOCKED

UPDATE `targets` SET `status` = ?, `cron_token` = ? WHERE (`id` IN (?)) AND `status` = ? AND (`available_at` IS NULL OR `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND)

SELECT `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `status` = ? AND (`available_at` IS NULL OR `available_at` > '1970-01-02 00:00:00' AND `available_at` <= UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND) ORDER BY `id` FOR UPDATE SKIP LOCKED

SELECT `id`, `task_id`, `openid`, `status`, `cron_token`, `send_at`, `lease_until`, `locked_by`, `attempts`, `available_at`, `error`, `finished_at`, `priority`, `fence`, `result`, `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ?, `cron_token` = NULL, `available_at` = UTC_TIMESTAMP(0) + INTERVAL 28800 SECOND + INTERVAL ? MICROSECOND WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

SELECT `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ? ORDER BY `id` FOR UPDATE

SELECT `id`, `status` = ?, `status` = ?, `status` = ?, `status` = ?, `cron_token` = ?, `cron_token` IS NULL FROM `targets` WHERE (`id` IN (?))

SELECT EXISTS (SELECT 1 FROM `targets` WHERE `status` = ?) OR EXISTS (SELECT 1 FROM `targets` WHERE `status` = ?)

UPDATE `targets` SET `status` = ?, `cron_token` = NULL WHERE (`id` IN (?)) AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

-- only what every mapping has

SELECT `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE `status` = ? ORDER BY `id` LIMIT ?

UPDATE `targets` SET `status` = ?, `cron_token` = ? WHERE (`id` IN (?)) AND `status` = ?

SELECT `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `status` = ? ORDER BY `id` FOR UPDATE SKIP LOCKED

SELECT `id`, `task_id`, `openid`, `status`, `cron_token`, `send_at`, `lease_until`, `locked_by`, `attempts`, `available_at`, `error`, `finished_at`, `priority`, `fence`, `result`, `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

UPDATE `targets` SET `status` = ?, `cron_token` = NULL WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

SELECT `id`, 0, 9223372036854775807, 0 FROM `targets` WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ? ORDER BY `id` FOR UPDATE

SELECT `id`, `status` = ?, `status` = ?, `status` = ?, `status` = ?, `cron_token` = ?, `cron_token` IS NULL FROM `targets` WHERE (`id` IN (?))

SELECT EXISTS (SELECT 1 FROM `targets` WHERE `status` = ?) OR EXISTS (SELECT 1 FROM `targets` WHERE `status` = ?)

UPDATE `targets` SET `status` = ?, `cron_token` = NULL WHERE (`id` IN (?)) AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `status` = ?

UPDATE `targets` SET `status` = ? WHERE (`id` IN (?)) AND `cron_token` = ? AND `status` = ?

