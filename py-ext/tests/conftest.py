"""One test, every database: SQLite always, MariaDB and MySQL when the environment names them, each test with tables of
its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rowclaim

SERVERS = {"mariadb": "ROWCLAIM_TEST_MARIADB", "mysql": "ROWCLAIM_TEST_MYSQL"}
DATABASES = ["sqlite", *(name for name, variable in SERVERS.items() if os.environ.get(variable))]
SERVER_DATABASES = DATABASES[1:]

_numbers = itertools.count()


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
