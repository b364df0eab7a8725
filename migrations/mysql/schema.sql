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
