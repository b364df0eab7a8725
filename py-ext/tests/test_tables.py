"""Verbs on users' own tables, each once with every argument."""

from __future__ import annotations

import logging
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import rowclaim
from conftest import Database, Targets, keys, now_in_the_table, wait_until
from rowclaim import Summary, Table

# --- The table ----------------------------------------------------------------------------------------------------


def test_a_table_knows_its_name_and_its_mapping(engine: rowclaim.Engine, targets: Targets) -> None:
    whole = targets.map(engine, recover_after=timedelta(minutes=10), lease=90)
    assert whole.name == targets.name and repr(whole) == f"<rowclaim.Table {targets.name}>"
    assert whole.mapping == {**Targets.MAPPING, "recover_after": 600, "lease": 90}
    by_keyword = engine.table(targets.name, **Targets.MAPPING, recover_after=600.0, lease=90)
    assert by_keyword.mapping == whole.mapping
    assert engine.table(targets.name, Targets.MAPPING, done=7, fence=None).mapping["done"] == 7


def test_the_mappings_of_claims_are_listed(engine: rowclaim.Engine, targets: Targets) -> None:
    table = targets.map(engine)
    assert engine.tables() == []
    table.claim(1)
    other = targets.map(engine, scope={"task_id": 42})
    other.claim(1)
    table.claim(1)
    first, second = engine.tables()
    assert [first.name, second.name] == [targets.name] * 2 and first.id != second.id
    assert sorted([first.mapping, second.mapping], key=len) == [table.mapping, other.mapping]
    assert abs(first.created_at - datetime.now(timezone.utc)) < timedelta(minutes=5)


def test_a_table_may_be_in_another_database(engine: rowclaim.Engine, database: Database, tmp_path: Path) -> None:
    elsewhere = Database("sqlite", tmp_path)
    elsewhere.dsn = f"sqlite://{tmp_path}/elsewhere.db"
    targets = Targets(elsewhere, 2)
    dsn = f"{elsewhere.dsn}?prefix={elsewhere.prefix}"
    table = targets.map(engine, dsn=dsn)
    assert "dsn" not in table.mapping
    assert set(table.claim().complete().values()) == {True}
    assert targets.get("status") == [2, 2]
    assert engine.tables() == []
    with pytest.raises(rowclaim.SchemaError):
        targets.map(engine)
    with pytest.raises(rowclaim.ConfigError):
        targets.map(engine, dsn="oracle://host/db")
    with rowclaim.connect(dsn) as other:
        assert [record.name for record in other.tables()] == [targets.name]
    assert table.remaining() is False, "another handle on the same engine was closed, not this one"
    rowclaim.connect(dsn).close()


def test_a_closed_engine_closes_its_tables(database: Database) -> None:
    targets = Targets(database, 1)
    engine = database.connect()
    table = targets.map(engine)
    engine.close()
    for call in (table.claim, table.remaining, table.rows, table.recover, lambda: targets.map(engine), engine.tables):
        with pytest.raises(rowclaim.InvalidError, match="closed"):
            call()


# --- Claims -------------------------------------------------------------------------------------------------------


def test_claim_hands_out_each_row_once(table: Table, targets: Targets) -> None:
    claim = table.claim(3, lease=30, max_run=60)
    assert len(claim) == 3 and claim
    assert isinstance(claim.token, uuid.UUID) and isinstance(claim.id, int)
    assert 25 < claim.valid_for <= 30 and claim.lost is False and claim.renew() is True
    assert [row.key for row in claim] == [1, 2, 3]
    assert list(claim) == []
    assert [row.key for row in table.claim()] == [4, 5]
    empty = table.claim()
    assert len(empty) == 0 and not empty
    assert (empty.token, empty.id, empty.valid_for, empty.lost) == (None, None, 0.0, False)
    assert list(empty) == [] and empty.complete() == {} and empty.release() == {}
    assert targets.get("status") == [1] * 5
    assert targets.get("cron_token")[:3] == [str(claim.token)] * 3
    assert repr(claim).startswith("<rowclaim.RowClaim ") and repr(claim).endswith(f", 3 rows of {targets.name}>")


