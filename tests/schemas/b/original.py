"""Sending to receivers: a Python worker that was added beside the artisan command when sending took too long.

What the team thinks protects it: status 1 before the send, "as the PHP side does it".
Where it fails: all read the same first hundred, and the UPDATE (FAULT) names the id only: nobody learns that somebody
else was first.
"""

from __future__ import annotations

from surroundings import database, noted, scaled, send, wake_ups


def handle(cursor) -> None:
    cursor.execute("SELECT * FROM receivers WHERE status = 0 LIMIT %s", (int(scaled("BATCH", 100)),))
    for receiver in cursor.fetchall():
        cursor.execute("UPDATE receivers SET status = 1, updated_at = NOW() WHERE id = %s", (receiver["id"],))  # FAULT
        send(receiver["phone"])
        cursor.execute(
            "UPDATE receivers SET status = 2, processed_at = NOW(), updated_at = NOW() WHERE id = %s", (receiver["id"],)
        )
        noted("done", receiver["phone"])


def main() -> None:
    cursor = database().cursor()
    for _ in wake_ups():
        handle(cursor)


if __name__ == "__main__":
    main()
