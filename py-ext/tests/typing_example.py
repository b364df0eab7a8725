"""Checked by mypy, never run: what a typed program looks like."""

from datetime import datetime, timedelta, timezone
from typing import Any, assert_type
from uuid import UUID

import rowclaim


def produce(engine: rowclaim.Engine) -> None:
    created = engine.create("q", {"n": 1}, key="k", unique=timedelta(hours=1), run_at=datetime.now(timezone.utc))
    assert_type(created, rowclaim.Created)
    jobs = [rowclaim.NewJob(payload=1, key="a"), rowclaim.NewJob(payload=rowclaim.Json("{}"), delay=5)]
    assert_type(engine.create_many("q", jobs), list[rowclaim.Created])
    engine.create_many("q", [{"payload": 1}])
    sql, values = engine.plan_create("q", None, paramstyle="format")
    assert_type(sql, str)
    assert_type(values, list[str | int | None])
    engine.create("q", 1, unique="for ever")  # type: ignore[arg-type]


def consume(engine: rowclaim.Engine) -> int:
    with engine.claim(["a", "b"], limit=10, lease=1.5, partition=(0, 2)) as claim:
        assert_type(claim.token, UUID | None)
        for job in claim:
            with job:
                assert_type(job.created_at, datetime)
    summary = engine.work({"q": lambda job: job.payload}, max_seconds=1, finish="each")
    return summary.completed


def send(engine: rowclaim.Engine, task: int) -> bool:
    mapping = rowclaim.TableMapping(status="status", pending=0, processing=1, done=2, failed=3, token="cron_token")
    table = engine.table("targets", mapping, zone="+08:00", recover_after=timedelta(minutes=10))
    engine.table("targets", status="status", colour="red")  # type: ignore[call-arg]
    with table.claim(100, where={"task_id": task, "type": ["sms", "mail"], "deleted_at": None}, order="-id") as claim:
        assert_type(claim, rowclaim.RowClaim)
        for row in claim:
            assert_type(row, rowclaim.Row)
            with row:
                assert_type(row["openid"], Any)
                row.complete({"sent_at": datetime.now(timezone.utc), "receipt": None})
    assert_type(claim.complete([1, 2]), dict[Any, bool])
    table.work(lambda row: row.complete(delay=60), where={"task_id": task}, max_seconds=45)
    assert_type(table.row(5), rowclaim.Record | None)
    assert_type([dict(record) for record in table.rows(status=3, limit=10)], list[dict[str, Any]])
    assert_type(table.retry(where={"task_id": task}), int)
    assert_type(engine.tables()[0].mapping, dict[str, Any])
    return table.remaining({"task_id": task})


def report(engine: rowclaim.Engine) -> int:
    lease = engine.lease("daily-report", lease=timedelta(minutes=2), wait=1)
    if lease is None:
        return sum(
            record.fence for record in engine.leases(limit=10) if record.is_held and record.acquired_at.year > 2000
        )
    with lease as held:
        assert_type(held, rowclaim.Lease)
        assert_type(held.token, UUID)
        assert_type(held.guard("reports", {"day": "mon"}, {"total": 5, "made_at": datetime.now()}, "fence"), bool)
        _sql, values = engine.plan_guard(
            "reports", {"day": "mon"}, {"total": None}, "fence", held.fence, paramstyle="format"
        )
        assert_type(values, list[str | int | None])
    for job in engine.claim("q"):
        job.guard("reports", key={"day": "mon"}, set={"total": 5}, fence_column="fence")
    engine.lease("daily-report")  # type: ignore[call-arg]
    return held.fence
