"""Values of users' columns go in and come out as they are; what does not fit is refused by name, whatever it holds."""

from __future__ import annotations

import collections.abc
import enum
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import rowclaim
from conftest import Database, Targets
from rowclaim import Table

# SQLite keeps numbers by affinity: DECIMAL is a broken number there, and nothing is over 63 bits.
SERVER_COLUMNS = """id INTEGER NOT NULL PRIMARY KEY, st TINYINT NOT NULL DEFAULT 0, tok CHAR(36), i INTEGER, b BIGINT,
    u BIGINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(40, 10), t TEXT, c ENUM('red', 'it''s'), r BLOB, bin BINARY(4),
    dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP(3) NULL, da DATE, ti TIME(1), y YEAR, j JSON, flag BOOLEAN"""
SQLITE_COLUMNS = """id INTEGER NOT NULL PRIMARY KEY, st INT NOT NULL DEFAULT 0, tok TEXT, i INTEGER, b BIGINT, d DOUBLE,
    n DECIMAL(40, 10), t TEXT, r BLOB, dt DATETIME, dt6 DATETIME, da DATE, flag BOOLEAN"""


class Values:
    """A table with a column of each type and one row."""

    def __init__(self, database: Database, engine: rowclaim.Engine) -> None:
        self.database = database
        self.name = database.prefix + "values"
        self.is_sqlite = database.name == "sqlite"
        columns = SQLITE_COLUMNS if self.is_sqlite else SERVER_COLUMNS
        tail = "" if self.is_sqlite else "DEFAULT CHARSET=utf8mb4"
        self.insert = f"INSERT INTO {self.name} (id) VALUES (1)"
        database.all_sql([(f"CREATE TABLE {self.name} ({columns}) {tail}", ()), (self.insert, ())])
        self.table = engine.table(
            self.name, status="st", pending=0, processing=1, done=2, failed=3, token="tok", zone="+08:00"
        )

    def put(self, column: str, value: object) -> Any:
        """The value as it comes back, set by a completion and read by another claim."""
        (row,) = self.table.claim()
        assert row.complete({column: value}) is True
        self.database.sql(f"UPDATE {self.name} SET st = 0")
        with self.table.claim() as claim:
            (row,) = claim
            claim.release()
        record = self.table.row(1)
        assert record is not None and record[column] == row[column]
        return row[column]


@pytest.fixture
def values(database: Database, engine: rowclaim.Engine) -> Values:
    return Values(database, engine)


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Size(enum.Enum):
    BIG = 2**40


EIGHT = timezone(timedelta(hours=8))
EVERYWHERE = [
    ("i", 0), ("i", -(2**31)), ("b", 2**63 - 1), ("b", -(2**63)), ("b", Size.BIG), ("i", Level.HIGH),
    ("flag", True), ("flag", False), ("d", 0.1), ("d", -1.5e300), ("d", 5e-324), ("t", ""), ("t", "é😊\n'\"\\%s?;--\0"),
    ("t", "x" * 16_000), ("r", b""), ("r", b"\x00\xff'\\%"), ("r", bytearray(b"ab")), ("i", None), ("t", None),
    ("r", None), ("dt", None), ("dt", datetime(2026, 11, 29, 8, 30)), ("dt6", datetime(2026, 11, 29, 8, 30, 0, 123456)),
    ("dt6", datetime(9999, 12, 31, 23, 59, 59, 999999)), ("da", date(2026, 11, 29)),
]  # fmt: skip
ON_SERVERS = [
    ("u", 2**64 - 1), ("u", 2**63), ("f", 0.1), ("n", Decimal("123456789012345678901234567890.0123456789")),
    ("n", 10**29), ("n", Decimal("-1E+3")), ("c", Color.RED), ("c", "it's"), ("bin", b"\x00\x01\xfe\xff"),
    ("ts", datetime(2037, 1, 2, 3, 4, 5, 678000)), ("y", 2026), ("dt", datetime(1000, 1, 1)),
]  # fmt: skip


def plain(value: object) -> object:
    value = value.value if isinstance(value, enum.Enum) else value
    return bytes(value) if isinstance(value, bytearray) else value


def test_values_come_back_as_they_went_in(values: Values) -> None:
    for column, value in EVERYWHERE if values.is_sqlite else EVERYWHERE + ON_SERVERS:
        found = values.put(column, value)
        expected = plain(value)
        assert found == expected, (column, value)
        wanted = {bool: int, int: Decimal if column == "n" else int}.get(type(expected), type(expected))
        assert type(found) is wanted, (column, value)


