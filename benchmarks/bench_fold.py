"""How many executions a second the history fold turns into features, on one core, by CPU time.

Measured: `build_matrix` from a coded log to the finished matrix, every feature of the schema in it, over 200
runs. Dense: 1,000 tests in every run. Ragged: 300 of 1,000. These histories know no change, as CI logs mostly
do not; `with_changes` is the dense case where every run changes five files. The ceiling in the same run is
one copy of the finished matrix. Each figure is a median of many repeats, the first one apart; beside it stand
the best repeat and the cost of one small numpy call, because shared machines change speed. The growth rows go
to 4,000 runs, where the matrix (528 MB) has to come from the system anew each time; their slope is that of
log seconds over log executions, 1 is linear.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import build_matrix
from fastci_ml.records.changes import ChangeStatus, FileChange

N_TESTS, N_RAGGED, N_RUNS, N_REPEATS = 1000, 300, 200, 151
FAILURE_RATE = 0.01


def make_log(n_tests: int, n_per_run: int, n_runs: int, *, with_changes: bool = False) -> RunLog:
    """Random history with a fixed seed: one percent failures, all durations known, no overlap."""
    rng = np.random.default_rng(7)
    tests = [np.sort(rng.choice(n_tests, n_per_run, replace=False)) for _ in range(n_runs)]
    times = np.arange(n_runs, dtype=np.int64) * 1_000_000
    changes: list[tuple[FileChange, ...] | None] = [None] * n_runs
    if with_changes:
        changes = [
            tuple(
                FileChange(
                    path=f"pkg/part_{i % 20}/module_{i}.py",
                    status=ChangeStatus.MODIFIED,
                    n_added=3.0,
                    n_deleted=1.0,
                )
                for i in rng.choice(200, 5, replace=False).tolist()
            )
            for _ in range(n_runs)
        ]
    return RunLog(
        node_ids=[f"tests/part_{i // 50}/test_mod_{i // 20:02d}.py::test_{i:04d}" for i in range(n_tests)],
        lanes=["lane"] * n_tests,
        run_ids=[f"run-{i:05d}" for i in range(n_runs)],
        run_lanes=["lane"] * n_runs,
        heads=[""] * n_runs,
        started_us=times,
        finished_us=times,
        offsets=np.arange(n_runs + 1, dtype=np.int64) * n_per_run,
        tests=np.concatenate(tests).astype(np.int32),
        verdicts=(rng.random(n_runs * n_per_run) < FAILURE_RATE).astype(np.int8),
        durations_s=rng.exponential(1.0, n_runs * n_per_run),
        changes=changes,
    )


def seconds(log: RunLog, n_repeats: int) -> tuple[float, float, float]:
    """Median and least CPU seconds of the fold, and median of one copy of its result.

    The first repeat is left out: it gets its memory from the system.
    """
    folds, copies = [], []
    for _ in range(n_repeats + 1):
        start_s = time.process_time()
        matrix = build_matrix(log)
        folds.append(time.process_time() - start_s)
    for _ in range(9):  # apart from the folds, whose memory a copy in between would push out of the caches
        start_s = time.process_time()
        matrix.copy(order="K")
        copies.append(time.process_time() - start_s)
    return statistics.median(folds[1:]), min(folds[1:]), statistics.median(copies[1:])


def numpy_call_us(n_calls: int = 20_000) -> float:
    """Microseconds of one in-place sum of 1,000 float32: what the machine gives just now."""
    total, values = np.zeros(N_TESTS, dtype=np.float32), np.ones(N_TESTS, dtype=np.float32)
    start_s = time.process_time()
    for _ in range(n_calls):
        np.add(total, values, out=total)
    return (time.process_time() - start_s) / n_calls * 1e6


def main() -> None:
    summary = {}
    for name, n_per_run, with_changes in (
        ("dense", N_TESTS, False),
        ("ragged", N_RAGGED, False),
        ("with_changes", N_TESTS, True),
    ):
        log = make_log(N_TESTS, n_per_run, N_RUNS, with_changes=with_changes)
        call_us = numpy_call_us()
        fold_s, least_s, copy_s = seconds(log, N_REPEATS)
        summary |= {f"{name}_per_s": log.n_rows / fold_s, f"{name}_per_s_best": log.n_rows / least_s}
        row = {"case": name, "n_executions": log.n_rows, "cpu_s": fold_s, "least_cpu_s": least_s}
        print(json.dumps({**row, "ratio_to_copy": fold_s / copy_s, "numpy_call_us": call_us}), flush=True)
    sizes, times_s = [], []
    for n_runs in (500, 1000, 2000, 4000):
        log = make_log(N_TESTS, N_TESTS, n_runs)
        times_s.append(seconds(log, 3)[0])
        sizes.append(log.n_rows)
        print(json.dumps({"case": "growth", "n_executions": log.n_rows, "cpu_s": times_s[-1]}), flush=True)
    slope = float(np.polyfit([math.log(n) for n in sizes], [math.log(t) for t in times_s], 1)[0])
    print(json.dumps({"benchmark": "fold", **summary, "numpy_call_us": numpy_call_us(), "slope": slope}))


if __name__ == "__main__":
    main()
