"""What a history holds, in figures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import FailureClass
from fastci_ml.records.unstable_ids import HistoryKeys, Instability
from fastci_ml.records.unstable_search import find_unstable
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import codes, moment, numbers
from fastci_ml.sources.parameter_names import ParameterNames
from fastci_ml.sources.projects import repository_top

_COLUMNS = ("run_id", "lane", "node_id", "outcome", "failure_class", "is_joined")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """Figures of one history.

    Attributes
    ----------
    n_runs, n_failing_runs : int
        CI runs, and those with a failure of class `test`.
    n_tests, n_executions, n_parts : int
        Distinct node ids, attempts, files of the store.
    outcomes, failure_classes, lanes : dict of str to int
        Executions by outcome, by failure class (failures only) and by lane, most first.
    first, last : datetime or None
        First start and last finish of any run; None in an empty history.
    join_ratio : float
        Share of executions whose test is known for certain; NaN without executions.
    known_ratio : float
        Share of the collected tests that have history, where ids change between runs that of their function;
        NaN when none were given.
    unstable : dict of NodeId to Instability
        Functions of tests whose ids change between runs.
    """

    n_runs: int
    n_failing_runs: int
    n_tests: int
    n_executions: int
    n_parts: int
    outcomes: dict[str, int]
    failure_classes: dict[str, int]
    lanes: dict[str, int]
    first: datetime | None
    last: datetime | None
    join_ratio: float
    known_ratio: float
    unstable: dict[NodeId, Instability]


def summarize(
    store: HistoryStore, collected: Collection[str] = (), *, root: Path | None = None
) -> HistorySummary:
    """Count what `store` holds.

    Parameters
    ----------
    store : HistoryStore
        May be empty.
    collected : collection of str
        Node ids of today's suite, from the top of the repository.
    root : Path, optional
        Folder of the repository, whose files tell numbers that pytest gave from names that people wrote.
    """
    runs = store.scan(RUNS, columns=["run_id", "started_at", "finished_at"])
    table = store.scan(EXECUTIONS, columns=list(_COLUMNS))
    run_codes, _ = codes(table.column("run_id"))
    class_codes, class_values = codes(table.column("failure_class"))
    is_test_failure = np.isin(class_codes, _places(class_values, FailureClass.TEST))
    tests = set(_present(table.column("node_id")))
    unstable = _unstable(table, runs, root)
    keys = HistoryKeys(unstable)
    known = {keys.key(node_id) for node_id in tests}
    joined = numbers(table.column("is_joined"))
    wanted = set(collected)
    return HistorySummary(
        n_runs=len(_present(runs.column("run_id"))),
        n_failing_runs=len(np.unique(run_codes[is_test_failure])),
        n_tests=len(tests),
        n_executions=table.num_rows,
        n_parts=store.n_parts(),
        outcomes=_counts(table.column("outcome")),
        failure_classes={k: n for k, n in _counts(table.column("failure_class")).items() if k},
        lanes=_counts(table.column("lane")),
        first=moment(numbers(runs.column("started_at")).min()) if runs.num_rows else None,
        last=moment(numbers(runs.column("finished_at")).max()) if runs.num_rows else None,
        join_ratio=float(joined.mean()) if len(joined) else float("nan"),
        known_ratio=(
            sum(keys.key(node_id) in known for node_id in wanted) / len(wanted) if wanted else float("nan")
        ),
        unstable=unstable,
    )


def _unstable(executions: pa.Table, runs: pa.Table, root: Path | None) -> dict[NodeId, Instability]:
    """Functions whose ids change, the runs in the order of their start; those without a time come first."""
    run_codes, run_ids = codes(executions.column("run_id"))
    node_codes, node_ids = codes(executions.column("node_id"))
    started: dict[str, int] = {}
    starts = numbers(runs.column("started_at")).tolist()
    for run_id, start in zip(runs.column("run_id").to_pylist(), starts, strict=True):
        started[run_id] = min(start, started.get(run_id, start))
    names = run_ids.to_pylist()
    place = np.empty(len(names), dtype=np.int64)
    place[sorted(range(len(names)), key=lambda i: (started.get(names[i], -1), names[i]))] = range(len(names))
    confirm = {} if root is None else {"confirm": ParameterNames(repository_top(root))}
    return find_unstable(node_ids.to_pylist(), place[run_codes], node_codes.astype(np.int64), **confirm)


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    places, values = codes(column)
    counts = np.bincount(places, minlength=len(values)).tolist()
    named = [(name, n) for name, n in zip(values.to_pylist(), counts, strict=True) if n]
    return dict(sorted(named, key=lambda pair: (-pair[1], pair[0])))


def _present(column: pa.ChunkedArray) -> list[str]:
    """Values that occur: a dictionary may hold more."""
    return list(_counts(column))


def _places(values: pa.Array, wanted: str) -> list[int]:
    return [place for place, value in enumerate(values.to_pylist()) if value == wanted]
