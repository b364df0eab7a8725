"""The native part of Rowclaim; people import these names from ``rowclaim``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Literal, final
from uuid import UUID

from typing_extensions import Self, TypeAlias

from rowclaim import Attempt, Created, JobRow, Migrated, NewJob, Pruned, Recovered, Stats, Summary

_Span: TypeAlias = float | timedelta
_State: TypeAlias = Literal["ready", "claimed", "done", "dead", "cancelled"]

__all__ = ["ERROR_KINDS", "Claim", "Engine", "Job", "__version__", "connect"]

__version__: str

ERROR_KINDS: tuple[str, ...]
"""Every kind of error, in lower case; each has one subclass of ``RowclaimError``."""

def connect(dsn: str, **options: str | float | timedelta | None) -> Engine:
    """Connects to the database of ``dsn`` and proves that it answers.

    ``mysql://user:password@host:port/database``, ``mariadb://…``, ``sqlite:///absolute/path``, ``sqlite:relative/path``
    or ``sqlite::memory:``; options in its query or by name: ``prefix``, ``lease``, ``max_attempts``, ``heartbeat`` and
    others. Equal arguments share one engine within a process.

    Raises ConfigError for a wrong DSN, option, password or database, UnavailableError when nobody answers.
    """

@final
class Engine:
    """A handle on one database, made by ``rowclaim.connect``. Usable from any thread, and in a forked child.

    Durations are seconds or ``timedelta``; a parameter that is None takes the engine's default. Every verb may raise
    SchemaError (tables missing: ``migrate()``), UnavailableError, and InvalidError for arguments and after ``close``.
    """

    def create(
        self,
        queue: str,
        payload: object,
        *,
        key: str | None = None,
        unique: Literal["forever", "active", "until_claimed"] | _Span | None = None,
        delay: _Span | None = None,
        run_at: datetime | float | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
    ) -> Created:
        """Creates a job, or finds the one with the same queue and key.

        ``payload`` is anything ``json.dumps`` takes, or ``rowclaim.Json`` text, which is kept byte for byte. ``key``: 1 to
        191 bytes; ``unique``, how long it keeps others out: ``"forever"``, ``"active"``, ``"until_claimed"`` or a
        duration. The first attempt comes after ``delay`` or at ``run_at`` (aware datetime, or seconds since 1970).
        Smaller ``priority`` runs first (-32,768 to 32,767). After ``max_attempts`` failures the job is dead.
        """
    def create_many(self, queue: str, jobs: Iterable[NewJob | Mapping[str, Any]]) -> list[Created]:
        """Creates many jobs; one answer a job, in order. Each is a mapping with ``payload`` and the options of ``create``."""
    def plan_create(
        self,
        queue: str,
        payload: object,
        *,
        key: str | None = None,
        unique: Literal["forever", "active", "until_claimed"] | None = None,
        delay: _Span | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        paramstyle: Literal["qmark", "format"] = "qmark",
    ) -> tuple[str, list[str | int | None]]:
        """The SQL and values that create a job on the application's own connection, in its own transaction.

        ``paramstyle``: ``"qmark"`` (sqlite3) or ``"format"`` (PyMySQL, mysqlclient). The other arguments are those of
        ``create``. Raises UnsupportedError for a ``unique`` that is a duration.
        """
    def claim(
        self,
        queues: str | Sequence[str],
        *,
        limit: int | None = None,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        priority: int | None = None,
        partition: tuple[int, int] | None = None,
    ) -> Claim:
        """Takes up to ``limit`` jobs (1 to 10,000) of one queue or several. The claim is empty when nothing waits.

        ``lease``: from 1 second; renewed in the background, not past ``max_run`` from the start. ``priority``: only jobs
        of that priority. ``partition``: ``(k, n)``, only jobs whose id leaves the remainder k when divided by n.
        """
    def work(
        self,
        handlers: Mapping[str, Callable[[Job], object]],
        *,
        batch: int | None = None,
        max_seconds: _Span | None = None,
        max_jobs: int | None = None,
        until_empty: bool = False,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        max_idle: _Span | None = None,
        finish: Literal["each", "group"] | None = None,
    ) -> Summary:
        """Claims batches and calls ``handlers[queue](job)`` for each job until told to stop.

        A handler that returns completes its job, one that raises fails it (the exception goes to the logger
        ``rowclaim``); it may also finish the job itself. ``batch``: jobs a claim. Stops after ``max_seconds`` or
        ``max_jobs``, when nothing waits with ``until_empty``, and, in the main thread, on SIGTERM or SIGINT after the job
        in hand; a second signal does what it did before. ``max_idle``: longest pause when nothing waits. ``finish``:
        ``"each"`` writes every outcome before the next job, ``"group"`` writes them together in the background; all are
        written when it returns. What was not started is released.

        KeyboardInterrupt and SystemExit from a handler release the job, end the work and are raised.
        """
    def recover(self) -> Recovered:
        """Takes jobs back from claims whose lease has run out. Claims do this by themselves now and then."""
    def job(self, id: int) -> JobRow | None:
        """A job as it stands in the table, or None."""
    def jobs(
        self,
        *,
        queue: str | None = None,
        state: _State | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[JobRow]:
        """Jobs as they stand in the table, newest first.

        ``state``: ready, claimed, done, dead or cancelled. ``before``: only smaller ids, for the next page. ``limit``: 1 to
        10,000.
        """
    def attempts(self, id: int) -> list[Attempt]:
        """The attempts of a job that did not succeed, oldest first."""
    def retry(self, id: int, *, force: bool = False) -> bool:
        """Puts a dead job back with all its attempts; with ``force`` also a claimed one, whose owner is lost then.

        False when it does not stand so any more. Raises NotFoundError, and DuplicateError when a newer job holds its key.
        """
    def cancel(self, id: int, *, force: bool = False) -> bool:
        """Takes a waiting or dead job out; with ``force`` also a claimed one, whose owner is lost then.

        False when it does not stand so any more. Raises NotFoundError.
        """
    def prune(self, older_than: _Span, *, batch: int | None = None) -> Pruned:
        """Deletes jobs, claims and attempts that ended longer ago than ``older_than``, ``batch`` rows a step."""
    def stats(self, *, exact: bool = False) -> Stats:
        """What waits, runs and is dead, by queue. ``exact`` adds a count of every state, which scans the table."""
    def migrate(self) -> Migrated:
        """Makes the tables or brings them to the newest version. May run in several processes at once.

        Raises SchemaError when they are newer than this code, ConfigError without the rights.
        """
    def schema_sql(self) -> str:
        """The SQL of the whole schema, for people who apply it with their own tool."""
    def flush(self) -> None:
        """Waits until every outcome given to the background is written.

        Raises UnavailableError when the database does not take them for a long time; they are still tried.
        """
    def close(self, limit: _Span | None = None) -> None:
        """Writes what is pending and closes the connections, within ``limit`` (2 seconds when None). May be repeated.

        Raises UnavailableError when outcomes could not be written in time; their jobs come back when the lease ends.
        """
    @property
    def server_version(self) -> str:
        """Name and version of the server."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Claim:
    """A batch of jobs with one token and one lease.

    Iterating hands the jobs out, each only while the lease is surely valid. ``with claim:`` gives back what was not
    started when the block ends, by an exception too. The lease is renewed in the background until every job is finished
    or the claim and its jobs are gone. Claims do not cross a fork.
    """

    @property
    def token(self) -> UUID | None:
        """Its token, a UUID; None for an empty claim."""
    @property
    def id(self) -> int | None:
        """The id of its row in the claims table; None for an empty claim."""
    @property
    def lost(self) -> bool:
        """True once a renewal was refused: somebody else may own the jobs now."""
    @property
    def valid_for(self) -> float:
        """For how many seconds it is surely valid from now on; 0.0 when lost or empty."""
    def renew(self) -> bool:
        """Renews the lease now. False when it is lost.

        Raises UnavailableError; the claim stays valid for ``valid_for``.
        """
    def complete(self, ids: Iterable[int] | None = None) -> dict[int, bool]:
        """Completes jobs by id, or all that are not finished yet, in one step; durable when it returns.

        Gives for each id True (accepted) or False (lost). Raises InvalidError for an id that is not in the claim, before
        anything is written, and UnavailableError.
        """
    def fail(self, ids: Iterable[int], error: str | BaseException, delay: _Span | None = None) -> dict[int, bool]:
        """Fails jobs by id: each comes back after ``delay`` or its back-off, or is dead. Otherwise as ``complete``."""
    def release(self, ids: Iterable[int] | None = None, delay: _Span | None = None) -> dict[int, bool]:
        """Gives jobs back by id, or all that are not finished yet, without blame. Otherwise as ``complete``."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Job: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Job:
    """One job of a claim: ``with job:`` completes it when the block ends, and fails it when the block raises.

    An ``Exception`` is written to the job and to the logger ``rowclaim`` and goes no further, so that a loop goes on.
    ``KeyboardInterrupt``, ``SystemExit`` and the like give the job back without blame and go on. A job that the block
    has finished itself stays as it is. Jobs do not cross a fork.
    """

    @property
    def id(self) -> int:
        """The job's id."""
    @property
    def queue(self) -> str:
        """Its queue."""
    @property
    def key(self) -> str | None:
        """Its business key as given, or None."""
    @property
    def priority(self) -> int:
        """Smaller runs first."""
    @property
    def payload(self) -> Any:
        """The payload, decoded on first use and then kept. Raises DecodeError when Python cannot represent it."""
    @property
    def raw_payload(self) -> str:
        """The payload's JSON text, byte for byte as it was created."""
    @property
    def attempts(self) -> int:
        """Attempts so far, this one included."""
    @property
    def max_attempts(self) -> int:
        """Attempts before the job is dead."""
    @property
    def lost(self) -> int:
        """How often a lease on it ran out."""
    @property
    def fence(self) -> int:
        """The fence of this claim of the job: every later claim has a larger one."""
    @property
    def created_at(self) -> datetime:
        """When it was created: an aware datetime in UTC, from the database's clock."""
    @property
    def token(self) -> UUID | None:
        """Its claim's token."""
    @property
    def claim(self) -> Claim:
        """The claim it belongs to."""
    @property
    def finished(self) -> bool:
        """True when it was finished through this claim."""
    def complete(self) -> bool:
        """Done. Durable when it returns. False: lost, somebody else owns the job now; nothing was changed.

        Raises UnavailableError when it is unknown whether it was written; the same call may be repeated.
        """
    def fail(self, error: str | BaseException, delay: _Span | None = None) -> bool:
        """Failed: the job comes back after ``delay`` or the back-off, or is dead when its attempts are used up.

        ``error`` is text or an exception, written as ``Class: message`` and cut to 4,000 characters. False and errors
        as for ``complete``.
        """
    def release(self, delay: _Span | None = None) -> bool:
        """Given back without blame, not to be handed out before ``delay`` has gone by. The attempt is not counted.

        False and errors as for ``complete``.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...
