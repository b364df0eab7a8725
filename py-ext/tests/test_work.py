"""The loop: what it does with handlers, limits and outcomes."""

from __future__ import annotations

import threading
import time

import pytest
import rowclaim
from conftest import Database


def fill(engine: rowclaim.Engine, count: int, queue: str = "q") -> None:
    engine.create_many(queue, [{"payload": n} for n in range(count)])


@pytest.mark.parametrize("finish", [None, "each", "group"])
def test_work_adds_up_what_became_of_the_jobs(engine: rowclaim.Engine, finish: str | None) -> None:
    fill(engine, 6)
    seen = []

    def handler(job: rowclaim.Job) -> None:
        seen.append(job.payload)
        if job.payload == 1:
            raise ValueError("boom")
        if job.payload == 2:
            assert job.release(60)
        if job.payload == 3:
            assert job.fail("by hand", 60)
        if job.payload == 4:
            assert job.complete()

    summary = engine.work({"q": handler}, batch=4, until_empty=True, finish=finish, lease=30, max_run=60)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert (summary.claimed, summary.completed, summary.failed) == (6, 3, 2)
    assert (summary.released, summary.lost, summary.stopped_by) == (1, 0, None)
    assert 0 < summary.seconds < 30
    assert [row.state for row in reversed(engine.jobs())] == ["done", "ready", "ready", "ready", "done", "done"]
    assert [row.last_error for row in reversed(engine.jobs())][1::2] == ["ValueError: boom", "by hand", None]


def test_what_no_repetition_mends_is_rejected(database: Database) -> None:
    with database.connect(backoff_base=0) as engine:
        fill(engine, 5)
        database.sql(f"UPDATE {database.prefix}jobs SET payload = '{{\"order\":' WHERE id = 5")

        def handler(job: rowclaim.Job) -> None:
            if job.id == 1:
                raise rowclaim.Reject("no such order")
            if job.id == 2:
                assert job.reject(ValueError("by hand"))
            if job.id == 5:
                raise AssertionError(job.payload)

        summary = engine.work({"q": handler}, until_empty=True)
        assert (summary.completed, summary.failed, summary.lost) == (2, 3, 0)
        rows = sorted(engine.jobs(state="dead"), key=lambda row: row.id)
        assert [(row.id, row.attempts) for row in rows] == [(1, 1), (2, 1), (5, 1)]
        assert [row.last_error for row in rows[:2]] == ["Reject: no such order", "ValueError: by hand"]
        assert rows[2].last_error is not None and rows[2].last_error.startswith("DecodeError: payload: ")

        fill(engine, 3)
        claim = engine.claim("q", limit=3)
        with next(claim) as job:
            raise rowclaim.Reject("in a block")
        assert engine.job(job.id).state == "dead"  # type: ignore[union-attr]
        job = next(claim)
        assert claim.reject([job.id], "by id") == {job.id: True}
        assert claim.reject([job.id], "by id") == {job.id: True}
        assert not job.complete()
        with pytest.raises(TypeError, match="error must be str or an exception"):
            next(claim).reject(None)  # type: ignore[arg-type]


def test_each_queue_has_its_handler(engine: rowclaim.Engine) -> None:
    fill(engine, 2, "a")
    fill(engine, 2, "b")
    seen = []
    engine.work({"a": lambda job: seen.append("a"), "b": lambda job: seen.append("b")}, until_empty=True)
    assert sorted(seen) == ["a", "a", "b", "b"]


def test_work_ends_after_max_jobs_and_max_seconds(engine: rowclaim.Engine) -> None:
    fill(engine, 5)
    assert engine.work({"q": lambda job: None}, max_jobs=3, batch=2).completed == 3
    started = time.monotonic()
    summary = engine.work({"q": lambda job: time.sleep(0.3)}, max_seconds=0.2)
    assert (summary.completed, summary.released) == (1, 1)
    assert engine.work({"other": print}, max_seconds=0.3, max_idle=0.1).claimed == 0
    assert time.monotonic() - started < 5
    assert engine.stats().queues[0].due.rows == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_ends_the_work(engine: rowclaim.Engine, kind: type[BaseException]) -> None:
    fill(engine, 3)

    def handler(job: rowclaim.Job) -> None:
        if job.payload == 1:
            raise kind("stop")

    with pytest.raises(kind, match="stop"):
        engine.work({"q": handler}, until_empty=True)
    assert [row.state for row in reversed(engine.jobs())] == ["done", "ready", "ready"]
    assert [(job.attempts, job.fence) for job in engine.claim("q")] == [(1, 2), (1, 2)]


def test_work_in_another_thread_leaves_signals_alone(database: Database) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    seen = []
    with database.connect() as engine:
        fill(engine, 1)

        def handler(job: rowclaim.Job) -> None:
            seen.append((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)))

        thread = threading.Thread(target=lambda: engine.work({"q": handler}, until_empty=True))
        thread.start()
        thread.join()
        assert seen == [before]
        fill(engine, 1)
        engine.work({"q": handler}, until_empty=True)
        assert seen[1] != before and seen[1][0] is seen[1][1]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_logger_that_raises_changes_nothing(engine: rowclaim.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    def refuse(*arguments: object, **options: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr(logging.getLogger("rowclaim"), "warning", refuse)
    fill(engine, 2)
    summary = engine.work({"q": lambda job: 1 / job.payload}, until_empty=True)
    assert (summary.completed, summary.failed) == (1, 1)
