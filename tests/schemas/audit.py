"""Which doubles are explained, and what was lost. Pure: records in, counts out.

A message goes out twice by design in one case only: its worker was killed or stopped between the provider's acceptance and
the commit of "done". That is the one send it was inside of. Every other double is a fault of whoever hands out the rows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from provider import Delivery


@dataclasses.dataclass(frozen=True)
class Doubles:
    """Deliveries beyond the first to each target."""

    by_accident: int = 0
    unexplained: int = 0

    @property
    def total(self) -> int:
        return self.by_accident + self.unexplained


def doubles(deliveries: Iterable[Delivery], in_flight: Iterable[int]) -> Doubles:
    """Traces each double to the delivery before it; ``in_flight``: positions of the sends that victims were inside of."""
    excuses = set(in_flight)
    previous: dict[str, int] = {}
    by_accident = unexplained = 0
    for position, delivery in enumerate(deliveries):
        earlier = previous.get(delivery.target)
        previous[delivery.target] = position
        if earlier is None:
            continue
        if earlier in excuses:  # each excuse counts once
            excuses.remove(earlier)
            by_accident += 1
        else:
            unexplained += 1
    return Doubles(by_accident, unexplained)


@dataclasses.dataclass(frozen=True)
class Ends:
    """Where the rows stand when all is over, by the names the provider knows."""

    sent: frozenset[str]  # in the state "sent"
    failed: frozenset[str] = frozenset()  # in the state "failed"
    open_tasks: int = 0  # tasks that are not finished
    finished_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by task


def lost(planned: Iterable[str], deliveries: Iterable[Delivery], ends: Ends) -> list[str]:
    """Targets that did not end: neither sent and delivered, nor failed because the provider never takes them."""
    delivered = {delivery.target for delivery in deliveries}
    return [
        target
        for target in planned
        if not (target in ends.failed if target.startswith("bad-") else target in ends.sent and target in delivered)
    ]


def finished_once(planned: Iterable[str], done: Mapping[str, int], tasks_done: Counter[str], ends: Ends) -> bool:
    """True when each target and each task has had exactly one accepted result, by its table and by its workers."""
    return (
        all(done.get(target, 0) == (0 if target.startswith("bad-") else 1) for target in planned)
        and all(count == 1 and tasks_done[task] == 1 for task, count in ends.finished_counts.items())
        and ends.open_tasks == 0
    )
