"""Bulk sending by hand, in Python: the same job as original.php, by another team of the same company.

Cron starts it every minute; it works for 50 seconds, and the next start goes on. ``--task-id 42`` is the run by hand,
which does not ask for the task lock.

What the team thinks protects it: a task is locked by lock_at, and who finds its own time in there has the lock; a batch
of targets gets status 1 and a cron_token before the first send; zombies come back after ten minutes.

Where it fails:
  1. lock_task: lock_at has whole seconds. Cron starts all servers in the same one, and each finds "its" time.
  2. send_batch: the targets are read first and marked afterwards, by id, and sent from the list that was read. Who read
     the same list between the two sends it too. The token is written and never asked for.
  3. reset_zombies: time proves nothing. The owner may only be slow, and goes on when its targets are somebody else's.
  4. Unlocking and finishing name the task's id only, so anybody's late write counts.
"""

from __future__ import annotations

import argparse
import http.client
import time
import uuid

from surroundings import database, noted, scaled, send, shanghai, wake_ups


def lock_task(cursor) -> int | None:
    stale = shanghai(ago=scaled("STALE_SECONDS", 600))
    cursor.execute(
        "SELECT id FROM xxx_task WHERE status IN (0, 1) AND (lock_at IS NULL OR lock_at < %s) ORDER BY id LIMIT 1", (stale,)
    )
    task = cursor.fetchone()
    if task is None:
        return None
    now = shanghai()
    cursor.execute(
        "UPDATE xxx_task SET lock_at = %s, status = 1 WHERE id = %s AND (lock_at IS NULL OR lock_at < %s)",
        (now, task["id"], stale),
    )
    # The row count was 0 now and then although we had the lock, so look what is in there.
    cursor.execute("SELECT lock_at FROM xxx_task WHERE id = %s", (task["id"],))
    return task["id"] if str(cursor.fetchone()["lock_at"]) == now else None  # FAULT 1


def reset_zombies(cursor, task_id: int) -> None:
    cursor.execute(
        "UPDATE xxx_task_target SET status = 0, cron_token = NULL WHERE task_id = %s AND status = 1 AND send_at < %s",
        (task_id, shanghai(ago=scaled("STALE_SECONDS", 600))),
    )  # FAULT 3


def send_batch(cursor, task_id: int) -> int:
    """Sends a batch; how many there were."""
    cursor.execute(
        "SELECT id, openid FROM xxx_task_target WHERE task_id = %s AND status = 0 ORDER BY id LIMIT %s",
        (task_id, int(scaled("BATCH", 100))),
    )
    targets = cursor.fetchall()
    if not targets:
        return 0
    cursor.execute(
        "UPDATE xxx_task_target SET status = 1, cron_token = %s, send_at = %s WHERE id IN %s",
        (uuid.uuid4().hex, shanghai(), [target["id"] for target in targets]),
    )  # FAULT 2
    for target in targets:
        try:
            send(target["openid"])
        except (OSError, http.client.HTTPException):
            status = 3
        else:
            status = 2
        cursor.execute("UPDATE xxx_task_target SET status = %s, send_at = %s WHERE id = %s", (status, shanghai(), target["id"]))
        if status == 2:
            noted("done", target["openid"])
    return len(targets)


def finish_or_unlock(cursor, task_id: int, locked: bool) -> None:
    cursor.execute("SELECT COUNT(*) AS n FROM xxx_task_target WHERE task_id = %s AND status IN (0, 1)", (task_id,))
    if cursor.fetchone()["n"] == 0:
        cursor.execute(
            "UPDATE xxx_task SET status = 2, lock_at = NULL, finished_count = finished_count + 1 WHERE id = %s", (task_id,)
        )  # FAULT 4
        noted("task_done", task_id)
    elif locked:
        cursor.execute("UPDATE xxx_task SET lock_at = NULL WHERE id = %s", (task_id,))


def wake_up(cursor, by_hand: int | None) -> None:
    task_id = by_hand or lock_task(cursor)
    if task_id is None:
        return
    cursor.execute("SELECT status FROM xxx_task WHERE id = %s", (task_id,))
    if cursor.fetchone()["status"] == 2:
        return
    until = time.monotonic() + scaled("WORK_SECONDS", 50)
    while True:
        reset_zombies(cursor, task_id)
        if send_batch(cursor, task_id) == 0 or time.monotonic() >= until:
            break
    finish_or_unlock(cursor, task_id, locked=by_hand is None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task-id", type=int)
    by_hand = parser.parse_args().task_id
    cursor = database().cursor()
    for _ in wake_ups():
        wake_up(cursor, by_hand)


if __name__ == "__main__":
    main()
