-- Leases by name: who may run now, and a fence that only ever grows.
CREATE TABLE IF NOT EXISTS {leases} (
  name        TEXT    NOT NULL PRIMARY KEY,
  owner       BLOB,
  holder      TEXT    NOT NULL,
  fence       INTEGER NOT NULL,
  acquired_at INTEGER NOT NULL,
  lease_for   INTEGER NOT NULL,
  lease_until INTEGER NOT NULL
);
