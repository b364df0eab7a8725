"""The stories of tests/scenarios, told in Python. Their format is in the README there."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rowclaim
from conftest import Database

SCENARIOS = sorted((Path(__file__).parents[2] / "tests" / "scenarios").glob("*.json"))
CREATION = ("key", "unique", "delay", "run_at", "priority", "max_attempts")
JOB_FIELDS = ("state", "attempts", "max_attempts", "fence", "lost", "priority", "key", "last_error")


class Story:
    """One run of a story against one database."""

    def __init__(self, database: Database, engine: rowclaim.Engine) -> None:
        self.database = database
        self.engine = engine
        self.leases: dict[str, rowclaim.Lease] = {}
        self.jobs: dict[str, int] = {}
        self.claims: dict[str, tuple[rowclaim.Claim, list[rowclaim.Job]]] = {}

    def take(self, step: dict[str, Any]) -> None:
        call: Callable[[dict[str, Any]], Any] = getattr(self, "do_" + step["do"])
        if "error" in step and step["do"] not in ("fail", "reject"):  # there it is the text of the failure
            with pytest.raises(rowclaim.RowclaimError) as caught:
                call(step)
            assert caught.value.kind == step["error"], step
            return
        answer = call(step)
        expected = step.get("expect")
        if isinstance(expected, dict):
            if "same_as" in expected:
                expected = {**expected, "same_as": self.jobs[expected["same_as"]]}
            if "above" in expected:
                expected = {**expected, "above": answer["fence"] > self.leases[expected["above"]].fence}
            answer = {name: answer[name] for name in expected}
        if expected is not None:
            assert answer == expected, step

    def job_at(self, step: dict[str, Any]) -> rowclaim.Job:
        claim, handed_out = self.claims[step["claim"]]
        while len(handed_out) <= step["index"]:
            handed_out.append(next(claim))
        return handed_out[step["index"]]

    def do_create(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {name: step[name] for name in CREATION if name in step}
        created = self.engine.create(step["queue"], step["payload"], **options)
        if "as" in step:
            self.jobs[step["as"]] = created.id
        return {"exists": created.exists, "state": created.state, "same_as": created.id}

    def do_create_many(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"exists": [answer.exists for answer in self.engine.create_many(step["queue"], step["jobs"])]}

    def do_claim(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {name: step[name] for name in ("limit", "priority", "lease", "max_run") if name in step}
        if "partition" in step:
            options["partition"] = tuple(step["partition"])
        claim = self.engine.claim(step["queue"], **options)
        self.claims[step.get("as", str(len(self.claims)))] = (claim, [])
        looked_at = step.get("expect", {})
        jobs: list[rowclaim.Job] = []
        if set(looked_at) & {"payloads", "keys", "attempts", "fences"}:
            jobs = self.claims[step.get("as", "")][1]
            jobs.extend(claim)
        return {
            "count": len(claim),
            "payloads": [job.payload for job in jobs],
            "keys": [job.key for job in jobs],
            "attempts": [job.attempts for job in jobs],
            "fences": [job.fence for job in jobs],
        }

    def do_complete(self, step: dict[str, Any]) -> bool:
        return self.job_at(step).complete()

    def do_fail(self, step: dict[str, Any]) -> bool:
        return self.job_at(step).fail(step["error"], step.get("delay"))

    def do_reject(self, step: dict[str, Any]) -> bool:
        return self.job_at(step).reject(step["error"])

    def do_release(self, step: dict[str, Any]) -> bool:
        if "lease" in step:
            return self.leases[step["lease"]].release()
        return self.job_at(step).release(step.get("delay"))

    def do_renew(self, step: dict[str, Any]) -> bool:
        if "lease" in step:
            return self.leases[step["lease"]].renew()
        return self.claims[step["claim"]][0].renew()

    def do_lease(self, step: dict[str, Any]) -> dict[str, Any]:
        lease = self.engine.lease(step["name"], lease=step["lease"], wait=step.get("wait"))
        if lease is None:
            return {"acquired": False}
        self.leases[step.get("as", "")] = lease
        return {"acquired": True, "above": True, "fence": lease.fence}

    def do_lost(self, step: dict[str, Any]) -> bool:
        return self.leases[step["lease"]].lost

    def do_throttle(self, step: dict[str, Any]) -> bool:
        return self.engine.throttle(step["name"], step["limit"], per=step.get("per"), wait=step.get("wait"))

    def do_leases(self, step: dict[str, Any]) -> dict[str, Any]:
        leases = self.engine.leases(limit=step.get("limit"))
        return {
            word: [one.name for one in leases if one.is_held is held]
            for word, held in (("held", True), ("free", False))
        }

    def do_guard(self, step: dict[str, Any]) -> bool:
        write = (self.database.prefix + step["table"], step["key"], step["set"], step.get("fence_column", "fence"))
        if "lease" in step:
            return self.leases[step["lease"]].guard(*write)
        if "claim" in step:
            return self.job_at(step).guard(*write)
        return self.engine.guard(*write, fence=step["fence"])

    @staticmethod
    def does(what: dict[str, Any] | None) -> Callable[[rowclaim.Effect], Any]:
        """What a function of an effect does."""

        def function(effect: rowclaim.Effect) -> Any:
            assert what is not None, f"{effect} must not be sent"
            ((word, told),) = what.items()
            if word == "respond":
                return told
            raise rowclaim.NotSent(told) if word == "not_sent" else RuntimeError(told)

        return function

    def do_once(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {name: step[name] for name in ("on_unknown", "lease") if name in step}
        if "ask" in step:
            options["ask"] = self.does(step["ask"])
        once = self.job_at(step).once if "claim" in step else self.engine.once
        try:
            receipt = once(step["key"], step["request"], self.does(step.get("send")), **options)
        except (rowclaim.NotSent, RuntimeError) as error:
            return {"raised": str(error)}
        return {**vars(receipt), "response": receipt.response}

    def do_effect(self, step: dict[str, Any]) -> dict[str, Any]:
        effect = self.engine.effect(step["key"])
        assert effect is not None
        return {**vars(effect), "response": effect.response}

    def do_resolve_effect(self, step: dict[str, Any]) -> bool:
        response = (step["response"],) if "response" in step else ()
        return self.engine.resolve_effect(step["key"], step["happened"], *response)

    def do_run_slot(self, step: dict[str, Any]) -> dict[str, Any]:
        options = {name: step[name] for name in ("lease", "max_run", "manual") if name in step}
        ran: list[rowclaim.Run] = []

        def run(run: rowclaim.Run) -> None:
            ran.append(run)
            for inner in step.get("inside", []):
                self.take(inner)
            if "raise" in step:
                raise RuntimeError(step["raise"])

        try:
            record = self.engine.run_slot(step["task"], step["slot"], run, **options)
        except RuntimeError as error:
            return {"ran": bool(ran), "raised": str(error)}
        return {**vars(record), "ran": bool(ran)}

    def do_runs(self, step: dict[str, Any]) -> dict[str, Any]:
        runs = self.engine.runs(task=step.get("task"), state=step.get("state"))
        return {"states": [run.state for run in runs], "reasons": [run.reason for run in runs]}

    def do_sql(self, step: dict[str, Any]) -> int | None:
        rows = self.database.sql(step["statement"].replace("{", self.database.prefix).replace("}", ""))
        return int(rows[0][0]) if rows else None

    def do_recover(self, step: dict[str, Any]) -> dict[str, Any]:
        return vars(self.engine.recover())

    def do_retry(self, step: dict[str, Any]) -> bool:
        return self.engine.retry(self.jobs[step["job"]], force=step.get("force", False))

    def do_cancel(self, step: dict[str, Any]) -> bool:
        return self.engine.cancel(self.jobs[step["job"]], force=step.get("force", False))

    def do_job(self, step: dict[str, Any]) -> dict[str, Any]:
        row = self.engine.job(self.jobs[step["job"]])
        assert row is not None
        return {**{name: getattr(row, name) for name in JOB_FIELDS}, "payload": row.raw_payload}

    def do_attempts(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"outcomes": [attempt.outcome for attempt in self.engine.attempts(self.jobs[step["job"]])]}

    def do_wait(self, step: dict[str, Any]) -> None:
        time.sleep(step["seconds"])

    def do_work(self, step: dict[str, Any]) -> dict[str, Any]:
        outcomes = itertools.cycle(step["outcomes"])

        def handler(job: rowclaim.Job) -> None:
            outcome = next(outcomes)
            if outcome == "fail":
                raise RuntimeError("boom")
            if outcome == "reject":
                raise rowclaim.Reject("boom")
            if outcome == "release":
                job.release(60)

        options = {"batch": step["limit"]} if "limit" in step else {}
        return vars(self.engine.work({step["queue"]: handler}, until_empty=True, **options))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_story_ends_as_told(path: Path, database: Database) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    with database.connect(**told.get("options", {})) as engine:
        story = Story(database, engine)
        for step in told["steps"]:
            story.take(step)


def test_there_are_stories() -> None:
    assert SCENARIOS
