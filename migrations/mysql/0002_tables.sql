-- Claims on the tables people already have: which tables are mapped and how, and what became of their rows.
CREATE TABLE IF NOT EXISTS {tables} (
  id         BIGINT         NOT NULL AUTO_INCREMENT,
  digest     BINARY(16)     NOT NULL COMMENT 'of name and mapping: the same mapping is recorded once',
  name       VARBINARY(255) NOT NULL,
  mapping    TEXT           CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'JSON',
  created_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY digest (digest)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

ALTER TABLE {claims}
  ADD COLUMN table_id BIGINT NULL COMMENT 'the mapped table; NULL for jobs';

ALTER TABLE {attempts}
  MODIFY outcome ENUM('failed','lost','released','completed') NOT NULL,
  ADD COLUMN claim_id BIGINT NULL,
  ADD COLUMN row_key VARBINARY(766) NULL COMMENT 'of a row of a mapped table; job_id is 0 then',
  ADD KEY claim (claim_id);
