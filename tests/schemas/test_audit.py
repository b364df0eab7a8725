"""The audit decides what counts as a fault, so it is tested by itself."""

from __future__ import annotations

from collections import Counter

from audit import Doubles, Ends, doubles, finished_once, lost
from provider import Delivery


def sent(*by: tuple[str, str]) -> list[Delivery]:
    return [Delivery(target, worker, float(at)) for at, (worker, target) in enumerate(by)]


def test_the_send_a_victim_was_inside_of_may_go_out_again() -> None:
    assert doubles(sent(("a", "1"), ("b", "2"), ("a", "3"), ("b", "3")), {2}) == Doubles(by_accident=1)


def test_an_earlier_send_of_a_victim_is_no_excuse() -> None:
    assert doubles(sent(("a", "1"), ("b", "2"), ("a", "3"), ("b", "1")), {2}) == Doubles(unexplained=1)


def test_a_victim_that_repeats_what_another_has_sent_is_no_excuse() -> None:
    assert doubles(sent(("b", "1"), ("a", "1")), {1}) == Doubles(unexplained=1)


def test_an_accident_explains_one_double_and_not_two() -> None:
    found = doubles(sent(("a", "1"), ("b", "1"), ("c", "1")), {0})
    assert found == Doubles(by_accident=1, unexplained=1)
    assert found.total == 2


def test_a_row_is_lost_unless_it_is_marked_and_delivered() -> None:
    ends = Ends(sent=frozenset({"1", "2"}), failed=frozenset({"bad-3", "4"}))
    deliveries = sent(("a", "1"), ("a", "5"))
    # Marked and not delivered, failed without a reason, delivered and not marked, refused for ever and not marked.
    assert lost(["1", "2", "bad-3", "4", "5", "bad-6"], deliveries, ends) == ["2", "4", "5", "bad-6"]


def test_finished_once_counts_every_accepted_result() -> None:
    ends = Ends(sent=frozenset({"1"}), finished_counts={"7": 1})
    assert finished_once(["1", "bad-2"], {"1": 1}, Counter({"7": 1}), ends)
    assert not finished_once(["1"], {"1": 2}, Counter({"7": 1}), ends)
    assert not finished_once(["1"], {}, Counter({"7": 1}), ends)
    assert not finished_once(["bad-2"], {"bad-2": 1}, Counter({"7": 1}), ends)
    assert not finished_once(["1"], {"1": 1}, Counter({"7": 2}), ends)
    assert not finished_once(["1"], {"1": 1}, Counter({"7": 1}), Ends(frozenset(), open_tasks=1))
    assert not finished_once(["1"], {"1": 1}, Counter({"7": 1}), Ends(frozenset(), finished_counts={"7": 2}))
