"""Forks, threads, signals, a busy interpreter lock, memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import rowclaim
from conftest import Database, run_child

MARGIN = 5.0


# --- Fork -------------------------------------------------------------------------------------------------------


def test_a_forked_child_uses_the_engine_and_the_parent_goes_on(database: Database) -> None:
    with database.connect() as engine:
        engine.create("q", "parent")
        claim = engine.claim("q")

        def child() -> None:
            engine.create("q", "child")
            with engine.claim("q") as own:
                (job,) = own
                assert job.payload == "child" and job.complete()
            assert engine.work({"q": print}, until_empty=True).claimed == 0

        for _ in range(3):
            run_child(child, MARGIN)
        assert claim.renew() is True
        (job,) = claim
        assert job.complete() is True
        assert len(engine.jobs()) == 4


def test_a_claim_does_not_cross_a_fork(database: Database) -> None:
    with database.connect() as engine:
        engine.create_many("q", [{"payload": 1}, {"payload": 2}])
        claim = engine.claim("q")
        job = next(claim)

        def child() -> None:
            for call in (job.complete, claim.renew, claim.complete, lambda: next(claim)):
                with pytest.raises(rowclaim.InvalidError, match="fork"):
                    call()

        run_child(child, MARGIN)
        assert job.complete() and claim.renew() and claim.complete()


def test_a_child_that_drops_the_parents_claim_leaves_it_alone(database: Database) -> None:
    with database.connect() as engine:
        engine.create_many("q", [{"payload": 1}, {"payload": 2}])
        holder = [engine.claim("q")]
        run_child(holder.clear, MARGIN)
        assert [row.state for row in engine.jobs()] == ["claimed", "claimed"]
        assert set(holder[0].complete().values()) == {True}


def in_pool(number: int) -> tuple[int, int]:
    engine = rowclaim.connect(os.environ["ROWCLAIM_POOL_DSN"], prefix=os.environ["ROWCLAIM_POOL_PREFIX"])
    created = engine.create("q", number)
    with engine.claim("q", limit=1) as claim:
        for job in claim:
            job.complete()
    return os.getpid(), created.id


def test_multiprocessing_with_fork(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWCLAIM_POOL_DSN", database.dsn)
    monkeypatch.setenv("ROWCLAIM_POOL_PREFIX", database.prefix)
    with database.connect() as engine:
        started = time.monotonic()
        with multiprocessing.get_context("fork").Pool(3) as pool:
            answers = pool.map_async(in_pool, range(12), chunksize=1).get(30)
        assert len({id for _, id in answers}) == 12
        assert {row.state for row in engine.jobs()} == {"done"}
        process = multiprocessing.get_context("fork").Process(target=in_pool, args=(1,))
        process.start()
        process.join(MARGIN)
        assert process.exitcode == 0
        assert time.monotonic() - started < 40


# --- Threads and the interpreter lock -----------------------------------------------------------------------------


def test_eight_threads_claim_and_complete_while_python_is_busy(database: Database) -> None:
    jobs = 800
    with database.connect(pool=4) as engine:
        engine.create_many("q", [{"payload": n} for n in range(jobs)])
        done: list[int] = []
        failures: list[BaseException] = []
        stop = threading.Event()
        longest = 0.0

        def watch() -> None:
            nonlocal longest
            last = time.monotonic()
            while not stop.is_set():
                sum(range(2000))  # a busy callback; other threads get the lock in between
                now = time.monotonic()
                longest = max(longest, now - last)
                last = now

        def work() -> None:
            try:
                while True:
                    with engine.claim("q", limit=10) as claim:
                        for job in claim:
                            done.append(job.payload)
                            assert job.complete()
                        if not claim:
                            return
            except BaseException as error:
                failures.append(error)

        watcher = threading.Thread(target=watch)
        workers = [threading.Thread(target=work) for _ in range(8)]
        for thread in (watcher, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        stop.set()
        watcher.join()
        assert not failures
        assert sorted(done) == list(range(jobs))
        assert longest < 1.0, f"Python stood still for {longest:.2f} s"


def test_threads_that_share_a_claim_get_each_job_once(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": n} for n in range(3000)])
    claim = engine.claim("q", limit=3000)
    lists: list[list[int]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda own=own: own.extend(job.id for job in claim)) for own in lists]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    ids = [id for own in lists for id in own]
    assert len(ids) == len(set(ids)) == 3000


def hold_the_lock(seconds: float) -> None:
    """One C call that holds the interpreter lock for at least ``seconds``."""
    bits = 1_000_000
    while True:
        started = time.monotonic()
        pow(3, bits) % 7
        if time.monotonic() - started > seconds:
            return
        bits *= 2


def test_the_heartbeat_renews_while_c_code_holds_the_lock(database: Database) -> None:
    with database.connect() as engine, database.connect(worker="other") as other:
        engine.create("q", 1)
        (job,) = engine.claim("q", lease=1)
        hold_the_lock(2.0)
        assert not other.claim("q")
        assert other.recover().claims == 0
        assert job.complete() is True


# --- Signals ------------------------------------------------------------------------------------------------------


def script(database: Database, body: str) -> list[str]:
    head = f"""
        import os, signal, sys, threading, time
        import rowclaim
        engine = rowclaim.connect({database.dsn!r}, prefix={database.prefix!r})
        engine.migrate()
        def later(signum, seconds=0.5):
            threading.Timer(seconds, os.kill, (os.getpid(), signum)).start()
    """
    return [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)]


def run(database: Database, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(database, body), capture_output=True, text=True, timeout=30, check=False)


def test_an_exception_of_a_signal_handler_ends_an_idle_loop(database: Database) -> None:
    answer = run(
        database,
        """
        def handler(signum, frame):
            raise KeyboardInterrupt
        later(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, handler)
        started = time.monotonic()
        try:
            engine.work({"q": print})
        except KeyboardInterrupt:
            print("stopped", time.monotonic() - started < 2)
        """,
    )
    assert answer.stdout == "stopped True\n", answer.stderr


@contextlib.contextmanager
def held_by_another(database: Database, table: str = "jobs") -> Iterator[None]:
    """While it lasts, another process holds a table: a write to it, a creation for instance, waits for the database."""
    if database.name == "sqlite":
        # From a process of its own: two copies of SQLite in one process do not see each other's locks.
        path = database.dsn.removeprefix("sqlite://")
        body = f"""
            import sqlite3
            connection = sqlite3.connect({path!r}, isolation_level=None)
            connection.execute("BEGIN EXCLUSIVE")
        """
    else:
        url = urlsplit(database.dsn)
        options = {"host": url.hostname, "port": url.port, "user": url.username, "database": url.path.strip("/")}
        body = f"""
            import pymysql
            connection = pymysql.connect(**{options!r})
            connection.cursor().execute("LOCK TABLES {database.prefix}{table} WRITE")
        """
    tail = "print('held', flush=True)\nsys.stdin.read()"
    body = "import sys\n" + textwrap.dedent(body) + tail
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", body], stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


def test_ctrl_c_ends_a_wait_for_the_database(database: Database) -> None:
    with database.connect() as engine:
        engine.create("q", 1)
    with held_by_another(database):
        answer = run(
            database,
            """
            later(signal.SIGINT)
            started = time.monotonic()
            try:
                engine.create("q", 1)
            except KeyboardInterrupt:
                print("stopped", time.monotonic() - started < 2)
            """,
        )
    assert answer.stdout == "stopped True\n", answer.stderr


def test_a_wait_for_the_database_lets_go_of_the_interpreter_lock(database: Database) -> None:
    with database.connect() as engine:
        engine.create("q", 1)
        with held_by_another(database):
            thread = threading.Thread(target=lambda: engine.create("q", 2))
            thread.start()
            longest, last, until = 0.0, time.monotonic(), time.monotonic() + 1.5
            while last < until:
                time.sleep(0.001)
                now = time.monotonic()
                longest, last = max(longest, now - last), now
            assert thread.is_alive(), "it did not wait"
        thread.join()
        assert longest < 0.5, f"Python stood still for {longest:.2f} s"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_first_signal_drains(database: Database, name: str) -> None:
    answer = run(
        database,
        f"""
        engine.create_many("q", [{{"payload": n}} for n in range(10)])
        later(signal.{name}, 0.35)
        def handler(job):
            time.sleep(0.25)
        summary = engine.work({{"q": handler}})
        assert summary.stopped_by == signal.{name}, summary
        assert 1 <= summary.completed <= 3 and summary.failed == 0, summary
        assert summary.completed + summary.released == 10, summary
        assert [row.state for row in engine.jobs()].count("ready") == summary.released
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        print("drained")
        """,
    )
    assert answer.stdout == "drained\n", answer.stderr


def test_a_signal_ends_an_idle_loop(database: Database) -> None:
    answer = run(
        database,
        """
        later(signal.SIGTERM)
        started = time.monotonic()
        summary = engine.work({"q": print}, max_idle=30)
        print(summary.stopped_by == signal.SIGTERM, time.monotonic() - started < 2)
        """,
    )
    assert answer.stdout == "True True\n", answer.stderr


def test_the_second_signal_does_what_it_did_before(database: Database) -> None:
    answer = run(
        database,
        """
        engine.create_many("q", [{"payload": n} for n in range(3)])
        later(signal.SIGINT, 0.3)
        later(signal.SIGINT, 0.8)
        try:
            engine.work({"q": lambda job: time.sleep(10)})
        except KeyboardInterrupt:
            print("interrupted", [row.state for row in engine.jobs()])
        """,
    )
    assert answer.stdout == "interrupted ['ready', 'ready', 'ready']\n", answer.stderr


def test_an_ignored_signal_stays_ignored(database: Database) -> None:
    answer = run(
        database,
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        later(signal.SIGINT, 0.2)
        summary = engine.work({"q": print}, max_seconds=0.6)
        print(summary.stopped_by, signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
        """,
    )
    assert answer.stdout == "None True\n", answer.stderr


