"""Sending to receivers on Rowclaim: original.py with a claim instead of the SELECT."""

from __future__ import annotations

import os
from pathlib import Path

import rowclaim
from surroundings import mapping, noted, scaled, send, wake_ups


def handle(receivers: rowclaim.Table) -> None:
    with receivers.claim(limit=int(scaled("BATCH", 100)), lease=scaled("LEASE", 60)) as claim:
        for row in claim:
            send(row["phone"])
            noted("done" if row.complete() else "refused", row["phone"])  # processed_at is written by the mapping


def main() -> None:
    engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
    receivers = engine.table(*mapping(Path(__file__).parent / "receivers.json"))
    for _ in wake_ups():
        handle(receivers)


if __name__ == "__main__":
    main()
