"""Bulk sending on Rowclaim: the job of original.py, with the same cron, the same 50 seconds and the same --task-id.

Two layers of one thing. The task is a claim of one row of xxx_task: one cron run works on a task, however many start. The
targets are claims of rows of xxx_task_target: they keep runs by hand apart from cron, which the task's claim cannot.
Zombies need no code: a dead run's rows come back when its lease is over, a slow one's lease is renewed.
"""

from __future__ import annotations

import argparse
import http.client
import os
import time
from pathlib import Path

import rowclaim
from surroundings import mapping, noted, scaled, send, wake_ups

HERE = Path(__file__).parent


def send_targets(targets: rowclaim.Table, task_id: int) -> bool:
    """Sends what there is to send, for 50 seconds at most; True when nothing is pending or being sent any more."""
    until = time.monotonic() + scaled("WORK_SECONDS", 50)
    while True:
        count = 0
        with targets.claim(limit=int(scaled("BATCH", 100)), where={"task_id": task_id}, lease=scaled("LEASE", 60)) as claim:
            for row in claim:
                count += 1
                send_one(row)
        if count == 0 and not targets.remaining(where={"task_id": task_id}):
            return True
        if time.monotonic() >= until:
            return False
        if count == 0:
            time.sleep(0.02)  # another run is still sending: it, or we after its death, will finish


def send_one(row: rowclaim.Row) -> None:
    try:
        send(row["openid"])
    except (OSError, http.client.HTTPException) as error:
        row.fail(error)
    else:
        noted("done" if row.complete() else "refused", row["openid"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task-id", type=int)
    by_hand = parser.parse_args().task_id
    engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
    tasks = engine.table(*mapping(HERE / "tasks.json"))
    targets = engine.table(*mapping(HERE / "targets.json"))
    for _ in wake_ups():
        if by_hand is not None:
            send_targets(targets, by_hand)  # does not hold the task, so it does not finish it either
            continue
        with tasks.claim(limit=1, lease=scaled("LEASE", 60)) as claim:
            for task in claim:
                if not send_targets(targets, task["id"]):
                    task.release()  # the next cron run goes on
                elif task.complete(set={"finished_count": task["finished_count"] + 1}):
                    noted("task_done", task["id"])


if __name__ == "__main__":
    main()
