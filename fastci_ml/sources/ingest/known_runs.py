"""What the history says of some runs already: what came earlier must not be lost or contradicted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fastci_ml.records.frames import ATTEMPTS_A_RUN, EXECUTIONS, RUNS
from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import codes, indices, numbers, pack

# Source of a row of RUNS without reports: the shard is known to have been there, and left no result.
NO_REPORT = "no report"
_TEXTS = ("run_id", "job", "shard", "base", "head", "source")
_GROUP = ("run_id", "job", "lane")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """One row of RUNS.

    Attributes
    ----------
    base, head, source : str
        As in RUNS.
    started_us, finished_us : int
        Microseconds since 1970.
    is_new : bool
        Added by the ingest that asks.
    """

    base: str
    head: str
    started_us: int
    finished_us: int
    source: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class KnownTests:
    """Tests of one (run, job, lane) in the history: those with a result, and all with any row."""

    with_result: frozenset[str]
    all: frozenset[str]


class KnownRuns:
    """Rows of some runs, read from the store when somebody asks for the first time.

    Parameters
    ----------
    store : HistoryStore
        Where to read.
    run_ids : collection of str
        As the store spells them. What is appended later must be told by `add`.
    """

    def __init__(self, store: HistoryStore, run_ids: Collection[str]) -> None:
        self._store = store
        self._run_ids = frozenset(run_ids)
        self._runs: dict[tuple[str, str, str], KnownRun] | None = None
        self._table: pa.Table | None = None
        # Rows of that table by (run, job, lane), then by shard.
        self._rows: dict[tuple[str, str, str], dict[str, np.ndarray]] = {}

    def run(self, run_id: str, job: str, shard: str) -> KnownRun | None:
        """Row of RUNS of one shard; None where there is none."""
        return self._all_runs().get((run_id, job, shard))

    def shards(self, run_id: str, job: str) -> list[str]:
        """Shards of a job that left a report."""
        return [
            shard
            for (one_run, one_job, shard), known in self._all_runs().items()
            if (one_run, one_job) == (run_id, job) and known.source != NO_REPORT
        ]

    def tests(self, run_id: str, job: str, lane: str) -> KnownTests:
        """Tests of a job on one lane."""
        table = self._executions()
        rows = np.concatenate([np.empty(0, np.int64), *self._rows.get((run_id, job, lane), {}).values()])
        is_result = _is_one_of(table, rows, [word for word in Outcome if word is not Outcome.UNKNOWN])
        return KnownTests(with_result=_ids(table, rows[is_result]), all=_ids(table, rows))

    def ids(
        self, run_id: str, job: str, shard: str, lane: str, outcomes: Collection[Outcome], *, not_in: int
    ) -> frozenset[str]:
        """Tests of one shard on one lane with such an outcome in another attempt of the CI than `not_in`."""
        table = self._executions()
        rows = self._rows.get((run_id, job, lane), {}).get(shard, np.empty(0, np.int64))
        rows = rows[_is_one_of(table, rows, outcomes)]
        return _ids(table, rows[_ci_attempts(table, rows) != not_in])

    def failures(
        self, run_id: str, job: str, shard: str, lane: str, node_ids: Collection[str], *, not_in: int
    ) -> pa.Table:
        """Table of EXECUTIONS: failures of some tests of one shard and lane in other attempts of the CI."""
        table = self._store.scan(EXECUTIONS)
        is_wanted = np.ones(table.num_rows, bool)
        wanted = (
            ("run_id", {run_id}),
            ("job", {job}),
            ("shard", {shard}),
            ("lane", {lane}),
            ("node_id", node_ids),
        )
        for name, values in wanted:
            is_wanted &= _is_in(table.column(name), values)
        rows = np.flatnonzero(is_wanted)
        rows = rows[_is_one_of(table, rows, [word for word in Outcome if word.is_failure])]
        return table.take(indices(rows[_ci_attempts(table, rows) != not_in]))

    def add(self, key: tuple[str, str, str], run: KnownRun) -> None:
        """Take note of a row of RUNS that was appended since."""
        self._all_runs()[key] = run

    def _all_runs(self) -> dict[tuple[str, str, str], KnownRun]:
        if self._runs is None:
            table = self._store.scan(RUNS)
            starts, ends = numbers(table.column("started_at")), numbers(table.column("finished_at"))
            self._runs = {}
            for row in np.flatnonzero(_is_in(table.column("run_id"), self._run_ids)).tolist():
                told = {name: table.column(name)[row].as_py() for name in _TEXTS}
                key = told.pop("run_id"), told.pop("job"), told.pop("shard")
                self._runs[key] = KnownRun(
                    base=told["base"],
                    head=told["head"],
                    started_us=int(starts[row]),
                    finished_us=int(ends[row]),
                    source=told["source"],
                )
        return self._runs

    def _executions(self) -> pa.Table:
        """Rows of the runs, sorted by their place in `_GROUP`."""
        if self._table is None:
            table = self._store.scan(EXECUTIONS, columns=[*_GROUP, "shard", "node_id", "attempt", "outcome"])
            rows = np.flatnonzero(_is_in(table.column("run_id"), self._run_ids))
            self._table = table = table.take(indices(rows)).unify_dictionaries().combine_chunks()
            places = [*_GROUP, "shard"]
            groups = pack([table.column(name) for name in places]) if table.num_rows else rows
            order = np.argsort(groups, kind="stable")
            for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
                if len(members):
                    *place, shard = (table.column(name)[int(members[0])].as_py() for name in places)
                    run_id, job, lane = place
                    self._rows.setdefault((run_id, job, lane), {})[shard] = members
        return self._table


def _is_in(column: pa.ChunkedArray, values: Collection[str]) -> np.ndarray:
    """Rows of a dictionary column with one of some values."""
    if not len(column):
        return np.empty(0, bool)
    places, names = codes(column)
    is_wanted = np.array([name in values for name in names.to_pylist()], bool)
    return np.take(is_wanted, places)


def _is_one_of(table: pa.Table, rows: np.ndarray, outcomes: Collection[Outcome]) -> np.ndarray:
    return np.take(_is_in(table.column("outcome"), {str(word) for word in outcomes}), rows)


def _ids(table: pa.Table, rows: np.ndarray) -> frozenset[str]:
    if not len(rows):
        return frozenset()
    places, names = codes(table.column("node_id"))
    node_ids = names.to_pylist()
    return frozenset(node_ids[code] for code in np.unique(places[rows]).tolist())


def _ci_attempts(table: pa.Table, rows: np.ndarray) -> np.ndarray:
    """Attempt of the CI, from 1, of some rows; 0 for those that say that a result is lacking."""
    if not len(rows):
        return np.empty(0, np.int64)
    return np.take(numbers(table.column("attempt")), rows) // ATTEMPTS_A_RUN + 1
