#!/usr/bin/env python3
"""Four schemas of the field: the batch job as teams write it, and the same job on Rowclaim, under the same accidents.

Each job runs with eight processes, half PHP and half Python, on one table; three of them are killed inside of a send, two
are stopped inside of a send past their lease. A provider counts what goes out. The original must fail the test, or the
test proves nothing; ours must not double a row beyond the accidents' own sends, lose none, and finish each once.

    python3 tests/servers.py run --db mariadb -- target/venv/bin/python tests/schemas/run.py

The last line is the outcome as JSON; exit status 1 when anything is not as it must be.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

import audit
from accidents import Accidents
from crew import Crew
from fixture import SCHEMAS, Database, accidents, posts
from provider import Provider

ROOT = Path(__file__).resolve().parent.parent.parent
LEASE = 2.0  # seconds, of a claim of ours
STALE = 3  # seconds, after which hand-written code takes a row for abandoned
LONGEST_RUN = 60.0
# Nothing has gone out for so long: what is open stays open. Ours looks for rows of other code every five seconds.
QUIET = {"original": 4.5, "ours": 12.0, "mixed": 12.0}
LONGEST_STOP = {"original": 5.0, "ours": 10.0, "mixed": 10.0}
SCALED = {
    "SCALED_LEASE": str(LEASE),
    "SCALED_STALE_SECONDS": str(STALE),
    "SCALED_WORK_SECONDS": "0.4",
    "SCALED_BACKOFF_BASE": "1",
    "SCALED_BACKOFF_CAP": "2",
    "SCALED_MAPPING": json.dumps({"recover_after": STALE, "backoff_base": 1, "backoff_cap": 2}),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    schema: str
    variant: str
    rows: int
    sends: int
    doubles: audit.Doubles
    lost: int
    finished_once: bool
    accidents: str
    crashes: list[str]
    refused: int
    seconds: float

    def complaints(self) -> list[str]:
        """Why it is not as it must be."""
        found = []
        if self.variant == "original":
            if self.doubles.unexplained == 0:
                found.append("the original passes the test: it shows nothing")
        else:
            if self.doubles.unexplained:
                found.append(f"{self.doubles.unexplained} doubles without an accident")
            if self.lost:
                found.append(f"{self.lost} rows lost")
            if not self.finished_once:
                found.append("something was finished twice or not at all")
            found += [f"crashed: {crash}" for crash in self.crashes]
        happened, planned = self.accidents.split("/")
        if happened != planned:
            found.append(f"only {happened} of {planned} accidents happened")
        return [f"{self.schema} {self.variant}: {complaint}" for complaint in found]


def wait_until_over(database: Database, schema: str, variant: str, crew: Crew, provider: Provider, going: Accidents) -> None:
    """Over is: every row in an end state, or nothing moves any more."""
    since = time.monotonic()
    while time.monotonic() - since < LONGEST_RUN:
        time.sleep(0.1)
        crew.replace_crashed()
        if going.is_someone_stopped:
            continue
        still = min(provider.quiet_for(), time.monotonic() - going.last_at)
        is_done = SCHEMAS[schema].open(database) == 0
        if is_done and (going.are_over() or still > 1.0):
            break
        if still > QUIET[variant]:
            break
    going.end()
    # A stopped worker has just gone on: let it do what it may do wrong.
    time.sleep(max(0.0, 0.7 - (time.monotonic() - going.last_at)))


def measure(server: str, schema: str, variant: str, rows: int, keep: bool, calm: bool) -> Outcome:
    """One run: a fresh database, eight workers, the accidents, the audit."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"  {schema} {variant} {time.monotonic() - started:5.1f} s  {text}", flush=True)

    database = Database(server, schema, variant)
    if variant != "original":
        database.load(Path(__file__).resolve().parent / schema / "ours.sql")
        database.migrate()
    planned = SCHEMAS[schema].fill(database, rows)
    provider = Provider()
    environment = {**SCALED, "SCALED_BATCH": str(SCHEMAS[schema].batch), "ROWCLAIM_DSN": database.dsn, "SCHEMA_URL": provider.url}
    if database.socket:
        environment["SCHEMA_SOCKET"] = database.socket
    crew = Crew(posts(schema, variant), environment)
    say(f"{len(planned)} rows, {len(posts(schema, variant))} workers")
    plan = [] if calm else accidents(schema, variant)
    stop = (max(LEASE, STALE) + 0.5, LONGEST_STOP[variant])
    going = Accidents(plan, crew, provider, rows=len(planned), stop=stop, say=say)
    try:
        crew.begin()
        wait_until_over(database, schema, variant, crew, provider, going)
    finally:
        going.end()
        crew.end()
    deliveries = provider.deliveries()
    ends = SCHEMAS[schema].ends(database, planned)
    missing = audit.lost(planned, deliveries, ends)
    outcome = Outcome(
        schema,
        variant,
        rows=len(planned),
        sends=len(deliveries),
        doubles=audit.doubles(deliveries, going.in_flight),
        lost=len(missing) + ends.open_tasks,
        finished_once=audit.finished_once(planned, crew.said("done"), crew.said("task_done"), ends),
        accidents=f"{going.happened}/{going.planned}",
        crashes=crew.crashes,
        refused=crew.said("refused").total(),
        seconds=time.monotonic() - started,
    )
    provider.close()
    say(f"{outcome.sends} sends, {outcome.doubles.total} doubles, {outcome.doubles.unexplained} of them without an accident")
    if missing and variant != "original":
        say(f"lost: {', '.join(missing[:10])}")
    if not keep:
        database.drop()
    return outcome