def test_a_row_knows_itself(table: Table) -> None:
    claim = table.claim(1)
    (row,) = claim
    assert (row.key, row.attempts, row.max_attempts, row.fence) == (1, 1, 3, 1)
    assert row.token == claim.token and row.claim.id == claim.id
    assert row["openid"] == "o1" and row["status"] == 1 and row["cron_token"] == str(claim.token)
    assert abs(row["send_at"] - now_in_the_table()) < timedelta(minutes=5)
    assert row.finished is False
    assert row.complete() is True
    assert row.finished is True
    assert repr(row) == f"<rowclaim.Row 1 of {table.name}, attempt 1>"


def test_what_the_mapping_leaves_out_has_no_meaning(engine: rowclaim.Engine, targets: Targets) -> None:
    table = engine.table(targets.name, status="status", pending=0, processing=1, done=2, token="cron_token")
    (row,) = table.claim(1)
    assert (row.attempts, row.max_attempts, row.fence) == (1, None, 0)
    assert row.fail("boom") is True
    assert targets.get("status, err")[0] == (0, None)


def test_where_narrows_a_claim(table: Table, targets: Targets) -> None:
    targets.set("task_id = 7 WHERE id = 1")
    targets.set("type = 'mail', deleted_at = '2026-11-29 08:30:00' WHERE id IN (2, 3)")
    targets.set("type = 'push' WHERE id = 4")
    for where, expected in (
        ({"task_id": 7}, [1]),
        ({"task_id": 42, "type": "mail"}, [2, 3]),
        ({"type": ["mail", "push"]}, [2, 3, 4]),
        ({"type": ("mail",)}, [2, 3]),
        ({"type": {"push", "none"}}, [4]),
        ({"id": range(4, 10)}, [4, 5]),
        ({"deleted_at": None}, [1, 4, 5]),
        ({"deleted_at": [None, datetime(2026, 11, 29, 8, 30)], "task_id": 42}, [2, 3, 4, 5]),
        ({"deleted_at": datetime(2026, 11, 29, 0, 30, tzinfo=timezone.utc)}, [2, 3]),
        ({}, [1, 2, 3, 4, 5]),
        (None, [1, 2, 3, 4, 5]),
    ):
        assert [record.key for record in table.rows(where)] == expected, where
        assert keys(table.claim(where=where, order="id")) == expected, where
    assert sorted(keys(table.claim(where={"id": (n for n in (5, 1))}))) == [1, 5]


def test_the_order_is_priority_or_what_is_asked_for(table: Table, targets: Targets) -> None:
    targets.set("prio = 5 - id, task_id = id % 2")
    assert keys(table.claim(2)) == [5, 4]
    assert keys(table.claim(order="id")) == [1, 2, 3, 4, 5]
    assert keys(table.claim(2, order="-id")) == [5, 4]
    assert keys(table.claim(order=["-task_id", "id"])) == [1, 3, 5, 2, 4]


def test_partitions_share_the_rows(table: Table) -> None:
    assert [keys(table.claim(partition=(k, 2))) for k in (0, 1)] == [[2, 4], [1, 3, 5]]


def test_a_row_that_is_not_due_is_not_handed_out(table: Table, targets: Targets) -> None:
    targets.set("next_at = ? WHERE id > 1", now_in_the_table().replace(microsecond=0) + timedelta(hours=1))
    assert keys(table.claim()) == [1]
    assert table.remaining() is True


# --- Leaving a claim ----------------------------------------------------------------------------------------------


def test_complete_sets_columns_in_the_same_write(table: Table, targets: Targets) -> None:
    (row,) = table.claim(1)
    assert row.complete({"openid": "new", "type": "mail", "deleted_at": None}) is True
    assert targets.get("status, openid, type, tries, err")[0] == (2, "new", "mail", 1, None)
    assert targets.get("done_at")[0] is not None
    (row,) = table.claim(1)
    for wrong, named in (
        ({"nme": 1}, "nme"),
        ({"task_id": "x"}, "task_id"),
        ({"status": 5}, "status"),
        ({"id": 9}, "id"),
    ):
        with pytest.raises(rowclaim.InvalidError, match=named):
            row.complete(wrong)
    with pytest.raises(TypeError, match="set: openid"):
        row.complete(set={"openid": object()})
    with pytest.raises(TypeError, match="set must be a mapping"):
        row.complete([("openid", 1)])  # type: ignore[arg-type]
    with pytest.raises(rowclaim.InvalidError, match="recur"):
        row.complete(delay=5)
    assert row.finished is False and row.complete(set={}) is True


