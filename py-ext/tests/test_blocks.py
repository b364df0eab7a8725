"""What leaving a ``with`` block means, for jobs, claims and engines."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
import rowclaim
from conftest import Database, wait_until


@pytest.fixture
def claim(engine: rowclaim.Engine) -> Iterator[rowclaim.Claim]:
    engine.create_many("q", [{"payload": n} for n in range(3)])
    with engine.claim("q") as claim:
        yield claim


def states(engine: rowclaim.Engine) -> list[str]:
    return [row.state for row in reversed(engine.jobs())]


def error_of(engine: rowclaim.Engine, id: int) -> str | None:
    row = engine.job(id)
    assert row is not None
    return row.last_error


def test_a_block_that_ends_completes_its_job(engine: rowclaim.Engine, claim: rowclaim.Claim) -> None:
    for job in claim:
        with job as same:
            assert same is job
        assert job.finished
    assert states(engine) == ["done"] * 3


def test_a_block_that_raises_fails_its_job_and_the_loop_goes_on(
    engine: rowclaim.Engine, claim: rowclaim.Claim, caplog: pytest.LogCaptureFixture
) -> None:
    for job in claim:
        with job:
            if job.payload == 1:
                raise ValueError("bad number")
    assert states(engine) == ["done", "ready", "done"]
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("rowclaim", logging.WARNING)
    assert record.exc_info is not None and "bad number" in caplog.text
    failed = engine.jobs(state="ready")[0]
    assert failed.last_error == "ValueError: bad number"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_exception_releases_the_job_and_goes_on(engine: rowclaim.Engine, kind: type[BaseException]) -> None:
    engine.create_many("q", [{"payload": n} for n in range(3)])
    with pytest.raises(kind), engine.claim("q") as claim:
        for job in claim:
            with job:
                if job.payload == 1:
                    raise kind
    assert states(engine) == ["done", "ready", "ready"]
    (again, never) = engine.claim("q")
    assert (again.attempts, never.attempts, again.fence, never.fence) == (1, 1, 2, 2)
    assert error_of(engine, again.id) is None


@pytest.mark.parametrize("finish", ["complete", "fail", "release"])
def test_a_job_the_block_has_finished_stays_as_it_is(
    engine: rowclaim.Engine, claim: rowclaim.Claim, finish: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = {"complete": "done", "fail": "ready", "release": "ready"}[finish]
    arguments = ("boom", 60) if finish == "fail" else ()
    for job in claim:
        with job:
            assert getattr(job, finish)(*arguments) is True
            if job.payload == 1:
                raise ValueError("afterwards")
    assert states(engine) == [expected] * 3
    assert "afterwards" in caplog.text
    assert all(row.last_error != "ValueError: afterwards" for row in engine.jobs())


def test_an_exception_that_cannot_speak_still_fails_the_job(engine: rowclaim.Engine, claim: rowclaim.Claim) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    job = next(claim)
    with job:
        raise MuteError
    assert error_of(engine, job.id) == "MuteError"
    job = next(claim)
    with job:
        raise KeyError
    assert error_of(engine, job.id) == "KeyError"


def test_leaving_a_claim_gives_back_what_was_not_started(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(3)])
    with pytest.raises(ZeroDivisionError), engine.claim("q") as claim:
        for _ in claim:
            raise ZeroDivisionError
    assert states(engine) == ["claimed", "ready", "ready"]
    assert [job.attempts for job in engine.claim("q")] == [1, 1]


def test_a_forgotten_claim_gives_back_what_was_not_started(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(3)])
    claim = engine.claim("q")
    job = next(claim)
    del claim
    gc.collect()
    assert states(engine) == ["claimed"] * 3, "the job still holds the claim"
    del job
    gc.collect()
    wait_until(lambda: states(engine) == ["claimed", "ready", "ready"])


def test_leaving_an_engine_closes_it(database: Database) -> None:
    with database.connect() as engine:
        engine.create("q", 1)
    with pytest.raises(rowclaim.InvalidError, match="closed"):
        engine.stats()
    with pytest.raises(ZeroDivisionError), database.connect() as engine:
        raise ZeroDivisionError


def test_a_repeated_finish_is_accepted_and_another_is_lost(engine: rowclaim.Engine, claim: rowclaim.Claim) -> None:
    job = next(claim)
    assert (job.complete(), job.complete(), job.fail("late"), job.release()) == (True, True, False, False)
    assert error_of(engine, job.id) is None


def test_the_late_owner_is_lost(database: Database) -> None:
    with database.connect(heartbeat=0, backoff_base=0) as engine:
        id = engine.create("q", 1).id
        engine.create("q", 2)
        late = engine.claim("q", lease=1)
        job = next(late)
        wait_until(lambda: engine.recover().returned)
        with engine.claim("q") as claim:
            newer = next(claim)
            assert newer.id == id and newer.fence > job.fence and newer.lost == 1
            assert late.renew() is False
            assert late.lost is True and late.valid_for == 0.0
            assert list(late) == [], "no further row is started"
            with job:
                raise ValueError("late")
            assert (job.complete(), job.fail("late"), job.release()) == (False, False, False)
            assert newer.complete() is True
        assert error_of(engine, id) == "lease expired"
        assert [attempt.outcome for attempt in engine.attempts(id)] == ["lost"]
        late.release()
