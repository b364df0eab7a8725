-- What was done to the outside world (effects), which planned times ran (runs), the plans (schedules), and how
-- often something may happen (limits).
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
