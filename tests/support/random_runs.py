"""Random logs with overlapping runs, unclear verdicts, unknown durations and changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from fastci_ml.features.log import RunLog
from fastci_ml.records.changes import ChangeStatus, FileChange

PATHS = (
    "pkg/optim/adam.py",
    "pkg/optim/sgd.py",
    "pkg/data/loader.py",
    "tests/optim/test_adam.py",
    "README.md",
)
NODES = (
    "tests/optim/test_adam.py::TestAdam::test_step[bf16]",
    "tests/optim/test_adam.py::test_state",
    "tests/optim/test_sgd.py::test_step",
    "tests/data/test_loader.py::test_resume",
    "tests/data/test_loader.py::test_shuffle[a::b]",
    "org/example/LoaderTest.java",
)
LANES = ("cpu", "gpu")


@dataclass(frozen=True)
class Run:
    """One run as a person would write it down."""

    lane: str
    start: int
    end: int
    results: tuple[tuple[str, int, float], ...]  # node id, verdict, seconds
    changes: tuple[FileChange, ...] | None


def to_log(runs: list[Run]) -> RunLog:
    """Log of runs that are ordered by start."""
    keys = sorted({(run.lane, node) for run in runs for node, _, _ in run.results})
    code = {key: i for i, key in enumerate(keys)}
    rows = [sorted((code[run.lane, node], v, s) for node, v, s in run.results) for run in runs]
    flat = [row for run in rows for row in run]
    return RunLog(
        node_ids=[node for _, node in keys],
        lanes=[lane for lane, _ in keys],
        run_ids=[f"r{i}" for i in range(len(runs))],
        run_lanes=[run.lane for run in runs],
        heads=[""] * len(runs),
        started_us=np.array([run.start for run in runs], dtype=np.int64),
        finished_us=np.array([run.end for run in runs], dtype=np.int64),
        offsets=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        tests=np.array([row[0] for row in flat], dtype=np.int32),
        verdicts=np.array([row[1] for row in flat], dtype=np.int8),
        durations_s=np.array([row[2] for row in flat], dtype=np.float64),
        changes=[run.changes for run in runs],
    )


_file = st.builds(
    FileChange,
    path=st.sampled_from(PATHS),
    status=st.just(ChangeStatus.MODIFIED),
    n_added=st.sampled_from([0.0, 3.0, float("nan")]),
    n_deleted=st.sampled_from([0.0, 7.0]),
)
_changes = st.none() | st.lists(_file, max_size=3, unique_by=lambda file: file.path).map(tuple)
_results = st.dictionaries(
    st.sampled_from(NODES),
    st.tuples(st.sampled_from([0, 0, 1, -1]), st.sampled_from([0.0, 0.5, 2.0, float("nan")])),
    min_size=1,
).map(lambda chosen: tuple((node, v, s) for node, (v, s) in chosen.items()))


@st.composite
def runs_of(draw: st.DrawFn, max_size: int = 12) -> list[Run]:
    """Runs ordered by start; they may overlap, and share starts and ends."""
    runs, start = [], 0
    for _ in range(draw(st.integers(1, max_size))):
        start += draw(st.integers(0, 3))
        runs.append(
            Run(
                lane=draw(st.sampled_from(LANES)),
                start=start,
                end=start + draw(st.integers(0, 6)),
                results=draw(_results),
                changes=draw(_changes),
            )
        )
    return runs