def table(outcomes: list[Outcome]) -> str:
    """What people read."""
    head = ("schema", "run", "rows", "sends", "doubles", "by accident", "unexplained", "lost", "once")
    head += ("accidents", "late", "crashes", "s")
    lines = [head]
    for o in outcomes:
        name = f"{o.schema} {SCHEMAS[o.schema].title}"
        counts = (o.rows, o.sends, o.doubles.total, o.doubles.by_accident, o.doubles.unexplained, o.lost)
        rest = ("yes" if o.finished_once else "no", o.accidents, o.refused, len(o.crashes), f"{o.seconds:.1f}")
        lines.append((name, o.variant, *map(str, counts), *map(str, rest)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text_columns = 2
    return "\n".join(
        "  ".join(cell.ljust(w) if n < text_columns else cell.rjust(w) for n, (cell, w) in enumerate(zip(line, widths)))
        for line in lines
    )


def summary(outcomes: list[Outcome]) -> dict[str, dict[str, object]]:
    """What machines read."""
    found: dict[str, dict[str, object]] = {}
    for o in outcomes:
        prefix = "" if o.variant == "ours" else f"{o.variant}_"
        found.setdefault(o.schema, {}).update(
            {
                f"{prefix}doubles": o.doubles.total,
                f"{prefix}unexplained_doubles": o.doubles.unexplained,
                f"{prefix}lost": o.lost,
                f"{prefix}finished_once": o.finished_once,
            }
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", choices=("mariadb", "mysql"), default="mariadb", help="the server to use")
    parser.add_argument("--only", default=",".join(SCHEMAS), help="schemas, for instance a,b")
    parser.add_argument("--rows", type=int, default=400, help="rows of each schema")
    parser.add_argument("--only-original", action="store_true", help="leave ours out")
    parser.add_argument("--keep", action="store_true", help="leave the databases for people to look at")
    parser.add_argument("--calm", action="store_true", help="no accidents")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(SCHEMAS):
        parser.error(f"no such schema: {', '.join(sorted(unknown))}")
    os.environ.setdefault("ROWCLAIM_PHP_EXTENSION", str(ROOT / "target" / "fast" / "librowclaim_php.so"))
    outcomes = []
    for schema in options.only.split(","):
        variants = ["original"] if options.only_original else ["original", "ours", *(["mixed"] * SCHEMAS[schema].has_mixed)]
        for variant in variants:
            outcomes.append(measure(options.db, schema, variant, options.rows, options.keep, options.calm))
    print()
    print(table(outcomes))
    complaints = [complaint for outcome in outcomes for complaint in outcome.complaints()]
    for line in complaints:
        print(line)
    for outcome in outcomes:
        if outcome.variant == "original" and outcome.crashes:
            name, error = outcome.crashes[0].split(": ", 1)
            lines = error.splitlines()
            reason = next((line for line in lines if "Uncaught" in line), lines[-1])
            print(f"{outcome.schema} original: {name} was started again after {reason[:150]}")
    print(json.dumps(summary(outcomes)), flush=True)
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
