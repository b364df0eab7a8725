"""A worker of ``rowclaim demo``: claim a batch, send each message, say how it ended.

The demo tells it everything by environment variables and closes its stdin when it shall stop. It prints a JSON line
when it lost its patience with the provider, and its counts at the end.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import sys
from urllib.parse import urlsplit

import rowclaim

QUEUE = os.environ["DEMO_QUEUE"]
URL = urlsplit(os.environ["DEMO_URL"])
WORKER = os.environ["DEMO_WORKER"]
BATCH = int(os.environ["DEMO_BATCH"])
LEASE = float(os.environ["DEMO_LEASE"])
TIMEOUT = float(os.environ["DEMO_TIMEOUT"])


def send(job: rowclaim.Job, connection: http.client.HTTPConnection) -> None:
    """Sends one message; raises when the provider does not take it."""
    headers = {
        "Content-Type": "application/json",
        "X-Worker": WORKER,
        "X-Job": str(job.id),
        "X-Attempt": str(job.attempts),
    }
    try:
        connection.request("POST", URL.path, json.dumps(job.payload), headers)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        connection.close()  # the next request opens a new one
        raise
    if response.status != 200:
        raise http.client.HTTPException(f"the provider answered {response.status}")


def shall_go_on(seconds: float) -> bool:
    """Waits a little; False when the demo has closed our stdin."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return not readable or bool(os.read(sys.stdin.fileno(), 1024))


def main() -> None:
    engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
    connection = http.client.HTTPConnection(URL.hostname or "127.0.0.1", URL.port, timeout=TIMEOUT)
    counts = {"completed": 0, "failed": 0, "refused": 0}
    idle = 0.0
    while shall_go_on(idle):
        idle = 0.1
        with engine.claim(QUEUE, limit=BATCH, lease=LEASE) as claim:
            for job in claim:
                idle = 0.0
                try:
                    send(job, connection)
                except (OSError, http.client.HTTPException) as error:
                    if isinstance(error, TimeoutError):
                        print(json.dumps({"gave_up": job.payload["recipient"], "attempt": job.attempts}), flush=True)
                    accepted = job.fail(error)
                    counts["failed"] += 1
                else:
                    accepted = job.complete()
                    counts["completed"] += accepted
                if not accepted:  # the lease ran out meanwhile, and another worker owns the job now
                    counts["refused"] += 1
                    print(f"late write refused for job {job.id}", file=sys.stderr, flush=True)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
