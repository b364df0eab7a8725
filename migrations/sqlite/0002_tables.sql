-- Claims on the tables people already have: which tables are mapped and how, and what became of their rows.
CREATE TABLE IF NOT EXISTS {tables} (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE,
  name       TEXT    NOT NULL,
  mapping    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);
ALTER TABLE {claims} ADD COLUMN table_id INTEGER;
CREATE TABLE {attempts_new} (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id     INTEGER NOT NULL,
  fence      INTEGER NOT NULL,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('failed','lost','released','completed')),
  final      INTEGER NOT NULL DEFAULT 0,
  worker     TEXT    NOT NULL,
  claimed_at INTEGER,
  ended_at   INTEGER NOT NULL,
  error      TEXT,
  claim_id   INTEGER,
  row_key    TEXT
);
INSERT INTO {attempts_new} (id, job_id, fence, outcome, final, worker, claimed_at, ended_at, error)
  SELECT id, job_id, fence, outcome, final, worker, claimed_at, ended_at, error FROM {attempts};
DROP TABLE {attempts};
ALTER TABLE {attempts_new} RENAME TO {attempts};
CREATE INDEX {job} ON {attempts} (job_id, fence);
CREATE INDEX {final} ON {attempts} (final, id);
CREATE INDEX {claim} ON {attempts} (claim_id);