def aborted_clients(database: Database) -> int:
    import pymysql

    url = urlsplit(database.dsn)
    with pymysql.connect(host=url.hostname, port=url.port or 3306, user=url.username) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Aborted_clients'")
        return int(cursor.fetchone()[1])


def test_connections_are_closed_at_exit(database: Database) -> None:
    before = 0 if database.name == "sqlite" else aborted_clients(database)
    answer = run(
        database,
        """
        engine.create_many("q", [{"payload": n} for n in range(3)])
        claim = engine.claim("q")
        job = next(claim)
        """,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    if database.name == "sqlite":
        # The last orderly close of a database takes its log away.
        assert not Path(database.dsn.removeprefix("sqlite://") + "-wal").exists()
    else:
        assert aborted_clients(database) == before


def test_a_daemon_thread_that_waits_does_not_hinder_the_exit(database: Database) -> None:
    answer = run(
        database,
        """
        threading.Thread(target=lambda: engine.work({"q": print}), daemon=True).start()
        time.sleep(0.3)
        """,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


# --- Memory -------------------------------------------------------------------------------------------------------


def rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_memory_stays_where_it_is(tmp_path: Path) -> None:
    engine = rowclaim.connect(f"sqlite://{tmp_path}/jobs.db", synchronous="normal")
    payload = {"text": "x" * 2000}

    def loops(count: int) -> None:
        engine.create_many("q", [{"payload": payload} for _ in range(count // 2)])
        for _ in range(count // 2 // 100):
            with engine.claim("q", limit=100) as claim:
                for index, job in enumerate(claim):
                    if index == 99:
                        assert job.payload == payload and job.created_at and job.token and job.claim.id
                    elif index % 2:
                        with job:
                            assert job.payload["text"]
                claim.complete()
        for _ in range(count // 2):
            with pytest.raises(rowclaim.InvalidError):
                engine.claim("q", limit=0)

    loops(20_000)
    before = rss()
    loops(20_000)
    grown = rss() - before
    engine.close()
    assert grown < 12_000_000, f"{grown} bytes more"