def test_instants_are_stored_in_the_zone_of_the_mapping(values: Values) -> None:
    at = datetime(2026, 11, 29, 8, 30, 0, 250000, tzinfo=timezone.utc)
    assert values.put("dt", at) == datetime(2026, 11, 29, 16, 30)
    assert values.put("dt", at.astimezone(EIGHT)) == datetime(2026, 11, 29, 16, 30)
    if not values.is_sqlite:
        assert values.put("dt6", at) == datetime(2026, 11, 29, 16, 30, 0, 250000)
        assert values.put("ts", at) == datetime(2026, 11, 29, 16, 30, 0, 250000)
        shown = values.database.sql(f"SELECT UNIX_TIMESTAMP(ts) FROM {values.name}")
        assert float(shown[0][0]) == at.timestamp()


def test_what_is_no_date_and_time_is_text(values: Values) -> None:
    if values.is_sqlite:
        for stored in ("2026-11-29T08:30:00Z", "soon", "2026-02-30 08:30:00", "", "2026-11-29 08:30"):
            values.database.sql(f"UPDATE {values.name} SET dt = ?", stored)
            record = values.table.row(1)
            assert record is not None and record["dt"] == stored
        return
    assert values.put("ti", "-12:34:56.5") == "-12:34:56.5"
    assert values.put("j", '{"a": [1]}') == '{"a": [1]}'
    values.database.all_sql([("SET sql_mode = ''", ()), (f"UPDATE {values.name} SET dt = '0000-00-00 00:00:00'", ())])
    record = values.table.row(1)
    assert record is not None and record["dt"] == "0000-00-00 00:00:00"


def test_texts_of_numbers_are_numbers_to_number_columns(values: Values) -> None:
    assert values.put("i", "42") == 42
    assert values.put("t", 42) == "42"
    assert values.put("t", Decimal("1.50")) == "1.50"
    assert values.put("dt", "2026-11-29 08:30:00") == datetime(2026, 11, 29, 8, 30)
    assert values.put("n", "1.25") == Decimal("1.25")


WRONG = [
    ("i", "42 OR 1=1"), ("i", 1.5), ("i", "0x10"), ("i", b"\xff"), ("i", 2**64), ("b", 2**63), ("d", "one"),
    ("d", math.nan), ("d", math.inf), ("n", Decimal("NaN")), ("n", Decimal("-Infinity")), ("n", math.nan),
    ("dt", "tomorrow"), ("dt", 5), ("dt", "2026-02-30"), ("t", b"\xff"), ("t", "\ud800"), ("st", None),
]  # fmt: skip


def test_what_does_not_fit_its_column_is_refused_by_name(values: Values) -> None:
    (row,) = values.table.claim()
    for column, value in WRONG:
        for call in (
            lambda: values.table.rows({column: value}),  # noqa: B023
            lambda: row.complete({column: value}),  # noqa: B023
        ):
            with pytest.raises(rowclaim.InvalidError, match=rf"\b{column}\b"):
                call()
    assert row.release() is True


def test_what_has_no_form_in_a_database_is_a_type_error(values: Values) -> None:
    for value in (object(), {"a": 1}, timedelta(1), 1j, [[1]], type):
        with pytest.raises(TypeError, match="where: t must be None, bool"):
            values.table.claim(where={"t": value})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="key must be"):
            values.table.row(value)  # type: ignore[arg-type]


# --- Names and values that try to be SQL --------------------------------------------------------------------------

EVIL = ["'; DROP TABLE targets; --", '" OR 1=1 --', "` OR 1=1 #", "\\'; SELECT 1; --", "x\0y", "%s ? :a {list}"]


