"""Runs: a slot once, a task never twice at once, and the history says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import rowclaim
from conftest import Database, run_child, wait_until
from test_processes import held_by_another, script

SLOT = datetime(2026, 11, 30, 8, 0, tzinfo=timezone.utc)


def at(minute: int) -> datetime:
    return SLOT + timedelta(minutes=minute)


def never(run: rowclaim.Run) -> None:
    raise AssertionError(f"{run} must not run")


def expire(database: Database) -> None:
    """The processes of all runs are gone."""
    past = "0" if database.name == "sqlite" else "'2000-01-01'"
    database.sql(f"UPDATE {database.prefix}leases SET lease_until = {past}")


def history(engine: rowclaim.Engine) -> list[tuple[int, str, str | None]]:
    runs = reversed(engine.runs())
    return [((run.slot - SLOT) // timedelta(minutes=1), run.state, run.reason) for run in runs]


def test_a_slot_runs_once(database: Database, engine: rowclaim.Engine) -> None:
    seen: list[rowclaim.Run] = []

    def run(run: rowclaim.Run) -> str:
        seen.append(run)
        assert (run.task, run.slot, run.manual, run.lost) == ("report", SLOT, False, False)
        assert isinstance(run.token, uuid.UUID) and run.fence > 0 and 50 < run.valid_for <= 60
        assert run.slot.tzinfo is timezone.utc and "'report'" in repr(run).replace('"', "'")
        return "what it returns does not matter"

    record = engine.run_slot("report", SLOT, run)
    assert (record.id, record.task, record.slot, record.state) == (seen[0].id, "report", SLOT, "succeeded")
    assert (record.rerun, record.manual, record.reason, record.slots) == (0, False, None, 1)
    assert (record.fence, record.error) == (seen[0].fence, None)
    assert record.worker and record.finished_at is not None and record.duration is not None
    assert abs((record.finished_at - record.started_at).total_seconds() - record.duration) < 0.001
    assert (seen[0].lost, seen[0].valid_for) == (True, 0.0), "it has ended"
    same = (SLOT, SLOT.astimezone(timezone(timedelta(hours=8))), "2026-11-30T16:00:00+08:00", SLOT.timestamp())
    for slot in same:
        assert engine.run_slot("report", slot, never) == record
    assert engine.run_slot("other", int(SLOT.timestamp()), lambda run: None).slot == SLOT
    assert engine.runs(task="report") == [record] and len(seen) == 1


def test_a_slot_is_skipped_while_an_earlier_one_runs(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:

        def run(run: rowclaim.Run) -> None:
            same = other.run_slot("report", at(0), never)
            assert (same.id, same.state, same.finished_at, same.duration) == (run.id, "started", None, None)
            skipped = other.run_slot("report", at(1), never)
            assert (skipped.state, skipped.reason, skipped.fence) == ("skipped", "busy", None)
            assert skipped.worker == "other" and skipped.duration is None
            assert other.run_slot("another task", at(1), lambda run: None).state == "succeeded"

        assert engine.run_slot("report", at(0), run).state == "succeeded"
        assert engine.run_slot("report", at(1), never).reason == "busy", "it stays skipped"
        assert engine.run_slot("report", at(2), lambda run: None).state == "succeeded"
        assert [run.state for run in engine.runs(task="report")] == ["succeeded", "skipped", "succeeded"]


@pytest.mark.parametrize("error", [ValueError("the shop is closed"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_fails_the_run_and_goes_on(engine: rowclaim.Engine, error: BaseException) -> None:
    def run(run: rowclaim.Run) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        engine.run_slot("report", SLOT, run)
    assert caught.value is error
    record = engine.run_slot("report", SLOT, never)
    assert record.state == "failed" and record.error is not None
    assert record.error.startswith(type(error).__name__)
    assert engine.run_slot("report", at(1), lambda run: None).state == "succeeded", "the task is free"


def test_an_exception_that_cannot_speak_fails_the_run(engine: rowclaim.Engine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    def run(run: rowclaim.Run) -> None:
        raise MuteError

    with pytest.raises(KeyboardInterrupt):
        engine.run_slot("report", SLOT, run)
    assert engine.run_slot("report", SLOT, never).error == "MuteError"


def test_a_person_may_run_a_slot_again(engine: rowclaim.Engine) -> None:
    engine.run_slot("report", SLOT, lambda run: None)
    for rerun in (1, 2):
        manual: list[bool] = []
        record = engine.run_slot("report", SLOT, lambda run, m=manual: m.append(run.manual), manual=True)
        assert (record.rerun, record.manual, record.state, manual) == (rerun, True, "succeeded", [True])


def test_the_history_is_listed_newest_first(engine: rowclaim.Engine) -> None:
    for minute in range(4):
        engine.run_slot(f"t{minute % 2}", at(minute), lambda run: None)
    with pytest.raises(ZeroDivisionError):
        engine.run_slot("t0", at(4), lambda run: 1 // 0)
    assert history(engine) == [(n, "succeeded", None) for n in range(4)] + [(4, "failed", None)]
    (failed,) = engine.runs(state="failed")
    assert failed.error is not None and failed.error.startswith("ZeroDivisionError: ")
    assert [run.task for run in engine.runs(task="t1")] == ["t1", "t1"]
    page = engine.runs(limit=2)
    assert [run.slot for run in engine.runs(before=page[-1].id, limit=2)] == [at(2), at(1)]
    assert engine.prune(0).runs == 5 and engine.runs() == []


REFUSED: dict[str, Callable[[rowclaim.Engine], object]] = {
    "empty task": lambda e: e.run_slot("", SLOT, never),
    "task over 187 bytes": lambda e: e.run_slot("t" * 188, SLOT, never),
    "naive datetime": lambda e: e.run_slot("t", datetime(2026, 11, 30), never),
    "text without a zone": lambda e: e.run_slot("t", "2026-11-30T08:00:00", never),
    "text that is no time": lambda e: e.run_slot("t", "tomorrow", never),
    "slot nan": lambda e: e.run_slot("t", float("nan"), never),
    "lease 0.5": lambda e: e.run_slot("t", SLOT, never, lease=0.5),
    "max_run shorter than lease": lambda e: e.run_slot("t", SLOT, never, lease=10, max_run=5),
    "run that cannot be called": lambda e: e.run_slot("t", SLOT, 5),
    "unknown state": lambda e: e.runs(state="running"),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_refused(engine: rowclaim.Engine, call: Callable[[rowclaim.Engine], object]) -> None:
    with pytest.raises(rowclaim.InvalidError):
        call(engine)
    assert engine.runs() == []


def test_a_wrong_type_is_a_type_error(engine: rowclaim.Engine) -> None:
    for call in (
        lambda: engine.run_slot(1, SLOT, never),
        lambda: engine.run_slot("t", None, never),
        lambda: engine.run_slot("t", SLOT.date(), never),
        lambda: engine.run_slot("t", SLOT, never, 60),
        lambda: engine.run_slot("t", SLOT, never, manual=1),
        lambda: engine.runs("t"),
    ):
        with pytest.raises(TypeError):
            call()


# --- Late runs, and processes that are gone -----------------------------------------------------------------------


def test_a_late_run_is_lost_and_its_guarded_writes_are_refused(database: Database) -> None:
    table = f"{database.prefix}reports"
    database.sql(f"CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY, day VARCHAR(20), fence BIGINT)")
    with database.connect(heartbeat=0) as engine:

        def write(run: rowclaim.Run, day: str) -> bool:
            return run.guard(table, {"id": 1}, {"day": day}, "fence")

        def late(run: rowclaim.Run) -> None:
            assert write(run, "first") is True
            expire(database)
            assert engine.run_slot("report", at(1), lambda newer: write(newer, "second")).state == "succeeded"
            assert write(run, "late") is False

        assert engine.run_slot("report", at(0), late).state == "lost"
        assert database.sql(f"SELECT day FROM {table}")[0][0] == "second"
        assert history(engine) == [(0, "lost", None), (1, "succeeded", None)]


def test_a_killed_process_leaves_a_run_that_is_lost_and_not_repeated(database: Database) -> None:
    body = f"""
        import os, rowclaim
        engine = rowclaim.connect({database.dsn!r}, prefix={database.prefix!r})
        engine.migrate()
        engine.run_slot("report", {SLOT.isoformat()!r}, lambda run: os.kill(os.getpid(), 9), lease=1)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(body)], timeout=30, check=False).returncode == -9
    with database.connect() as engine:
        wait_until(lambda: engine.recover().runs == 1)
        record = engine.run_slot("report", SLOT, never)
        assert (record.state, record.error) == ("lost", "lease expired")
        assert engine.run_slot("report", at(1), lambda run: None).state == "succeeded"


