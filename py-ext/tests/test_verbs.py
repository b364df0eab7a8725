"""Every verb once, with every argument."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import uuid
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from urllib.parse import urlsplit

import pytest
import rowclaim
from conftest import Database, wait_until
from rowclaim import Count, Created, Json, Migrated, NewJob, Pruned, Recovered


def test_create_answers_created_then_exists(engine: rowclaim.Engine) -> None:
    first = engine.create("q", 1, key="k")
    assert first == Created(first.id, False, "ready")
    assert engine.create("q", 2, key="k") == Created(first.id, True, "ready")
    assert engine.create("other", 2, key="k").exists is False
    assert engine.create("q", 3).exists is False


def test_options_of_create_arrive(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1, key="k", priority=-5, max_attempts=3, delay=timedelta(hours=1)).id
    row = engine.job(id)
    assert row is not None
    assert (row.priority, row.max_attempts, row.key, row.queue, row.state) == (-5, 3, "k", "q", "ready")
    assert row.ready_at is not None
    assert abs(row.ready_at - row.created_at - timedelta(hours=1)) < timedelta(seconds=1)
    assert row.created_at.tzinfo is timezone.utc
    assert engine.job(engine.create("q", 1, delay=0.5).id) is not None


def test_run_at_is_an_instant(engine: rowclaim.Engine) -> None:
    at = datetime(2050, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=8)))
    for given in (at, at.timestamp()):
        row = engine.job(engine.create("q", 1, run_at=given).id)
        assert row is not None and row.ready_at is not None
        # SQLite keeps milliseconds.
        assert abs(row.ready_at - at) < timedelta(milliseconds=1)
    row = engine.job(engine.create("q", 1, run_at=2_524_608_000).id)
    assert row is not None and row.ready_at == datetime(2050, 1, 1, tzinfo=timezone.utc)


def test_unique_says_how_long_a_key_lives(engine: rowclaim.Engine) -> None:
    for unique, exists in (("forever", True), ("active", False), ("until_claimed", False), (3600, True)):
        queue = f"q{unique}"
        engine.create(queue, 1, key="k", unique=unique)
        assert engine.claim(queue).complete() != {}
        assert engine.create(queue, 1, key="k", unique=unique).exists is exists, unique


def test_create_many_answers_in_order(engine: rowclaim.Engine) -> None:
    old = engine.create("q", 0, key="b")
    jobs = [NewJob(payload=1, key="a"), {"payload": 2, "key": "b"}, {"payload": 3, "priority": 7, "delay": None}]
    answers = engine.create_many("q", iter(jobs))
    assert [answer.exists for answer in answers] == [False, True, False]
    assert answers[1].id == old.id
    row = engine.job(answers[2].id)
    assert row is not None and row.priority == 7
    assert engine.create_many("q", []) == []


def test_plan_create_runs_on_the_callers_connection(database: Database) -> None:
    with database.connect() as engine:
        paramstyle = "qmark" if database.name == "sqlite" else "format"
        sql, values = engine.plan_create("q", {"a%?": "?%"}, key="k", priority=3, paramstyle=paramstyle)
        if database.name == "sqlite":
            connection = sqlite3.connect(database.dsn.removeprefix("sqlite://"))
        else:
            import pymysql

            url = urlsplit(database.dsn)
            connection = pymysql.connect(
                host=url.hostname, port=url.port or 3306, user=url.username, password="", database=url.path.strip("/")
            )
        connection.cursor().execute(sql, values)
        assert engine.jobs() == []
        connection.commit()
        connection.close()
        (row,) = engine.jobs()
        assert (row.key, row.priority, row.raw_payload) == ("k", 3, '{"a%?":"?%"}')


def test_claim_hands_out_each_job_once(engine: rowclaim.Engine) -> None:
    ids = [answer.id for answer in engine.create_many("q", [{"payload": n} for n in range(5)])]
    claim = engine.claim("q", limit=3, lease=30, max_run=60)
    assert len(claim) == 3 and claim
    assert isinstance(claim.token, uuid.UUID) and claim.token.version == 4
    assert isinstance(claim.id, int)
    assert 25 < claim.valid_for <= 30
    assert claim.lost is False
    assert claim.renew() is True
    assert [job.id for job in claim] == ids[:3]
    assert list(claim) == []
    rest = engine.claim("q")
    assert [job.id for job in rest] == ids[3:]
    empty = engine.claim("q")
    assert len(empty) == 0 and not empty
    assert (empty.token, empty.id, empty.valid_for, empty.lost) == (None, None, 0.0, False)
    assert list(empty) == [] and empty.complete() == {} and empty.release() == {}


def test_claim_takes_queues_priority_and_partition(engine: rowclaim.Engine) -> None:
    engine.create("a", 1, priority=1)
    engine.create("b", 2, priority=2)
    with engine.claim(["a", "b"]) as claim:
        assert [job.queue for job in claim] == ["a", "b"]
        assert set(claim.release().values()) == {True}
    with engine.claim(("a", "b"), priority=2) as claim:
        assert [job.priority for job in claim] == [2]
        claim.release()
    taken = [len(engine.claim(["a", "b"], partition=(k, 2))) for k in (0, 1)]
    assert sum(taken) == 2 and max(taken) == 1


def test_a_job_knows_itself(engine: rowclaim.Engine) -> None:
    created = engine.create("q", {"n": [1]}, key="k", priority=2, max_attempts=4)
    claim = engine.claim("q")
    (job,) = claim
    assert (job.id, job.queue, job.key, job.priority) == (created.id, "q", "k", 2)
    assert (job.attempts, job.max_attempts, job.lost, job.fence) == (1, 4, 0, 1)
    assert job.payload == {"n": [1]} and job.payload is job.payload
    assert job.raw_payload == '{"n":[1]}'
    assert job.token == claim.token and job.claim.id == claim.id
    assert abs(job.created_at - datetime.now(timezone.utc)) < timedelta(minutes=5)
    assert job.finished is False
    assert job.complete() is True
    assert job.finished is True
    row = engine.job(job.id)
    assert row is not None and row.state == "done" and row.claim_id == claim.id and row.finished_at is not None


def test_fail_puts_back_or_kills(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1, max_attempts=2).id
    (job,) = engine.claim("q")
    assert job.fail(ValueError("naïve \ud800"), delay=0) is True
    row = engine.job(id)
    assert row is not None and (row.state, row.last_error) == ("ready", "ValueError: naïve \\ud800")
    (job,) = engine.claim("q")
    assert job.fail("as it is", timedelta(0)) is True
    row = engine.job(id)
    assert row is not None and (row.state, row.last_error) == ("dead", "as it is")
    attempts = engine.attempts(id)
    assert [(a.outcome, a.is_final, a.error) for a in attempts] == [
        ("failed", False, "ValueError: naïve \\ud800"),
        ("failed", True, "as it is"),
    ]
    assert attempts[0].fence == 1 and attempts[0].worker and attempts[0].ended_at.tzinfo is timezone.utc


def test_release_costs_no_attempt(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1).id
    (job,) = engine.claim("q")
    assert job.release() is True
    (job,) = engine.claim("q")
    assert (job.attempts, job.fence) == (1, 2)
    assert job.release(delay=3600) is True
    assert not engine.claim("q")
    row = engine.job(id)
    assert row is not None and row.state == "ready"


def test_many_jobs_finish_in_one_step(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(6)])
    claim = engine.claim("q")
    ids = [job.id for job in claim]
    assert claim.fail(ids[:1], "boom", 3600) == {ids[0]: True}
    assert claim.release(ids[1:2], 3600) == {ids[1]: True}
    assert claim.complete(iter(ids[2:3])) == {ids[2]: True}
    assert claim.complete() == dict.fromkeys(ids[3:], True)
    assert claim.complete() == {}
    states = {row.id: row.state for row in engine.jobs()}
    assert states == {**dict.fromkeys(ids[:2], "ready"), **dict.fromkeys(ids[2:], "done")}


def test_jobs_are_listed_in_pages(engine: rowclaim.Engine) -> None:
    ids = [answer.id for answer in engine.create_many("q", [{"payload": n} for n in range(5)])]
    engine.create("other", 1)
    page = engine.jobs(queue="q", limit=2)
    assert [row.id for row in page] == ids[:2:-1]
    assert [row.id for row in engine.jobs(queue="q", before=page[-1].id)] == ids[2::-1]
    assert engine.jobs(state="dead") == [] and len(engine.jobs(state="ready")) == 6
    assert page[0] == engine.job(ids[-1]) and page[0].payload == 4
    assert engine.job(10**15) is None


def state(engine: rowclaim.Engine, id: int) -> str:
    row = engine.job(id)
    assert row is not None
    return row.state


def test_retry_puts_a_dead_job_back(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1, max_attempts=1).id
    assert engine.retry(id) is False
    (job,) = engine.claim("q")
    assert job.fail("boom") and state(engine, id) == "dead"
    assert engine.retry(id) is True and state(engine, id) == "ready"
    (job,) = engine.claim("q")
    assert engine.retry(id) is False
    assert engine.retry(id, force=True) is True
    assert job.complete() is False


def test_cancel_takes_a_job_out(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1).id
    (job,) = engine.claim("q")
    assert engine.cancel(id) is False
    assert engine.cancel(id, force=True) is True and state(engine, id) == "cancelled"
    assert job.complete() is False
    waiting = engine.create("q", 1).id
    assert engine.cancel(waiting) is True and not engine.claim("q")


def test_recover_takes_back_what_has_run_out(database: Database) -> None:
    with database.connect(heartbeat=False, backoff_base=0) as engine:
        engine.create("q", 1)
        claim = engine.claim("q", lease=1)
        found = []
        wait_until(lambda: found.append(engine.recover()) or found[-1].claims)
        assert found[-1] == Recovered(1, 1, 0)
        assert engine.recover() == Recovered(0, 0, 0)
        assert claim.complete() == {engine.jobs()[0].id: False}


def test_what_was_begun_at_most_once_is_held_and_resolved(database: Database) -> None:
    with database.connect(heartbeat=False, backoff_base=60) as engine:
        ids = [engine.create("q", n).id for n in range(4)]
        claim = engine.claim("q", lease=1, on_lost="hold")
        begun = [next(claim) for _ in range(3)]
        assert begun[0].complete() is True
        found = []
        wait_until(lambda: found.append(engine.recover()) or found[-1].claims)
        assert found[-1] == Recovered(1, 1, 0, held=2)
        assert [state(engine, id) for id in ids] == ["done", "held", "held", "ready"]
        assert [row.id for row in engine.jobs(state="held")] == [ids[2], ids[1]]
        (queue,) = engine.stats().queues
        assert (queue.held, queue.dead) == (Count(2, False), Count(0, False))
        (attempt,) = engine.attempts(ids[1])
        assert (attempt.outcome, attempt.is_final) == ("lost", False)
        assert attempt.error == "lease expired after it was started"
        assert begun[1].complete() is False, "a late owner is lost"
        assert engine.retry(ids[1], force=True) is False
        assert engine.resolve([ids[1], ids[0], 999], sent=True) == {ids[1]: True, ids[0]: False, 999: False}
        assert engine.resolve(iter([ids[1], ids[2]]), sent=False) == {ids[1]: False, ids[2]: True}
        assert [state(engine, id) for id in ids] == ["done", "done", "ready", "ready"]
        assert sorted((job.id, job.attempts) for job in engine.claim("q", on_lost=None)) == [(ids[2], 1), (ids[3], 1)]
        with pytest.raises(rowclaim.InvalidError, match="on_lost must be retry or hold"):
            engine.claim("q", on_lost="keep")  # type: ignore[arg-type]


def test_what_breaks_a_job_off_leaves_it_to_be_held(database: Database) -> None:
    with database.connect(heartbeat=False) as engine:
        id = engine.create("q", 1).id

        def broken_off(job: rowclaim.Job) -> None:
            raise KeyboardInterrupt

        for on_lost, left in (("retry", "ready"), ("hold", "claimed")):
            with pytest.raises(KeyboardInterrupt):
                engine.work({"q": broken_off}, lease=1, on_lost=on_lost)  # type: ignore[arg-type]
            assert state(engine, id) == left, on_lost
        wait_until(lambda: engine.recover().held == 1)
        assert engine.resolve([id], sent=False) == {id: True}
        with pytest.raises(SystemExit), engine.claim("q", lease=1, on_lost="hold") as claim, next(claim):
            raise SystemExit
        assert state(engine, id) == "claimed"
        wait_until(lambda: engine.recover().held == 1)


def test_prune_deletes_what_ended(engine: rowclaim.Engine) -> None:
    engine.create("q", 1, key="k")
    engine.claim("q").complete()
    engine.flush()
    assert engine.prune(timedelta(days=1)) == Pruned(0, 0, 0)
    pruned = engine.prune(0, batch=10)
    assert pruned.jobs == 1
    assert engine.create("q", 1, key="k").exists is False


def test_stats_count_by_queue(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": 1}, {"payload": 2, "delay": 60}])
    engine.create("q", 3)
    claim = engine.claim("q", limit=1)
    stats = engine.stats()
    (queue,) = stats.queues
    assert (queue.queue, queue.due, queue.delayed, queue.claimed) == ("q", Count(1, False), Count(1, False), 1)
    assert queue.dead == Count(0, False) and queue.exact is None
    assert queue.oldest_due is not None and 0 <= queue.oldest_due < 60
    assert (stats.open_claims, stats.expired_claims) == (1, 0)
    assert engine.stats(exact=True).queues[0].exact == {"claimed": 1, "ready": 2}
    assert claim.release()


def test_migrate_twice_finds_nothing_to_do(database: Database) -> None:
    engine = rowclaim.connect(database.dsn, prefix=database.prefix, migrate="never")
    first = engine.migrate()
    assert first.from_version == 0 and first.to_version > 0
    assert engine.migrate() == Migrated(first.to_version, first.to_version)
    assert database.prefix + "jobs" in engine.schema_sql()
    engine.close()


def test_server_version_names_the_server(database: Database) -> None:
    with database.connect() as engine:
        assert {"sqlite": "SQLite", "mariadb": "MariaDB", "mysql": "9."}[database.name] in engine.server_version


def test_equal_options_share_an_engine(database: Database) -> None:
    first = rowclaim.connect(database.dsn, prefix=database.prefix, lease=7)
    second = rowclaim.connect(database.dsn, lease=timedelta(seconds=7), prefix=database.prefix)
    assert first is not second
    first.migrate()
    assert second.create("q", 1).exists is False
    first.close()
    second.close()


def test_results_are_records() -> None:
    created = Created(1, False, "ready")
    assert repr(created) == "Created(id=1, exists=False, state='ready')"
    assert created == copy.copy(created) and created != Created(2, False, "ready")
    assert pickle.loads(pickle.dumps(created)) == created
    with pytest.raises(AttributeError):
        created.id = 2  # type: ignore[misc]
    assert Json("1") == Json("1")
    assert Created.__module__ == "rowclaim"


def test_numbers_may_be_of_any_class_that_is_one(engine: rowclaim.Engine) -> None:
    class Whole:
        def __index__(self) -> int:
            return 3

    id = engine.create("q", 1, priority=Whole(), delay=Decimal("3600.5"), max_attempts=Whole()).id  # type: ignore[arg-type]
    row = engine.job(id)
    assert row is not None and (row.priority, row.max_attempts) == (3, 3)
    assert row.ready_at is not None and (row.ready_at - row.created_at).total_seconds() > 3600
