"""History as coded arrays: what the fold, the labels and the replay walk over.

One row per (run, lane, test): the attempts of a test within a run are folded into one verdict. Tests whose
ids change between runs stand under their function (`records.unstable_ids`). No pandas: the CI pre-step builds
a log of whatever is newer than its model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.log_rows import (
    FAILED,
    NO_TIME,
    PASSED,
    UNCLEAR,
    LogRows,
    attempt_verdicts,
    encode,
    fold_attempts,
    join_keys,
    row_parts,
    run_times,
)
from fastci_ml.records.changes import ChangeStatus, FileChange
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.records.ids import is_worker
from fastci_ml.records.unstable_ids import HistoryKeys, Instability
from fastci_ml.records.unstable_search import find_unstable
from fastci_ml.sources.parameter_names import ParameterNames
from fastci_ml.sources.projects import repository_top

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.records.ids import NodeId
    from fastci_ml.sources.history.store import HistoryStore

__all__ = ["FAILED", "PASSED", "UNCLEAR", "RunLog", "build_log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """What happened, in order of the start of the runs.

    A *run* here is one CI run on one lane; a *test* is one node id on one lane: evidence of one lane says
    nothing about another.

    Attributes
    ----------
    node_ids, lanes : list of str, length n_tests
        Name of each test code, by lane and node id; of an unstable id its function.
    run_ids, run_lanes, heads : list of str, length n_runs
        Of each run; `heads` is empty where the commit is unknown.
    started_us, finished_us : int64, shape (n_runs,)
        Microseconds since the epoch, UTC; ordered by start, then by run id and lane.
    offsets : int64, shape (n_runs + 1,)
        Rows of run ``i`` are ``offsets[i]:offsets[i + 1]``.
    tests : int32, shape (n_rows,)
        Test codes, ascending within a run.
    verdicts : int8, shape (n_rows,)
        1 if an attempt failed with class ``test``; 0 if it passed; -1 if the run says nothing about the code
        (skipped, infrastructure, flaky, ...).
    durations_s : float64, shape (n_rows,)
        Sum over attempts; NaN where none is known. Of a function the mean over its tests.
    changes : list of (tuple of FileChange or None), length n_runs
        None where the change of the run is unknown.
    unstable : dict of NodeId to Instability
        Functions of tests whose ids change between runs.
    n_attempts, n_certain : int64, shape (n_runs,)
        Executions of each run, and those whose test is known for certain; zeros where nobody counted.
    """

    node_ids: list[str]
    lanes: list[str]
    run_ids: list[str]
    run_lanes: list[str]
    heads: list[str]
    started_us: NDArray[np.int64]
    finished_us: NDArray[np.int64]
    offsets: NDArray[np.int64]
    tests: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    durations_s: NDArray[np.float64]
    changes: list[tuple[FileChange, ...] | None] = field(default_factory=list)
    unstable: dict[NodeId, Instability] = field(default_factory=dict)
    n_attempts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    n_certain: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Fill in counts that nobody gave."""
        for name in ("n_attempts", "n_certain"):
            if len(getattr(self, name)) != self.n_runs:
                object.__setattr__(self, name, np.zeros(self.n_runs, dtype=np.int64))

    @property
    def n_tests(self) -> int:
        """Number of test codes."""
        return len(self.node_ids)

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.run_ids)

    @property
    def n_rows(self) -> int:
        """Number of (run, test) rows."""
        return len(self.tests)

    def rows(self, run: int) -> slice:
        """Rows of one run."""
        return slice(int(self.offsets[run]), int(self.offsets[run + 1]))

    @property
    def run_of_row(self) -> NDArray[np.int64]:
        """Index of the run of each row, shape (n_rows,)."""
        return np.repeat(np.arange(self.n_runs), np.diff(self.offsets))

    def select_runs(self, runs: Sequence[int] | NDArray[np.int64]) -> RunLog:
        """Log of some runs only, test codes unchanged.

        Parameters
        ----------
        runs : sequence of int
            Ascending indices.
        """
        picked = np.asarray(runs, dtype=np.int64)
        if np.any(np.diff(picked) <= 0):
            raise ValueError("runs must be ascending, without repeats")
        counts = np.diff(self.offsets)[picked]
        mask = np.zeros(self.n_runs, dtype=bool)
        mask[picked] = True
        keep = mask[self.run_of_row]
        return RunLog(
            node_ids=self.node_ids,
            lanes=self.lanes,
            run_ids=[self.run_ids[i] for i in picked],
            run_lanes=[self.run_lanes[i] for i in picked],
            heads=[self.heads[i] for i in picked],
            started_us=self.started_us[picked],
            finished_us=self.finished_us[picked],
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            tests=self.tests[keep],
            verdicts=self.verdicts[keep],
            durations_s=self.durations_s[keep],
            changes=[self.changes[i] for i in picked],
            unstable=self.unstable,
            n_attempts=self.n_attempts[picked],
            n_certain=self.n_certain[picked],
        )


