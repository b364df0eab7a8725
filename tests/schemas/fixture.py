"""The databases: one for each run, its tables filled, and what they say in the end.

``SCHEMAS`` is the list of the four: how many rows, who works on them, and which accidents happen to whom.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql
from accidents import Accident
from audit import Ends
from crew import Post
from surroundings import SHANGHAI

HERE = Path(__file__).resolve().parent
TASKS = 8
SLOTS = 25  # more than the attempts a job may have: they must start anew with each slot
TYPES = ("express.query", "refund.query")


class Database:
    """The database of one run."""

    def __init__(self, server: str, schema: str, variant: str) -> None:
        """``server``: mariadb or mysql, as tests/servers.py has started it."""
        variable = f"ROWCLAIM_TEST_{server.upper()}"
        if variable not in os.environ:
            raise SystemExit(f"{variable} is not set: python3 tests/servers.py run --db {server} -- …")
        self.socket = os.environ.get(f"{variable}_SOCKET", "")
        parts = urlsplit(os.environ[variable])
        name = f"rowclaim_schema_{schema}_{variant}"
        self.dsn = parts._replace(path=f"/{name}").geturl()
        self._connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port,
            unix_socket=self.socket or None,
            user=parts.username,
            password=parts.password or "",
            charset="utf8mb4",
            autocommit=True,
        )
        self.run(f"DROP DATABASE IF EXISTS {name}")
        self.run(f"CREATE DATABASE {name} DEFAULT CHARACTER SET utf8mb4")
        self._connection.select_db(name)
        self._name = name
        self.load(HERE / schema / "schema.sql")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def load(self, file: Path) -> None:
        lines = (line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("--"))
        for statement in "\n".join(lines).split(";\n"):
            if statement.strip():
                self.run(statement)

    def fill(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(sql, rows)

    def migrate(self) -> None:
        """Rowclaim's own tables, beside the user's."""
        code = "import os, rowclaim; rowclaim.connect(os.environ['ROWCLAIM_DSN']).migrate()"
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "ROWCLAIM_DSN": self.dsn}, timeout=120)

    def drop(self) -> None:
        self.run(f"DROP DATABASE {self._name}")
        self._connection.close()


def fill_a(database: Database, rows: int) -> list[str]:
    database.fill("INSERT INTO xxx_task (name) VALUES (%s)", [(f"campaign {n + 1}",) for n in range(TASKS)])
    targets = [(n * TASKS // rows + 1, f"openid-{n:06}") for n in range(rows)]
    database.fill("INSERT INTO xxx_task_target (task_id, openid) VALUES (%s, %s)", targets)
    return [openid for _, openid in targets]


def open_a(database: Database) -> int:
    targets = database.run("SELECT COUNT(*) FROM xxx_task_target WHERE status IN (0, 1)")[0][0]
    return targets + database.run("SELECT COUNT(*) FROM xxx_task WHERE status <> 2")[0][0]


def ends_a(database: Database, _planned: list[str]) -> Ends:
    sent = frozenset(row[0] for row in database.run("SELECT openid FROM xxx_task_target WHERE status = 2"))
    open_tasks = database.run("SELECT COUNT(*) FROM xxx_task WHERE status <> 2")[0][0]
    counts = {str(id): count for id, count in database.run("SELECT id, finished_count FROM xxx_task")}
    return Ends(sent, open_tasks=open_tasks, finished_counts=counts)


def fill_b(database: Database, rows: int) -> list[str]:
    phones = [f"+86138{n:08}" for n in range(rows)]
    sql = "INSERT INTO receivers (message_id, phone, created_at, updated_at) VALUES (1, %s, NOW(), NOW())"
    database.fill(sql, [(phone,) for phone in phones])
    return phones


def open_b(database: Database) -> int:
    return database.run("SELECT COUNT(*) FROM receivers WHERE status <> 2")[0][0]


def ends_b(database: Database, _planned: list[str]) -> Ends:
    return Ends(frozenset(row[0] for row in database.run("SELECT phone FROM receivers WHERE status = 2")))


def fill_c(database: Database, rows: int) -> list[str]:
    """Each 50th is refused for ever, each tenth at its first attempt."""
    kinds = ["bad" if n % 50 == 7 else "flaky" if n % 10 == 3 else "order" for n in range(rows)]
    keys = [f"{kind}-{n:06}" for n, kind in enumerate(kinds)]
    sql = "INSERT INTO polling_jobs (business_key, type, payload, max_attempts) VALUES (%s, %s, %s, 4)"
    database.fill(sql, [(key, TYPES[n % len(TYPES)], json.dumps({"order": n})) for n, key in enumerate(keys)])
    return keys


def open_c(database: Database) -> int:
    return database.run("SELECT COUNT(*) FROM polling_jobs WHERE status NOT IN ('succeeded', 'failed')")[0][0]


def ends_c(database: Database, _planned: list[str]) -> Ends:
    stand = database.run("SELECT status, business_key FROM polling_jobs")
    return Ends(
        frozenset(key for status, key in stand if status == "succeeded"),
        frozenset(key for status, key in stand if status == "failed"),
    )


def fill_d(database: Database, rows: int) -> list[str]:
    """Jobs whose last 25 hours were missed: every slot is due, and none more once they have caught up."""
    jobs = max(1, rows // SLOTS)
    hour = timedelta(hours=1)
    first = datetime.now(SHANGHAI).replace(microsecond=0, tzinfo=None) - (SLOTS - 1) * hour - timedelta(minutes=1)
    sql = (
        "INSERT INTO inspection_job (name, next_run_time, last_slot, interval_seconds, retry_interval_seconds)"
        " VALUES (%s, %s, %s, 3600, 1)"
    )
    firsts = [first + timedelta(seconds=n) for n in range(jobs)]
    database.fill(sql, [(f"inspection {n + 1}", at, at - hour) for n, at in enumerate(firsts)])
    return [f"{n + 1}@{at + slot * hour}" for slot in range(SLOTS) for n, at in enumerate(firsts)]


def open_d(database: Database) -> int:
    now = datetime.now(SHANGHAI).replace(tzinfo=None)
    is_due = f"last_slot + INTERVAL interval_seconds SECOND <= '{now}'"
    return database.run(f"SELECT COUNT(*) FROM inspection_job WHERE locked = 1 OR {is_due}")[0][0]


def ends_d(database: Database, planned: list[str]) -> Ends:
    """A slot is over when it or a later one is its job's last."""
    last = {str(id): str(at) for id, at in database.run("SELECT id, last_slot FROM inspection_job WHERE locked = 0")}
    split = ((slot, *slot.split("@")) for slot in planned)
    return Ends(frozenset(slot for slot, id, at in split if at <= last.get(id, "")))


