"""Leases by name: one holder at a time, a fence that only grows, nothing left behind by whoever goes."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import datetime, timedelta, timezone

import pytest
import rowclaim
from conftest import Database, run_child
from test_processes import MARGIN, hold_the_lock, run


def taken(engine: rowclaim.Engine, name: str = "a") -> rowclaim.Lease:
    lease = engine.lease(name, lease=60)
    assert lease is not None
    return lease


def is_free(engine: rowclaim.Engine, name: str = "a") -> bool:
    lease = engine.lease(name, lease=60)
    return lease is not None and lease.release()


def expire(database: Database) -> None:
    database.sql(f"UPDATE {database.prefix}leases SET lease_until = acquired_at")


def test_one_holds_it_and_the_others_are_told_that_it_is_busy(database: Database) -> None:
    with database.connect(worker="first") as engine, database.connect(worker="second") as second:
        lease = engine.lease("nightly", lease=timedelta(seconds=90))
        assert isinstance(lease, rowclaim.Lease)
        assert (lease.name, lease.lost) == ("nightly", False)
        assert isinstance(lease.token, uuid.UUID) and lease.token.version == 4
        assert isinstance(lease.fence, int)
        assert 85 < lease.valid_for <= 90
        assert repr(lease) == f'<rowclaim.Lease "nightly", fence {lease.fence}>'
        assert second.lease("nightly", lease=90) is None
        assert engine.lease("nightly", 90) is None, "not twice by the same engine either"
        assert second.lease("NIGHTLY 夜", lease=1.5) is not None, "names are bytes"
        free, held = engine.leases()
        assert (free.name, free.holder, free.is_held) == ("NIGHTLY 夜", "second", False), "nobody kept the object"
        assert (held.name, held.holder, held.is_held, held.fence) == ("nightly", "first", True, lease.fence)
        assert abs(held.acquired_at - datetime.now(timezone.utc)) < timedelta(seconds=10)
        assert held.lease_until - held.acquired_at == timedelta(seconds=90)
        assert engine.leases(limit=1) == [free]
        assert lease.renew() is True
        assert lease.release() is True
        assert (lease.lost, lease.valid_for) == (True, 0.0)
        assert (lease.release(), lease.renew()) == (False, False)
        following = taken(second, "nightly")
        assert following.fence > lease.fence and following.token != lease.token
        del lease
        assert engine.lease("nightly", lease=90) is None, "a holder that is over takes nothing away"


def test_a_late_holder_is_lost_and_releases_nothing(database: Database) -> None:
    with database.connect(heartbeat=False) as engine, database.connect(worker="second") as second:
        late = taken(engine)
        expire(database)
        assert late.renew() is True, "nobody took it meanwhile"
        expire(database)
        owner = taken(second)
        assert owner.fence > late.fence
        assert late.lost is False, "it was not asked yet"
        assert late.renew() is False
        assert (late.lost, late.valid_for, late.release()) == (True, 0.0, False)
        del late
        assert not is_free(engine)
        database.sql(f"DELETE FROM {database.prefix}leases")
        assert owner.renew() is True, "the row is put back"
        assert not is_free(engine)


def test_whoever_waits_gets_it_when_its_holder_goes(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="second") as second:
        lease = taken(engine)
        since = time.monotonic()
        assert second.lease("a", lease=60, wait=0.2) is None
        assert time.monotonic() - since > 0.19
        timer = threading.Timer(0.3, lease.release)
        timer.start()
        following = second.lease("a", lease=60, wait=timedelta(seconds=20))
        timer.join()
        assert following is not None and following.fence > lease.fence
        assert time.monotonic() - since < MARGIN


def test_other_threads_run_while_one_waits(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="second") as second:
        lease = taken(engine)
        answers: list[rowclaim.Lease | None] = []
        waiting = threading.Thread(target=lambda: answers.append(second.lease("a", lease=60, wait=1)))
        waiting.start()
        turns = 0
        while waiting.is_alive():
            turns += 1
            time.sleep(0.001)
        assert answers == [None] and turns > 50
        assert lease.release()


def test_the_heartbeat_renews_while_c_code_holds_the_lock(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:
        lease = engine.lease("a", lease=1)
        assert lease is not None
        hold_the_lock(2.5)
        assert other.lease("a", lease=1) is None
        assert lease.valid_for > 0 and lease.lost is False


def test_a_block_gives_it_back_by_an_exception_too(database: Database) -> None:
    with database.connect() as engine:
        with taken(engine) as lease:
            assert not is_free(engine)
        assert lease.lost and is_free(engine)
        with pytest.raises(KeyError), taken(engine):
            raise KeyError("x")
        assert is_free(engine)
        with taken(engine) as lease:
            assert lease.release() is True
        with taken(engine) as lease:
            expire(database)
            other = taken(engine)
        assert not is_free(engine), "a late one takes nothing away"
        assert other.release()


def test_whoever_goes_gives_it_back_unless_it_is_killed(database: Database) -> None:
    with database.connect() as engine:
        lease = taken(engine)
        assert lease.valid_for
        del lease
        assert is_free(engine)
        answer = run(database, "def main():\n    lease = engine.lease('a', lease=60)\n    sys.exit(3)\nmain()")
        assert answer.returncode == 3, answer.stderr
        assert is_free(engine)
        answer = run(database, "lease = engine.lease('a', lease=1.5)\nos.kill(os.getpid(), 9)")
        assert answer.returncode == -9
        assert not is_free(engine)
        assert engine.lease("a", lease=60, wait=20) is not None


def test_a_forked_child_leaves_the_parents_lease_alone(database: Database) -> None:
    database.sql(f"CREATE TABLE {database.prefix}t (id INT NOT NULL PRIMARY KEY, value INT NULL, fence BIGINT NULL)")
    with database.connect() as engine:
        holder = [taken(engine)]

        def write(lease: rowclaim.Lease, id: int) -> bool:
            return lease.guard(database.prefix + "t", {"id": id}, {"value": id}, "fence")

        def child() -> None:
            with pytest.raises(rowclaim.InvalidError, match="fork"), holder[0]:
                for call in (holder[0].renew, holder[0].release, lambda: write(holder[0], 1)):
                    with pytest.raises(rowclaim.InvalidError, match="fork"):
                        call()
            del call
            holder.clear()
            assert not is_free(engine)
            with taken(engine, "b") as own:
                assert write(own, 2)

        for _ in range(2):
            run_child(child, MARGIN)
        assert not is_free(engine)
        assert holder[0].renew() and write(holder[0], 1)
        assert [(one.name, one.is_held) for one in engine.leases()] == [("a", True), ("b", False)]
        assert holder[0].release() and is_free(engine)


def test_an_exception_of_a_signal_handler_ends_the_wait(database: Database) -> None:
    with database.connect() as engine, taken(engine):
        answer = run(
            database,
            """
            later(signal.SIGINT)
            started = time.monotonic()
            try:
                engine.lease("a", lease=60, wait=20)
            except KeyboardInterrupt:
                print("stopped", time.monotonic() - started < 3)
            """,
        )
        assert answer.stdout == "stopped True\n", answer.stderr


def test_what_is_wrong_is_no_busy(engine: rowclaim.Engine) -> None:
    for name in ("", "n" * 192, "夜" * 64):
        with pytest.raises(rowclaim.InvalidError, match="1 to 191 bytes"):
            engine.lease(name, lease=60)
    assert taken(engine, "n" * 191).release()
    for lease in (0, 0.99, timedelta(0), 40_000_000):
        with pytest.raises(rowclaim.InvalidError, match="lease must be"):
            engine.lease("a", lease=lease)
    for lease in (-1, float("nan"), float("inf")):
        with pytest.raises(rowclaim.InvalidError, match="lease"):
            engine.lease("a", lease=lease)
    with pytest.raises(rowclaim.InvalidError, match="wait"):
        engine.lease("a", lease=60, wait=-0.5)
    for limit in (0, 10_001):
        with pytest.raises(rowclaim.InvalidError, match="limit"):
            engine.leases(limit=limit)
    with pytest.raises(rowclaim.InvalidError, match="limit"):
        engine.leases(limit=-1)
    for wrong in (lambda: engine.lease(5, 60), lambda: engine.lease("a", "60"), lambda: engine.lease("a", None)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError):
        rowclaim.Lease()
    with taken(engine) as lease, pytest.raises(AttributeError):
        lease.fence = 5  # type: ignore[misc]
    assert is_free(engine)


def test_a_closed_engine_refuses(database: Database) -> None:
    engine = database.connect()
    lease = taken(engine)
    engine.close()
    for call in (lease.renew, lease.release, lambda: taken(engine), engine.leases):
        with pytest.raises(rowclaim.InvalidError, match="closed"):
            call()
    del lease
    with database.connect() as again:
        assert not is_free(again), "it ends by itself"
        database.sql(f"DROP TABLE {database.prefix}leases")
        for call in (lambda: taken(again), again.leases):
            with pytest.raises(rowclaim.SchemaError):
                call()
