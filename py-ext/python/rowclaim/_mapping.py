"""Mappings of users' tables: what can be said in one, and its JSON form, which the native part reads."""

from __future__ import annotations

import datetime
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ._errors import ConfigError


class TableMapping(TypedDict, total=False):
    """What each column of a table means, for ``Engine.table``: a plain ``dict`` with these keys, of which ``status``,
    ``pending``, ``processing``, ``done`` and ``token`` are needed. Spans are seconds or ``timedelta``.
    """

    #: The column that names a row: unique and not NULL. The primary key when left out.
    key: str | None
    #: The column that says where a row stands.
    status: str
    #: Its value in a row that waits.
    pending: object
    #: Its value in a row that is held.
    processing: object
    #: Its value in a row that is done; the same as ``pending`` for rows that recur.
    done: object
    #: Its value in a row that is out of attempts. Without it a failed row waits again.
    failed: object
    #: What becomes of rows that were begun when their lease runs out. ``retry`` (at least once, the default): they are
    #: done again. ``hold`` (at most once): they wait for ``Table.resolve``.
    on_lost: Literal["retry", "hold"] | None
    #: The value of the status in such a row that waits; ``on_lost`` ``hold`` needs it.
    held: object
    #: The column that names the claim that holds the row: text of at least 32 characters, or 16 bytes.
    token: str
    #: The column that says when the row was claimed.
    claimed_at: str | None
    #: The column that says until when the row is held.
    lease_until: str | None
    #: The column that says who holds the row, for people.
    locked_by: str | None
    #: The column that counts attempts.
    attempts: str | None
    #: Attempts before a row is failed: a number, or the column that says it.
    max_attempts: int | str | None
    #: The column before whose time the row is not handed out; NULL is at once.
    available_at: str | None
    #: The column for what went wrong last.
    error: str | None
    #: The column that says when the row was done or failed.
    finished_at: str | None
    #: The column to order by, smaller first.
    priority: str | None
    #: The column with a number that is raised with every claim of the row.
    fence: str | None
    #: Only rows with these values are ever touched.
    scope: Mapping[str, object] | None
    #: The columns that rows come with; all when left out.
    columns: Sequence[str] | None
    #: The zone of DATETIME columns: ``UTC``, ``+08:00``, ``Asia/Shanghai``.
    zone: str | None
    #: The unit of whole-number time columns.
    unit: Literal["seconds", "milliseconds"] | None
    #: Rows that other code left held come back after this time.
    recover_after: float | datetime.timedelta | None
    #: The wait after the first failed attempt.
    backoff_base: float | datetime.timedelta | None
    #: The longest wait.
    backoff_cap: float | datetime.timedelta | None
    #: The lease of claims that name none.
    lease: float | datetime.timedelta | None
    #: Whether claims are recorded in Rowclaim's own tables; otherwise the lease is in the row.
    registry: bool | Literal["on", "off"] | None
    #: The database the table is in, when it is another one than the engine's.
    dsn: str | None


def _plain(value: object) -> object:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"cannot be a {type(value).__name__}")


def encode(entries: Mapping[str, Any]) -> str:
    """The JSON form. Raises ConfigError, naming the entry, for what JSON cannot say."""
    parts = []
    for name, value in entries.items():
        try:
            json_value = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"mapping: {name}: {error}") from error
        parts.append(f"{json.dumps(str(name))}: {json_value}")
    return "{" + ", ".join(parts) + "}"