@pytest.mark.parametrize("evil", EVIL)
def test_names_and_values_cannot_be_sql(engine: rowclaim.Engine, table: Table, targets: Targets, evil: str) -> None:
    for call in (
        lambda: table.claim(where={evil: 1}),
        lambda: table.claim(order=evil),
        lambda: table.claim(order=f"-{evil}"),
        lambda: table.remaining({evil: 1}),
        lambda: table.rows({"task_id": evil}),
        lambda: table.row(evil),
        lambda: table.retry([evil]),
        lambda: table.rows(status=evil),
        lambda: table.rows(after=evil),
    ):
        with pytest.raises(rowclaim.InvalidError):
            call()
    for entries in ({"status": evil}, {"token": evil}, {"key": evil}, {"columns": [evil]}, {"scope": {evil: 1}}):
        with pytest.raises(rowclaim.ConfigError):
            targets.map(engine, **entries)
    with pytest.raises((rowclaim.ConfigError, rowclaim.SchemaError)):
        engine.table(evil, Targets.MAPPING)
    with pytest.raises(rowclaim.ConfigError):
        targets.map(engine, pending=evil)
    assert table.rows({"openid": evil}) == [] and not table.claim(where={"openid": [evil, evil]})
    (row,) = table.claim(1)
    with pytest.raises(rowclaim.InvalidError):
        row.complete({evil: 1})
    assert row.complete({"openid": evil}) is True
    (row,) = table.claim(1)
    assert row.fail(evil) is True
    assert targets.get("openid")[0] == evil and targets.get("err")[1] == evil.replace("\0", "\ufffd")
    assert [record.key for record in table.rows({"openid": evil})] == [1]
    assert targets.get("id") == [1, 2, 3, 4, 5]


# --- Mappings -----------------------------------------------------------------------------------------------------

ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"token": None}, "token is missing"),
    ({"status": 5}, "status cannot be 5"),
    ({"pending": [0]}, r"pending cannot be \[0\]"),
    ({"pending": {0}}, "pending: cannot be a set"),
    ({"done": object()}, "done: cannot be a object"),
    ({"failed": math.nan}, "failed: Out of range float"),
    ({"pending": "waiting"}, "pending: column status takes a whole number"),
    ({"colour": "red"}, "colour is unknown"),
    ({"status": "state"}, 'status: table .* has no column "state"; it has id, task_id'),
    ({"token": "openi"}, 'token: table .* has no column "openi"'),
    ({"token": "type"}, "token: column type .* 32; ALTER TABLE"),
    ({"attempts": "openid"}, "attempts: column openid .* must be a whole number"),
    ({"claimed_at": "openid"}, "claimed_at: column openid .* must be DATETIME"),
    ({"columns": ["id", "nme"]}, 'columns: table .* has no column "nme"'),
    ({"columns": []}, "columns cannot be"),
    ({"scope": {"task_id": "x"}}, "scope: column task_id takes a whole number"),
    ({"scope": {"nme": 1}}, 'scope: table .* has no column "nme"'),
    ({"zone": "Moon"}, "zone Moon"),
    ({"zone": None}, "knows no zone"),
    ({"lease": -1}, "lease cannot be -1"),
    ({"lease": timedelta(seconds=-1)}, "lease cannot be -1"),
    ({"lease": "soon"}, "lease cannot be"),
    ({"recover_after": math.inf}, "recover_after: Out of range float"),
    ({"unit": "hours"}, "unit cannot be"),
    ({"max_attempts": 0}, "max_attempts cannot be 0"),
    ({"registry": "maybe"}, "registry cannot be"),
    ({"processing": 0}, "processing must differ"),
    ({"error": "type", "locked_by": "type"}, "column type cannot be both"),
]


def test_a_wrong_entry_is_named(engine: rowclaim.Engine, targets: Targets) -> None:
    for entries, named in ENTRIES:
        if targets.database.name == "sqlite" and "ALTER TABLE" in named:
            continue  # a length is no limit there
        with pytest.raises(rowclaim.ConfigError, match=named):
            targets.map(engine, **entries)


def test_mappings_take_what_python_has(engine: rowclaim.Engine, targets: Targets) -> None:
    class Status(enum.IntEnum):
        NEW = 0

    class Kind(enum.Enum):
        SMS = "sms"

    table = targets.map(
        engine,
        pending=Status.NEW,
        scope=collections.ChainMap({"type": Kind.SMS}),
        columns=("id", "openid"),
        backoff_base=timedelta(milliseconds=1500),
        registry=True,
    )
    assert table.mapping["pending"] == 0 and table.mapping["scope"] == {"type": "sms"}
    assert table.mapping["backoff_base"] == 1.5 and "registry" not in table.mapping
    assert [dict(record) for record in table.rows(limit=1)] == [{"id": 1, "openid": "o1"}]
    with pytest.raises(TypeError, match="mapping must be a mapping"):
        engine.table(targets.name, [("status", "status")])  # type: ignore[arg-type]
    with pytest.raises(rowclaim.SchemaError, match="no table"):
        engine.table(targets.name + "_gone", Targets.MAPPING)
    with pytest.raises(rowclaim.InvalidError, match="surrogate"):
        targets.map(engine, zone="\ud800")
    with pytest.raises(TypeError, match="name must be str"):
        engine.table(5, Targets.MAPPING)  # type: ignore[arg-type]


