"""The native part of Rowclaim; people import these names from ``rowclaim``."""

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import TracebackType
from typing import Any, Literal, final
from uuid import UUID

from _typeshed.wsgi import StartResponse, WSGIEnvironment
from typing_extensions import Self, TypeAlias, Unpack, disjoint_base

from rowclaim import (
    Attempt,
    Created,
    EffectRecord,
    Finding,
    JobRow,
    LeaseRecord,
    Migrated,
    NewJob,
    Pruned,
    Receipt,
    Recovered,
    RunnerAnswer,
    RunRecord,
    ScheduleRecord,
    Stats,
    Summary,
    TableMapping,
    TableRecord,
)

_Span: TypeAlias = float | timedelta
_State: TypeAlias = Literal["ready", "claimed", "done", "dead", "cancelled", "held"]
_EffectState: TypeAlias = Literal["pending", "sending", "succeeded", "failed", "unknown"]
_RunState: TypeAlias = Literal["started", "succeeded", "failed", "lost", "skipped"]
_Key: TypeAlias = int | str | bytes
_Value: TypeAlias = float | Decimal | str | bytes | date | Enum | None
_Where: TypeAlias = Mapping[str, _Value | Collection[_Value]]

__all__ = [
    "ERROR_KINDS",
    "Claim",
    "Effect",
    "Engine",
    "Job",
    "Lease",
    "Record",
    "Row",
    "RowClaim",
    "Run",
    "Runner",
    "Table",
    "__version__",
    "connect",
]

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
        on_lost: Literal["retry", "hold"] | None = None,
    ) -> Claim:
        """Takes up to ``limit`` jobs (1 to 10,000) of one queue or several. The claim is empty when nothing waits.

        ``lease``: from 1 second; renewed in the background, not past ``max_run`` from the start. ``priority``: only jobs
        of that priority. ``partition``: ``(k, n)``, only jobs whose id leaves the remainder k when divided by n.

        ``on_lost``: ``"retry"`` (at least once, the default): a job whose lease runs out is done again. ``"hold"`` (at most
        once): one that was begun by then waits in state ``held`` for ``resolve``, and handing a job out costs a write.
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
        on_lost: Literal["retry", "hold"] | None = None,
    ) -> Summary:
        """Claims batches and calls ``handlers[queue](job)`` for each job until told to stop.

        A handler that returns completes its job, one that raises fails it (the exception goes to the logger
        ``rowclaim``); it may also finish the job itself. ``batch``: jobs a claim. Stops after ``max_seconds`` or
        ``max_jobs``, when nothing waits with ``until_empty``, and, in the main thread, on SIGTERM or SIGINT after the job
        in hand; a second signal does what it did before. ``max_idle``: longest pause when nothing waits. ``finish``:
        ``"each"`` writes every outcome before the next job, ``"group"`` writes them together in the background; all are
        written when it returns. What was not started is released.

        KeyboardInterrupt and SystemExit from a handler release the job, end the work and are raised. ``on_lost`` as for
        ``claim``: with ``"hold"`` such a job is not released but held, and ``finish="each"`` leaves fewer that are done but
        held; an exception still fails the job, and it is tried again.
        """
    def table(
        self,
        name: str,
        mapping: TableMapping | Mapping[str, Any] | None = None,
        **entries: Unpack[TableMapping],
    ) -> Table:
        """Verbs on a table that is there already, by a mapping that says what its columns mean.

        ``name``: ``table`` or ``database.table``. The entries are those of ``rowclaim.TableMapping``, in a mapping, by
        keyword, or both; spans are seconds or ``timedelta``. With ``dsn`` among them the table is in that database, under
        an engine of its own, which is closed at exit. The table is looked at once, now.

        Raises ConfigError, naming the entry and the column, for what does not fit, with the SQL that mends it, and
        SchemaError when the table is not there.
        """
    def tables(self) -> list[TableRecord]:
        """The mappings that claims were made by, in the order of the tables' names."""
    def lease(self, name: str, lease: _Span, *, wait: _Span | None = None) -> Lease | None:
        """Takes the lease ``name``, or gives None when somebody else holds it; ``leases`` tells who.

        One holder at a time, by the database's clock. ``name``: 1 to 191 bytes, compared byte for byte. ``lease``: how long
        it is held without a renewal, from 1 second; it is renewed in the background until it is released or the object is
        gone. ``wait``: for so long another holder may take to go.
        """
    def leases(self, *, limit: int | None = None) -> list[LeaseRecord]:
        """Leases in the order of their names, those that were given back too. ``limit``: 1 to 10,000."""
    def throttle(self, name: str, limit: int, *, per: _Span | None = None, wait: _Span | None = None) -> bool:
        """Waits until the next one of a limit may go: at most ``limit`` of that name in any ``per``, of all workers together.

        ``name``: 1 to 191 bytes; ``limit``: 1 to 1,000,000; ``per``: 1 millisecond to 1 day, a second when None. Places come one
        behind the other at equal distances, by the database's clock, without bursts. A place that is not used is lost.

        False at once, and no place is taken, when the next one is farther away than ``wait`` (a minute when None).
        """
    def guard(
        self, table: str, key: Mapping[str, _Value], set: Mapping[str, _Value], fence_column: str, fence: int
    ) -> bool:
        """Makes a fenced write on any table: the row of ``key`` gets ``set`` and ``fence``, unless its fence is newer.

        ``table``: ``table`` or ``database.table``. ``key``: the columns of its primary key or of a unique one, and their
        values; a row that is not there is created. ``fence_column``: the whole-number column that keeps the fence; NULL is
        older than any. The fence that is stored is accepted: it is the same holder's. Values are converted as for
        ``Table``. ``guard`` of a ``Lease``, ``Job`` or ``Row`` brings its fence along.

        False when a newer fence has written: nothing was changed then. Raises InvalidError, naming the column, for what does
        not fit and for a key that is not unique, SchemaError without the table, DuplicateError when a new row violates
        another unique key.
        """
    def plan_guard(
        self,
        table: str,
        key: Mapping[str, _Value],
        set: Mapping[str, _Value],
        fence_column: str,
        fence: int,
        *,
        paramstyle: Literal["qmark", "format"] = "qmark",
    ) -> tuple[str, list[str | int | None]]:
        """The UPDATE of ``guard`` as SQL and values for the application's own connection, in its own transaction.

        It creates no row. It was accepted when it matched a row; a connection that counts only changed rows (PyMySQL without
        ``client_flag=CLIENT.FOUND_ROWS``) answers 0 for a repeat with the same values. ``paramstyle``: ``"qmark"`` (sqlite3)
        or ``"format"`` (PyMySQL, mysqlclient). Raises as ``guard``, and UnsupportedError for ``bytes``.
        """
    def once(
        self,
        key: str,
        request: object,
        send: Callable[[Effect], object],
        *,
        ask: Callable[[Effect], object] | None = None,
        on_unknown: Literal["hold", "ask", "retry"] | None = None,
        lease: _Span | None = None,
        wait: _Span | None = None,
        completes: Job | Row | None = None,
    ) -> Receipt:
        """Has an effect outside of the database happen once: calls ``send(effect)`` unless the ledger says that it has
        happened, and records what came of it.

        ``key``: 1 to 191 bytes; the same key is the same effect, compared byte for byte. ``request``: anything
        ``json.dumps`` takes; only its digest is kept, and another request under the same key is refused. What ``send``
        returns is the response, recorded as JSON (up to 1 MB, None allowed) and given to later calls. When ``send`` raises
        ``NotSent`` it surely has not happened and a later call sends it again; after any other exception, and when the
        process dies in between, nobody knows. The exception is raised when that is recorded.

        ``on_unknown`` says what is done then: ``"hold"`` (the default) leaves it to a person, who calls
        ``resolve_effect``; ``"retry"`` sends it again under the same key, for providers that know the key; ``"ask"`` calls
        ``ask(effect)`` first, which returns the response when it has happened, raises ``NotSent`` when it has not (it is
        sent then), and anything else when the provider cannot say. ``lease``: a sender that is silent for longer is taken
        for lost (from 1 second; 60 when None; renewed in the background). ``wait``: for so long another sender of the same
        key is waited for. ``completes``: a job or row that is completed in the same transaction.

        Raises InvalidError for another request under the key, and when the response has no JSON form (it is recorded as
        succeeded then); BusyError while another process sends it; UnknownError while nobody knows whether it has happened;
        LostError when a person has decided meanwhile; UnavailableError, also when it was sent and could not be recorded
        (that is tried further in the background).
        """
    def effect(self, key: str) -> EffectRecord | None:
        """An effect as it stands in the ledger, or None."""
    def effects(
        self, *, state: _EffectState | None = None, before: int | None = None, limit: int | None = None
    ) -> list[EffectRecord]:
        """Effects as they stand in the ledger, newest first.

        ``state``: pending, sending, succeeded, failed or unknown. ``before``: only smaller ids, for the next page.
        ``limit``: 100 when None.
        """
    def resolve_effect(self, key: str, happened: bool, response: object = None) -> bool:
        """A person's word on an effect of which nobody knows: it has happened, with its ``response`` where that is known, or
        it has not, and the next ``once`` sends it. False when it does not stand so any more.

        Raises NotFoundError.
        """
    def run_slot(
        self,
        task: str,
        slot: datetime | str | float,
        run: Callable[[Run], object],
        *,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        manual: bool = False,
    ) -> RunRecord:
        """Runs ``run(run)`` for a planned time of a task, unless that slot has had its run or the task is running.

        ``task``: 1 to 187 bytes. ``slot``: an aware datetime, text as in RFC 3339 with its zone, or seconds since 1970; the
        same task and slot run once, however many processes ask. ``lease``: a run that is silent for longer is taken for
        lost (from 1 second; 60 when None); renewed in the background, not past ``max_run`` from the start. ``manual``: a
        person wants it, also when the slot has had its run; it is marked as such.

        Gives the slot's record: the new one, ``succeeded`` or ``lost``, when it ran; the earlier one when it had run or is
        running; ``skipped`` with the reason ``busy`` when another slot of the task is running. An exception of ``run`` fails
        the run and is raised when that is recorded.

        Raises InvalidError for arguments, a datetime without a zone among them, and UnavailableError, also when the outcome
        could not be recorded: the run counts as lost then.
        """
    def runs(
        self,
        *,
        task: str | None = None,
        state: _RunState | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> list[RunRecord]:
        """The history of runs and skipped slots, newest first.

        ``state``: started, succeeded, failed, lost or skipped. ``before``: only smaller ids, for the next page. ``limit``:
        100 when None.
        """
    def schedule(
        self,
        task: str,
        cron: str,
        zone: str,
        *,
        missed: Literal["skip", "once", "all"] | None = None,
        cap: int | None = None,
        catch_up: _Span | None = None,
        grace: _Span | None = None,
        lease: _Span | None = None,
        max_run: _Span | None = None,
    ) -> ScheduleRecord:
        """Records a schedule, or changes it: call it at every start. A changed expression or zone counts from now on.

        ``task``: 1 to 187 bytes. ``cron``: five fields, or six with seconds first. ``zone``: ``UTC``, ``+08:00`` or
        ``Asia/Shanghai``. ``missed``, what is done about slots that nobody ran in time: ``"skip"`` (when None) records them
        as skipped, ``"once"`` runs the newest, ``"all"`` runs all, oldest first, ``cap`` (1 to 1,000; 10 when None) in one
        pass; slots older than ``catch_up`` are never made up for. ``grace``: a slot this late is on time (1 second to 1 day;
        90 seconds when None). ``lease`` and ``max_run`` as for ``run_slot``.

        Raises InvalidError, naming what cannot be.
        """
    def schedules(self, *, limit: int | None = None) -> list[ScheduleRecord]:
        """Schedules in the order of their names, each with its next slot and its last run."""
    def unschedule(self, task: str) -> bool:
        """Deletes a schedule; its history stays. False when there was none."""
    def pause_schedule(self, task: str) -> bool:
        """Stops a schedule: its slots are recorded as skipped until it is resumed. False when it is paused already.

        Raises NotFoundError.
        """
    def resume_schedule(self, task: str) -> bool:
        """Starts a paused schedule again; slots that came meanwhile are recorded as skipped. False when it was not paused.

        Raises NotFoundError.
        """
    def ask_run(self, task: str) -> None:
        """Asks for a run at once: the next ``run_due`` of the task makes it, marked as manual, also when it is paused.

        Raises NotFoundError.
        """
    def run_due(
        self, handlers: Mapping[str, Callable[[Run], object]], *, max_seconds: _Span | None = None
    ) -> list[RunRecord]:
        """One pass over schedules: runs ``handlers[task](run)`` for every slot that is due, in the order of ``handlers``. Call
        it every minute.

        Each slot is claimed right before it runs, so any number of processes may do this. No run is begun after
        ``max_seconds``. Gives the records of what ran in this pass. An exception of a handler fails its run, goes to the
        logger ``rowclaim``, and the pass goes on; KeyboardInterrupt and SystemExit fail the run, end the pass and are
        raised.

        Raises NotFoundError for a task without a schedule, when its turn comes, and UnavailableError.
        """
    def runner(
        self,
        handlers: Mapping[str, Callable[[Job], object]],
        *,
        token: str | None = None,
        name: str | None = None,
        batch: int | None = None,
        max_seconds: _Span | None = None,
        max_jobs: int | None = None,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        finish: Literal["each", "group"] | None = None,
    ) -> Runner:
        """A door for HTTP requests and crontabs, behind which ``handlers`` work off what waits and stop when nothing does.

        ``token``: what a request must bring, at least 16 bytes. ``name``: one runner of this name works at a time; any
        number side by side when None. The other arguments are those of ``work``; give ``max_seconds``, less than the server
        allows a request.

        Raises InvalidError for a token that can be guessed.
        """
    def doctor(self) -> list[Finding]:
        """Looks at the server and Rowclaim's tables for what is wrong, or will be; changes nothing. A right the account lacks
        is never an error.
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

        ``state``: ready, claimed, done, dead, cancelled or held. ``before``: only smaller ids, for the next page. ``limit``:
        1 to 10,000.
        """
    def attempts(self, id: int) -> list[Attempt]:
        """The attempts of a job that did not succeed, oldest first."""
    def retry(self, id: int, *, force: bool = False) -> bool:
        """Puts a dead job back with all its attempts; with ``force`` also a claimed one, whose owner is lost then.

        False when it does not stand so any more. A job in state ``held`` is never put back by it: see ``resolve``. Raises
        NotFoundError, and DuplicateError when a newer job holds its key.
        """
    def resolve(self, ids: Iterable[int], sent: bool) -> dict[int, bool]:
        """Says of held jobs, which were begun when their lease ran out, whether they were ``sent``: those that were are done, the
        others are handed out again, and the attempt is not counted.

        Gives for each id True, or False when the job is not held, or not any more.
        """
    def cancel(self, id: int, *, force: bool = False) -> bool:
        """Takes a waiting, dead or held job out; with ``force`` also a claimed one, whose owner is lost then.

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
    def reject(self, ids: Iterable[int], error: str | BaseException) -> dict[int, bool]:
        """Fails jobs by id for good, whatever attempts are left. Otherwise as ``complete``."""
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
    ``KeyboardInterrupt``, ``SystemExit`` and the like give the job back without blame and go on; in a claim that holds they
    leave it to be held, since it was begun. A job that the block has finished itself stays as it is. Jobs do not cross a
    fork.
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
    def reject(self, error: str | BaseException) -> bool:
        """Failed for good: the job is dead, whatever attempts are left. For what no repetition mends; ``retry`` brings it back.

        ``error``, False and errors as for ``fail``.
        """
    def release(self, delay: _Span | None = None) -> bool:
        """Given back without blame, not to be handed out before ``delay`` has gone by. The attempt is not counted.

        False and errors as for ``complete``.
        """
    def guard(self, table: str, key: Mapping[str, _Value], set: Mapping[str, _Value], fence_column: str) -> bool:
        """Makes a write on any table with the fence of this claim of the job. False when a later owner has written: nothing
        was changed then.

        Otherwise as ``Engine.guard``.
        """
    def once(
        self,
        key: str,
        request: object,
        send: Callable[[Effect], object],
        *,
        ask: Callable[[Effect], object] | None = None,
        on_unknown: Literal["hold", "ask", "retry"] | None = None,
        lease: _Span | None = None,
        wait: _Span | None = None,
    ) -> Receipt:
        """Has an effect happen once, as ``Engine.once``, and completes this job in the transaction that records its success:
        neither is there without the other. The receipt's ``completed`` is False when the job was lost meanwhile.

        When the effect has happened before, the job is completed without sending.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...

@final
class Lease:
    """A lease by name that is held, made by ``Engine.lease``: ``with lease:`` gives it back when the block ends.

    It is renewed in the background until it is released or the object is gone. Leases do not cross a fork: in the child
    they are left alone.
    """

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def token(self) -> UUID:
        """The token of this holding, a UUID."""
    @property
    def fence(self) -> int:
        """A number above that of every earlier holder, for writes that a late holder must not make: see ``guard``."""
    @property
    def lost(self) -> bool:
        """True once a renewal was refused, or after it was released: somebody else may hold it now."""
    @property
    def valid_for(self) -> float:
        """For how many seconds it is surely held from now on; 0.0 when lost."""
    def renew(self) -> bool:
        """Renews it now. False when it is lost.

        Raises UnavailableError; it stays held for ``valid_for``.
        """
    def release(self) -> bool:
        """Gives it back. False when it was lost, or given back, before.

        Raises UnavailableError; it ends by itself then.
        """
    def guard(self, table: str, key: Mapping[str, _Value], set: Mapping[str, _Value], fence_column: str) -> bool:
        """Makes a write on any table with this lease's fence. False when a later holder has written: nothing was changed then.

        Otherwise as ``Engine.guard``.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Table:
    """Verbs on a table that was there already, made by ``Engine.table``. Usable from any thread, and in a forked child.

    ``where`` is a mapping of columns to a value, or to several of which any will do; None is IS NULL. Values are
    converted to the column's type or refused by its name: ``datetime`` with a zone is that instant, without one it is
    meant as the column shows it. Names are quoted and values bound, whatever they hold. Every verb may raise InvalidError
    for arguments, ConfigError and SchemaError when the table has changed under its mapping, and UnavailableError.
    """

    @property
    def name(self) -> str:
        """The table's name as it was given."""
    @property
    def mapping(self) -> dict[str, Any]:
        """What its columns mean: the entries that differ from the defaults."""
    def claim(
        self,
        limit: int | None = None,
        *,
        where: _Where | None = None,
        order: str | Iterable[str] | None = None,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        partition: tuple[int, int] | None = None,
    ) -> RowClaim:
        """Takes up to ``limit`` rows (1 to 10,000). The claim is empty when nothing waits.

        ``order``: a column or several, with ``-`` in front for falling; by priority and time when left out. ``lease``:
        from 1 second; renewed in the background, not past ``max_run`` from the start. ``partition``: ``(k, n)``, only rows
        whose key leaves the remainder k when divided by n.
        """
    def work(
        self,
        handler: Callable[[Row], object],
        *,
        where: _Where | None = None,
        order: str | Iterable[str] | None = None,
        batch: int | None = None,
        max_seconds: _Span | None = None,
        max_jobs: int | None = None,
        until_empty: bool = False,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        max_idle: _Span | None = None,
        finish: Literal["each", "group"] | None = None,
    ) -> Summary:
        """Claims batches and calls ``handler(row)`` for each row until told to stop.

        ``where`` and ``order`` as for ``claim``, everything else as for ``Engine.work``. A handler of rows that recur
        completes each row itself, with a delay.
        """
    def runner(
        self,
        handler: Callable[[Row], object],
        *,
        token: str | None = None,
        name: str | None = None,
        where: _Where | None = None,
        order: str | Iterable[str] | None = None,
        batch: int | None = None,
        max_seconds: _Span | None = None,
        max_jobs: int | None = None,
        lease: _Span | None = None,
        max_run: _Span | None = None,
        finish: Literal["each", "group"] | None = None,
    ) -> Runner:
        """A door for HTTP requests and crontabs, behind which ``handler(row)`` works off what waits and stops when nothing
        does.

        ``token`` and ``name`` as for ``Engine.runner``, the other arguments as for ``work``.
        """
    def remaining(self, where: _Where | None = None) -> bool:
        """Whether any row waits or is in a claim: two look-ups that stop at the first row, never a count. Failed rows and those
        that wait for a person do not count.
        """
    def doctor(self, filters: str | Iterable[str] | None = None) -> list[Finding]:
        """Looks at the server, Rowclaim's tables and this table for what is wrong, or will be; changes nothing.

        ``filters``: columns that claims on it filter by; the index has to have them.
        """
    def recover(self) -> Recovered:
        """Takes rows back: of every claim of this database whose lease has run out, and of this table those that other code
        has held for longer than the mapping's ``recover_after``. Claims do this by themselves now and then.
        """
    def retry(
        self,
        keys: _Key | Iterable[_Key] | None = None,
        *,
        where: _Where | None = None,
        limit: int | None = None,
    ) -> int:
        """Puts failed rows back with all their attempts: those of ``keys`` (one or several), or up to ``limit`` for which
        ``where`` holds. How many.

        Raises InvalidError for a mapping without ``failed``.
        """
    def take_back(
        self,
        keys: _Key | Iterable[_Key] | None = None,
        *,
        where: _Where | None = None,
        limit: int | None = None,
    ) -> int:
        """Takes held rows away from their owners and puts them back at once, chosen as for ``retry``. How many.

        The owners' writes are refused from then on. For a person who knows that the owner is gone.
        """
    def resolve(self, keys: _Key | Iterable[_Key], sent: bool) -> dict[Any, bool]:
        """Says of rows in the mapping's ``held`` status (one key or several), which were begun when their lease ran out, whether
        they were ``sent``: those that were are done, the others are handed out again, and the attempt is not counted.

        Gives for each key True, or False when the row does not wait for a person, or not any more. Raises InvalidError for a
        mapping without ``held``.
        """
    def rows(
        self,
        where: _Where | None = None,
        *,
        status: _Value = None,
        after: _Key | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Rows in the order of their keys, whoever holds them.

        ``status``: only rows with this value of the status column. ``after``: only larger keys, for the next page.
        ``limit``: 1 to 10,000.
        """
    def row(self, key: _Key) -> Record | None:
        """One row by its key, or None."""

@final
class RowClaim:
    """A batch of rows of a mapped table with one token and one lease.

    Iterating hands the rows out, each only while the lease is surely valid. ``with claim:`` gives back what was not
    started when the block ends, by an exception too. The lease is renewed in the background until every row is finished
    or the claim and its rows are gone. Claims do not cross a fork.
    """

    @property
    def token(self) -> UUID | None:
        """Its token, a UUID; None for an empty claim."""
    @property
    def id(self) -> int | None:
        """The id of its row in the claims table; None for an empty claim and without a registry."""
    @property
    def lost(self) -> bool:
        """True once a renewal was refused: somebody else may own the rows now."""
    @property
    def valid_for(self) -> float:
        """For how many seconds it is surely valid from now on; 0.0 when lost or empty."""
    def renew(self) -> bool:
        """Renews the lease now. False when it is lost.

        Raises UnavailableError; the claim stays valid for ``valid_for``.
        """
    def complete(
        self,
        keys: _Key | Iterable[_Key] | None = None,
        set: Mapping[str, _Value] | None = None,
        delay: _Span | None = None,
    ) -> dict[Any, bool]:
        """Completes rows by key, or all that are not finished yet, in one step; durable when it returns.

        ``set`` and ``delay`` as for ``Row.complete``, the same for every row. Gives for each key True (accepted) or False
        (lost). Raises InvalidError for a key that is not in the claim, before anything is written, and UnavailableError.
        """
    def fail(
        self, keys: _Key | Iterable[_Key], error: str | BaseException, delay: _Span | None = None
    ) -> dict[Any, bool]:
        """Fails rows by key: each comes back after ``delay`` or its back-off, or is failed. Otherwise as ``complete``."""
    def reject(self, keys: _Key | Iterable[_Key], error: str | BaseException) -> dict[Any, bool]:
        """Fails rows by key for good, whatever attempts are left. Otherwise as ``complete``."""
    def release(self, keys: _Key | Iterable[_Key] | None = None, delay: _Span | None = None) -> dict[Any, bool]:
        """Gives rows back by key, or all that are not finished yet, without blame. Otherwise as ``complete``."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Row: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Record(Mapping[str, Any]):
    """A row of a mapped table as it stood when it was read: a read-only mapping of columns to values.

    Whole numbers are ``int``, DECIMAL is ``Decimal``, DATETIME and TIMESTAMP are ``datetime`` without a zone, in the
    mapping's; DATE is ``date``; BLOB and BINARY are ``bytes``; NULL is None; everything else is ``float`` or ``str``.
    """

    @property
    def key(self) -> Any:
        """The value of its key column."""
    @property
    def attempts(self) -> int:
        """Attempts so far, one that is under way included; 1 where the mapping does not name them."""
    @property
    def max_attempts(self) -> int | None:
        """Attempts before the row is failed; None where there is no limit."""
    @property
    def fence(self) -> int:
        """The fence of the row's last claim: every later claim has a larger one; 0 where the mapping does not name it."""
    def keys(self) -> KeysView[str]:
        """The names of its columns, in their order."""
    def values(self) -> ValuesView[Any]:
        """Its values, in the order of the columns."""
    def items(self) -> ItemsView[str, Any]:
        """Columns and values, in order."""
    def get(self, column: str, default: Any = None, /) -> Any:
        """The value of a column, or ``default`` when the row comes without it."""
    def __getitem__(self, column: str, /) -> Any: ...
    def __contains__(self, column: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...

@final
class Row(Record):
    """One row of a claim: ``with row:`` completes it when the block ends, and fails it when the block raises.

    An ``Exception`` is written to the row, as far as the mapping has a place for it, and to the logger ``rowclaim`` and
    goes no further, so that a loop goes on. ``KeyboardInterrupt``, ``SystemExit`` and the like give the row back without
    blame and go on; where the mapping holds they leave it to be held, since it was begun. A row that the block has finished
    itself stays as it is; one that recurs it must complete itself, with a delay. Rows do not cross a fork.
    """

    @property
    def token(self) -> UUID | None:
        """Its claim's token."""
    @property
    def claim(self) -> RowClaim:
        """The claim it belongs to."""
    @property
    def finished(self) -> bool:
        """True when it was finished through this claim."""
    def complete(self, set: Mapping[str, _Value] | None = None, delay: _Span | None = None) -> bool:
        """Done. Durable when it returns. False: lost, somebody else owns the row now; nothing was changed.

        ``set``: columns of the row and their values, written in the same step. A row that recurs (``done`` is
        ``pending``) waits again for ``delay``, or until the time that ``set`` gives it. Raises InvalidError, naming the
        column, for what does not fit, and UnavailableError when it is unknown whether it was written; the same call may
        be repeated.
        """
    def fail(self, error: str | BaseException, delay: _Span | None = None) -> bool:
        """Failed: the row comes back after ``delay`` or the back-off, or is failed when its attempts are used up.

        ``error`` is text or an exception, written as ``Class: message`` and cut to 4,000 characters and to the column's
        length. False and errors as for ``complete``.
        """
    def reject(self, error: str | BaseException) -> bool:
        """Failed for good: the row is failed, whatever attempts are left. For what no repetition mends; ``retry`` brings it back.

        ``error``, False and errors as for ``fail``; InvalidError when the mapping has no ``failed``.
        """
    def release(self, delay: _Span | None = None) -> bool:
        """Given back without blame, not to be handed out before ``delay`` has gone by. The attempt is not counted.

        False and errors as for ``complete``.
        """
    def guard(self, table: str, key: Mapping[str, _Value], set: Mapping[str, _Value], fence_column: str) -> bool:
        """Makes a write on any table with the fence of this claim of the row. False when a later owner has written: nothing
        was changed then.

        Otherwise as ``Engine.guard``, and InvalidError when the
        mapping names no fence.
        """
    def once(
        self,
        key: str,
        request: object,
        send: Callable[[Effect], object],
        *,
        ask: Callable[[Effect], object] | None = None,
        on_unknown: Literal["hold", "ask", "retry"] | None = None,
        lease: _Span | None = None,
        wait: _Span | None = None,
    ) -> Receipt:
        """Has an effect happen once, as ``Engine.once``, and completes this row in the transaction that records its success:
        neither is there without the other. The receipt's ``completed`` is False when the row was lost meanwhile.

        When the effect has happened before, the row is completed without sending. Raises InvalidError for rows that recur.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...

@final
class Effect:
    """An effect in the hands of the function that sends it or asks about it."""

    @property
    def key(self) -> str:
        """The key: hand it to the provider as its idempotency key."""
    @property
    def attempts(self) -> int:
        """Which try this is, from 1."""
    @property
    def valid_for(self) -> float:
        """For how many seconds the ledger surely holds it for this sender; 0.0 when it has ended."""

@final
class Run:
    """One run of a task, in the hands of the function that runs it: made by ``Engine.run_slot`` and ``Engine.run_due``.

    It is renewed in the background until the function has ended. Runs do not cross a fork: in the child they are left
    alone.
    """

    @property
    def id(self) -> int:
        """Its number in the history."""
    @property
    def task(self) -> str:
        """The task."""
    @property
    def slot(self) -> datetime:
        """The planned time, an aware datetime in UTC; of a run that a person asked for, when that was."""
    @property
    def fence(self) -> int:
        """A number above that of every earlier run of the task, for writes that a late run must not make."""
    @property
    def token(self) -> UUID:
        """Its token, a UUID."""
    @property
    def manual(self) -> bool:
        """True when a person asked for it."""
    @property
    def lost(self) -> bool:
        """True once a renewal was refused, or after it ended: the task may run elsewhere now."""
    @property
    def valid_for(self) -> float:
        """For how many seconds it surely is the only run of its task from now on; 0.0 when lost."""
    def guard(self, table: str, key: Mapping[str, _Value], set: Mapping[str, _Value], fence_column: str) -> bool:
        """Makes a write on any table with this run's fence. False when a later run has written: nothing was changed then.

        Otherwise as ``Engine.guard``.
        """

@final
class Runner:
    """Work behind an HTTP request or a line of a crontab, made by ``Engine.runner`` and ``Table.runner``: who may start it,
    one at a time of a name, and what is answered. Usable from any thread, and in a forked child.

    In the main thread SIGTERM and SIGINT end the work after the job in hand, as in ``Engine.work``; when the runner has let
    go of everything they do what they did before.
    """

    def handle(self, method: str, token: str | None = None) -> RunnerAnswer:
        """Works when the request may: POST (otherwise 405) with the token, raw or as ``Bearer …`` (otherwise 403), while no
        other runner of its name works (otherwise 409, at once). First, jobs of workers that died are taken back.

        Gives a RunnerAnswer: 200 with what was done and whether more waits, 503 without the database, 500 for other faults.
        A handler's exception only fails its job; KeyboardInterrupt and SystemExit end the work and are raised.

        Raises InvalidError for a runner without a token.
        """
    def run(self) -> RunnerAnswer:
        """Works without asking for a token: for crontabs. Otherwise as ``handle``."""
    def wsgi(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The runner as a WSGI application: the method and the header ``Authorization`` go to ``handle``, and its answer comes
        back as ``application/json``.
        """
