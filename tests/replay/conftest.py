"""Small histories, written as what each run saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from fastci_ml.features.log import RunLog

# Test -> (verdict, seconds) for each run.
Runs = Sequence[Mapping[str, tuple[int, float]]]

_HOUR_US = 3_600_000_000


@pytest.fixture(scope="session")
def make_log() -> Callable[..., RunLog]:
    """Build a log: one run an hour, each over within a second unless told otherwise."""

    def make(runs: Runs, *, length_us: Sequence[int] | None = None) -> RunLog:
        names = sorted({name for run in runs for name in run})
        codes = {name: i for i, name in enumerate(names)}
        rows = [(codes[name], *run[name]) for run in runs for name in sorted(run)]
        started = np.arange(len(runs), dtype=np.int64) * _HOUR_US
        return RunLog(
            node_ids=names,
            lanes=["lane"] * len(names),
            run_ids=[f"run-{i:03d}" for i in range(len(runs))],
            run_lanes=["lane"] * len(runs),
            heads=[""] * len(runs),
            started_us=started,
            finished_us=started + np.asarray([1_000_000] * len(runs) if length_us is None else length_us),
            offsets=np.cumsum([0, *(len(run) for run in runs)]),
            tests=np.array([row[0] for row in rows], dtype=np.int32),
            verdicts=np.array([row[1] for row in rows], dtype=np.int8),
            durations_s=np.array([row[2] for row in rows], dtype=np.float64),
            changes=[None] * len(runs),
        )

    return make


@pytest.fixture(scope="session")
def busy_log(make_log: Callable[..., RunLog]) -> RunLog:
    """Eighty runs of up to twelve tests with failures that repeat, odd durations and unclear results."""
    rng = np.random.default_rng(4)
    fail_rates = rng.beta(0.5, 3.0, size=12)
    usual_s = rng.exponential(3.0, size=12).round(3)
    runs, failing = [], np.zeros(12, dtype=bool)
    for _ in range(80):
        failing = np.where(failing, rng.random(12) < 0.7, rng.random(12) < fail_rates / 3)
        present = np.flatnonzero(rng.random(12) < 0.8)
        run = {f"t{i:02d}": (int(failing[i]), usual_s[i] * rng.uniform(0.5, 1.5)) for i in present}
        for name in [name for name in run if rng.random() < 0.05]:
            run[name] = (-1, run[name][1])
        for name in [name for name in run if rng.random() < 0.05]:
            run[name] = (run[name][0], float("nan"))
        runs.append(run)
    return make_log(runs, length_us=rng.integers(1, 5 * 3_600_000_000, size=80).tolist())
