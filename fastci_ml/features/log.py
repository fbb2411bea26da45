"""History as coded arrays: what the fold, the labels and the replay walk over.

One row per (run, lane, test): the attempts of a test within a run are folded into one verdict. No pandas: the
CI pre-step builds a log of whatever is newer than its model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastci_ml.records.changes import ChangeStatus, FileChange
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.records.outcomes import FailureClass, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.sources.history import HistoryStore

FAILED, PASSED, UNCLEAR = 1, 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """What happened, in order of the start of the runs.

    A *run* here is one CI run on one lane; a *test* is one node id on one lane: evidence of one lane says
    nothing about another.

    Attributes
    ----------
    node_ids, lanes : list of str, length n_tests
        Name of each test code, by lane and node id.
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
        Sum over attempts; NaN where none is known.
    changes : list of (tuple of FileChange or None), length n_runs
        None where the change of the run is unknown.
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
        )


def build_log(store: HistoryStore, *, newer_than_us: int | None = None) -> RunLog:
    """Read the history store into a log.

    Parameters
    ----------
    store : HistoryStore
        Where to read.
    newer_than_us : int, optional
        Only runs that finished after this moment, in microseconds since the epoch.

    Returns
    -------
    RunLog
        Rows whose run is not in RUNS have no time and are left out.
    """
    # Here, because pyarrow is heavy and the rest of the module serves those who have a log already.
    from fastci_ml.sources.history_tables import numbers

    runs = store.scan(
        RUNS, columns=["run_id", "head", "started_at", "finished_at"], newer_than_us=newer_than_us
    )
    rows = store.scan(
        EXECUTIONS,
        columns=["run_id", "lane", "node_id", "outcome", "failure_class", "duration_s"],
        newer_than_us=newer_than_us,
    )
    run_codes, run_names = _encode(runs.column("run_id"))
    started, finished, heads = _run_times(runs, run_codes, len(run_names))
    if newer_than_us is not None:
        started[finished <= newer_than_us] = _NO_TIME
    row_run_codes, row_run_names = _encode(rows.column("run_id"))
    place = {name: i for i, name in enumerate(run_names)}
    to_run = np.array([place.get(name, -1) for name in row_run_names], dtype=np.int64)
    row_runs = to_run[row_run_codes] if len(row_run_codes) else np.empty(0, dtype=np.int64)
    is_known = (row_runs >= 0) & (started[row_runs] != _NO_TIME) if len(started) else row_runs >= 0
    lane_codes, lane_names = _encode(rows.column("lane"))
    node_codes, node_names = _encode(rows.column("node_id"))
    table = _Rows(
        run=row_runs[is_known],
        lane=lane_codes[is_known],
        node=node_codes[is_known],
        verdict=_attempt_verdicts(rows)[is_known],
        duration_s=numbers(rows.column("duration_s"))[is_known],
    )
    changes = _changes_by_run(store, newer_than_us)
    return _assemble(table, run_names, lane_names, node_names, started, finished, heads, changes)


_NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _Rows:
    run: NDArray[np.int64]
    lane: NDArray[np.int64]
    node: NDArray[np.int64]
    verdict: NDArray[np.int8]
    duration_s: NDArray[np.float64]


