"""What a person and a console do with users' own tables; tables without a registry; keys of other types."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
import rowclaim
from conftest import Database, Targets, keys, now_in_the_table, wait_until
from rowclaim import Recovered, Table


def test_remaining_says_whether_anything_waits_or_is_held(table: Table, targets: Targets) -> None:
    targets.set("task_id = 7 WHERE id = 1")
    assert table.remaining() is True and table.remaining({"task_id": 7}) is True
    claim = table.claim(where={"task_id": 7})
    assert table.remaining(where={"task_id": 7}) is True
    claim.complete()
    assert table.remaining({"task_id": 7}) is False and table.remaining({"task_id": [7, 42]}) is True


def test_recover_takes_rows_of_other_code_back(engine: rowclaim.Engine, targets: Targets) -> None:
    targets.set("status = 1, cron_token = 'by hand', send_at = '2020-01-01 00:00:00' WHERE id = 1")
    targets.set("status = 1, send_at = NULL WHERE id = 2")
    targets.set("status = 1, send_at = NULL, tries = 3 WHERE id = 3")
    targets.set("status = 1, send_at = ? WHERE id = 4", now_in_the_table().replace(microsecond=0))
    assert targets.map(engine).recover() == Recovered(0, 0, 0)
    table = targets.map(engine, recover_after=timedelta(minutes=10))
    recovered = table.recover()
    assert (recovered.returned, recovered.dead) == (2, 1)
    assert targets.get("status") == [0, 0, 3, 1, 0]
    assert table.recover() == Recovered(0, 0, 0)


def test_the_doctor_names_what_is_missing(engine: rowclaim.Engine, table: Table) -> None:
    found = table.doctor(filters=["task_id"])
    assert {finding.severity for finding in found} <= {"note", "warning", "fault"}
    assert any(finding.subject.startswith(table.name) for finding in found)
    index = next(finding for finding in found if finding.code == "missing-index")
    assert index.fix is not None and "task_id" in index.fix and index.fix in str(index)
    assert any(finding.subject == "server" for finding in engine.doctor())
    with pytest.raises(TypeError):
        table.doctor(filters=[1])  # type: ignore[list-item]


def test_retry_puts_failed_rows_back(table: Table, targets: Targets) -> None:
    targets.set("status = 3, tries = 3, err = 'boom'")
    targets.set("task_id = 7 WHERE id = 5")
    assert table.retry(1) == 1
    assert table.retry([1, 2]) == 1, "the first waits already"
    assert table.retry(where={"task_id": 7}) == 1
    assert targets.get("status, tries") == [(0, 0), (0, 0), (3, 3), (3, 3), (0, 0)]
    assert table.retry(limit=1) == 1 and table.retry() == 1 and table.retry() == 0
    assert table.retry([]) == 0
    assert keys(table.claim(order="id")) == [1, 2, 3, 4, 5]


def test_rows_that_were_begun_at_most_once_are_held_and_resolved(database: Database) -> None:
    with database.connect(heartbeat=False) as engine:
        targets = Targets(database, 4)
        table = targets.map(engine, on_lost="hold", held=9)
        assert table.mapping["on_lost"] == "hold" and table.mapping["held"] == 9
        claim = table.claim(3, lease=1, order="id")
        begun = [next(claim), next(claim)]
        found: list[Recovered] = []
        wait_until(lambda: found.append(table.recover()) or found[-1].claims)  # type: ignore[func-returns-value]
        assert found[-1] == Recovered(1, 1, 0, held=2)
        assert targets.get("status, tries") == [(9, 1), (9, 1), (0, 0), (0, 0)]
        assert begun[0].complete() is False
        assert table.retry() == 0
        assert table.resolve(1, sent=True) == {1: True}
        assert table.resolve(["1", 2, 3], sent=False) == {"1": False, 2: True, 3: False}
        assert targets.get("status, tries") == [(2, 1), (0, 0), (0, 0), (0, 0)]
        with pytest.raises(rowclaim.InvalidError, match="has no held"):
            targets.map(engine).resolve(1, sent=True)
        with pytest.raises(rowclaim.ConfigError, match="on_lost hold needs held"):
            targets.map(engine, on_lost="hold")


def test_take_back_takes_rows_from_their_owner(table: Table, targets: Targets) -> None:
    claim = table.claim()
    rows = list(claim)
    assert table.take_back(1) == 1
    assert table.take_back(keys={2, 99}) == 1
    assert table.take_back(where={"openid": "o3"}, limit=5) == 1
    assert targets.get("status") == [0, 0, 0, 1, 1]
    assert [row.complete() for row in rows] == [False, False, False, True, True]
    assert table.take_back() == 0


def test_rows_are_chosen_by_keys_or_by_where(table: Table) -> None:
    for call in (table.retry, table.take_back):
        with pytest.raises(rowclaim.InvalidError, match="not by both"):
            call([1], where={"task_id": 42})


def test_retry_needs_failed_in_the_mapping(engine: rowclaim.Engine, targets: Targets) -> None:
    with pytest.raises(rowclaim.InvalidError, match="failed"):
        targets.map(engine, failed=None, max_attempts=None).retry(1)


def test_rows_are_listed_in_pages(table: Table, targets: Targets) -> None:
    targets.set("status = 2 WHERE id = 3")
    page = table.rows(limit=2)
    assert [record.key for record in page] == [1, 2]
    assert [record.key for record in table.rows(after=page[-1].key)] == [3, 4, 5]
    assert [record.key for record in table.rows(status=2)] == [3]
    assert [record.key for record in table.rows({"task_id": 42}, status=0, after=2)] == [4, 5]
    record = table.row(3)
    assert record is not None and record["status"] == 2 and record == table.rows(status=2)[0]
    assert table.row(99) is None
    assert repr(record) == "<rowclaim.Record 3, 15 columns>"


# --- Without a registry, and other keys ---------------------------------------------------------------------------


@pytest.mark.parametrize("registry", [False, "off"])
def test_without_a_registry_the_lease_is_in_the_row(database: Database, registry: object) -> None:
    targets = Targets(database, 2)
    options = {"migrate": "never"} if database.name == "sqlite" else {}
    with rowclaim.connect(database.dsn, prefix=database.prefix, **options) as engine:
        table = targets.map(engine, registry=registry, recover_after=600)
        claim = table.claim(1)
        assert claim.id is None and isinstance(claim.token, uuid.UUID) and claim.valid_for > 0
        (row,) = claim
        assert row.complete() and targets.get("status") == [2, 0]
        assert table.mapping["registry"] == "off"
        with pytest.raises(rowclaim.SchemaError):
            engine.tables()


@pytest.mark.parametrize(
    ("kind", "first", "second"), [("VARCHAR(40)", "a'b", "😊"), ("VARBINARY(40)", b"\x00\xff", b"'--")]
)
def test_keys_may_be_text_or_bytes(
    engine: rowclaim.Engine, database: Database, kind: str, first: object, second: object
) -> None:
    name = database.prefix + "keyed"
    tail = "" if database.name == "sqlite" else "DEFAULT CHARSET=utf8mb4"
    columns = f"code {kind} NOT NULL PRIMARY KEY, st VARCHAR(8) NOT NULL, tok VARCHAR(32)"
    insert = f"INSERT INTO {name} VALUES (?, ?, NULL)"
    database.all_sql(
        [(f"CREATE TABLE {name} ({columns}) {tail}", ()), (insert, (first, "new")), (insert, (second, "new"))]
    )
    table = engine.table(name, status="st", pending="new", processing="run", done="done", failed="bad", token="tok")
    claim = table.claim()
    assert {row.key for row in claim} == {first, second}
    assert claim.complete(first) == {first: True}
    assert claim.fail([second], "boom") == {second: True}
    record = table.row(second)
    assert record is not None and record.key == record["code"] == second and record["st"] == "bad"
    assert table.retry(second) == 1 and table.claim().complete() == {second: True}
