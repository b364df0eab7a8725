-- Leases by name: who may run now, and a fence that only ever grows.
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
