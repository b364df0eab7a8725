"""Rowclaim hands out rows of a database table so that a row has at most one valid owner at a time.

:func:`connect` gives an :class:`Engine`. Its :meth:`Engine.create` makes jobs, :meth:`Engine.claim` takes a batch of
them under a lease, :meth:`Engine.work` does that in a loop. A dead owner's rows come back, a late owner's writes are
refused, the same business key creates one job. Execution is at least once: a handler must bear being called twice.

Durations are seconds (``int`` or ``float``) or :class:`datetime.timedelta`; a parameter that is ``None`` takes the
engine's default. Every error is a :class:`RowclaimError`. Handles may be used from any thread, and an engine in a
forked child too; claims, their jobs, leases and runs do not cross a fork.

:meth:`Engine.table` does the same on a table that is there already: it is told which column is the key, the status, the
token and so on (:class:`TableMapping`), and gives a :class:`Table`, whose claims hand out :class:`Row` objects.

:meth:`Engine.lease` gives one holder at a time a :class:`Lease` by name; :meth:`Engine.guard` keeps late holders from
writing to tables of your own.

:meth:`Engine.once` and :meth:`Job.once` keep what is done to the outside world from being done twice blindly;
:meth:`Engine.run_slot`, :meth:`Engine.schedule` and :meth:`Engine.run_due` run tasks by the clock, each planned time
once; :meth:`Engine.runner` is the door for HTTP requests and crontabs.
"""

from ._errors import (
    BusyError,
    ConfigError,
    ContentionError,
    DecodeError,
    DuplicateError,
    InterruptedWaitError,
    InvalidError,
    LostError,
    NotFoundError,
    NotSent,
    Reject,
    RowclaimError,
    SchemaError,
    UnavailableError,
    UnexpectedError,
    UnknownError,
    UnsupportedError,
)
from ._mapping import TableMapping
from ._native import (
    ERROR_KINDS,
    Claim,
    Effect,
    Engine,
    Job,
    Lease,
    Record,
    Row,
    RowClaim,
    Run,
    Runner,
    Table,
    __version__,
    connect,
)
from ._payload import Json
from ._results import (
    Attempt,
    Count,
    Created,
    EffectRecord,
    Finding,
    JobRow,
    LeaseRecord,
    Migrated,
    NewJob,
    Pruned,
    QueueStats,
    Receipt,
    Recovered,
    RunnerAnswer,
    RunRecord,
    ScheduleRecord,
    Stats,
    Summary,
    TableRecord,
)

__all__ = [
    "ERROR_KINDS",
    "Attempt",
    "BusyError",
    "Claim",
    "ConfigError",
    "ContentionError",
    "Count",
    "Created",
    "DecodeError",
    "DuplicateError",
    "Effect",
    "EffectRecord",
    "Engine",
    "Finding",
    "InterruptedWaitError",
    "InvalidError",
    "Job",
    "JobRow",
    "Json",
    "Lease",
    "LeaseRecord",
    "LostError",
    "Migrated",
    "NewJob",
    "NotFoundError",
    "NotSent",
    "Pruned",
    "QueueStats",
    "Receipt",
    "Record",
    "Recovered",
    "Reject",
    "Row",
    "RowClaim",
    "RowclaimError",
    "Run",
    "RunRecord",
    "Runner",
    "RunnerAnswer",
    "ScheduleRecord",
    "SchemaError",
    "Stats",
    "Summary",
    "Table",
    "TableMapping",
    "TableRecord",
    "UnavailableError",
    "UnexpectedError",
    "UnknownError",
    "UnsupportedError",
    "__version__",
    "connect",
]

# Where people find them, in tracebacks and pickles.
for _class in (
    RowclaimError,
    *RowclaimError.__subclasses__(),
    Attempt,
    Count,
    Created,
    EffectRecord,
    Finding,
    JobRow,
    Json,
    LeaseRecord,
    Migrated,
    NewJob,
    NotSent,
    Pruned,
    QueueStats,
    Receipt,
    Recovered,
    Reject,
    RunRecord,
    RunnerAnswer,
    ScheduleRecord,
    Stats,
    Summary,
    TableMapping,
    TableRecord,
):
    _class.__module__ = __name__
del _class
