"""The poller by hand, done with care: a team that knows the traps, on the same table beside Rowclaim.

Each job is taken by a guarded UPDATE of its own whose row count decides; locked_by holds a random token; before the send the
lock is extended where it is still ours, and the result is written where it is still ours. The sessions count matched rows,
since locked_until has whole seconds. It does not take over jobs whose lock is over: Rowclaim does.
"""

from __future__ import annotations

import http.client
import secrets
import time
from typing import Any

import pymysql
from surroundings import database, noted, scaled, send, wake_ups

TYPES = ("express.query", "refund.query")
AGAIN = (1020, 1205, 1213)  # record changed, lock wait, deadlock
MINE = "WHERE id = %s AND locked_by = %s AND status = 'running'"
FREED = "locked_by = NULL, locked_until = NULL"


def wrote(cursor, sql: str, values: tuple) -> bool:
    """Runs a statement again when it was the victim of a deadlock or a lock wait; True when it matched its one row."""
    while True:
        try:
            return cursor.execute(sql, values) == 1
        except pymysql.MySQLError as error:
            if error.args[0] not in AGAIN:
                raise


def until() -> int:
    return int(time.time() + scaled("STALE_SECONDS", 600))


def take(cursor, kind: str, token: str) -> list[dict[str, Any]]:
    """What the guarded update gave us."""
    cursor.execute(
        "SELECT * FROM polling_jobs WHERE type = %s AND status = 'pending' AND next_run_at <= %s"
        " ORDER BY next_run_at, id LIMIT %s",
        (kind, int(time.time()), int(scaled("BATCH", 100))),
    )
    guarded = (
        "UPDATE polling_jobs SET status = 'running', locked_by = %s, locked_until = %s, attempts = attempts + 1"
        " WHERE id = %s AND status = 'pending' AND attempts = %s"
    )
    return [job for job in cursor.fetchall() if wrote(cursor, guarded, (token, until(), job["id"], job["attempts"]))]


def run(cursor, job: dict[str, Any], token: str) -> None:
    mine = (job["id"], token)
    if not wrote(cursor, f"UPDATE polling_jobs SET locked_until = %s {MINE}", (until(), *mine)):
        return
    attempts, error = job["attempts"] + 1, None
    try:
        send(job["business_key"])
    except (OSError, http.client.HTTPException) as thrown:
        error = str(thrown)
    now = int(time.time())
    if error is None:
        done = wrote(cursor, f"UPDATE polling_jobs SET status = 'succeeded', {FREED}, finished_at = %s {MINE}", (now, *mine))
        noted("done" if done else "refused", job["business_key"])
    elif attempts >= job["max_attempts"]:
        set_ = f"status = 'failed', {FREED}, finished_at = %s, last_error = %s"
        wrote(cursor, f"UPDATE polling_jobs SET {set_} {MINE}", (now, error, *mine))
    else:
        wait = min(scaled("BACKOFF_CAP", 3600), scaled("BACKOFF_BASE", 120) * 2 ** (attempts - 1))
        set_ = f"status = 'pending', {FREED}, next_run_at = %s, last_error = %s"
        wrote(cursor, f"UPDATE polling_jobs SET {set_} {MINE}", (now + int(wait), error, *mine))


def main() -> None:
    cursor = database(found_rows=True).cursor()
    for _ in wake_ups():
        for kind in TYPES:
            token = secrets.token_hex(16)
            for job in take(cursor, kind, token):
                run(cursor, job, token)


if __name__ == "__main__":
    main()
