"""What the verbs answer: frozen records with equality and a readable ``repr``. Made by the native part, by position."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, TypedDict

from . import _payload


class _NewJob(TypedDict):
    payload: Any


class NewJob(_NewJob, total=False):
    """One job for ``Engine.create_many``: a plain ``dict`` with these keys. See ``Engine.create`` for each of them."""

    key: str | None
    unique: str | float | datetime.timedelta | None
    delay: float | datetime.timedelta | None
    run_at: datetime.datetime | float | None
    priority: int | None
    max_attempts: int | None


@dataclasses.dataclass(frozen=True)
class Created:
    """The answer to a creation."""

    #: The job's id.
    id: int
    #: True when a job with this queue and key was there already; nothing was written then.
    exists: bool
    #: Where that job stands: ``ready``, ``claimed``, ``done``, ``dead``, ``cancelled`` or ``held``.
    state: str


@dataclasses.dataclass(frozen=True)
class JobRow:
    """A job as it stands in the table, for people and tools."""

    #: The job's id.
    id: int
    #: Its queue.
    queue: str
    #: Its business key as given.
    key: str | None
    #: Smaller runs first.
    priority: int
    #: ``ready``, ``claimed``, ``done``, ``dead``, ``cancelled`` or ``held``.
    state: str
    #: The payload's JSON text.
    raw_payload: str
    #: Attempts so far.
    attempts: int
    #: Attempts before the job is dead.
    max_attempts: int
    #: How often a lease on it ran out.
    lost: int
    #: Its last fence.
    fence: int
    #: When it is due; only while it waits.
    ready_at: datetime.datetime | None
    #: When it was created.
    created_at: datetime.datetime
    #: When it was done, dead or cancelled.
    finished_at: datetime.datetime | None
    #: What the last failed attempt said.
    last_error: str | None
    #: The claim that holds or last held it.
    claim_id: int | None

    @property
    def payload(self) -> Any:
        """The decoded payload."""
        return _payload.decode(self.raw_payload)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt that did not succeed."""

    #: The fence of the claim it belonged to.
    fence: int
    #: ``failed``, ``lost`` or ``released``.
    outcome: str
    #: The job was dead after it.
    is_final: bool
    #: Who held it.
    worker: str
    #: When the claim was made.
    claimed_at: datetime.datetime | None
    #: When the attempt ended.
    ended_at: datetime.datetime
    #: What went wrong.
    error: str | None


@dataclasses.dataclass(frozen=True)
class LeaseRecord:
    """A lease as it stands in the table."""

    #: Its name.
    name: str
    #: Who holds or last held it, for people: the engine's option ``worker``.
    holder: str
    #: The last fence.
    fence: int
    #: When it was last acquired, on the database's clock.
    acquired_at: datetime.datetime
    #: Until when it is or was held.
    lease_until: datetime.datetime
    #: True when somebody holds it now.
    is_held: bool


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a ``work`` call did."""

    #: Jobs claimed.
    claimed: int
    #: Completions accepted.
    completed: int
    #: Failures accepted.
    failed: int
    #: Jobs given back: by handlers, and those not started.
    released: int
    #: Jobs whose claim was lost before their outcome was written.
    lost: int
    #: Seconds from start to end.
    seconds: float
    #: True when it ended because it was told to stop: a loop around ``work`` should end too.
    stopped: bool = False
    #: The signal that asked it to stop, or None.
    stopped_by: int | None = None


@dataclasses.dataclass(frozen=True)
class Receipt:
    """That an effect has happened."""

    #: The effect's key.
    key: str
    #: The response's JSON text; None when an earlier one was too large to be kept, or is not known.
    raw_response: str | None
    #: How often it was begun.
    attempts: int
    #: True when this call has sent it; otherwise it had happened before.
    fresh: bool
    #: For an effect that completes a job: whether the job was still ours. None without a job.
    completed: bool | None

    @property
    def response(self) -> Any:
        """The decoded response. Raises DecodeError when Python cannot represent it."""
        return None if self.raw_response is None else _payload.decode(self.raw_response, "response")


@dataclasses.dataclass(frozen=True)
class EffectRecord:
    """An effect as it stands in the ledger."""

    #: Its number in the ledger.
    id: int
    #: Its key.
    key: str
    #: ``pending``, ``sending``, ``succeeded``, ``failed`` or ``unknown``; a sender whose lease is over is ``unknown``.
    state: str
    #: How often it was begun.
    attempts: int
    #: Who sends or last sent it, for people: the engine's option ``worker``.
    holder: str
    #: The response's JSON text, once it has succeeded and unless it was too large.
    raw_response: str | None
    #: What went wrong last.
    error: str | None
    #: While it is being sent: when its sender counts as lost.
    lease_until: datetime.datetime
    #: When it was first begun.
    created_at: datetime.datetime
    #: When it was last begun.
    started_at: datetime.datetime
    #: When it ended; None while it is being sent.
    finished_at: datetime.datetime | None

    @property
    def response(self) -> Any:
        """The decoded response. Raises DecodeError when Python cannot represent it."""
        return None if self.raw_response is None else _payload.decode(self.raw_response, "response")


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run, or a skipped slot, as it stands in the history."""

    #: Its number in the history.
    id: int
    #: The task.
    task: str
    #: The planned time.
    slot: datetime.datetime
    #: 0, or counts what people ran again of the same slot.
    rerun: int
    #: True when a person asked for it.
    manual: bool
    #: ``started``, ``succeeded``, ``failed``, ``lost`` or ``skipped``.
    state: str
    #: Why it was skipped: ``busy``, ``missed`` or ``disabled``.
    reason: str | None
    #: More than 1: this row stands for so many missed slots, of which ``slot`` is the last.
    slots: int
    #: The fence of its lease; None for a skipped one.
    fence: int | None
    #: Who ran or skipped it, for people: the engine's option ``worker``.
    worker: str
    #: When it began, or was skipped.
    started_at: datetime.datetime
    #: When it ended; None while it goes on.
    finished_at: datetime.datetime | None
    #: Seconds from its start to its end; None while it goes on and for skipped ones.
    duration: float | None
    #: What went wrong.
    error: str | None


