-- The whole schema at the newest version. A test proves that the migrations lead to it.
CREATE TABLE IF NOT EXISTS {jobs} (
  id           BIGINT          NOT NULL AUTO_INCREMENT,
  queue        VARBINARY(64)   NOT NULL,
  job_key      VARBINARY(191)  NULL     COMMENT 'the business key as given, for people',
  unique_key   VARBINARY(191)  NULL     COMMENT 'what is constrained; NULL when the life of the key has ended',
  key_life     ENUM('forever','active','until_claimed','timed') NOT NULL DEFAULT 'forever',
  unique_until DATETIME(6)     NULL     COMMENT 'UTC; end of a timed key',
  priority     SMALLINT        NOT NULL DEFAULT 0 COMMENT 'smaller runs first',
  payload      LONGTEXT        CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'JSON text, byte-exact',
  state        ENUM('ready','claimed','done','dead','cancelled','held') NOT NULL DEFAULT 'ready',
  ready_at     DATETIME(6)     NULL     COMMENT 'UTC; only while the job waits',
  attempts     INT             NOT NULL DEFAULT 0 COMMENT 'counted when the job is claimed',
  max_attempts INT             NOT NULL,
  lost         INT             NOT NULL DEFAULT 0 COMMENT 'how often a lease ran out',
  fence        BIGINT          NOT NULL DEFAULT 0,
  claim_id     BIGINT          NULL     COMMENT 'the last claim; stays after finishing',
  create_token BINARY(16)      NULL,
  last_error   TEXT            CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  created_at   DATETIME(6)     NOT NULL,
  finished_at  DATETIME(6)     NULL,
  PRIMARY KEY (id),
  UNIQUE KEY unique_key (queue, unique_key),
  KEY pick (queue, priority, ready_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {claims} (
  id          BIGINT         NOT NULL AUTO_INCREMENT,
  token       BINARY(16)     NOT NULL,
  source      VARBINARY(255) NOT NULL COMMENT 'the queues asked',
  worker      VARCHAR(191)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'for people; never compared',
  claimed_at  DATETIME(6)    NOT NULL,
  lease_for   BIGINT         NOT NULL COMMENT 'microseconds',
  lease_until DATETIME(6)    NOT NULL,
  max_until   DATETIME(6)    NULL     COMMENT 'no renewal goes past it',
  state       ENUM('open','closed','expired') NOT NULL DEFAULT 'open',
  closed_at   DATETIME(6)    NULL,
  job_count   INT            NOT NULL,
  job_ids     MEDIUMTEXT     CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'runs: 1-100,105',
  table_id    BIGINT         NULL     COMMENT 'the mapped table; NULL for jobs',
  on_lost     ENUM('retry','hold') NOT NULL DEFAULT 'retry' COMMENT 'what becomes of rows that were begun when the lease runs out',
  PRIMARY KEY (id),
  UNIQUE KEY token (token),
  KEY lease (state, lease_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {attempts} (
  id         BIGINT       NOT NULL AUTO_INCREMENT,
  job_id     BIGINT       NOT NULL,
  fence      BIGINT       NOT NULL,
  outcome    ENUM('failed','lost','released','completed','started') NOT NULL,
  final      TINYINT      NOT NULL DEFAULT 0 COMMENT '1: the job was dead after it; 2: held',
  worker     VARCHAR(191) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  claimed_at DATETIME(6)  NULL,
  ended_at   DATETIME(6)  NOT NULL,
  error      TEXT         CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  claim_id   BIGINT       NULL,
  row_key    VARBINARY(766) NULL COMMENT 'of a row of a mapped table; job_id is 0 then',
  PRIMARY KEY (id),
  KEY job (job_id, fence),
  KEY final (final, id),
  KEY claim (claim_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {tables} (
  id         BIGINT         NOT NULL AUTO_INCREMENT,
  digest     BINARY(16)     NOT NULL COMMENT 'of name and mapping: the same mapping is recorded once',
  name       VARBINARY(255) NOT NULL,
  mapping    TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'JSON',
  created_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY digest (digest)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS {leases} (
  name        VARBINARY(191) NOT NULL,
  owner       BINARY(16)     NULL     COMMENT 'the token of the holder; NULL when released',
  holder      VARCHAR(191)   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'for people; never compared',
  fence       BIGINT         NOT NULL COMMENT 'begins at the milliseconds of its first use, so that it grows also when the row was deleted',
  acquired_at DATETIME(6)    NOT NULL,
  lease_for   BIGINT         NOT NULL COMMENT 'microseconds',
  lease_until DATETIME(6)    NOT NULL,
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

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
