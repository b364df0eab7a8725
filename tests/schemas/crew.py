"""The worker processes: started, listened to, replaced and stopped.

A worker is told everything by environment variables. It prints JSON lines, what it believes: ``ready``, ``done`` (its
result was accepted), ``refused`` (it was late) and ``task_done``. It begins when a line comes in on its stdin and ends when
that is closed, so none outlives the harness.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENDS_WITHIN = 15.0
READY_WITHIN = 60.0


@dataclasses.dataclass(frozen=True)
class Post:
    """A place in the crew; whoever falls out of it is replaced by one of the same kind."""

    role: str
    language: str  # php or python
    script: Path
    arguments: tuple[str, ...] = ()

    def command(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, str(self.script), *self.arguments]
        command = ["php", "-d", "error_reporting=-1", "-d", "display_errors=stderr"]
        if self.script.stem == "ours":
            command += ["-d", f"extension={os.environ['ROWCLAIM_PHP_EXTENSION']}"]
        return [*command, str(self.script), *self.arguments]


class Worker:
    """One process and what it has said."""

    def __init__(self, name: str, post: Post, environment: dict[str, str]) -> None:
        self.name = name
        self.post = post
        self.said: list[tuple[str, str]] = []
        self.ready = threading.Event()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            post.command(),
            env={**environment, "SCHEMA_WORKER": name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                ((what, target),) = json.loads(line).items()
            except (ValueError, AttributeError):
                continue  # a line cut off by SIGKILL
            self.said.append((what, str(target)))
            self.ready.set()
        self.ready.set()

    def begin(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("begin\n")
            self.process.stdin.flush()
        except OSError:  # dead already; the crew finds out
            pass

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "T"

    def last_words(self) -> str:
        self._listener.join(ENDS_WITHIN)
        self._errors.seek(0)
        return self._errors.read().strip()


class Crew:
    """All workers of a run."""

    def __init__(self, posts: list[Post], environment: dict[str, str]) -> None:
        modules = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(HERE)]))
        self._environment = {**os.environ, **environment, "PYTHONPATH": modules}
        self._lock = threading.Lock()
        self._workers: dict[str, Worker] = {}
        self._killed: set[str] = set()
        self.crashes: list[str] = []
        for post in posts:
            self._start(post)
        for worker in self._workers.values():
            if not worker.ready.wait(READY_WITHIN) or worker.process.poll() is not None:
                self.end()
                raise SystemExit(f"{worker.name} does not start:\n{worker.last_words()}")

    def _start(self, post: Post) -> Worker:
        name = f"{post.role}-{post.language}-{len(self._workers) + 1}"
        worker = Worker(name, post, self._environment)
        self._workers[name] = worker
        return worker

    def begin(self) -> None:
        """All at once, as cron does."""
        for worker in self._workers.values():
            worker.begin()

    def kill(self, name: str) -> str:
        """SIGKILL; the name of the fresh worker in its place."""
        with self._lock:
            worker = self._workers[name]
            self._killed.add(name)
            worker.process.kill()
            worker.process.wait()
            fresh = self._start(worker.post)
        fresh.begin()
        return fresh.name

    def pause(self, name: str) -> None:
        worker = self._workers[name]
        worker.process.send_signal(signal.SIGSTOP)
        while not worker.is_stopped():
            time.sleep(0.005)

    def go_on(self, name: str) -> None:
        self._workers[name].process.send_signal(signal.SIGCONT)

    def replace_crashed(self) -> None:
        """Supervisor: who ended by itself is started again, and counted."""
        with self._lock:
            for name, worker in list(self._workers.items()):
                if name not in self._killed and worker.process.poll() is not None:
                    self._killed.add(name)
                    self.crashes.append(f"{name}: {worker.last_words() or f'exit status {worker.process.returncode}'}")
                    self._start(worker.post).begin()

    def end(self) -> None:
        """Closes every stdin and waits; who does not end is killed and counted as crashed."""
        alive = [worker for worker in self._workers.values() if worker.name not in self._killed]
        for worker in alive:
            worker.close_stdin()
        until = time.monotonic() + ENDS_WITHIN
        for worker in alive:
            try:
                status = worker.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
                self.crashes.append(f"{worker.name}: does not end when it is told to")
            else:
                if status != 0:
                    self.crashes.append(f"{worker.name}: {worker.last_words() or f'exit status {status}'}")

    def said(self, what: str) -> Counter[str]:
        """How often each target was named by any worker; complete after ``end``."""
        return Counter(target for word, target in self._all_said() if word == what)

    def _all_said(self) -> Iterator[tuple[str, str]]:
        for worker in self._workers.values():
            worker._listener.join(ENDS_WITHIN)
            yield from worker.said