def test_threads_run_each_slot_once_and_never_two_at_a_time(database: Database) -> None:
    ran: list[datetime] = []
    inside: list[int] = []
    most: list[int] = []

    def run(run: rowclaim.Run) -> None:
        inside.append(1)
        most.append(len(inside))
        ran.append(run.slot)
        inside.pop()

    with database.connect(pool=4) as engine:
        threads = [
            threading.Thread(target=lambda: [engine.run_slot("t", at(n), run) for n in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs = engine.runs(limit=100)
    assert len(runs) == 20 and len(set(ran)) == len(ran) and max(most) == 1
    assert sorted(ran) == sorted(run.slot for run in runs if run.state == "succeeded")


def test_a_live_run_keeps_its_lease(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:

        def run(run: rowclaim.Run) -> None:
            for _ in range(20):
                assert other.recover().runs == 0
                threading.Event().wait(0.1)
            assert not run.lost and run.valid_for > 0

        assert engine.run_slot("report", SLOT, run, lease=1).state == "succeeded"


def test_a_child_leaves_the_parents_run_alone(database: Database) -> None:
    with database.connect() as engine:
        held: list[rowclaim.Run] = []

        def run(run: rowclaim.Run) -> None:
            held.append(run)

            def child() -> None:
                assert run.task == "report"
                with pytest.raises(rowclaim.InvalidError, match="fork"):
                    run.guard("t", {"id": 1}, {}, "fence")
                assert engine.run_slot("report", at(1), never).reason == "busy"
                held.clear()

            for _ in range(2):
                run_child(child)
            assert engine.runs(state="started")[0].id == run.id

        assert engine.run_slot("report", at(0), run).state == "succeeded"


def test_a_child_that_comes_back_out_of_a_run_records_nothing(database: Database) -> None:
    with database.connect() as engine:
        pids: list[int] = []

        def run(run: rowclaim.Run) -> None:
            pids.append(os.fork())
            if pids[0]:
                assert os.waitpid(pids[0], 0)[1] == 0, "the child must be refused"
                assert engine.runs(state="started")[0].id == run.id

        try:
            record = engine.run_slot("report", SLOT, run)
        except rowclaim.InvalidError as error:
            if pids == [0]:
                os._exit(0 if "fork" in str(error) else 1)
            raise
        finally:
            if pids == [0]:
                os._exit(1)
        assert record.state == "succeeded"


@pytest.mark.parametrize("interruptions", [1, 2])
def test_ctrl_c_while_the_end_is_written(database: Database, interruptions: int) -> None:
    """The first one is raised when the end is written, the second one ends the wait: the task is let go."""
    body = f"""
        def run(run):
            print("inside", flush=True)
            assert sys.stdin.readline() == "held\\n"
            for n in range({interruptions}):
                later(signal.SIGINT, 0.3 + 1.5 * n)  # SQLite waits a second at a time
        try:
            engine.run_slot("report", {SLOT.isoformat()!r}, run, lease=2)
        except KeyboardInterrupt:
            print("stopped", flush=True)
        sys.stdin.read()
    """
    pipe = subprocess.PIPE
    with (
        database.connect() as engine,
        subprocess.Popen(script(database, body), stdin=pipe, stdout=pipe, text=True) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        with held_by_another(database, "runs"):
            process.stdin.write("held\n")
            process.stdin.flush()
            if interruptions == 1:
                time.sleep(1.0)
            else:
                assert process.stdout.readline() == "stopped\n"
        if interruptions == 1:
            assert process.stdout.readline() == "stopped\n"
            assert engine.run_slot("report", SLOT, never).state == "succeeded"
        else:
            # The process lives on, and its background thread with it.
            wait_until(lambda: engine.runs()[0].state == "lost")
        assert engine.run_slot("report", at(1), lambda run: None).state == "succeeded"
        process.stdin.close()


# --- Schedules ----------------------------------------------------------------------------------------------------


def away(database: Database, seconds: int) -> None:
    """The last look at the schedules was so many seconds ago."""
    since = f"{seconds} * 1000000" if database.name == "sqlite" else f"INTERVAL {seconds} SECOND"
    database.sql(f"UPDATE {database.prefix}schedules SET accounted_until = accounted_until - {since}")


def test_a_schedule_is_recorded_and_changed(database: Database, engine: rowclaim.Engine) -> None:
    first = engine.schedule("report", "0 8 * * 1-5", "Asia/Shanghai")
    assert (first.task, first.cron, first.zone, first.missed) == ("report", "0 8 * * 1-5", "Asia/Shanghai", "skip")
    assert (first.cap, first.catch_up, first.grace, first.lease, first.max_run) == (10, None, 90.0, 60.0, None)
    assert (first.paused_at, first.asked_at, first.last) == (None, None, None)
    assert first.next_at is not None and (first.next_at.hour, first.next_at.tzinfo) == (0, timezone.utc)
    assert engine.schedule("report", "0 8 * * 1-5", "Asia/Shanghai") == first
    changed = engine.schedule(
        "report", "0 9 * * *", "+08:00", missed="all", cap=3, catch_up=timedelta(hours=2), grace=5, lease=10, max_run=20
    )
    assert (changed.cron, changed.zone, changed.missed, changed.cap) == ("0 9 * * *", "+08:00", "all", 3)
    assert (changed.catch_up, changed.grace, changed.lease, changed.max_run) == (7200.0, 5.0, 10.0, 20.0)
    engine.schedule("a", "* * * * *", "UTC")
    assert [schedule.task for schedule in engine.schedules()] == ["a", "report"]
    assert [schedule.task for schedule in engine.schedules(limit=1)] == ["a"]
    assert engine.unschedule("a") is True and engine.unschedule("a") is False


def test_run_due_runs_each_due_slot_once(database: Database, engine: rowclaim.Engine) -> None:
    seen: list[tuple[str, datetime]] = []

    def note(run: rowclaim.Run) -> None:
        seen.append((run.task, run.slot))

    handlers = {"b": note, "a": note}
    engine.schedule("a", "* * * * *", "UTC", missed="all")
    engine.schedule("b", "* * * * *", "UTC", missed="once")
    assert engine.run_due(handlers) == [], "nothing is due before the first slot"
    away(database, 300)
    records = engine.run_due(handlers)
    assert [(record.task, record.slot) for record in records] == seen
    assert [task for task, _ in seen[:1]] == ["b"] and 5 <= len(seen) - 1 <= 6
    slots = [slot for task, slot in seen if task == "a"]
    assert slots == sorted(set(slots)) and {record.state for record in records} == {"succeeded"}
    assert engine.run_due(handlers) == []
    skipped = engine.runs(task="b", state="skipped")
    assert {run.reason for run in skipped} == {"missed"} and 4 <= sum(run.slots for run in skipped) <= 5
    last = engine.schedules()[0].last
    assert last is not None and last.slot == slots[-1]


def test_an_exception_fails_its_run_and_the_pass_goes_on(
    database: Database, engine: rowclaim.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    for task in ("a", "b"):
        engine.schedule(task, "* * * * *", "UTC", missed="once")
    away(database, 60)
    first, second = engine.run_due({"a": lambda run: 1 // 0, "b": lambda run: None})
    assert (first.task, first.state, second.task, second.state) == ("a", "failed", "b", "succeeded")
    assert first.error is not None and first.error.startswith("ZeroDivisionError: ")
    (record,) = caplog.records
    assert record.name == "rowclaim" and record.exc_info is not None and f"run {first.id} of a failed" in caplog.text
    assert engine.run_due({"a": never, "b": never}) == [], "one start for each slot"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_ends_the_pass(
    database: Database, engine: rowclaim.Engine, kind: type[BaseException]
) -> None:
    def stop(run: rowclaim.Run) -> None:
        raise kind

    for task in ("a", "b"):
        engine.schedule(task, "* * * * *", "UTC", missed="once")
    away(database, 60)
    with pytest.raises(kind):
        engine.run_due({"a": stop, "b": never})
    (run,) = engine.runs(task="a", state="failed")
    assert run.error == kind.__name__
    assert [record.task for record in engine.run_due({"b": lambda run: None})] == ["b"], (
        "what was not begun is not lost"
    )


def test_a_pass_ends_in_time(database: Database, engine: rowclaim.Engine) -> None:
    engine.schedule("a", "* * * * *", "UTC", missed="all")
    away(database, 300)
    assert engine.run_due({"a": never}, max_seconds=0) == []
    slow = engine.run_due({"a": lambda run: threading.Event().wait(0.3)}, max_seconds=timedelta(seconds=0.2))
    assert len(slow) == 1


def test_a_paused_schedule_runs_only_when_a_person_asks(database: Database, engine: rowclaim.Engine) -> None:
    manual: list[bool] = []
    handlers = {"a": lambda run: manual.append(run.manual)}
    engine.schedule("a", "* * * * *", "UTC", missed="all")
    assert (engine.pause_schedule("a"), engine.pause_schedule("a")) == (True, False)
    away(database, 180)
    assert engine.run_due(handlers) == []
    paused = engine.schedules()[0]
    assert paused.paused_at is not None and paused.next_at is None
    assert {run.reason for run in engine.runs(state="skipped")} == {"disabled"}
    assert engine.ask_run("a") is None  # type: ignore[func-returns-value]
    assert engine.schedules()[0].asked_at is not None
    (record,) = engine.run_due(handlers)
    assert record.manual and manual == [True] and engine.run_due(handlers) == []
    assert (engine.resume_schedule("a"), engine.resume_schedule("a")) == (True, False)
    for call in (engine.pause_schedule, engine.resume_schedule, engine.ask_run):
        with pytest.raises(rowclaim.NotFoundError):
            call("nothing")
    with pytest.raises(rowclaim.NotFoundError):
        engine.run_due({"nothing": never})


def test_many_that_look_at_once_run_each_slot_once(database: Database) -> None:
    ran: list[datetime] = []
    with database.connect(pool=4) as engine:
        engine.schedule("a", "* * * * *", "UTC", missed="all", cap=100)
        away(database, 20 * 60)
        handlers = {"a": lambda run: ran.append(run.slot)}
        threads = [threading.Thread(target=engine.run_due, args=(handlers,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whoever finds the task busy leaves it to the others, so at the end some may be left.
        engine.run_due(handlers)
        assert len(ran) == len(set(ran)) == len(engine.runs(limit=100)) and 20 <= len(ran) <= 21


PLANS: dict[str, dict[str, Any]] = {
    "expression": {"cron": "every day"},
    "minute 61": {"cron": "61 * * * *"},
    "zone": {"zone": "Mars/Olympus"},
    "missed": {"missed": "never"},
    "cap 0": {"cap": 0},
    "cap -1": {"cap": -1},
    "grace 0": {"grace": 0},
    "catch_up": {"catch_up": 1},
    "lease": {"lease": 0},
    "max_run": {"max_run": 1},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_a_plan_that_cannot_be_is_refused(engine: rowclaim.Engine, plan: dict[str, Any]) -> None:
    with pytest.raises(rowclaim.InvalidError):
        engine.schedule("a", **{"cron": "* * * * *", "zone": "UTC", **plan})
    assert engine.schedules() == []


def test_a_plan_needs_its_zone_and_handlers_are_checked(engine: rowclaim.Engine) -> None:
    with pytest.raises(TypeError):
        engine.schedule("a", "* * * * *")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        engine.schedule("a", "* * * * *", "UTC", "skip")  # type: ignore[misc]
    with pytest.raises(rowclaim.InvalidError, match="the handler of task a cannot be called"):
        engine.run_due({"a": 5})
    with pytest.raises(TypeError):
        engine.run_due([("a", never)])
    assert engine.run_due({}) == []


def test_ctrl_c_in_a_handler_ends_the_pass(database: Database) -> None:
    body = """
        engine.schedule("a", "* * * * *", "UTC")
        engine.ask_run("a")
        later(signal.SIGINT)
        try:
            engine.run_due({"a": lambda run: time.sleep(20)})
        except KeyboardInterrupt:
            (run,) = engine.runs()
            print(run.state, run.error)
    """
    answer = subprocess.run(script(database, body), capture_output=True, text=True, timeout=30, check=False)
    assert answer.stdout == "failed KeyboardInterrupt\n", answer.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