def test_fail_waits_by_the_back_off_and_then_ends(engine: rowclaim.Engine, targets: Targets) -> None:
    table = targets.map(engine, max_attempts=2, backoff_base=60, backoff_cap=timedelta(hours=1))
    (row,) = table.claim(1)
    assert row.fail(ValueError("naïve \ud800 😊")) is True
    record = table.row(1)
    assert record is not None and (record["status"], record["cron_token"], record.attempts) == (0, None, 1)
    assert record["err"] == "ValueError: naïve \\ud800 😊"
    assert 50 < (record["next_at"] - now_in_the_table()).total_seconds() < 61
    targets.set("next_at = NULL")
    (row,) = table.claim(1)
    assert (row.key, row.attempts) == (1, 2) and row.fail("as it is") is True
    assert targets.get("status, tries, err")[0] == (3, 2, "as it is")


def test_fail_takes_a_delay(table: Table) -> None:
    (row,) = table.claim(1)
    assert row.fail("later", delay=timedelta(hours=2)) is True
    record = table.row(1)
    assert record is not None
    assert 7100 < (record["next_at"] - now_in_the_table()).total_seconds() < 7201


def test_release_costs_no_attempt(table: Table, targets: Targets) -> None:
    (row,) = table.claim(1)
    assert row.release() is True
    assert targets.get("status, tries, cron_token")[0] == (0, 0, None)
    (row,) = table.claim(1, order="id")
    assert (row.key, row.attempts, row.fence) == (1, 1, 2)
    assert row.release(delay=3600) is True
    assert keys(table.claim()) == [2, 3, 4, 5]
    record = table.row(1)
    assert record is not None and 3500 < (record["next_at"] - now_in_the_table()).total_seconds() < 3601


def test_many_rows_finish_in_one_step(table: Table, targets: Targets) -> None:
    claim = table.claim()
    assert claim.fail([1], "boom", 3600) == {1: True}
    assert claim.release(2, 3600) == {2: True}
    assert claim.complete((3,), {"openid": "set"}) == {3: True}
    assert claim.complete(set={"openid": "rest"}) == {4: True, 5: True}
    assert claim.complete() == {}
    assert targets.get("status, openid") == [(0, "o1"), (0, "o2"), (2, "set"), (2, "rest"), (2, "rest")]
    with pytest.raises(rowclaim.InvalidError, match="not in this claim"):
        claim.complete([3, 99])


def test_a_block_completes_fails_or_gives_back(
    table: Table, targets: Targets, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt), table.claim() as claim:
        for row in claim:
            with row as same:
                assert same is row
                if row.key == 2:
                    raise ValueError("bad number")
                if row.key == 3:
                    assert row.complete({"openid": "own"})
                    raise ValueError("afterwards")
                if row.key == 4:
                    raise KeyboardInterrupt
    assert targets.get("status") == [2, 0, 2, 0, 0]
    assert targets.get("tries") == [1, 1, 1, 0, 0]
    assert targets.get("err") == [None, "ValueError: bad number", None, None, None]
    assert [(record.name, record.levelno) for record in caplog.records] == [("rowclaim", logging.WARNING)] * 2
    assert f"row 2 of {table.name} failed" in caplog.text and "afterwards" in caplog.text


def test_a_forgotten_claim_gives_back_what_was_not_started(table: Table, targets: Targets) -> None:
    claim = table.claim()
    row = next(claim)
    del claim
    assert targets.get("status") == [1] * 5, "the row still holds the claim"
    del row
    wait_until(lambda: targets.get("status") == [1, 0, 0, 0, 0])


def test_the_late_owner_is_lost(database: Database) -> None:
    with database.connect(heartbeat=0, backoff_base=0) as engine:
        targets = Targets(database, 2)
        table = targets.map(engine)
        late = table.claim(lease=1)
        row = next(late)
        wait_until(lambda: table.recover().returned)
        newer = next(table.claim())
        assert newer.key == row.key == 1 and newer.fence > row.fence
        assert late.renew() is False and late.lost is True and late.valid_for == 0.0
        assert list(late) == [], "no further row is started"
        with row:
            raise ValueError("late")
        assert (row.complete({"openid": "late"}), row.fail("late"), row.release()) == (False, False, False)
        assert newer.complete({"openid": "newer"}) is True
        assert targets.get("status, openid")[0] == (2, "newer")


