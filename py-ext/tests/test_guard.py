"""Fenced writes: a late writer changes nothing, whatever its fence comes from."""

from __future__ import annotations

import enum
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import pytest
import rowclaim
from conftest import Database, Targets

SQLITE = """
import pickle, sqlite3, sys
path, planned = pickle.load(sys.stdin.buffer)
with sqlite3.connect(path, timeout=30) as connection:
    print(connection.execute(*planned).rowcount)
"""


class Paper(enum.Enum):
    DAILY = "daily"


class Results:
    """A table that fenced writes go to."""

    COLUMNS = """id INT NOT NULL PRIMARY KEY, kind VARCHAR(20) NULL UNIQUE, total INT NULL, price DECIMAL(10, 2) NULL,
        made_at DATETIME NULL, data BLOB NULL, fence BIGINT NULL"""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.name = database.prefix + "results"
        tail = "" if database.name == "sqlite" else "DEFAULT CHARSET=utf8mb4"
        database.sql(f"CREATE TABLE {self.name} ({self.COLUMNS}) {tail}")

    def get(self, columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.database.sql(f"SELECT {columns} FROM {self.name} ORDER BY id")]


@pytest.fixture
def results(database: Database) -> Results:
    return Results(database)


def test_a_late_holder_of_a_lease_writes_nothing(database: Database, results: Results) -> None:
    database.sql(f"INSERT INTO {results.name} (id, total) VALUES (1, 5)")
    with database.connect(heartbeat=False) as engine, database.connect(worker="second") as second:
        late = engine.lease("report", lease=60)
        database.sql(f"UPDATE {database.prefix}leases SET lease_until = acquired_at")
        owner = second.lease("report", lease=60)
        assert late and owner
        for id in (1, 2):  # a row that nobody has fenced, and none
            assert late.guard(results.name, {"id": id}, {"total": 1}, "fence"), "the owner has not written yet"
            assert owner.guard(results.name, key={"id": id}, set={"total": 2}, fence_column="fence")
            assert late.guard(results.name, {"id": id}, {"total": 3}, "fence") is False
            assert owner.guard(results.name, {"id": id}, {"total": 2}, "fence"), "the same again"
            assert owner.guard(results.name, {"id": str(id)}, {"total": 4}, "fence") is True
            assert not engine.guard(results.name, {"id": id}, {"total": 5}, "fence", fence=owner.fence - 1)
        assert owner.release()
        assert owner.guard(results.name, {"id": 2}, {"total": 6}, "fence"), "nobody newer has written"
        assert results.get("id, total, fence") == [(1, 4, owner.fence), (2, 6, owner.fence)]


def test_values_are_converted_as_for_mapped_tables(
    engine: rowclaim.Engine, database: Database, results: Results
) -> None:
    made_at = datetime(2026, 3, 4, 5, 6, 7)
    written = {"total": True, "price": Decimal("12.50"), "made_at": made_at, "data": b"\xff\0", "kind": "O'R \"`; 😀"}
    assert engine.guard(results.name, {"id": "1"}, written, "fence", 1)
    ((total, price, stored, data, kind),) = results.get("total, price, made_at, data, kind")
    assert (total, float(price), str(stored)[:19], bytes(data), kind) == (
        1,
        12.5,
        str(made_at),
        b"\xff\0",
        written["kind"],
    )
    assert engine.guard(results.name, {"kind": written["kind"]}, {"total": None, "data": None}, "fence", 2), (
        "unique key"
    )
    assert results.get("total, data") == [(None, None)]
    assert engine.guard(results.name, {"id": 1}, {"kind": Paper.DAILY}, "fence", 2)
    assert results.get("kind, fence") == [("daily", 2)]
    with pytest.raises(rowclaim.DuplicateError):
        engine.guard(results.name, {"id": 2}, {"kind": "daily"}, "fence", 1)


def test_jobs_and_rows_bring_their_fence_along(database: Database, results: Results) -> None:
    targets = Targets(database, 1)
    with database.connect(heartbeat=False, backoff_base=0) as engine:

        def write(held: rowclaim.Job | rowclaim.Row, id: int) -> bool:
            return held.guard(results.name, {"id": id}, {"total": held.fence}, "fence")

        id = engine.create("q", 1).id
        (late,) = engine.claim("q")
        assert write(late, 1)
        assert engine.retry(id, force=True)
        (job,) = engine.claim("q")
        assert write(job, 1) and not write(late, 1)
        assert job.complete() and write(job, 1), "a fence outlives its claim"

        table = targets.map(engine)
        (late_row,) = table.claim()
        assert table.take_back([1]) == 1
        (row,) = table.claim()
        assert write(row, 2) and not write(late_row, 2)
        assert results.get("id, total, fence") == [(1, job.fence, job.fence), (2, row.fence, row.fence)]
        assert row.complete()

        engine.create("q", 2)
        answers: list[bool] = []
        engine.work({"q": lambda job: answers.append(write(job, 3))}, until_empty=True)
        assert answers == [True] and results.get("fence")[2] == (1,)

        targets.set("status = 0, cron_token = NULL")
        (unfenced,) = targets.map(engine, fence=None).claim()
        with pytest.raises(rowclaim.InvalidError, match="names no fence column"):
            write(unfenced, 4)


