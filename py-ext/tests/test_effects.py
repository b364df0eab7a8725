"""Effects: what was done to the outside world is not done twice blindly, and nothing that is known gets lost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import rowclaim
from conftest import Database, Targets, run_child, wait_until
from rowclaim import Json, NotSent
from test_processes import held_by_another, script

REQUEST = {"to": "+4512345678", "text": "hello"}


def never(effect: rowclaim.Effect) -> object:
    raise AssertionError(f"{effect} must not be sent")


def raising(error: BaseException) -> Callable[[rowclaim.Effect], object]:
    def send(effect: rowclaim.Effect) -> object:
        raise error

    return send


def state(engine: rowclaim.Engine, key: str) -> str:
    effect = engine.effect(key)
    assert effect is not None
    return effect.state


def abandon(database: Database, engine: rowclaim.Engine, key: str) -> None:
    """Leaves an effect behind whose sender was killed between the call and the record."""
    with pytest.raises(TimeoutError):
        engine.once(key, REQUEST, raising(TimeoutError()))


# --- What once answers --------------------------------------------------------------------------------------------


def test_a_second_call_gets_the_stored_response(database: Database, engine: rowclaim.Engine) -> None:
    seen: list[tuple[str, int, bool]] = []

    def send(effect: rowclaim.Effect) -> object:
        seen.append((effect.key, effect.attempts, 50 < effect.valid_for <= 60))
        return {"id": 7, "text": "é"}

    first = engine.once("sms:1", REQUEST, send)
    assert first == rowclaim.Receipt("sms:1", '{"id":7,"text":"é"}', 1, True, None)
    assert first.response == {"id": 7, "text": "é"} and seen == [("sms:1", 1, True)]
    for other in (engine, database.connect(worker="other")):
        again = other.once("sms:1", {"text": "hello", "to": "+4512345678"}, never)
        assert (again.fresh, again.attempts, again.response) == (False, 1, first.response)
    assert engine.once("sms:2", REQUEST, lambda effect: None).raw_response == "null"
    assert engine.once("sms:2", REQUEST, never).response is None


def test_another_request_under_the_same_key_is_refused(engine: rowclaim.Engine) -> None:
    engine.once("k", REQUEST, lambda effect: 1)
    with pytest.raises(rowclaim.InvalidError, match="k was begun with another request") as caught:
        engine.once("k", {**REQUEST, "to": "+4587654321"}, never)
    assert "4587" not in str(caught.value)


def test_what_surely_was_not_sent_is_sent_again(engine: rowclaim.Engine) -> None:
    error = NotSent("number refused")
    with pytest.raises(NotSent) as caught:
        engine.once("k", REQUEST, raising(error))
    assert caught.value is error
    effect = engine.effect("k")
    assert effect is not None and (effect.state, effect.error) == ("failed", "NotSent: number refused")
    receipt = engine.once("k", REQUEST, lambda effect: effect.attempts)
    assert (receipt.fresh, receipt.attempts, receipt.response) == (True, 2, 2)


@pytest.mark.parametrize("error", [TimeoutError("slow"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_after_any_other_exception_nobody_knows(engine: rowclaim.Engine, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        engine.once("k", REQUEST, raising(error))
    assert caught.value is error
    effect = engine.effect("k")
    assert effect is not None and effect.state == "unknown"
    assert effect.error is not None and effect.error.startswith(type(error).__name__)
    assert effect.finished_at is not None
    with pytest.raises(rowclaim.UnknownError, match="resolve it") as held:
        engine.once("k", REQUEST, never)
    assert (held.value.kind, held.value.retryable, held.value.operation) == ("unknown", False, "once")


def test_an_exception_that_cannot_speak_is_recorded_all_the_same(engine: rowclaim.Engine) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.once("k", REQUEST, raising(MuteError()))
    effect = engine.effect("k")
    assert effect is not None and (effect.state, effect.error) == ("unknown", "MuteError")


def test_a_person_resolves_what_nobody_knows(database: Database, engine: rowclaim.Engine) -> None:
    for key in ("it has", "it has not", "nobody knows how"):
        abandon(database, engine, key)
    assert engine.resolve_effect("it has", True, {"id": 9}) is True
    assert engine.resolve_effect("it has", False) is False, "it is decided"
    assert engine.once("it has", REQUEST, never).response == {"id": 9}
    assert engine.resolve_effect("it has not", False) is True
    assert state(engine, "it has not") == "pending"
    assert engine.once("it has not", REQUEST, lambda effect: 1).attempts == 2
    assert engine.resolve_effect("nobody knows how", True) is True
    assert engine.once("nobody knows how", REQUEST, never).raw_response is None
    with pytest.raises(rowclaim.NotFoundError):
        engine.resolve_effect("nothing", True)


def test_the_policy_says_what_is_done_when_nobody_knows(database: Database, engine: rowclaim.Engine) -> None:
    def ask(answer: Callable[[rowclaim.Effect], object], key: str, send: Any = never) -> rowclaim.Receipt:
        abandon(database, engine, key)
        return engine.once(key, REQUEST, send, ask=answer, on_unknown="ask")

    receipt = ask(lambda effect: {"found": effect.key}, "it has")
    assert (receipt.fresh, receipt.response) == (True, {"found": "it has"})
    assert ask(raising(NotSent("unknown key")), "it has not", lambda effect: "sent").response == "sent"
    error = ConnectionError("away")
    with pytest.raises(ConnectionError) as caught:
        ask(raising(error), "cannot say")
    assert caught.value is error and state(engine, "cannot say") == "unknown"
    # Asked and then not sent after all.
    with pytest.raises(NotSent, match="refused"):
        ask(raising(NotSent("unknown key")), "refused", raising(NotSent("refused")))
    assert state(engine, "refused") == "failed"

    abandon(database, engine, "retried")
    assert engine.once("retried", REQUEST, lambda effect: effect.attempts, on_unknown="retry").response == 2
    # A first call has nothing to ask about.
    assert engine.once("fresh", REQUEST, lambda effect: 1, ask=never, on_unknown="ask").response == 1


def test_a_killed_process_leaves_an_effect_that_was_sent_once(database: Database, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    body = f"""
        import os, rowclaim
        engine = rowclaim.connect({database.dsn!r}, prefix={database.prefix!r})
        engine.migrate()
        def send(effect):
            with open({str(sent)!r}, "a") as file:
                file.write(effect.key + "\\n")
            os.kill(os.getpid(), 9)
        engine.once("sms:1", {REQUEST!r}, send, lease=1)
    """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(body)], timeout=30, check=False).returncode == -9
    with database.connect() as engine:

        def is_known_to_be_lost() -> bool:
            with pytest.raises(rowclaim.RowclaimError) as caught:
                engine.once("sms:1", REQUEST, never)
            return isinstance(caught.value, rowclaim.UnknownError)

        wait_until(is_known_to_be_lost)
        effect = engine.effect("sms:1")
        assert effect is not None and (effect.state, effect.error) == ("unknown", "the sender was lost")
        receipt = engine.once("sms:1", REQUEST, never, ask=lambda effect: "I have it", on_unknown="ask")
        assert receipt.response == "I have it"
        assert sent.read_text() == "sms:1\n"


def test_two_at_once_send_one(database: Database) -> None:
    sent, receipts, refused = [], [], []
    inside = threading.Event()
    go_on = threading.Event()

    def send(effect: rowclaim.Effect) -> object:
        sent.append(effect.key)
        inside.set()
        assert go_on.wait(10)
        return "done"

    with database.connect(pool=4) as engine:

        def patient() -> None:
            receipts.append(engine.once("k", REQUEST, send, wait=10))

        threads = [threading.Thread(target=patient) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert inside.wait(10)
        with pytest.raises(rowclaim.BusyError) as caught:
            engine.once("k", REQUEST, never)
        refused.append(caught.value)
        go_on.set()
        for thread in threads:
            thread.join()
    assert (refused[0].kind, refused[0].retryable) == ("busy", True)
    assert sent == ["k"]
    assert sorted(receipt.fresh for receipt in receipts) == [False, False, False, True]
    assert {receipt.response for receipt in receipts} == {"done"}


def test_a_slow_sender_keeps_its_effect(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:

        def send(effect: rowclaim.Effect) -> object:
            for _ in range(20):
                with pytest.raises(rowclaim.BusyError):
                    other.once("k", REQUEST, never, on_unknown="retry")
                threading.Event().wait(0.1)
            assert effect.valid_for > 0
            return "slow"

        assert engine.once("k", REQUEST, send, lease=1).response == "slow"


# --- What cannot be kept ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (float("nan"), "float"),
        ("\ud800", "str"),
        (Json("{no json"), "Json"),
        (Json("NaN"), "Json"),
        (object(), "object"),
    ],
)
def test_a_response_without_a_json_form_is_a_success(engine: rowclaim.Engine, response: object, kind: str) -> None:
    message = "effect k has happened and is recorded as succeeded, but its response is not kept"
    with pytest.raises(rowclaim.InvalidError, match=message) as caught:
        engine.once("k", REQUEST, lambda effect: response)
    assert caught.value.__cause__ is not None
    receipt = engine.once("k", REQUEST, never)
    assert (receipt.fresh, receipt.response) == (False, {"unencodable": kind})


def test_json_text_is_kept_byte_for_byte(engine: rowclaim.Engine) -> None:
    text = '{"b": 1.0,  "a":"\\u00e9"}'
    assert engine.once("k", Json(' {"n" : 1}'), lambda effect: Json(text)).raw_response == text
    assert engine.once("k", {"n": 1}, never).raw_response == text
    with pytest.raises(rowclaim.InvalidError, match="the request is not JSON"):
        engine.once("other", Json("{"), never)


def test_a_response_over_a_megabyte_is_not_kept_but_its_success_is(engine: rowclaim.Engine) -> None:
    large = "x" * (1 << 20)
    assert engine.once("k", REQUEST, lambda effect: large).response == large
    again = engine.once("k", REQUEST, never)
    assert (again.fresh, again.raw_response, again.response) == (False, None, None)
    effect = engine.effect("k")
    assert effect is not None and effect.error is not None and "too large to be kept" in effect.error


# --- The ledger ---------------------------------------------------------------------------------------------------


def test_the_ledger_is_listed_newest_first(database: Database, engine: rowclaim.Engine) -> None:
    started = datetime.now(timezone.utc)
    engine.once("good", REQUEST, lambda effect: {"id": 1})
    with pytest.raises(NotSent):
        engine.once("bad", REQUEST, raising(NotSent("no")))
    abandon(database, engine, "unknown")
    assert [effect.key for effect in engine.effects()] == ["unknown", "bad", "good"]
    (good,) = engine.effects(state="succeeded", limit=10)
    assert (good.key, good.state, good.attempts, good.error) == ("good", "succeeded", 1, None)
    assert good.response == {"id": 1} and good.raw_response == '{"id":1}'
    assert good.holder and good.finished_at is not None and good.created_at.tzinfo is timezone.utc
    assert abs((good.started_at - started).total_seconds()) < 60 and good.finished_at >= good.started_at
    newest = engine.effects(limit=1)[0]
    assert [effect.key for effect in engine.effects(before=newest.id, limit=1)] == ["bad"]
    assert engine.effect("nothing") is None
    pruned = engine.prune(0)
    assert pruned.effects == 2 and [effect.key for effect in engine.effects()] == ["unknown"]


REFUSED: dict[str, Callable[[rowclaim.Engine], object]] = {
    "empty key": lambda e: e.once("", 1, never),
    "key over 191 bytes": lambda e: e.once("é" * 96, 1, never),
    "key with a surrogate": lambda e: e.once("\ud800", 1, never),
    "request of bytes": lambda e: e.once("k", b"", never),
    "lease 0.5": lambda e: e.once("k", 1, never, lease=0.5),
    "wait -1": lambda e: e.once("k", 1, never, wait=-1),
    "unknown policy": lambda e: e.once("k", 1, never, on_unknown="hope"),
    "ask without a function": lambda e: e.once("k", 1, never, on_unknown="ask"),
    "ask with hold": lambda e: e.once("k", 1, never, ask=never),
    "ask with retry": lambda e: e.once("k", 1, never, ask=never, on_unknown="retry"),
    "send that cannot be called": lambda e: e.once("k", 1, 5),
    "ask that cannot be called": lambda e: e.once("k", 1, never, ask=5, on_unknown="ask"),
    "unknown state": lambda e: e.effects(state="sent"),
    "resolved with bytes": lambda e: e.resolve_effect("k", True, b""),
    "a response of what has not happened": lambda e: e.resolve_effect("k", False, 1),
    "effect of an empty key": lambda e: e.effect(""),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_refused_before_anything_is_sent(
    engine: rowclaim.Engine, call: Callable[[rowclaim.Engine], object]
) -> None:
    with pytest.raises(rowclaim.InvalidError):
        call(engine)
    assert engine.effects() == []


def test_a_wrong_type_is_a_type_error(engine: rowclaim.Engine) -> None:
    for call in (
        lambda: engine.once(1, 1, never),
        lambda: engine.once("k", 1, never, None),
        lambda: engine.once("k", 1, never, completes="job"),
        lambda: engine.once("k", 1, never, lease="1"),
        lambda: engine.resolve_effect("k", "yes"),
        lambda: engine.effects("unknown"),
    ):
        with pytest.raises(TypeError):
            call()


# --- Jobs and rows ------------------------------------------------------------------------------------------------


def test_a_job_is_completed_together_with_its_effect(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(3)])
    with engine.claim("q") as claim:
        first, second, third = claim

        def send(effect: rowclaim.Effect) -> object:
            assert engine.jobs(state="done") == []
            return "sent"

        receipt = first.once("a", REQUEST, send)
        assert (receipt.fresh, receipt.completed, receipt.response) == (True, True, "sent")
        assert first.finished and [row.state for row in engine.jobs()] == ["claimed", "claimed", "done"]
        # It happened before the process died: the job that comes back is completed without sending.
        engine.once("b", REQUEST, lambda effect: "before")
        with second:
            receipt = second.once("b", REQUEST, never)
        assert (receipt.fresh, receipt.completed, receipt.response) == (False, True, "before")
        # The same by the engine.
        receipt = engine.once("c", REQUEST, lambda effect: 1, completes=third)
        assert receipt.completed is True and third.finished
    assert [row.state for row in engine.jobs()] == ["done"] * 3


def test_a_job_whose_effect_is_not_sent_stays(engine: rowclaim.Engine) -> None:
    engine.create("q", 1)
    (job,) = engine.claim("q")
    with pytest.raises(NotSent):
        job.once("k", REQUEST, raising(NotSent("no")))
    assert not job.finished and [row.state for row in engine.jobs()] == ["claimed"]
    with pytest.raises(TimeoutError):
        job.once("k", REQUEST, raising(TimeoutError()))
    assert not job.finished and state(engine, "k") == "unknown"
    assert job.once("k", REQUEST, lambda effect: effect.attempts, on_unknown="retry").attempts == 3


def test_the_late_owner_of_a_job_records_its_effect(database: Database) -> None:
    with database.connect(heartbeat=0, backoff_base=0) as engine:
        engine.create("q", 1)
        (late,) = engine.claim("q", lease=1)
        wait_until(lambda: engine.recover().returned)
        receipt = late.once("k", REQUEST, lambda effect: "sent")
        assert (receipt.fresh, receipt.completed) == (True, False)
        (job,) = engine.claim("q")
        assert job.once("k", REQUEST, never).completed is True


def test_work_takes_a_job_that_its_effect_has_completed(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(4)])

    def handler(job: rowclaim.Job) -> None:
        send = raising(NotSent("refused")) if job.payload == 1 else (lambda effect: job.payload)
        job.once(f"sms:{job.payload}", {"n": job.payload}, send)
        if job.payload == 2:
            raise ValueError("afterwards")

    summary = engine.work({"q": handler}, until_empty=True)
    assert (summary.completed, summary.failed, summary.lost) == (3, 1, 0)
    assert [effect.state for effect in engine.effects()] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert engine.jobs(state="ready")[0].last_error == "NotSent: refused"


def test_a_row_is_completed_together_with_its_effect(engine: rowclaim.Engine, targets: Targets) -> None:
    claim = targets.map(engine).claim(2)
    first, second = claim
    assert first.once("a", REQUEST, lambda effect: 1).completed is True
    assert engine.once("b", REQUEST, lambda effect: 2, completes=second).completed is True
    assert first.finished and second.finished and targets.get("status") == [2, 2, 0, 0, 0]


def test_a_row_that_recurs_is_refused_before_anything_is_sent(engine: rowclaim.Engine, targets: Targets) -> None:
    (row,) = targets.map(engine, done=0).claim(1)
    with pytest.raises(rowclaim.InvalidError):
        row.once("k", REQUEST, never)
    assert engine.effects() == []


def test_a_job_of_another_engine_is_refused_before_anything_is_sent(database: Database) -> None:
    with database.connect() as engine, rowclaim.connect("sqlite::memory:") as other:
        engine.create("q", 1)
        (job,) = engine.claim("q")
        with pytest.raises(rowclaim.InvalidError, match="another engine"):
            other.once("k", REQUEST, never, completes=job)
        assert other.effects() == [] and job.complete() is True
    with pytest.raises(rowclaim.InvalidError, match="closed"):
        job.once("k", REQUEST, never)


# --- Processes ----------------------------------------------------------------------------------------------------


def test_a_child_leaves_the_parents_effect_alone(database: Database) -> None:
    with database.connect() as engine:
        engine.create("q", 1)
        (job,) = engine.claim("q")
        kept: list[rowclaim.Effect] = []

        def send(effect: rowclaim.Effect) -> object:
            kept.append(effect)

            def child() -> None:
                assert effect.key == "k"
                with pytest.raises(rowclaim.BusyError):
                    engine.once("k", REQUEST, never)
                with pytest.raises(rowclaim.InvalidError, match="fork"):
                    job.once("other", REQUEST, never)
                kept.clear()

            run_child(child)
            assert state(engine, "k") == "sending"
            return "parent"

        assert job.once("k", REQUEST, send).completed is True
        assert kept[0].valid_for == 0.0


def test_a_child_that_comes_back_out_of_send_records_nothing(database: Database) -> None:
    with database.connect() as engine:
        pids: list[int] = []

        def send(effect: rowclaim.Effect) -> object:
            pids.append(os.fork())
            if pids[0]:
                assert os.waitpid(pids[0], 0)[1] == 0, "the child must be refused"
                assert state(engine, "k") == "sending"
            return "sent"

        try:
            receipt = engine.once("k", REQUEST, send)
        except rowclaim.InvalidError as error:
            if pids == [0]:
                os._exit(0 if "fork" in str(error) else 1)
            raise
        finally:
            if pids == [0]:
                os._exit(1)
        assert receipt.response == "sent"


@pytest.mark.parametrize("interruptions", [1, 2])
def test_ctrl_c_while_the_outcome_is_written_loses_nothing(database: Database, interruptions: int) -> None:
    """The first is raised when the outcome is written, the second ends the wait: it is written in the background."""
    body = f"""
        def send(effect):
            print("inside", flush=True)
            assert sys.stdin.readline() == "held\\n"
            for n in range({interruptions}):
                later(signal.SIGINT, 0.3 + 1.5 * n)  # SQLite waits a second at a time
            return {{"id": 7}}
        try:
            engine.once("k", {REQUEST!r}, send)
        except KeyboardInterrupt:
            print("stopped", flush=True)
        assert sys.stdin.readline() == "free\\n"
        engine.close(20)
        print("closed", flush=True)
    """
    pipe = subprocess.PIPE
    with (
        database.connect() as engine,
        subprocess.Popen(script(database, body), stdin=pipe, stdout=pipe, text=True) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        with held_by_another(database, "effects"):
            process.stdin.write("held\n")
            process.stdin.flush()
            if interruptions == 1:
                time.sleep(1.0)
            else:
                assert process.stdout.readline() == "stopped\n"
        if interruptions == 1:
            assert process.stdout.readline() == "stopped\n"
            assert state(engine, "k") == "succeeded"
        process.stdin.write("free\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
        receipt = engine.once("k", REQUEST, never)
        assert (receipt.response, receipt.fresh) == ({"id": 7}, False)
