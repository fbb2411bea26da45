"""What the history says of some runs already: what came earlier must not be lost or contradicted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.records.outcomes import Outcome
from fastci_ml.sources.history import HistoryStore
from fastci_ml.sources.history_tables import codes, numbers, pack

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
        self._tests: dict[tuple[str, str, str], KnownTests] | None = None

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
        if self._tests is None:
            self._tests = dict(self._read_tests())
        return self._tests.get((run_id, job, lane), KnownTests(frozenset(), frozenset()))

    def add(self, key: tuple[str, str, str], run: KnownRun) -> None:
        """Take note of a row of RUNS that was appended since."""
        self._all_runs()[key] = run

    def _all_runs(self) -> dict[tuple[str, str, str], KnownRun]:
        if self._runs is None:
            table = self._store.scan(RUNS)
            starts, ends = numbers(table.column("started_at")), numbers(table.column("finished_at"))
            self._runs = {}
            for row in self._rows_of_runs(table).tolist():
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

    def _read_tests(self) -> Iterator[tuple[tuple[str, str, str], KnownTests]]:
        table = self._store.scan(EXECUTIONS, columns=[*_GROUP, "node_id", "outcome"])
        rows = self._rows_of_runs(table)
        if not len(rows):
            return
        groups = pack([table.column(name) for name in _GROUP])[rows]
        order = np.argsort(groups, kind="stable")
        rows, groups = rows[order], groups[order]
        node_codes, node_ids = codes(table.column("node_id"))
        outcome_codes, outcomes = codes(table.column("outcome"))
        is_result = np.array([word != Outcome.UNKNOWN for word in outcomes.to_pylist()], bool)
        names = node_ids.to_pylist()
        for members in np.split(rows, np.flatnonzero(np.diff(groups)) + 1):
            run_id, job, lane = (table.column(name)[int(members[0])].as_py() for name in _GROUP)
            found = node_codes[members]
            results = found[is_result[outcome_codes[members]]]
            yield (
                (run_id, job, lane),
                KnownTests(
                    with_result=frozenset(names[code] for code in results.tolist()),
                    all=frozenset(names[code] for code in found.tolist()),
                ),
            )

    def _rows_of_runs(self, table: pa.Table) -> np.ndarray:
        """Rows of the runs that are asked about."""
        if not table.num_rows:
            return np.empty(0, np.int64)
        run_codes, names = codes(table.column("run_id"))
        is_wanted = np.array([name in self._run_ids for name in names.to_pylist()], bool)
        return np.flatnonzero(is_wanted[run_codes])
