"""The poller on Rowclaim: the job of original.py.

The back-off, the limit of attempts and the columns are in jobs.json; locked_by holds the claim's token instead of host:pid.
"""

from __future__ import annotations

import http.client
import os
from pathlib import Path

import rowclaim
from surroundings import mapping, noted, scaled, send, wake_ups

TYPES = ("express.query", "refund.query")


def poll(jobs: rowclaim.Table, kind: str) -> None:
    with jobs.claim(limit=int(scaled("BATCH", 100)), where={"type": kind}, lease=scaled("LEASE", 60)) as claim:
        for row in claim:
            try:
                send(row["business_key"])
            except (OSError, http.client.HTTPException) as error:
                if not row.fail(error):
                    noted("refused", row["business_key"])
            else:
                noted("done" if row.complete() else "refused", row["business_key"])


def main() -> None:
    engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
    jobs = engine.table(*mapping(Path(__file__).parent / "jobs.json"))
    for _ in wake_ups():
        for kind in TYPES:
            poll(jobs, kind)


if __name__ == "__main__":
    main()