def _encode(column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Codes of a text column and the sorted values they stand for."""
    from fastci_ml.sources.history_tables import codes

    places, dictionary = codes(column)
    values: list[str] = dictionary.to_pylist()
    # Only values in use, sorted: codes then do not depend on the order of the parts.
    is_used = np.zeros(len(values), dtype=bool)
    is_used[places] = True
    used = sorted(np.flatnonzero(is_used).tolist(), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int64)
    rank[used] = np.arange(len(used))
    return rank[places], [values[i] for i in used]


def _run_times(
    runs: Any, run_codes: NDArray[np.int64], n_runs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Start and end of each run over its jobs and shards, and its head."""
    from fastci_ml.sources.history_tables import numbers

    starts, ends = numbers(runs.column("started_at")), numbers(runs.column("finished_at"))
    started = np.full(n_runs, np.iinfo(np.int64).max, dtype=np.int64)
    finished = np.full(n_runs, _NO_TIME, dtype=np.int64)
    np.minimum.at(started, run_codes, starts)
    np.maximum.at(finished, run_codes, ends)
    heads = [""] * n_runs
    for code, head in zip(run_codes.tolist(), runs.column("head").to_pylist(), strict=True):
        heads[code] = head or heads[code]
    return started, finished, heads


def _attempt_verdicts(rows: Any) -> NDArray[np.int8]:
    """Verdict of each attempt; a flaky failure is marked -2 until the attempts are folded."""
    outcome_codes, outcomes = _encode(rows.column("outcome"))
    class_codes, classes = _encode(rows.column("failure_class"))
    table = np.full((len(outcomes), len(classes)), UNCLEAR, dtype=np.int8)
    for i, word in enumerate(outcomes):
        outcome = Outcome(word)
        for j, name in enumerate(classes):
            if outcome.is_failure and name == FailureClass.TEST:
                table[i, j] = FAILED
            elif outcome.is_failure and name == FailureClass.FLAKY:
                table[i, j] = _FLAKY
            elif outcome.has_run and not outcome.is_failure:
                table[i, j] = PASSED
    return table[outcome_codes, class_codes] if len(outcome_codes) else np.empty(0, dtype=np.int8)


_FLAKY = -2


def _fold_attempts(verdicts: NDArray[np.int8], starts: NDArray[np.int64]) -> NDArray[np.int8]:
    """One verdict for each (run, test): failed if any attempt did; else flaky says nothing; else passed."""
    if not len(starts):
        return np.empty(0, dtype=np.int8)
    highest = np.maximum.reduceat(verdicts, starts)
    lowest = np.minimum.reduceat(verdicts, starts)
    return np.where((highest != FAILED) & (lowest == _FLAKY), UNCLEAR, highest).astype(np.int8)


def _fold_durations(durations_s: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    if not len(starts):
        return np.empty(0)
    is_known = ~np.isnan(durations_s)
    total = np.add.reduceat(np.where(is_known, durations_s, 0.0), starts)
    return np.where(np.logical_or.reduceat(is_known, starts), total, np.nan)


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


def _assemble(
    rows: _Rows,
    run_names: list[str],
    lane_names: list[str],
    node_names: list[str],
    started: NDArray[np.int64],
    finished: NDArray[np.int64],
    heads: list[str],
    changes: dict[str, tuple[FileChange, ...]],
) -> RunLog:
    n_lanes, n_nodes = max(1, len(lane_names)), max(1, len(node_names))
    pairs, test = np.unique(rows.lane * n_nodes + rows.node, return_inverse=True)
    lane_runs, run = np.unique(rows.run * n_lanes + rows.lane, return_inverse=True)
    # Runs are numbered by start, then by id and lane (names are sorted, so codes order them).
    by_start = np.lexsort((lane_runs, started[lane_runs // n_lanes] if len(lane_runs) else lane_runs))
    place = np.empty(len(by_start), dtype=np.int64)
    place[by_start] = np.arange(len(by_start))
    run, lane_runs = place[run], lane_runs[by_start]
    order = np.lexsort((test, run))
    run, test = run[order], test[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (run[1:] != run[:-1]) | (test[1:] != test[:-1])
    starts = np.flatnonzero(is_first)
    counts = np.bincount(run[starts], minlength=len(lane_runs))
    of_run = lane_runs // n_lanes
    names = [run_names[i] for i in of_run]
    return RunLog(
        node_ids=[node_names[i] for i in pairs % n_nodes],
        lanes=[lane_names[i] for i in pairs // n_nodes],
        run_ids=names,
        run_lanes=[lane_names[i] for i in lane_runs % n_lanes],
        heads=[heads[i] for i in of_run],
        started_us=started[of_run],
        finished_us=finished[of_run],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        tests=test[starts].astype(np.int32),
        verdicts=_fold_attempts(rows.verdict[order], starts),
        durations_s=_fold_durations(rows.duration_s[order], starts),
        changes=[changes.get(name) for name in names],
    )
