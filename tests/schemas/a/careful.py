"""Bulk sending by hand, done with care: a team that knows the traps, on the same table beside Rowclaim.

A batch is taken by one UPDATE that names the state and writes a random token; what is sent is what the token is found
on; each send begins with "is it still mine?", each result is written only where the token still stands. The sessions
count matched rows: send_at has whole seconds, and a row that is changed to what it was counts as untouched otherwise.
It does not take anybody's zombies back, its own neither: that is left to Rowclaim.
"""

from __future__ import annotations

import secrets

import pymysql
from surroundings import database, noted, scaled, send, shanghai, wake_ups

AGAIN = (1020, 1205, 1213)  # record changed, lock wait, deadlock


def write(cursor, sql: str, values: tuple) -> int:
    """Runs a statement again when it was the victim of a deadlock or a lock wait; its affected rows."""
    while True:
        try:
            return cursor.execute(sql, values)
        except pymysql.MySQLError as error:
            if error.args[0] not in AGAIN:
                raise


def send_batch(cursor, task_id: int) -> None:
    token = secrets.token_hex(16)
    write(
        cursor,
        "UPDATE xxx_task_target SET status = 1, cron_token = %s, send_at = %s"
        " WHERE task_id = %s AND status = 0 ORDER BY id LIMIT %s",
        (token, shanghai(), task_id, int(scaled("BATCH", 100))),
    )
    cursor.execute(
        "SELECT id, openid FROM xxx_task_target WHERE task_id = %s AND cron_token = %s AND status = 1 ORDER BY id",
        (task_id, token),
    )
    still = "UPDATE xxx_task_target SET send_at = %s WHERE id = %s AND cron_token = %s AND status = 1"
    sent = "UPDATE xxx_task_target SET status = 2, send_at = %s WHERE id = %s AND cron_token = %s AND status = 1"
    for target in cursor.fetchall():
        if write(cursor, still, (shanghai(), target["id"], token)) != 1:
            continue
        send(target["openid"])
        accepted = write(cursor, sent, (shanghai(), target["id"], token)) == 1
        noted("done" if accepted else "refused", target["openid"])


def main() -> None:
    cursor = database(found_rows=True).cursor()
    for _ in wake_ups():
        cursor.execute("SELECT id FROM xxx_task WHERE status < 2 ORDER BY RAND()")
        for task in cursor.fetchall():
            send_batch(cursor, task["id"])


if __name__ == "__main__":
    main()
