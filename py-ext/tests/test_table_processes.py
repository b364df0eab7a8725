"""Users' tables under threads, forks and signals."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import rowclaim
from conftest import Database, Targets, run_child, wait_until
from test_processes import hold_the_lock, rss, run


@pytest.fixture
def many(database: Database, engine: rowclaim.Engine) -> Iterator[Targets]:
    targets = Targets(database)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)"
    if database.name == "sqlite":
        database.sql(f"{numbers} INSERT INTO {targets.name} (id, openid) SELECT i, 'o' || i FROM n")
    else:
        database.sql(f"INSERT INTO {targets.name} (id, openid) {numbers} SELECT i, CONCAT('o', i) FROM n")
    yield targets


def in_threads(count: int, body: object) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            body()  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures


def test_threads_that_share_a_claim_get_each_row_once(engine: rowclaim.Engine, many: Targets) -> None:
    claim = many.map(engine).claim(900)
    seen: list[object] = []

    def body() -> None:
        for row in claim:
            seen.append(row["id"])
            if row.key % 3 == 0:
                assert row.complete({"openid": f"done {row.key}"})

    in_threads(8, body)
    assert sorted(seen) == list(range(1, 901))
    assert set(claim.complete().values()) == {True}
    assert set(many.get("status")) == {2}


def test_threads_that_share_a_row_read_the_same_values(engine: rowclaim.Engine, many: Targets) -> None:
    (row,) = many.map(engine).claim(1)
    seen: list[object] = []
    in_threads(8, lambda: seen.append((row["openid"], dict(row) == row, row.complete())))
    assert seen == [("o1", True, True)] * 8


def test_threads_claim_for_themselves(database: Database, many: Targets) -> None:
    with database.connect(pool=4) as engine:
        table = many.map(engine)
        done: list[object] = []

        def body() -> None:
            while claim := table.claim(40):
                for row in claim:
                    done.append(row.key)
                claim.complete()

        in_threads(6, body)
        assert sorted(done) == list(range(1, 901))  # type: ignore[type-var]
        assert table.remaining() is False


def test_a_forked_child_uses_the_table_and_the_parent_goes_on(database: Database) -> None:
    targets = Targets(database, 5)
    with database.connect() as engine:
        table = targets.map(engine)
        claim = table.claim(2)
        row = next(claim)

        def child() -> None:
            for call in (row.complete, claim.renew, claim.complete, lambda: next(claim)):
                with pytest.raises(rowclaim.InvalidError, match="fork"):
                    call()
            assert row["openid"] == "o1"
            with table.claim(1) as own:
                assert next(own).complete({"openid": "child"})
            assert table.remaining() is True and len(table.rows()) == 5

        for _ in range(2):
            run_child(child, 10)
        assert targets.get("openid") == ["o1", "o2", "child", "child", "o5"]
        assert claim.renew() is True and row.complete() is True and claim.complete() == {2: True}
        assert table.work(lambda row: None, until_empty=True).completed == 1


def test_a_child_that_drops_the_parents_claim_leaves_it_alone(database: Database) -> None:
    targets = Targets(database, 2)
    with database.connect() as engine:
        holder = [targets.map(engine).claim()]
        run_child(holder.clear, 10)
        assert targets.get("status") == [1, 1]
        assert set(holder[0].complete().values()) == {True}


def in_pool(number: int) -> int:
    engine = rowclaim.connect(os.environ["ROWCLAIM_POOL_DSN"], prefix=os.environ["ROWCLAIM_POOL_PREFIX"])
    table = engine.table(os.environ["ROWCLAIM_POOL_PREFIX"] + "targets", Targets.MAPPING)
    return len(table.claim(50).complete())


def test_multiprocessing_with_fork(database: Database, many: Targets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWCLAIM_POOL_DSN", database.dsn)
    monkeypatch.setenv("ROWCLAIM_POOL_PREFIX", database.prefix)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        answers = pool.map_async(in_pool, range(30), chunksize=1).get(60)
    assert sum(answers) == 900 and set(many.get("status")) == {2}


def test_the_heartbeat_renews_while_c_code_holds_the_lock(database: Database) -> None:
    targets = Targets(database, 1)
    with database.connect() as engine, database.connect(worker="other") as other:
        (row,) = targets.map(engine).claim(lease=1)
        hold_the_lock(2.0)
        table = targets.map(other)
        assert not table.claim() and table.recover().claims == 0
        assert row.complete() is True


def test_the_first_signal_drains(database: Database) -> None:
    targets = Targets(database, 10)
    answer = run(
        database,
        f"""
        table = engine.table({targets.name!r}, {Targets.MAPPING!r})
        later(signal.SIGTERM, 0.35)
        summary = table.work(lambda row: time.sleep(0.25))
        assert summary.stopped_by == signal.SIGTERM and summary.stopped, summary
        assert 1 <= summary.completed <= 3 and summary.completed + summary.released == 10, summary
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        print("drained", len(table.rows(status=2)) == summary.completed)
        """,
    )
    assert answer.stdout == "drained True\n", answer.stderr
    assert targets.get("status").count(1) == 0


def test_a_killed_process_leaves_rows_that_come_back(database: Database) -> None:
    targets = Targets(database, 3)
    with database.connect(backoff_base=0) as engine:
        table = targets.map(engine)
        body = f"""
            import os, rowclaim
            engine = rowclaim.connect({database.dsn!r}, prefix={database.prefix!r})
            claim = engine.table({targets.name!r}, {Targets.MAPPING!r}).claim(lease=1)
            assert next(claim).complete()
            os.kill(os.getpid(), 9)
        """
        code = "\n".join(line.strip() for line in body.splitlines())
        assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == -9
        assert targets.get("status") == [2, 1, 1]
        wait_until(lambda: table.recover().returned == 2)
        assert [(row.key, row.attempts) for row in table.claim()] == [(2, 2), (3, 2)]


def test_memory_stays_where_it_is(engine: rowclaim.Engine, many: Targets) -> None:
    if many.database.name != "sqlite":
        return
    table = many.map(engine)

    def loops(count: int) -> None:
        for _ in range(count):
            with table.claim(900, where={"task_id": [42, 43]}) as claim:
                for row in claim:
                    assert row["openid"] and dict(row) and row.token and row.claim.id
                claim.release()
            with pytest.raises(rowclaim.InvalidError):
                table.claim(where={"nme": 1})
            assert len(table.rows(limit=500)) == 500

    loops(20)
    before = rss()
    loops(40)
    grown = rss() - before
    assert grown < 12_000_000, f"{grown} bytes more"
