"""Inspections that come again and again, by hand: the Python nodes of original.php.

What the team thinks protects it: only jobs with locked = 0 are read, a job is locked before it runs, and lock_node says by
whom. A lock older than ten minutes belongs to a dead node and is opened.

Where it fails:
  1. run_due: the nodes read the same due jobs; the UPDATE names the id only, without locked = 0 and without a look at the
     row count. It succeeds for every node, and again for a job that another node has finished meanwhile.
  2. open_stale_locks: time proves nothing; the node may only be slow.
  3. finish writes by id, with a next_run_time counted from the row that was read: a late node turns the clock back, and
     slots that have run are run again.
"""

from __future__ import annotations

import http.client
import os
import socket
from datetime import datetime, timedelta
from typing import Any

from surroundings import SHANGHAI, database, noted, scaled, send, shanghai, wake_ups

ME = f"{socket.gethostname()}:{os.getpid()}"


def open_stale_locks(cursor) -> None:
    cursor.execute(
        "UPDATE inspection_job SET locked = 0, lock_node = NULL WHERE locked = 1 AND lock_time < %s",
        (shanghai(ago=scaled("STALE_SECONDS", 600)),),
    )  # FAULT 2


def run_due(cursor) -> None:
    cursor.execute(
        "SELECT * FROM inspection_job WHERE status = 'RUNNING' AND locked = 0 AND next_run_time <= %s"
        " ORDER BY next_run_time, id LIMIT %s",
        (shanghai(), int(scaled("BATCH", 20))),
    )
    for job in cursor.fetchall():
        cursor.execute(
            "UPDATE inspection_job SET locked = 1, lock_node = %s, lock_time = %s WHERE id = %s",
            (ME, datetime.now(SHANGHAI).replace(tzinfo=None), job["id"]),
        )  # FAULT 1
        slot = f"{job['id']}@{job['next_run_time']:%Y-%m-%d %H:%M:%S}"
        try:
            send(slot)
        except (OSError, http.client.HTTPException):
            cursor.execute(
                "UPDATE inspection_job SET locked = 0, retry_count = retry_count + 1, next_run_time = %s WHERE id = %s",
                (shanghai(ago=-job["retry_interval_seconds"]), job["id"]),
            )
        else:
            finish(cursor, job)
            noted("done", slot)


def finish(cursor, job: dict[str, Any]) -> None:
    next_run = job["next_run_time"] + timedelta(seconds=job["interval_seconds"])
    cursor.execute(
        "UPDATE inspection_job SET locked = 0, lock_node = NULL, lock_time = NULL, retry_count = 0, next_run_time = %s,"
        " last_slot = %s WHERE id = %s",
        (next_run, job["next_run_time"], job["id"]),
    )  # FAULT 3


def main() -> None:
    cursor = database().cursor()
    for _ in wake_ups():
        open_stale_locks(cursor)
        run_due(cursor)


if __name__ == "__main__":
    main()
