-- every role

SELECT "id", "attempts", 3, "fence" FROM "targets" WHERE "status" = ? AND "task_id" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds')) ORDER BY "available_at", "id" LIMIT ?

UPDATE "targets" SET "status" = ?, "cron_token" = ?, "send_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'), "lease_until" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'), "locked_by" = ?, "attempts" = CASE WHEN COALESCE("attempts", 0) < ? THEN COALESCE("attempts", 0) + 1 ELSE "attempts" END, "fence" = COALESCE("fence", 0) + 1 WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'))

SELECT "id", "attempts", 3, "fence" FROM "targets" WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds')) ORDER BY "id"

SELECT "id", "task_id", "openid", "status", "cron_token", "send_at", "lease_until", "locked_by", "attempts", "available_at", "error", "finished_at", "priority", "fence", "result", "id", "attempts", 3, "fence" FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ?, "lease_until" = NULL, "locked_by" = NULL, "finished_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds') WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "send_at" = NULL, "lease_until" = NULL, "locked_by" = NULL, "available_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'), "error" = ?, "attempts" = CASE WHEN "attempts" > 0 THEN "attempts" - 1 ELSE 0 END WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

SELECT "id", "attempts", 3, "fence" FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ? ORDER BY "id"

SELECT "id", "status" = ?, "status" = ?, "status" = ?, "status" = ?, "cron_token" = ?, "cron_token" IS NULL FROM "targets" WHERE ("id" IN (?))

SELECT EXISTS (SELECT 1 FROM "targets" WHERE "status" = ? AND "task_id" = ?) OR EXISTS (SELECT 1 FROM "targets" WHERE "status" = ? AND "task_id" = ?)

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "send_at" = NULL, "lease_until" = NULL, "locked_by" = NULL, "finished_at" = NULL WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ?

UPDATE "targets" SET "status" = ?, "error" = ?, "finished_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds') WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ? AND ("attempts" >= ? OR "attempts" >= 3)

UPDATE "targets" SET "status" = ?, "error" = ?, "finished_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'), "lease_until" = NULL, "locked_by" = NULL WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "lease_until" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds') WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

SELECT "id", "attempts", 3, "fence", "cron_token", "locked_by" FROM "targets" WHERE "status" = ? AND "task_id" = ? AND ("lease_until" IS NULL OR "lease_until" = 0 OR "lease_until" < strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds')) ORDER BY "id" LIMIT ?

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "send_at" = NULL, "lease_until" = NULL, "locked_by" = NULL, "error" = ? WHERE ("id" IN (?)) AND "cron_token" IS NULL AND "status" = ? AND "task_id" = ? AND ("lease_until" IS NULL OR "lease_until" = 0 OR "lease_until" < strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'))

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "error" = ?, "lease_until" = NULL, "locked_by" = NULL WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

SELECT "id" FROM "targets" WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ? ORDER BY "id"

UPDATE "targets" SET "status" = ?, "finished_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds') WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ?

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "send_at" = NULL, "lease_until" = NULL, "locked_by" = NULL, "attempts" = CASE WHEN "attempts" > 0 THEN "attempts" - 1 ELSE 0 END WHERE ("id" IN (?)) AND "status" = ? AND "task_id" = ?

-- an index that holds status and time

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE "status" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds')) ORDER BY "available_at", "id" LIMIT ?

UPDATE "targets" SET "status" = ?, "cron_token" = ? WHERE ("id" IN (?)) AND "status" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds'))

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "status" = ? AND ("available_at" IS NULL OR "available_at" <= strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds')) ORDER BY "id"

SELECT "id", "task_id", "openid", "status", "cron_token", "send_at", "lease_until", "locked_by", "attempts", "available_at", "error", "finished_at", "priority", "fence", "result", "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ?, "cron_token" = NULL, "available_at" = strftime('%Y-%m-%d %H:%M:%S', 'now', '28800 seconds', (? / 1000000) || ' seconds') WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ? ORDER BY "id"

SELECT "id", "status" = ?, "status" = ?, "status" = ?, "status" = ?, "cron_token" = ?, "cron_token" IS NULL FROM "targets" WHERE ("id" IN (?))

SELECT EXISTS (SELECT 1 FROM "targets" WHERE "status" = ?) OR EXISTS (SELECT 1 FROM "targets" WHERE "status" = ?)

UPDATE "targets" SET "status" = ?, "cron_token" = NULL WHERE ("id" IN (?)) AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

-- only what every mapping has

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE "status" = ? ORDER BY "id" LIMIT ?

UPDATE "targets" SET "status" = ?, "cron_token" = ? WHERE ("id" IN (?)) AND "status" = ?

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "status" = ? ORDER BY "id"

SELECT "id", "task_id", "openid", "status", "cron_token", "send_at", "lease_until", "locked_by", "attempts", "available_at", "error", "finished_at", "priority", "fence", "result", "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

UPDATE "targets" SET "status" = ?, "cron_token" = NULL WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

SELECT "id", 0, 9223372036854775807, 0 FROM "targets" WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ? ORDER BY "id"

SELECT "id", "status" = ?, "status" = ?, "status" = ?, "status" = ?, "cron_token" = ?, "cron_token" IS NULL FROM "targets" WHERE ("id" IN (?))

SELECT EXISTS (SELECT 1 FROM "targets" WHERE "status" = ?) OR EXISTS (SELECT 1 FROM "targets" WHERE "status" = ?)

UPDATE "targets" SET "status" = ?, "cron_token" = NULL WHERE ("id" IN (?)) AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "status" = ?

UPDATE "targets" SET "status" = ? WHERE ("id" IN (?)) AND "cron_token" = ? AND "status" = ?