@dataclasses.dataclass(frozen=True)
class Schema:
    """One of the four."""

    title: str
    fill: Callable[[Database, int], list[str]]  # gives the planned targets
    open: Callable[[Database], int]  # rows that are not in an end state
    ends: Callable[[Database, list[str]], Ends]
    batch: int
    has_mixed: bool = False


SCHEMAS = {
    "a": Schema("xxx_task, xxx_task_target", fill_a, open_a, ends_a, batch=10, has_mixed=True),
    "b": Schema("receivers", fill_b, open_b, ends_b, batch=10),
    "c": Schema("polling_jobs", fill_c, open_c, ends_c, batch=10, has_mixed=True),
    "d": Schema("inspection_job", fill_d, open_d, ends_d, batch=2),
}


def posts(schema: str, variant: str) -> list[Post]:
    """Eight places, half of them PHP, half of them Python."""

    def places(role: str, script: str, count: int, *arguments: str) -> list[Post]:
        both = (("php", "php"), ("python", "py"))
        return [
            Post(role, language, HERE / schema / f"{script}.{suffix}", arguments)
            for language, suffix in both
            for _ in range(count)
        ]

    if variant == "mixed":
        return places("ours", "ours", 2) + places("careful", "careful", 2)
    if schema == "a":
        by_hand = [
            dataclasses.replace(post, arguments=(f"--task-id={n}",)) for n, post in enumerate(places("hand", variant, 1), 1)
        ]
        return places("cron", variant, 3) + by_hand
    return places("worker", variant, 4)


def accidents(schema: str, variant: str) -> list[Accident]:
    """Three kills and two stops, the same for the original and for ours."""
    if variant == "mixed":
        return [
            Accident("kill", "careful-php", 0.05),
            Accident("stop", "ours-php", 0.10),
            Accident("stop", "careful-python", 0.20),
            Accident("kill", "ours-python", 0.30),
            Accident("kill", "careful-python", 0.45),
        ]
    one, other = ("cron", "hand") if schema == "a" else ("worker", "worker")
    return [
        Accident("kill", f"{one}-php", 0.05),
        Accident("stop", f"{other}-php", 0.10),
        Accident("stop", f"{one}-python", 0.20),
        Accident("kill", f"{one}-python", 0.30),
        Accident("kill", f"{one}-php", 0.45),
    ]
