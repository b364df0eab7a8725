"""The poller in Python, on the same table and by the same rules as original.php.

What the team thinks protects it: locked_by and locked_until. A job that runs is locked for some minutes, a job whose lock
is over may be taken by others, and everybody signs with host:pid.

Where it fails:
  1. take: between the SELECT and the UPDATE others read the same jobs. The UPDATE names ids only, the last one to write is
     "locked_by", and all of them run what they have read. (attempts goes up once for each of them, too.)
  2. Taking a job over asks the time only, and nobody extends locked_until: a slow owner is not a dead one.
  3. finish: the result is written by id, whoever owns the job by now.
"""

from __future__ import annotations

import http.client
import os
import socket
import time
from typing import Any

from surroundings import database, noted, scaled, send, wake_ups

TYPES = ("express.query", "refund.query")
ME = f"{socket.gethostname()}:{os.getpid()}"


def take(cursor, kind: str) -> list[dict[str, Any]]:
    now = int(time.time())
    cursor.execute(
        "SELECT * FROM polling_jobs WHERE type = %s AND next_run_at <= %s"
        " AND (status = 'pending' OR (status = 'running' AND locked_until < %s)) ORDER BY next_run_at, id LIMIT %s",
        (kind, now, now, int(scaled("BATCH", 100))),
    )  # FAULT 2
    jobs = cursor.fetchall()
    if jobs:
        cursor.execute(
            "UPDATE polling_jobs SET status = 'running', locked_by = %s, locked_until = %s, attempts = attempts + 1"
            " WHERE id IN %s",
            (ME, now + int(scaled("STALE_SECONDS", 600)), [job["id"] for job in jobs]),
        )  # FAULT 1
    return jobs


def finish(cursor, job: dict[str, Any], error: str | None) -> None:
    now, attempts = int(time.time()), job["attempts"] + 1
    if error is None:
        cursor.execute(
            "UPDATE polling_jobs SET status = 'succeeded', locked_by = NULL, locked_until = NULL, finished_at = %s WHERE id = %s",
            (now, job["id"]),
        )  # FAULT 3
        noted("done", job["business_key"])
    elif attempts >= job["max_attempts"]:
        cursor.execute(
            "UPDATE polling_jobs SET status = 'failed', locked_by = NULL, locked_until = NULL, finished_at = %s, last_error = %s"
            " WHERE id = %s",
            (now, error, job["id"]),
        )
    else:
        wait = min(scaled("BACKOFF_CAP", 3600), scaled("BACKOFF_BASE", 120) * 2 ** (attempts - 1))  # 2, 4, 8 … minutes
        cursor.execute(
            "UPDATE polling_jobs SET status = 'pending', locked_by = NULL, locked_until = NULL, next_run_at = %s,"
            " last_error = %s WHERE id = %s",
            (now + int(wait), error, job["id"]),
        )


def main() -> None:
    cursor = database().cursor()
    for _ in wake_ups():
        for kind in TYPES:
            for job in take(cursor, kind):
                error = None
                try:
                    send(job["business_key"])
                except (OSError, http.client.HTTPException) as thrown:
                    error = str(thrown)
                finish(cursor, job, error)


if __name__ == "__main__":
    main()