@dataclasses.dataclass(frozen=True)
class ScheduleRecord:
    """A schedule as it stands."""

    #: The task.
    task: str
    #: When it runs: five fields, or six with seconds first.
    cron: str
    #: The zone the expression is read in.
    zone: str
    #: What is done about slots that nobody ran in time: ``skip``, ``once`` or ``all``.
    missed: str
    #: With ``all``: slots made up for in one pass.
    cap: int
    #: Slots older than so many seconds are never made up for.
    catch_up: float | None
    #: A slot so many seconds late is still on time.
    grace: float
    #: The lease of its runs, in seconds.
    lease: float
    #: No renewal goes past so many seconds from the start of a run.
    max_run: float | None
    #: Every slot up to here has its row in the history.
    accounted_until: datetime.datetime
    #: Since when it is paused.
    paused_at: datetime.datetime | None
    #: Since when a person wants it run at once.
    asked_at: datetime.datetime | None
    #: The next slot; None when it is paused or the expression never comes again.
    next_at: datetime.datetime | None
    #: The newest slot that was run.
    last: RunRecord | None


@dataclasses.dataclass(frozen=True)
class RunnerAnswer:
    """What a runner answers to a request."""

    #: The HTTP status: 200, 403, 405, 409, 500 or 503.
    status: int
    #: JSON text.
    body: str


@dataclasses.dataclass(frozen=True)
class Recovered:
    """What a recovery found."""

    #: Claims that had expired with rows in them.
    claims: int
    #: Rows put back for another attempt.
    returned: int
    #: Rows that had no attempt left and are dead now.
    dead: int
    #: Rows claimed to be done at most once that were begun: they wait for a person now.
    held: int = 0
    #: Runs whose lease was over: they are lost.
    runs: int = 0
    #: Effects whose sender was gone: nobody knows whether they have happened.
    effects: int = 0


@dataclasses.dataclass(frozen=True)
class Migrated:
    """Versions of the tables."""

    #: The version before; 0 when there were no tables.
    from_version: int
    #: The version now.
    to_version: int


@dataclasses.dataclass(frozen=True)
class Pruned:
    """Rows deleted."""

    #: Jobs that were done, dead or cancelled. Their keys are free again, ``forever`` ones too.
    jobs: int
    #: Claims that were closed or expired.
    claims: int
    #: Attempts of jobs that are gone.
    attempts: int
    #: Effects that had succeeded or failed. Their keys are free again.
    effects: int = 0
    #: Runs that had ended, and skipped slots.
    runs: int = 0


@dataclasses.dataclass(frozen=True)
class Count:
    """A number of rows, counted up to a limit."""

    #: Rows counted.
    rows: int
    #: True when there are more than were counted.
    is_capped: bool


@dataclasses.dataclass(frozen=True)
class QueueStats:
    """One queue."""

    #: Its name.
    queue: str
    #: Jobs that could be claimed now; capped in each priority.
    due: Count
    #: Jobs that wait for their time; capped in each priority.
    delayed: Count
    #: Jobs in open claims.
    claimed: int
    #: Jobs out of attempts, that wait for a person.
    dead: Count
    #: Jobs that were begun when their lease ran out, and wait for a person.
    held: Count
    #: For how many seconds the first due job has been waiting.
    oldest_due: float | None
    #: All jobs by state; only when asked for, since it scans the table.
    exact: dict[str, int] | None


@dataclasses.dataclass(frozen=True)
class Stats:
    """What waits, runs and is dead."""

    #: In the order of their names.
    queues: list[QueueStats]
    #: Open claims, 1,000 at most.
    open_claims: int
    #: Open claims whose lease has run out.
    expired_claims: int


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the doctor found."""

    #: ``note``, ``warning`` or ``fault``.
    severity: str
    #: Which kind of finding; the word stays the same from version to version.
    code: str
    #: What it is about: ``server``, a table, or ``table.column``.
    subject: str
    #: What is so, with the value.
    message: str
    #: What happens if it is left so; empty where nothing does.
    consequence: str
    #: The statement or the setting that mends it, as it can be typed.
    fix: str | None

    def __str__(self) -> str:
        lines = [f"{self.severity} {self.code} ({self.subject}): {self.message}"]
        lines += [f"  {self.consequence}"] if self.consequence else []
        lines += [f"  fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class TableRecord:
    """A mapping as it is recorded in Rowclaim's own tables."""

    #: The record's id.
    id: int
    #: The table's name.
    name: str
    #: What its columns mean: the entries that differ from the defaults.
    mapping: dict[str, Any]
    #: When a claim was first made by it.
    created_at: datetime.datetime
