"""A worker through the Python module. Usage: worker.py work|claims DSN BATCH COUNT

``work``: a round works the queue off with a handler that does nothing; the answer is the number of jobs.
``claims``: a round is COUNT claims of BATCH jobs; the answer is their times in microseconds.
"""

import sys
import time

import rowclaim


def main() -> None:
    mode, dsn, batch, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    engine = rowclaim.connect(dsn)
    print("ready", flush=True)
    for _ in sys.stdin:
        if mode == "work":
            summary = engine.work({"q": lambda job: None}, batch=batch, until_empty=True)
            print(summary.completed, flush=True)
            continue
        times = []
        for _ in range(count):
            since = time.perf_counter_ns()
            claim = engine.claim("q", limit=batch)
            times.append((time.perf_counter_ns() - since) / 1000)
            if len(claim) != batch:
                raise RuntimeError(f"a claim of {batch} got {len(claim)} jobs")
            claim.complete()
        engine.flush()
        print(*times, flush=True)


main()
