"""The accidents: workers are killed inside of a send, or stopped inside of a send past their lease.

The provider chooses the moment: the message was accepted, and the worker waits for the answer. The killed worker never
learns it; a fresh one takes its place. The stopped one finds it when it goes on, and what it does then, with this row and
with the rest of its batch, is the test.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from crew import Crew
from provider import Ambush, Provider


@dataclasses.dataclass(frozen=True)
class Accident:
    """``kill`` or ``stop`` the first worker whose name begins with ``who``, after this part of all rows went out."""

    kind: str
    who: str
    after: float


class Accidents:
    """Lets them happen, each in a thread of its own."""

    def __init__(
        self,
        plan: list[Accident],
        crew: Crew,
        provider: Provider,
        *,
        rows: int,
        stop: tuple[float, float],
        say: Callable[[str], None],
    ) -> None:
        """``stop``: a stopped worker goes on after the first, and when its message went out again, or after the second."""
        self._crew, self._provider, self._stop_for, self._say = crew, provider, stop, say
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.in_flight: set[int] = set()  # positions of the deliveries that victims were inside of
        self.planned = len(plan)
        self.happened = 0
        self.is_someone_stopped = 0
        self.last_at = time.monotonic()
        self._threads = []
        for accident in plan:
            ambush = Ambush(accident.who, int(accident.after * rows))
            provider.lie_in_wait(ambush)
            strike = self._kill if accident.kind == "kill" else self._stop
            self._threads.append(threading.Thread(target=self._wait, args=(ambush, strike), daemon=True))
            self._threads[-1].start()

    def are_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        """No further ones; waits for those that are going on."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _wait(self, ambush: Ambush, strike: Callable[[str, str, Ambush], None]) -> None:
        while not ambush.sprung.wait(0.05):
            if self._over.is_set():
                return
        caught = self._provider.delivery(ambush.position)
        with self._lock:
            self.in_flight.add(ambush.position)
            self.happened += 1
            self.is_someone_stopped += 1
        try:
            strike(caught.worker, caught.target, ambush)
        finally:
            ambush.go_on.set()
            with self._lock:
                self.is_someone_stopped -= 1
                self.last_at = time.monotonic()

    def _kill(self, worker: str, target: str, _ambush: Ambush) -> None:
        fresh = self._crew.kill(worker)
        self._say(f"killed {worker} inside of the send of {target} (SIGKILL); {fresh} takes its place")

    def _stop(self, worker: str, target: str, ambush: Ambush) -> None:
        self._crew.pause(worker)
        ambush.go_on.set()  # the answer now waits in its socket
        self._say(f"stopped {worker} inside of the send of {target} (SIGSTOP)")
        since = time.monotonic()
        try:
            shortest, longest = self._stop_for
            while (stopped := time.monotonic() - since) < longest:
                if stopped > shortest and self._provider.went_out_after(ambush.position):
                    break
                time.sleep(0.05)
        finally:
            self._crew.go_on(worker)
        self._say(f"continued {worker} after {time.monotonic() - since:.1f} s")