def test_a_repeated_finish_is_accepted_and_another_is_lost(table: Table) -> None:
    (row,) = table.claim(1)
    assert (row.complete(), row.complete(), row.fail("late"), row.release()) == (True, True, False, False)


# --- Rows that recur ----------------------------------------------------------------------------------------------


def test_a_row_that_recurs_waits_for_its_next_time(engine: rowclaim.Engine, targets: Targets) -> None:
    table = targets.map(engine, done=0, failed=None, max_attempts=None, attempts=None)
    first, second, third, *rest = table.claim()
    with pytest.raises(rowclaim.InvalidError, match="next_at"):
        first.complete()
    assert first.complete(delay=timedelta(hours=1)) is True
    assert second.complete({"next_at": datetime(2050, 1, 2, 3, 4, 5), "openid": "x"}) is True
    at = datetime(2050, 1, 1, 19, 4, 5, tzinfo=timezone.utc)
    assert third.complete(set={"next_at": at}) is True
    assert rest[0].claim.complete([4, 5], delay=3600) == {4: True, 5: True}
    assert not table.claim() and table.remaining() is True
    assert targets.get("status") == [0] * 5
    records = table.rows()
    assert 3500 < (records[0]["next_at"] - now_in_the_table()).total_seconds() < 3601
    assert [record["next_at"] for record in records[1:3]] == [datetime(2050, 1, 2, 3, 4, 5)] * 2


def test_work_on_rows_that_recur_needs_a_delay(engine: rowclaim.Engine, targets: Targets) -> None:
    table = targets.map(engine, done=0, failed=None, max_attempts=None, attempts=None)
    assert table.work(lambda row: row.complete(delay=60), until_empty=True).completed == 5
    targets.set("next_at = NULL")
    with pytest.raises(rowclaim.InvalidError, match="recurs"):
        table.work(lambda row: None, until_empty=True)


# --- The work loop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", [None, "each", "group"])
def test_work_adds_up_what_became_of_the_rows(engine: rowclaim.Engine, targets: Targets, finish: str | None) -> None:
    # A failed row must not come back before the others are done, however slow the machine is.
    table = targets.map(engine, backoff_base=60, backoff_cap=60)
    targets.set("prio = 1 WHERE id = 5")
    seen = []

    def handler(row: rowclaim.Row) -> None:
        seen.append(row["openid"])
        if row.key == 2:
            raise ValueError("boom")
        if row.key == 3:
            assert row.release(60)
        if row.key == 4:
            assert row.complete({"openid": "own"})

    summary = table.work(
        handler, where={"task_id": 42}, order="id", batch=2, until_empty=True, finish=finish, lease=30, max_run=60
    )
    assert seen == ["o1", "o2", "o3", "o4", "o5"]
    assert (summary.claimed, summary.completed, summary.failed, summary.released) == (5, 3, 1, 1)
    assert isinstance(summary, Summary) and summary.lost == 0 and summary.stopped is False
    assert targets.get("status") == [2, 0, 0, 2, 2]
    assert targets.get("err")[1] == "ValueError: boom" and targets.get("openid")[3] == "own"


def test_work_ends_after_its_limits(table: Table, targets: Targets) -> None:
    assert table.work(lambda row: None, max_jobs=3, batch=2).completed == 3
    assert table.work(print, where={"task_id": 1}, max_seconds=0.2, max_idle=0.1).claimed == 0
    assert targets.get("status") == [2, 2, 2, 0, 0]


def test_what_is_no_exception_ends_the_work(table: Table, targets: Targets) -> None:
    def handler(row: rowclaim.Row) -> None:
        if row.key == 2:
            raise SystemExit("stop")

    with pytest.raises(SystemExit, match="stop"):
        table.work(handler, until_empty=True)
    assert targets.get("status") == [2, 0, 0, 0, 0] and targets.get("tries") == [1, 0, 0, 0, 0]
