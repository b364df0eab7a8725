"""The door for HTTP requests and crontabs."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.validate import validator

import pytest
import rowclaim
from conftest import Database, Targets, run_child, wait_until
from test_processes import run

TOKEN = "0123456789abcdef-secret-é"
EXAMPLE = Path(__file__).parents[1] / "examples" / "runner_wsgi.py"


def fill(engine: rowclaim.Engine, count: int, queue: str = "q") -> None:
    engine.create_many(queue, [{"payload": n} for n in range(count)])


def body(answer: rowclaim.RunnerAnswer) -> dict[str, Any]:
    told = json.loads(answer.body)
    assert isinstance(told, dict) and TOKEN not in answer.body
    return told


def test_only_a_post_with_the_token_works(engine: rowclaim.Engine) -> None:
    fill(engine, 1)
    runner = engine.runner({"q": lambda job: None}, token=TOKEN)
    for method, token, status in (
        ("GET", TOKEN, 405),
        ("PUT", None, 405),
        ("POST", None, 403),
        ("POST", "", 403),
        ("POST", TOKEN.upper(), 403),
        ("POST", "Bearer wrong", 403),
    ):
        answer = runner.handle(method, token)
        assert (answer.status, body(answer)["ok"]) == (status, False), (method, token)
    assert engine.jobs(state="ready") != [], "nothing was done"
    assert runner.handle("POST", TOKEN).status == 200
    assert runner.handle("POST", f"Bearer {TOKEN}").status == 200
    assert runner.run().status == 200, "nobody asks a crontab"
    assert engine.jobs(state="ready") == []


def test_the_answer_tells_what_was_done_and_whether_more_waits(database: Database) -> None:
    with database.connect(heartbeat=0, backoff_base=0) as engine:
        fill(engine, 5)
        late = engine.claim("q", limit=1, lease=1)
        next(late)
        seen: list[int] = []

        def handler(job: rowclaim.Job) -> None:
            seen.append(job.payload)
            if job.payload == 2:
                raise ValueError("boom")

        time.sleep(1.1)
        told = body(engine.runner({"q": handler}, token=TOKEN, max_jobs=3).handle("POST", TOKEN))
        counts = {"claimed": 3, "completed": 2, "failed": 1, "released": 0, "lost": 0, "recovered": 1, "more": True}
        assert counts.items() <= told.items() and told["ok"] is True and told["seconds"] >= 0
        rest = engine.runner({"q": handler}, batch=2, lease=30, max_run=60, finish="each", max_seconds=20).run()
        assert {"claimed": 3, "completed": 2, "failed": 1, "more": False}.items() <= body(rest).items() or seen.count(2)


def test_a_table_has_a_runner_too(engine: rowclaim.Engine, targets: Targets) -> None:
    table = targets.map(engine)
    seen: list[int] = []
    runner = table.runner(
        lambda row: seen.append(row.key), token=TOKEN, where={"id": [1, 2, 3]}, order="-id", batch=1, max_jobs=2
    )
    first, second = runner.handle("POST", TOKEN), runner.handle("POST", TOKEN)
    assert seen == [3, 2, 1] and targets.get("status") == [2, 2, 2, 0, 0]
    assert (body(first)["more"], body(second)["more"]) == (True, False), "by the same conditions"
    assert repr(runner) == f"<rowclaim.Runner of {targets.name}>"


def test_one_runner_of_a_name_works_at_a_time(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:
        fill(engine, 1)
        answers: list[rowclaim.RunnerAnswer] = []

        def handler(job: rowclaim.Job) -> None:
            for name in ("nightly", "hourly", None):
                answers.append(other.runner({"other": print}, token=TOKEN, name=name).handle("POST", TOKEN))

        runner = engine.runner({"q": handler}, token=TOKEN, name="nightly")
        assert repr(runner) == '<rowclaim.Runner "nightly" of q>'
        assert runner.handle("POST", TOKEN).status == 200
        assert [answer.status for answer in answers] == [409, 200, 200]
        assert "holder" in body(answers[0])
        assert runner.handle("POST", TOKEN).status == 200


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_goes_on_and_frees_the_name(engine: rowclaim.Engine, kind: type[BaseException]) -> None:
    fill(engine, 2)

    def stop(job: rowclaim.Job) -> None:
        raise kind("stop")

    with pytest.raises(kind, match="stop"):
        engine.runner({"q": stop}, token=TOKEN, name="n").handle("POST", TOKEN)
    assert [row.state for row in engine.jobs()] == ["ready", "ready"]
    assert body(engine.runner({"q": lambda job: None}, token=TOKEN, name="n").run())["completed"] == 2


def test_faults_are_answered(database: Database) -> None:
    with rowclaim.connect(database.dsn, prefix=database.prefix, migrate="never") as engine:
        runner = engine.runner({"q": print}, token=TOKEN, name="n")
        answer = runner.handle("POST", TOKEN)
        assert (answer.status, body(answer)["kind"]) == (500, "schema")
    answer = runner.handle("POST", TOKEN)
    assert (answer.status, body(answer)["kind"]) == (500, "invalid"), "the engine is closed"


def test_wrong_input_is_refused_when_the_runner_is_made(engine: rowclaim.Engine, table: rowclaim.Table) -> None:
    refused: tuple[Callable[[], object], ...] = (
        lambda: engine.runner({"q": print}, token="short"),
        lambda: engine.runner({"q": print}, token=""),
        lambda: engine.runner({"q": print}, name=""),
        lambda: engine.runner({"q": 5}, token=TOKEN),
        lambda: engine.runner({"q": print}, token=TOKEN, finish="never"),
        lambda: engine.runner({"q": print}, token=TOKEN, max_seconds=-1),
        lambda: table.runner(5, token=TOKEN),
        lambda: table.runner(print, token="short"),
        lambda: engine.runner({"q": print}).handle("POST", TOKEN),
        lambda: engine.runner({"q": print}).handle("POST"),
    )
    for call in refused:
        with pytest.raises(rowclaim.InvalidError) as caught:
            call()
        assert "short" not in str(caught.value)
    with pytest.raises(TypeError):
        engine.runner([print], token=TOKEN)
    with pytest.raises(TypeError):
        engine.runner({"q": print}, TOKEN)


def test_a_runner_goes_away_with_its_handlers(engine: rowclaim.Engine) -> None:
    class Handler:
        runner: rowclaim.Runner

        def __call__(self, job: rowclaim.Job) -> None: ...

    handler = Handler()
    handler.runner = engine.runner({"q": handler}, token=TOKEN)
    gone = weakref.ref(handler)
    del handler
    gc.collect()
    assert gone() is None


def test_a_forked_child_uses_the_runner(database: Database) -> None:
    with database.connect() as engine:
        runner = engine.runner({"q": lambda job: None}, token=TOKEN, name="n")
        assert runner.run().status == 200
        fill(engine, 3)

        def child() -> None:
            assert body(runner.handle("POST", TOKEN))["completed"] == 3

        run_child(child)
        assert runner.run().status == 200


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_work_and_then_does_what_it_did_before(database: Database, name: str) -> None:
    answer = run(
        database,
        f"""
        engine.create_many("q", [{{"payload": n}} for n in range(10)])
        seen = []
        signal.signal(signal.{name}, lambda *of: seen.append([row.state for row in engine.jobs()].count("claimed")))
        later(signal.{name}, 0.35)
        runner = engine.runner({{"q": lambda job: time.sleep(0.25)}}, name="n")
        first = runner.run()
        assert seen == [0], seen
        assert '"more":true' in first.body, first
        print(runner.run().status, len(seen))
        """,
    )
    assert answer.stdout == "200 1\n", answer.stderr


# --- WSGI ---------------------------------------------------------------------------------------------------------


class Server(ThreadingMixIn, WSGIServer):
    request_queue_size = 64
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *of: object) -> None: ...


@contextlib.contextmanager
def serving(application: Any) -> Iterator[str]:
    """A threading WSGI server; its address."""
    with make_server("127.0.0.1", 0, validator(application), Server, Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def ask(address: str, method: str = "POST", token: str | None = None) -> tuple[int, dict[str, str], bytes]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode().decode("latin-1")}
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, dict(refused.headers), refused.read()


def test_a_runner_is_a_wsgi_application(engine: rowclaim.Engine) -> None:
    fill(engine, 2)
    with serving(engine.runner({"q": lambda job: None}, token=TOKEN).wsgi) as address:
        status, headers, text = ask(address, "GET")
        assert (status, headers["Allow"], json.loads(text)["ok"]) == (405, "POST", False)
        assert ask(address, "HEAD")[::2] == (405, b"")
        assert ask(address)[0] == 403
        status, headers, text = ask(address, token="wrong")
        assert (status, headers["Content-Type"], "Allow" in headers) == (403, "application/json", False)
        status, headers, text = ask(address, token=TOKEN)
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert int(headers["Content-Length"]) == len(text)
        assert {"ok": True, "completed": 2, "more": False}.items() <= json.loads(text).items()
    with rowclaim.connect("sqlite::memory:", migrate="never") as empty:
        with serving(empty.runner({"q": print}, token=TOKEN).wsgi) as address:
            status, _, text = ask(address, token=TOKEN)
            assert (status, json.loads(text)["kind"]) == (500, "schema")


def test_twenty_triggers_at_once_start_one(database: Database) -> None:
    go_on = threading.Event()
    handled: list[int] = []

    def handler(job: rowclaim.Job) -> None:
        assert go_on.wait(20)
        handled.append(job.payload)

    with database.connect() as engine:
        fill(engine, 3)
        answers: list[tuple[int, float]] = []

        def trigger() -> None:
            since = time.monotonic()
            answers.append((ask(address, token=TOKEN)[0], time.monotonic() - since))

        with serving(engine.runner({"q": handler}, token=TOKEN, name="nightly").wsgi) as address:
            threads = [threading.Thread(target=trigger) for _ in range(20)]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(answers) == 19)
            assert {status for status, _ in answers} == {409}
            assert max(seconds for _, seconds in answers) < 5, "they do not wait for the one that works"
            go_on.set()
            for thread in threads:
                thread.join()
            assert answers[-1][0] == 200 and sorted(handled) == [0, 1, 2]
            assert ask(address, token=TOKEN)[0] == 200


def test_the_example_serves(database: Database, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    dsn = f"{database.dsn}?prefix={database.prefix}"
    with database.connect() as engine:
        engine.create("greetings", "world")
        environment = {**os.environ, "ROWCLAIM_DSN": dsn, "RUNNER_TOKEN": TOKEN}
        command = [sys.executable, str(EXAMPLE), str(port)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            try:

                def is_up() -> bool:
                    with socket.socket() as client:
                        return client.connect_ex(("127.0.0.1", port)) == 0

                wait_until(is_up)
                status, _, text = ask(f"http://127.0.0.1:{port}/", token=TOKEN)
                assert (status, json.loads(text)["completed"]) == (200, 1)
                assert process.stdout is not None and process.stdout.readline() == "hello, world\n"
            finally:
                process.terminate()
        assert engine.jobs()[0].state == "done"