REFUSED: dict[str, Callable[[Table], object]] = {
    "limit 0": lambda t: t.claim(0),
    "limit 10001": lambda t: t.claim(10_001),
    "lease 0.5": lambda t: t.claim(lease=0.5),
    "max_run shorter than lease": lambda t: t.claim(lease=5, max_run=2),
    "partition 2 of 2": lambda t: t.claim(partition=(2, 2)),
    "empty list": lambda t: t.claim(where={"task_id": []}),
    "where status": lambda t: t.claim(where={"status": 1}),
    "where token": lambda t: t.remaining({"cron_token": "x"}),
    "surrogate in where": lambda t: t.claim(where={"openid": "\ud800"}),
    "rows limit 0": lambda t: t.rows(limit=0),
    "rows status": lambda t: t.rows(status="new"),
    "work batch 0": lambda t: t.work(print, batch=0, until_empty=True),
    "work max_jobs 0": lambda t: t.work(print, max_jobs=0),
    "work finish": lambda t: t.work(print, finish="never"),  # type: ignore[arg-type]
    "work handler": lambda t: t.work(5, until_empty=True),  # type: ignore[arg-type]
    "number of 20000 bits": lambda t: t.row(1 << 20_000),
}


def test_wrong_input_is_refused(table: Table, targets: Targets) -> None:
    for name, call in REFUSED.items():
        with pytest.raises(rowclaim.InvalidError):
            print(name, call(table))
    assert targets.get("status") == [0] * 5


# --- Rows as mappings ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["row", "record"])
def record(request: pytest.FixtureRequest, table: Table) -> Iterator[rowclaim.Record]:
    with table.claim(1) as claim:
        row = next(claim)
        found = row if request.param == "row" else table.row(1)
        assert found is not None
        yield found


def test_a_row_is_a_mapping(record: rowclaim.Record) -> None:
    columns = [
        "id", "task_id", "type", "openid", "status", "cron_token", "send_at", "held_by", "tries", "next_at", "err",
        "done_at", "prio", "fence", "deleted_at",
    ]  # fmt: skip
    assert isinstance(record, collections.abc.Mapping) and isinstance(record, rowclaim.Record)
    assert list(record) == list(record.keys()) == columns and len(record) == 15
    as_dict = dict(record)
    assert as_dict["openid"] == "o1" and list(as_dict) == columns and {**record} == as_dict
    assert list(record.values()) == list(as_dict.values()) and list(record.items()) == list(as_dict.items())
    assert record == as_dict and as_dict == record and record != {} and record != 5
    assert record.get("openid") == "o1" and record.get("nme") is None and record.get("nme", 5) == 5
    assert "openid" in record and "nme" not in record and 5 not in record
    assert record["openid"] is record["openid"]


def test_an_unknown_column_is_a_key_error_that_names_those_there_are(record: rowclaim.Record) -> None:
    with pytest.raises(KeyError, match="no column 'opneid'; the row has id, task_id, type, openid, status"):
        _ = record["opneid"]
    with pytest.raises(KeyError):
        _ = record[0]  # type: ignore[index]


def test_a_row_is_read_only(record: Any) -> None:
    for change in (
        lambda: record.__setitem__("openid", "x"),
        lambda: record.__delitem__("openid"),
        lambda: setattr(record, "key", 5),
        lambda: setattr(record, "anything", 5),
        lambda: record.keys().mapping.update(openid="x"),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()
    with pytest.raises(TypeError):
        record["openid"] = "x"
    with pytest.raises(TypeError):
        del record["openid"]
    with pytest.raises(TypeError):
        type(record)()
    assert record["openid"] == "o1"


def test_rows_match_patterns_of_mappings(record: rowclaim.Record) -> None:
    found: dict[str, Any] = {}
    exec("match record:\n    case {'openid': openid, **rest}:\n        found['openid'] = openid", {}, {**locals()})
    assert found == {"openid": "o1"}
