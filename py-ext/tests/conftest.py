"""One test, every database: SQLite always, MariaDB and MySQL when the environment names them, each test with tables of
its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
import rowclaim

SERVERS = {"mariadb": "ROWCLAIM_TEST_MARIADB", "mysql": "ROWCLAIM_TEST_MYSQL"}
DATABASES = ["sqlite", *(name for name, variable in SERVERS.items() if os.environ.get(variable))]
SERVER_DATABASES = DATABASES[1:]

_numbers = itertools.count()

# In a process of its own: two copies of SQLite in one process do not see each other's locks.
_SQLITE = """
import pickle, sqlite3, sys
path, statements = pickle.load(sys.stdin.buffer)
connection = sqlite3.connect(path, timeout=30)
for statement, values in statements:
    rows = connection.execute(statement, values).fetchall()
connection.commit()
connection.close()
pickle.dump(rows, sys.stdout.buffer)
"""


class Database:
    """A database with tables of one test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.prefix = f"py{secrets.token_hex(3)}{next(_numbers)}_"
        self.dsn = f"sqlite://{folder}/jobs.db" if name == "sqlite" else os.environ[SERVERS[name]]

    def connect(self, **options: object) -> rowclaim.Engine:
        engine = rowclaim.connect(self.dsn, prefix=self.prefix, **options)
        engine.migrate()
        return engine

    def sql(self, statement: str, *values: object) -> list[Any]:
        """Runs a statement with ``?`` for its values, past the engine; the rows it gives."""
        return self.all_sql([(statement, values)])

    def all_sql(self, statements: list[tuple[str, tuple[object, ...]]]) -> list[Any]:
        if self.name == "sqlite":
            given = pickle.dumps((self.dsn.removeprefix("sqlite://"), statements))
            answer = subprocess.run([sys.executable, "-c", _SQLITE], input=given, stdout=subprocess.PIPE, check=True)
            return list(pickle.loads(answer.stdout))
        import pymysql

        url = urlsplit(self.dsn)
        with (
            pymysql.connect(
                host=url.hostname,
                port=url.port or 3306,
                user=url.username,
                database=url.path.strip("/"),
                charset="utf8mb4",
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement, values in statements:
                cursor.execute(statement.replace("%", "%%").replace("?", "%s"), values)
            return list(cursor.fetchall())


class Targets:
    """A user's table as bulk senders have it: the targets of tasks."""

    MAPPING: ClassVar[dict[str, Any]] = {
        "status": "status", "pending": 0, "processing": 1, "done": 2, "failed": 3, "token": "cron_token",
        "claimed_at": "send_at", "locked_by": "held_by", "attempts": "tries", "max_attempts": 3,
        "available_at": "next_at", "error": "err", "finished_at": "done_at", "priority": "prio", "fence": "fence",
        "zone": "+08:00",
    }  # fmt: skip
    COLUMNS = """id INTEGER NOT NULL PRIMARY KEY, task_id INTEGER NOT NULL DEFAULT 42, type VARCHAR(10) NOT NULL
        DEFAULT 'sms', openid VARCHAR(64), status INTEGER NOT NULL DEFAULT 0, cron_token VARCHAR(36), send_at DATETIME,
        held_by VARCHAR(64), tries INTEGER NOT NULL DEFAULT 0, next_at DATETIME, err VARCHAR(200), done_at DATETIME,
        prio INTEGER NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0, deleted_at DATETIME"""

    def __init__(self, database: Database, rows: int = 0) -> None:
        self.database = database
        self.name = database.prefix + "targets"
        tail = "" if database.name == "sqlite" else "DEFAULT CHARSET=utf8mb4"
        create = f"CREATE TABLE {self.name} ({self.COLUMNS}) {tail}"
        inserts = [(f"INSERT INTO {self.name} (id, openid) VALUES (?, ?)", (n, f"o{n}")) for n in range(1, rows + 1)]
        database.all_sql([(create, ()), *inserts])

    def map(self, engine: rowclaim.Engine, **entries: Any) -> rowclaim.Table:
        return engine.table(self.name, self.MAPPING, **entries)

    def set(self, what: str, *values: object) -> None:
        """Puts rows into any state: ``"status = 1 WHERE id = ?", 5``."""
        self.database.sql(f"UPDATE {self.name} SET {what}", *values)

    def get(self, columns: str) -> list[Any]:
        """Columns of every row, by id; alone where it is one column."""
        rows = self.database.sql(f"SELECT {columns} FROM {self.name} ORDER BY id")
        return [row[0] if len(row) == 1 else tuple(row) for row in rows]


def now_in_the_table() -> datetime:
    """In the zone of the mapping, as DATETIME columns have it."""
    return datetime.now(timezone(timedelta(hours=8))).replace(tzinfo=None)


def keys(claim: rowclaim.RowClaim) -> list[Any]:
    """The keys of its rows in order; they are given back."""
    found = [row.key for row in claim]
    claim.release()
    return found


@pytest.fixture
def targets(database: Database, engine: rowclaim.Engine) -> Targets:
    return Targets(database, 5)


@pytest.fixture
def table(engine: rowclaim.Engine, targets: Targets) -> rowclaim.Table:
    return targets.map(engine)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return Database(request.param, tmp_path)


@pytest.fixture
def engine(database: Database) -> Iterator[rowclaim.Engine]:
    with database.connect() as engine:
        yield engine


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits for a condition; fails the test when it does not come true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "the condition did not come true"
        time.sleep(0.02)


def run_child(body: Callable[[], object], seconds: float = 5.0) -> None:
    """Forks; the child runs ``body`` and exits at once. Fails when it fails or does not end in time."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            try:
                body()
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
        os._exit(status)
    until = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert status == 0, f"the child ended with {status}"
            return
        if time.monotonic() > until:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
