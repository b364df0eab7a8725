-- At-most-once sources: which claims hold what they had begun, what was begun, and jobs that wait for a person.
ALTER TABLE {claims} ADD COLUMN on_lost TEXT NOT NULL DEFAULT 'retry' CHECK (on_lost IN ('retry','hold'));
-- A CHECK cannot be changed: the two tables are made anew. Their counters go with them, so that no id is given out twice.
CREATE TABLE {jobs_new} (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  queue        TEXT    NOT NULL,
  job_key      TEXT,
  unique_key   TEXT,
  key_life     TEXT    NOT NULL DEFAULT 'forever' CHECK (key_life IN ('forever','active','until_claimed','timed')),
  unique_until INTEGER,
  priority     INTEGER NOT NULL DEFAULT 0,
  payload      TEXT    NOT NULL,
  state        TEXT    NOT NULL DEFAULT 'ready' CHECK (state IN ('ready','claimed','done','dead','cancelled','held')),
  ready_at     INTEGER,
  attempts     INTEGER NOT NULL DEFAULT 0,
  max_attempts INTEGER NOT NULL,
  lost         INTEGER NOT NULL DEFAULT 0,
  fence        INTEGER NOT NULL DEFAULT 0,
  claim_id     INTEGER,
  create_token BLOB,
  last_error   TEXT,
  created_at   INTEGER NOT NULL,
  finished_at  INTEGER
);
INSERT INTO {jobs_new} (id, queue, job_key, unique_key, key_life, unique_until, priority, payload, state,
  ready_at, attempts, max_attempts, lost, fence, claim_id, create_token, last_error, created_at, finished_at)
  SELECT id, queue, job_key, unique_key, key_life, unique_until, priority, payload, state,
  ready_at, attempts, max_attempts, lost, fence, claim_id, create_token, last_error, created_at, finished_at FROM {jobs};
DELETE FROM sqlite_sequence WHERE name = trim('{jobs_new}', '"');
INSERT INTO sqlite_sequence (name, seq) SELECT trim('{jobs_new}', '"'), seq FROM sqlite_sequence WHERE name = trim('{jobs}', '"');
DROP TABLE {jobs};
ALTER TABLE {jobs_new} RENAME TO {jobs};
CREATE UNIQUE INDEX {unique} ON {jobs} (queue, unique_key);
CREATE INDEX {pick} ON {jobs} (queue, priority, ready_at);
CREATE TABLE {attempts_new} (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id     INTEGER NOT NULL,
  fence      INTEGER NOT NULL,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('failed','lost','released','completed','started')),
  final      INTEGER NOT NULL DEFAULT 0,
  worker     TEXT    NOT NULL,
  claimed_at INTEGER,
  ended_at   INTEGER NOT NULL,
  error      TEXT,
  claim_id   INTEGER,
  row_key    TEXT
);
INSERT INTO {attempts_new} (id, job_id, fence, outcome, final, worker, claimed_at, ended_at, error, claim_id, row_key)
  SELECT id, job_id, fence, outcome, final, worker, claimed_at, ended_at, error, claim_id, row_key FROM {attempts};
DELETE FROM sqlite_sequence WHERE name = trim('{attempts_new}', '"');
INSERT INTO sqlite_sequence (name, seq) SELECT trim('{attempts_new}', '"'), seq FROM sqlite_sequence WHERE name = trim('{attempts}', '"');
DROP TABLE {attempts};
ALTER TABLE {attempts_new} RENAME TO {attempts};
CREATE INDEX {job} ON {attempts} (job_id, fence);
CREATE INDEX {final} ON {attempts} (final, id);
CREATE INDEX {claim} ON {attempts} (claim_id);