def rows_of(database: Database, planned: tuple[str, list[Any]]) -> int:
    """Runs a planned statement on a connection of the application; how many rows it matched."""
    if database.name == "sqlite":
        # In a process of its own: two copies of SQLite in one process do not see each other's locks.
        given = pickle.dumps((database.dsn.removeprefix("sqlite://"), planned))
        answer = subprocess.run([sys.executable, "-c", SQLITE], input=given, stdout=subprocess.PIPE, check=True)
        return int(answer.stdout)
    import pymysql

    url = urlsplit(database.dsn)
    connection = pymysql.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=url.username,
        database=url.path.strip("/"),
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(*planned)
        connection.commit()
        return int(cursor.rowcount)


def test_a_planned_guard_runs_on_the_callers_connection(
    engine: rowclaim.Engine, database: Database, results: Results
) -> None:
    database.sql(f"INSERT INTO {results.name} (id, total, fence) VALUES (1, 5, 7)")
    paramstyle: Any = "qmark" if database.name == "sqlite" else "format"

    def plan(total: int, fence: int, id: int = 1) -> tuple[str, list[Any]]:
        written = {"total": total, "kind": None}
        return engine.plan_guard(results.name, {"id": id}, written, "fence", fence, paramstyle=paramstyle)

    assert plan(9, 6)[1] == [9, None, 6, 1, 6]
    accepted = [rows_of(database, plan(*one)) for one in ((9, 6), (10, 7), (10, 7), (11, 8), (12, 7))]
    assert accepted == [0, 1, 1, 1, 0]
    assert rows_of(database, plan(1, 99, id=2)) == 0, "it creates nothing"
    assert results.get("id, total, fence") == [(1, 11, 8)]
    with pytest.raises(rowclaim.UnsupportedError, match="guard"):
        engine.plan_guard(results.name, {"id": 1}, {"data": b"\xff"}, "fence", 1)
    with pytest.raises(rowclaim.InvalidError, match="paramstyle"):
        engine.plan_guard(results.name, {"id": 1}, {"total": 1}, "fence", 1, paramstyle="named")  # type: ignore[arg-type]


def test_names_with_marks_of_parameters_stay_names(engine: rowclaim.Engine, database: Database) -> None:
    name = database.prefix + "odd"
    quote, paramstyle = ('"', "qmark") if database.name == "sqlite" else ("`", "format")
    columns = (
        f"id INT NOT NULL PRIMARY KEY, {quote}50%{quote} INT NULL, {quote}sure?{quote} INT NULL, fence BIGINT NULL"
    )
    create = f"CREATE TABLE {name} ({columns})"
    rows_of(database, (create if database.name == "sqlite" else create.replace("%", "%%"), []))
    write: Any = (name, {"id": 1}, {"50%": 2, "sure?": 3}, "fence")
    assert engine.guard(*write, fence=1)
    planned = engine.plan_guard(*write, fence=2, paramstyle=paramstyle)
    assert rows_of(database, planned) == 1
    assert [tuple(row) for row in database.sql(f"SELECT * FROM {name}")] == [(1, 2, 3, 2)]


def test_what_does_not_fit_is_refused_by_its_name(engine: rowclaim.Engine, results: Results) -> None:
    lease = engine.lease("a", lease=60)
    assert lease is not None

    def refused(kind: type[Exception], match: str, **changed: Any) -> None:
        write: dict[str, Any] = {"table": results.name, "key": {"id": 1}, "set": {"total": 1}, "fence_column": "fence"}
        calls: list[Callable[..., object]] = [lease.guard]
        calls += [lambda **write: engine.guard(**write, fence=1), lambda **write: engine.plan_guard(**write, fence=1)]
        for call in calls:
            with pytest.raises(kind, match=match):
                call(**{**write, **changed})

    refused(rowclaim.SchemaError, "nowhere", table="nowhere")
    refused(rowclaim.InvalidError, r"\(total\) is no primary or unique key", key={"total": 1}, set={"kind": "x"})
    refused(rowclaim.InvalidError, "key", key={})
    refused(rowclaim.InvalidError, "column id", key={"id": "1 OR 1=1"})
    refused(rowclaim.InvalidError, "nothing to write", set={})
    refused(rowclaim.InvalidError, "has no column", set={"x; DROP TABLE y": 1})
    refused(rowclaim.InvalidError, "column total", set={"total": "many"})
    refused(rowclaim.InvalidError, "fence", set={"fence": 1})
    refused(rowclaim.InvalidError, "id", set={"id": 2})
    refused(rowclaim.InvalidError, "no whole number", fence_column="kind")
    refused(rowclaim.InvalidError, "version", fence_column="version")
    refused(rowclaim.InvalidError, "surrogate", fence_column="\udcff")
    refused(TypeError, "set: total", set={"total": [1]})
    refused(TypeError, "key must be a mapping", key=5)
    refused(TypeError, "table must be str", table=5)
    with pytest.raises(TypeError, match="fence"):
        engine.guard(results.name, {"id": 1}, {"total": 1}, "fence", "1")  # type: ignore[arg-type]
    with pytest.raises(rowclaim.InvalidError, match="fence"):
        engine.guard(results.name, {"id": 1}, {"total": 1}, "fence", 1 << 63)
    assert results.get("id") == []
    engine.close()
    refused(rowclaim.InvalidError, "closed")
