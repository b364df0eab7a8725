"""The provider: an HTTP service on 127.0.0.1 that notes each message it accepts.

It takes 2 to 15 ms for each, drawn from the target and how often it was asked for. Targets named ``bad-…`` it refuses
(503) always, those named ``flaky-…`` the first time; what it refuses it does not note.

The one thing to know: an ambush holds one answer back *after* the message was accepted. That is the worst moment for a
worker to die, and the only one that no claim can mend.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_HOLD = 30.0


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A message that was accepted."""

    target: str
    worker: str
    at: float


@dataclasses.dataclass
class Ambush:
    """Holds back the answer to the first message that is accepted from ``who``, after ``after`` others."""

    who: str  # the beginning of a worker's name
    after: int
    sprung: threading.Event = dataclasses.field(default_factory=threading.Event)
    go_on: threading.Event = dataclasses.field(default_factory=threading.Event)
    position: int = -1  # of the delivery, once sprung


class Provider:
    """The running service, and what it has seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deliveries: list[Delivery] = []
        self._asked: Counter[str] = Counter()
        self._ambushes: list[Ambush] = []
        self._caught: set[str] = set()
        self.refused = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/send"
        threading.Thread(target=self._server.serve_forever, name="provider", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def deliveries(self) -> list[Delivery]:
        """Everything accepted so far, in order."""
        with self._lock:
            return list(self._deliveries)

    def delivery(self, position: int) -> Delivery:
        return self._deliveries[position]

    def accepted(self) -> int:
        return len(self._deliveries)

    def quiet_for(self) -> float:
        """Seconds since the last message was accepted."""
        with self._lock:
            return time.monotonic() - self._deliveries[-1].at if self._deliveries else 0.0

    def went_out_after(self, position: int) -> bool:
        """True when the target of that delivery went out once more, later."""
        with self._lock:
            target = self._deliveries[position].target
            return any(later.target == target for later in self._deliveries[position + 1 :])

    def lie_in_wait(self, ambush: Ambush) -> None:
        with self._lock:
            self._ambushes.append(ambush)

    def receive(self, target: str, worker: str) -> tuple[int, float, Ambush | None]:
        """Status, how long the answer takes, and the ambush that the worker fell into."""
        with self._lock:
            self._asked[target] += 1
            asked = self._asked[target]
            takes = random.Random(f"{target}/{asked}").uniform(0.002, 0.015)
            if target.startswith("bad-") or (target.startswith("flaky-") and asked == 1):
                self.refused += 1
                return 503, takes, None
            self._deliveries.append(Delivery(target, worker, time.monotonic()))
            for ambush in self._ambushes:
                # A worker has one accident only.
                if worker.startswith(ambush.who) and worker not in self._caught and len(self._deliveries) > ambush.after:
                    self._ambushes.remove(ambush)
                    self._caught.add(worker)
                    ambush.position = len(self._deliveries) - 1
                    return 200, takes, ambush
            return 200, takes, None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, takes, ambush = provider.receive(body["target"], self.headers["X-Worker"])
                if ambush is not None:
                    ambush.sprung.set()
                    ambush.go_on.wait(LONGEST_HOLD)
                time.sleep(takes)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:  # the worker was killed
                    self.close_connection = True

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    pass

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler
