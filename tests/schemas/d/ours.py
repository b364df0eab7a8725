"""Inspections on Rowclaim: the nodes of original.py.

``locked`` is the mapped status: 0 waits, 1 runs, and finishing puts it back to 0 with the next time in the same statement,
so a slot is over for all or for nobody. Which slot is meant is counted from last_slot. next_run_time only says when to look
next: a retry, and the back-off after a dead node's run, move it.
"""

from __future__ import annotations

import http.client
import os
from datetime import datetime, timedelta
from pathlib import Path

import rowclaim
from surroundings import mapping, noted, scaled, send, wake_ups


def run_due(jobs: rowclaim.Table) -> None:
    with jobs.claim(limit=int(scaled("BATCH", 20)), lease=scaled("LEASE", 60)) as claim:
        for row in claim:
            planned = row["last_slot"] + timedelta(seconds=row["interval_seconds"])
            slot = f"{row.key}@{planned:%Y-%m-%d %H:%M:%S}"
            try:
                send(slot)
            except (OSError, http.client.HTTPException) as error:
                row.fail(error, delay=row["retry_interval_seconds"])
            else:
                noted("done" if finish(row, planned) else "refused", slot)


def finish(row: rowclaim.Row, planned: datetime) -> bool:
    """Slot by slot from the planned time, so that a late run does not move the later ones."""
    return row.complete(set={"next_run_time": planned + timedelta(seconds=row["interval_seconds"]), "last_slot": planned})


def main() -> None:
    engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
    jobs = engine.table(*mapping(Path(__file__).parent / "jobs.json"))
    for _ in wake_ups():
        run_due(jobs)


if __name__ == "__main__":
    main()
