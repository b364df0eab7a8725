-- The whole schema at the newest version. A test proves that the migrations lead to it.
CREATE TABLE IF NOT EXISTS {jobs} (
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
CREATE UNIQUE INDEX IF NOT EXISTS {unique} ON {jobs} (queue, unique_key);
CREATE INDEX IF NOT EXISTS {pick} ON {jobs} (queue, priority, ready_at);

CREATE TABLE IF NOT EXISTS {claims} (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  token       BLOB    NOT NULL UNIQUE,
  source      TEXT    NOT NULL,
  worker      TEXT    NOT NULL,
  claimed_at  INTEGER NOT NULL,
  lease_for   INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  max_until   INTEGER,
  state       TEXT    NOT NULL DEFAULT 'open' CHECK (state IN ('open','closed','expired')),
  closed_at   INTEGER,
  job_count   INTEGER NOT NULL,
  job_ids     TEXT    NOT NULL,
  table_id    INTEGER,
  on_lost     TEXT    NOT NULL DEFAULT 'retry' CHECK (on_lost IN ('retry','hold'))
);
CREATE INDEX IF NOT EXISTS {lease} ON {claims} (state, lease_until);

CREATE TABLE IF NOT EXISTS {attempts} (
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
CREATE INDEX IF NOT EXISTS {job} ON {attempts} (job_id, fence);
CREATE INDEX IF NOT EXISTS {final} ON {attempts} (final, id);
CREATE INDEX IF NOT EXISTS {claim} ON {attempts} (claim_id);

CREATE TABLE IF NOT EXISTS {tables} (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE,
  name       TEXT    NOT NULL,
  mapping    TEXT    NOT NULL,
  created_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS {leases} (
  name        TEXT    NOT NULL PRIMARY KEY,
  owner       BLOB,
  holder      TEXT    NOT NULL,
  fence       INTEGER NOT NULL,
  acquired_at INTEGER NOT NULL,
  lease_for   INTEGER NOT NULL,
  lease_until INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS {effects} (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  effect_key  TEXT    NOT NULL UNIQUE,
  state       TEXT    NOT NULL CHECK (state IN ('pending','sending','succeeded','failed','unknown')),
  digest      BLOB    NOT NULL,
  owner       BLOB,
  holder      TEXT    NOT NULL,
  attempts    INTEGER NOT NULL,
  response    TEXT,
  error       TEXT,
  lease_for   INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER
);
CREATE INDEX IF NOT EXISTS {effect_state} ON {effects} (state, id);

CREATE TABLE IF NOT EXISTS {runs} (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  task        TEXT    NOT NULL,
  slot        INTEGER NOT NULL,
  rerun       INTEGER NOT NULL DEFAULT 0,
  is_manual   INTEGER NOT NULL DEFAULT 0,
  state       TEXT    NOT NULL CHECK (state IN ('started','succeeded','failed','lost','skipped')),
  reason      TEXT    CHECK (reason IN ('busy','missed','disabled')),
  slots       INTEGER NOT NULL DEFAULT 1,
  token       BLOB,
  fence       INTEGER,
  worker      TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  finished_at INTEGER,
  error       TEXT
);
CREATE UNIQUE INDEX IF NOT EXISTS {run_slot} ON {runs} (task, slot, rerun);
CREATE INDEX IF NOT EXISTS {run_state} ON {runs} (state, id);

CREATE TABLE IF NOT EXISTS {schedules} (
  task            TEXT    NOT NULL PRIMARY KEY,
  cron            TEXT    NOT NULL,
  zone            TEXT    NOT NULL,
  missed          TEXT    NOT NULL CHECK (missed IN ('skip','once','all')),
  cap             INTEGER NOT NULL,
  catch_up_for    INTEGER,
  grace           INTEGER NOT NULL,
  lease_for       INTEGER NOT NULL,
  max_run         INTEGER,
  accounted_until INTEGER NOT NULL,
  paused_at       INTEGER,
  asked_at        INTEGER,
  updated_at      INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS {limits} (
  name    TEXT    NOT NULL PRIMARY KEY,
  next_at INTEGER NOT NULL
);