def build_log(
    store: HistoryStore,
    *,
    newer_than_us: int | None = None,
    unstable: Mapping[NodeId, Instability] | None = None,
    root: Path | None = None,
) -> RunLog:
    """Read the history store into a log.

    Parameters
    ----------
    store : HistoryStore
        Where to read.
    newer_than_us : int, optional
        Only runs that finished after this moment, in microseconds since the epoch.
    unstable : mapping of NodeId to Instability, optional
        Functions whose ids change, where a state has its history under them: no others are looked for then,
        but for addresses, which any id shows.
    root : Path, optional
        Folder of the repository, whose files tell numbers that pytest gave from names that people wrote.

    Returns
    -------
    RunLog
        Rows whose run is not in RUNS have no time and are left out.

    Notes
    -----
    Which ids are unstable is decided over all rows at once: it says under what a history is kept, and reads
    no outcome and no time.
    """
    # Here, because pyarrow is heavy and the rest of the module serves those who have a log already.
    from fastci_ml.sources.history.tables import numbers

    runs = store.scan(
        RUNS, columns=["run_id", "head", "started_at", "finished_at"], newer_than_us=newer_than_us
    )
    rows = store.scan(EXECUTIONS, columns=list(_COLUMNS), newer_than_us=newer_than_us)
    run_codes, run_names = encode(runs.column("run_id"))
    started, finished, heads = run_times(runs, run_codes, len(run_names))
    if newer_than_us is not None:
        started[finished <= newer_than_us] = NO_TIME
    row_run_codes, row_run_names = encode(rows.column("run_id"))
    place = {name: i for i, name in enumerate(run_names)}
    to_run = np.array([place.get(name, -1) for name in row_run_names], dtype=np.int64)
    row_runs = to_run[row_run_codes] if len(row_run_codes) else np.empty(0, dtype=np.int64)
    is_known = (row_runs >= 0) & (started[row_runs] != NO_TIME) if len(started) else row_runs >= 0
    lane_codes, lane_names = encode(rows.column("lane"))
    node_codes, node_names = encode(rows.column("node_id"))
    verdicts = attempt_verdicts(rows)
    # That workers disagree says nothing about any one test, and a worker is none that could be planned.
    workers = np.flatnonzero([is_worker(name) for name in node_names])
    if len(workers):
        verdicts[np.isin(node_codes, workers)] = UNCLEAR
    # Runs are numbered by start, then by id and lane (names are sorted, so codes order them).
    n_lanes = max(1, len(lane_names))
    lane_runs, run = np.unique(row_runs[is_known] * n_lanes + lane_codes[is_known], return_inverse=True)
    of_run = lane_runs // n_lanes
    by_start = np.lexsort((lane_runs, started[of_run])) if len(lane_runs) else lane_runs
    number = np.empty(len(by_start), dtype=np.int64)
    number[by_start] = np.arange(len(by_start))
    run, lane_runs, of_run = number[run], lane_runs[by_start], of_run[by_start]
    attempts = LogRows(
        run=run,
        node=node_codes[is_known],
        # What a verdict holds for: tries of one job on one lane are of the same environment, those of two
        # shards or attempts of the CI were made apart.
        job=encode(rows.column("job"))[0][is_known],
        part=row_parts(rows)[is_known],
        verdict=verdicts[is_known],
        duration_s=numbers(rows.column("duration_s"))[is_known],
    )
    if unstable is None:
        confirm = {} if root is None else {"confirm": ParameterNames(repository_top(root))}
        unstable = find_unstable(node_names, attempts.run, attempts.node, **confirm)
    keys = HistoryKeys(unstable)
    names = [keys.key(name) for name in node_names]
    found = {key: Instability.ADDRESS for key, name in zip(names, node_names, strict=True) if key != name}
    folded, node_names = join_keys(fold_attempts(attempts), names, node_names)
    # A test is a node id on a lane: codes by lane, then by id.
    n_nodes = max(1, len(node_names))
    pairs, tests = np.unique(lane_runs[folded.run] % n_lanes * n_nodes + folded.node, return_inverse=True)
    changes = _changes_by_run(store, newer_than_us)
    counts = np.bincount(folded.run, minlength=len(lane_runs))
    n_certain = np.bincount(run, numbers(rows.column("is_joined"))[is_known], minlength=len(lane_runs))
    return RunLog(
        node_ids=[node_names[i] for i in (pairs % n_nodes).tolist()],
        lanes=[lane_names[i] for i in (pairs // n_nodes).tolist()],
        run_ids=[run_names[i] for i in of_run.tolist()],
        run_lanes=[lane_names[i] for i in (lane_runs % n_lanes).tolist()],
        heads=[heads[i] for i in of_run.tolist()],
        started_us=started[of_run],
        finished_us=finished[of_run],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        tests=tests.astype(np.int32),
        verdicts=folded.verdict,
        durations_s=folded.duration_s,
        changes=[changes.get(run_names[i]) for i in of_run.tolist()],
        unstable={**found, **unstable},
        n_attempts=np.bincount(run, minlength=len(lane_runs)),
        n_certain=n_certain.astype(np.int64),
    )


_COLUMNS = (
    "run_id",
    "job",
    "shard",
    "lane",
    "node_id",
    "attempt",
    "outcome",
    "failure_class",
    "duration_s",
    "is_joined",
)


def _changes_by_run(store: HistoryStore, newer_than_us: int | None) -> dict[str, tuple[FileChange, ...]]:
    table = store.scan(CHANGES, newer_than_us=newer_than_us).to_pylist()
    by_run: dict[str, list[FileChange]] = {}
    for row in sorted(table, key=lambda row: (row["run_id"], row["path"])):
        change = FileChange(
            path=row["path"],
            old_path=row["old_path"],
            status=ChangeStatus(row["status"]),
            n_added=float("nan") if row["n_added"] is None else row["n_added"],
            n_deleted=float("nan") if row["n_deleted"] is None else row["n_deleted"],
        )
        by_run.setdefault(row["run_id"], []).append(change)
    return {run_id: tuple(files) for run_id, files in by_run.items()}
