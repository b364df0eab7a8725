"""Checked by mypy, never run: what a typed program looks like."""

from datetime import datetime, timedelta, timezone
from typing import assert_type
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
