"""One exception class for each kind, and how each is reached."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
import rowclaim
from conftest import SERVER_DATABASES, SERVERS, Database
from rowclaim import _errors, _native


def test_there_is_one_class_for_each_kind() -> None:
    assert tuple(cls.kind for cls in rowclaim.RowclaimError.__subclasses__()) == rowclaim.ERROR_KINDS
    assert set(_errors.BY_KIND) == set(rowclaim.ERROR_KINDS)
    for cls in rowclaim.RowclaimError.__subclasses__():
        assert getattr(rowclaim, cls.__name__) is cls and cls.__module__ == "rowclaim"
        assert cls.__name__.endswith("Error")
    assert issubclass(rowclaim.InvalidError, ValueError)


def test_an_error_tells_what_to_do(engine: rowclaim.Engine) -> None:
    with pytest.raises(rowclaim.InvalidError) as caught:
        engine.claim("q", limit=0)
    error = caught.value
    assert (error.kind, error.retryable, error.operation, error.server_code) == ("invalid", False, "claim", None)
    assert str(error).startswith("claim: limit must be from 1 to 10000")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.operation) == (type(error), str(error), "claim")


def test_a_panic_is_an_unexpected_error(capfd: pytest.CaptureFixture[str]) -> None:
    if not hasattr(_native, "_panic"):
        pytest.fail("this test needs the module built with --profile fast")
    with pytest.raises(rowclaim.UnexpectedError, match="asked for"):
        _native._panic()
    assert "panicked" in capfd.readouterr().err


REFUSED: dict[str, Callable[[rowclaim.Engine], object]] = {
    "limit 0": lambda e: e.claim("q", limit=0),
    "limit -1": lambda e: e.claim("q", limit=-1),
    "limit 10001": lambda e: e.claim("q", limit=10_001),
    "limit over 64 bits": lambda e: e.claim("q", limit=2**70),
    "lease 0.5": lambda e: e.claim("q", lease=0.5),
    "lease -1": lambda e: e.claim("q", lease=-1),
    "lease nan": lambda e: e.claim("q", lease=float("nan")),
    "lease of a thousand digits": lambda e: e.claim("q", lease=10**1000),
    "max_run shorter than lease": lambda e: e.claim("q", lease=5, max_run=2),
    "partition 2 of 2": lambda e: e.claim("q", partition=(2, 2)),
    "no queues": lambda e: e.claim([]),
    "empty queue": lambda e: e.create("", 1),
    "queue over 64 bytes": lambda e: e.create("é" * 33, 1),
    "claimed queue over 64 bytes": lambda e: e.claim("q" * 65),
    "queue with a surrogate": lambda e: e.create("\ud800", 1),
    "empty key": lambda e: e.create("q", 1, key=""),
    "key over 191 bytes": lambda e: e.create("q", 1, key="é" * 96),
    "key with a surrogate": lambda e: e.create("q", 1, key="a\udfff"),
    "unique without key": lambda e: e.create("q", 1, unique="active"),
    "unknown unique": lambda e: e.create("q", 1, key="k", unique="always"),
    "delay -1": lambda e: e.create("q", 1, delay=timedelta(seconds=-1)),
    "delay and run_at": lambda e: e.create("q", 1, delay=1, run_at=2e9),
    "naive run_at": lambda e: e.create("q", 1, run_at=datetime(2050, 1, 1)),
    "run_at nan": lambda e: e.create("q", 1, run_at=float("nan")),
    "run_at in the year 999": lambda e: e.create("q", 1, run_at=-3.1e10),
    "priority 40000": lambda e: e.create("q", 1, priority=40_000),
    "max_attempts 0": lambda e: e.create("q", 1, max_attempts=0),
    "unknown field": lambda e: e.create_many("q", [{"payload": 1, "kye": "k"}]),
    "no payload": lambda e: e.create_many("q", [{"key": "k"}]),
    "unknown paramstyle": lambda e: e.plan_create("q", 1, paramstyle="named"),
    "unknown state": lambda e: e.jobs(state="running"),
    "jobs limit 0": lambda e: e.jobs(limit=0),
    "prune batch 0": lambda e: e.prune(1, batch=0),
    "work max_jobs 0": lambda e: e.work({"q": print}, max_jobs=0),
    "work without handlers": lambda e: e.work({}, until_empty=True),
    "work with a handler that is none": lambda e: e.work({"q": 1}, until_empty=True),
    "work finish": lambda e: e.work({"q": print}, finish="never", until_empty=True),
    "work batch 0": lambda e: e.work({"q": print}, batch=0, until_empty=True),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_refused(engine: rowclaim.Engine, call: Callable[[rowclaim.Engine], object]) -> None:
    with pytest.raises(rowclaim.InvalidError):
        call(engine)
    assert engine.jobs() == []


TYPES: dict[str, Callable[[rowclaim.Engine], object]] = {
    "queue": lambda e: e.create(1, 1),
    "key": lambda e: e.create("q", 1, key=1),
    "delay": lambda e: e.create("q", 1, delay="1"),
    "delay true": lambda e: e.create("q", 1, delay=True),
    "run_at": lambda e: e.create("q", 1, run_at="tomorrow"),
    "priority": lambda e: e.create("q", 1, priority=1.5),
    "queues": lambda e: e.claim(None),
    "partition": lambda e: e.claim("q", partition=[0, 1, 2]),
    "jobs": lambda e: e.create_many("q", [1]),
    "id": lambda e: e.job("1"),
    "handlers": lambda e: e.work([1]),
    "error": lambda e: e.claim("q").fail([], 5),
    "extra": lambda e: e.create("q", 1, "k"),
}


@pytest.mark.parametrize("call", TYPES.values(), ids=TYPES.keys())
def test_a_wrong_type_is_a_type_error(engine: rowclaim.Engine, call: Callable[[rowclaim.Engine], object]) -> None:
    with pytest.raises(TypeError):
        call(engine)


def test_the_unknown_job_is_not_found(engine: rowclaim.Engine) -> None:
    for call in (engine.retry, engine.cancel):
        with pytest.raises(rowclaim.NotFoundError):
            call(10**12)


def test_a_key_that_a_newer_job_holds_is_a_duplicate(engine: rowclaim.Engine) -> None:
    id = engine.create("q", 1, key="k", unique="active", max_attempts=1).id
    engine.claim("q").fail([id], "boom")
    assert engine.create("q", 1, key="k", unique="active").exists is False
    with pytest.raises(rowclaim.DuplicateError):
        engine.retry(id)


def test_what_a_plan_cannot_do_is_unsupported(engine: rowclaim.Engine) -> None:
    with pytest.raises(rowclaim.UnsupportedError):
        engine.plan_create("q", 1, key="k", unique=60)


def test_missing_tables_are_a_schema_error(database: Database) -> None:
    engine = rowclaim.connect(database.dsn, prefix=database.prefix, migrate="never")
    with pytest.raises(rowclaim.SchemaError):
        engine.create("q", 1)
    engine.close()


@pytest.mark.parametrize(
    ("dsn", "options"),
    [
        ("sqlite::memory:", {"colour": "red"}),
        ("sqlite::memory:?colour=red", {}),
        ("sqlite::memory:", {"lease": 0.5}),
        ("sqlite::memory:", {"lease": "soon"}),
        ("sqlite::memory:", {"prefix": "a b"}),
        ("sqlite:", {}),
        ("oracle://host/db", {}),
        ("mysql://host", {}),
        ("nonsense", {}),
    ],
)
def test_a_wrong_configuration_is_a_config_error(dsn: str, options: dict[str, object]) -> None:
    with pytest.raises(rowclaim.ConfigError):
        rowclaim.connect(dsn, **options)


def test_an_unreachable_server_is_unavailable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(rowclaim.UnavailableError) as caught:
        rowclaim.connect(f"mysql://app:topsecret@127.0.0.1:{port}/db", connect_timeout=1)
    assert caught.value.retryable is True and "topsecret" not in str(caught.value)


def test_a_server_that_refuses_is_a_config_error() -> None:
    for name in SERVER_DATABASES:
        url = urlsplit(os.environ[SERVERS[name]])
        address = f"{url.hostname}:{url.port}"
        with pytest.raises(rowclaim.ConfigError) as caught:
            rowclaim.connect(f"mysql://app:topsecret@{address}{url.path}")
        assert caught.value.server_code == 1045 and "topsecret" not in str(caught.value)
        with pytest.raises(rowclaim.ConfigError) as caught:
            rowclaim.connect(f"mysql://root@{address}/no_such_database")
        assert caught.value.server_code == 1049


def test_a_closed_engine_refuses(database: Database) -> None:
    engine = database.connect()
    engine.create("q", 1)
    claim = engine.claim("q")
    engine.close()
    engine.close(limit=1)
    for call in (lambda: engine.create("q", 1), lambda: engine.claim("q"), engine.stats, engine.__enter__().flush):
        with pytest.raises(rowclaim.InvalidError, match="closed"):
            call()
    with pytest.raises(rowclaim.InvalidError, match="closed"):
        _ = engine.server_version
    with pytest.raises(rowclaim.InvalidError):
        claim.complete()
    with pytest.raises(rowclaim.InvalidError):
        next(claim)


def test_ids_of_another_claim_are_refused(engine: rowclaim.Engine) -> None:
    engine.create_many("q", [{"payload": 1}, {"payload": 2}])
    first, second = engine.claim("q", limit=1), engine.claim("q", limit=1)
    (theirs,) = second
    with pytest.raises(rowclaim.InvalidError, match="not in this claim"):
        first.complete([theirs.id])
    assert theirs.complete() is True
