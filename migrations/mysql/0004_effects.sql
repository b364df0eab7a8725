-- What was done to the outside world (effects), which planned times ran (runs), the plans (schedules), and how
-- often something may happen (limits).
CREATE TABLE IF NOT EXISTS {effects} (
  id          BIGINT         NOT NULL AUTO_INCREMENT,
  effect_key  VARBINARY(191) NOT NULL,
  state       ENUM('pending','sending','succeeded','failed','unknown') NOT NULL,
  digest      BINARY(32)     NOT NULL COMMENT 'SHA-256 of the request: another request under the same key is refused',
  owner       BINARY(16)     NULL     COMMENT 'the token of the last sender',
  holder      VARCHAR(191)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'for people; never compared',
  attempts    INT            NOT NULL,
  response    MEDIUMTEXT     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'JSON text, byte-exact',
  error       TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  lease_for   BIGINT         NOT NULL COMMENT 'microseconds',
  lease_until DATETIME(6)    NOT NULL COMMENT 'a sender that is silent for longer is gone: what it did is unknown',
  created_at  DATETIME(6)    NOT NULL,
  started_at  DATETIME(6)    NOT NULL,
  finished_at DATETIME(6)    NULL,
  PRIMARY KEY (id),
  UNIQUE KEY effect_key (effect_key),
  KEY effect_state (state, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {runs} (
  id          BIGINT         NOT NULL AUTO_INCREMENT,
  task        VARBINARY(187) NOT NULL,
  slot        DATETIME(6)    NOT NULL COMMENT 'UTC; the planned time',
  rerun       INT            NOT NULL DEFAULT 0 COMMENT 'counts what people ran again of the same slot',
  is_manual   TINYINT        NOT NULL DEFAULT 0,
  state       ENUM('started','succeeded','failed','lost','skipped') NOT NULL,
  reason      ENUM('busy','missed','disabled') NULL COMMENT 'of a skipped one',
  slots       INT            NOT NULL DEFAULT 1 COMMENT 'more than 1: so many missed slots up to this one',
  token       BINARY(16)     NULL,
  fence       BIGINT         NULL     COMMENT 'of the lease run:task',
  worker      VARCHAR(191)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  created_at  DATETIME(6)    NOT NULL,
  finished_at DATETIME(6)    NULL,
  error       TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  PRIMARY KEY (id),
  UNIQUE KEY run_slot (task, slot, rerun),
  KEY run_state (state, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {schedules} (
  task            VARBINARY(187) NOT NULL,
  cron            VARCHAR(191)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  zone            VARCHAR(64)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  missed          ENUM('skip','once','all') NOT NULL,
  cap             INT            NOT NULL COMMENT 'slots made up for in one pass',
  catch_up_for    BIGINT         NULL     COMMENT 'microseconds; older slots are never made up for',
  grace           BIGINT         NOT NULL COMMENT 'microseconds; a slot this late is still on time',
  lease_for       BIGINT         NOT NULL COMMENT 'microseconds',
  max_run         BIGINT         NULL     COMMENT 'microseconds',
  accounted_until DATETIME(6)    NOT NULL COMMENT 'every slot up to here has its row in runs',
  paused_at       DATETIME(6)    NULL,
  asked_at        DATETIME(6)    NULL     COMMENT 'a person wants it run now',
  updated_at      DATETIME(6)    NOT NULL,
  PRIMARY KEY (task)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {limits} (
  name    VARBINARY(191) NOT NULL,
  next_at BIGINT         NOT NULL COMMENT 'microseconds since 1970, UTC; when the next one may go',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
