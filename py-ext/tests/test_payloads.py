"""Payloads go in and come out byte for byte."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
import rowclaim
from conftest import Database

BIG = [899999999999999990, 9223372036854775807, 9223372036854775808, 18446744073709551615, 10**40, -(2**63) - 1]

DOCUMENTS = [
    '{"a":1,  "b" : [1.0, 1e2, -0.0]}',
    " [1] ",
    '"\\u0041\\u00e9\\/"',
    '{"a":1,"a":2}',
    "0.1000000000000000055511151231257827",
    "123456789012345678901234567890",
    '"😊 \\ud83d\\ude0a"',
]


def round_trip(engine: rowclaim.Engine, payload: object) -> rowclaim.Job:
    created = engine.create("q", payload)
    with engine.claim("q") as claim:
        (job,) = claim
        assert job.id == created.id
        assert job.complete()
    return job


@pytest.mark.parametrize("text", DOCUMENTS)
def test_json_text_is_kept_byte_for_byte(engine: rowclaim.Engine, text: str) -> None:
    assert round_trip(engine, rowclaim.Json(text)).raw_payload == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (None, "null"), (False, "false"), ("", '""'), ([], "[]"), ({}, "{}"), (1.0, "1.0"),
        (0.1 + 0.2, "0.30000000000000004"), ("\0", '"\\u0000"'), ("😊", '"😊"'),
        ("a\n\"\\/é\x7f", '"a\\n\\"\\\\/é\x7f"'),
        ({"a": [True, {"b": None}]}, '{"a":[true,{"b":null}]}'), (-0.0, "-0.0"), (1e300, "1e+300"),
    ],
)  # fmt: skip
def test_values_come_back_as_they_went_in(engine: rowclaim.Engine, value: object, text: str) -> None:
    job = round_trip(engine, value)
    assert job.raw_payload == text
    assert job.payload == value and type(job.payload) is type(value)
    assert job.payload != 0 or math.copysign(1, value) == math.copysign(1, job.payload)  # type: ignore[arg-type]


def test_whole_numbers_of_any_size_are_exact(engine: rowclaim.Engine) -> None:
    job = round_trip(engine, BIG)
    assert job.payload == BIG
    assert job.raw_payload == json.dumps(BIG, separators=(",", ":"))


@pytest.mark.parametrize("size", [70_000, 5_000_000])
def test_long_payloads_are_not_cut(engine: rowclaim.Engine, size: int) -> None:
    text = "é" * (size // 2)
    job = round_trip(engine, text)
    assert hashlib.sha256(job.payload.encode()).digest() == hashlib.sha256(text.encode()).digest()


def test_a_payload_over_the_servers_packet_is_refused_before_it_is_sent(database: Database) -> None:
    payload = "x" * (80 * 1024 * 1024)
    with database.connect() as engine:
        if database.name == "sqlite":  # takes up to 1 GB
            assert engine.create("q", payload).exists is False
            return
        with pytest.raises(rowclaim.InvalidError, match="payload too large"):
            engine.create("q", payload)
        assert engine.jobs() == []
        assert engine.create("q", 1).exists is False


def cycle() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


def deep() -> object:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (math.nan, "Out of range float"),
        ([math.inf], "Out of range float"),
        (b"\xff", "bytes is not JSON serializable"),
        ({1, 2}, "set is not JSON serializable"),
        ({(1, 2): 3}, "keys must be str"),
        ("\ud800", "payload holds a lone surrogate"),
        ({"\udfff": 1}, "payload holds a lone surrogate"),
        (rowclaim.Json('"\ud800"'), "payload holds a lone surrogate"),
        (rowclaim.Json("{"), "payload is not JSON"),
        (rowclaim.Json(""), "payload is not JSON"),
        (rowclaim.Json("NaN"), "payload is not JSON"),
        ([rowclaim.Json("1")], "Json is not JSON serializable"),
        (cycle(), "Circular reference"),
        (deep(), "recursion"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
def test_what_json_cannot_say_is_refused(engine: rowclaim.Engine, payload: object, reason: str) -> None:
    with pytest.raises(rowclaim.InvalidError, match=reason):
        engine.create("q", payload)
    with pytest.raises(rowclaim.InvalidError, match=reason):
        engine.create_many("q", [{"payload": 1}, {"payload": payload}])
    assert engine.jobs() == []


def test_an_exception_of_the_callers_own_comes_through(engine: rowclaim.Engine) -> None:
    class Strange(dict):  # type: ignore[type-arg]
        def items(self):  # type: ignore[no-untyped-def]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.create("q", Strange(a=1))


def test_what_python_cannot_decode_is_a_decode_error(engine: rowclaim.Engine) -> None:
    text = "1" * 5000
    job = round_trip(engine, rowclaim.Json(text))
    assert job.raw_payload == text
    with pytest.raises(rowclaim.DecodeError, match="payload"):
        _ = job.payload
