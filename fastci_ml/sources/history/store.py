"""The history store: append-only Parquet parts that any number of processes may write without a lock.

One ingest writes up to three parts, executions and changes before runs: the runs part is the mark that the
ingest is whole, and parts whose digest no runs part names are not read. Rows with equal keys are settled on
reading, the last ingested wins; a row that says that a result is lacking has a key of its own, and goes when
one has come (docs/decisions/0012). So appending, compacting and reading may overlap, and a process may die at
any moment; nothing that was ingested is lost, and nothing half-written is seen.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from fastci_ml.errors import HistoryError
from fastci_ml.records.frames import CHANGES, EXECUTIONS, HISTORY, RUNS, Frame
from fastci_ml.records.progress import ProgressHook, silent
from fastci_ml.sources.history.compaction import rewrite
from fastci_ml.sources.history.frames import from_pandas, to_pandas
from fastci_ml.sources.history.parts import (
    Part,
    check_digest,
    list_parts,
    read_digests,
    read_part,
    write_part,
)
from fastci_ml.sources.history.tables import (
    check_table,
    empty_table,
    numbers,
    one_row_a_key,
    pack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path

    import pandas as pd

_T = TypeVar("_T")

# A compaction may take parts away between listing and opening; each retry starts from a new listing.
_N_TRIES = 20
# Rows in one compacted part: some 60 MB, and 1 GB in memory with all columns.
_ROWS_A_PART = 4_000_000


class HistoryStore:
    """History of executions, runs and changes in one folder.

    Parameters
    ----------
    directory : Path
        Made by the first `append`; an absent folder is an empty history.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Parts never change, so what a compacted one stands for is read once.
        self._merged_digests: dict[Path, frozenset[str]] = {}

    def append(
        self, *, executions: pd.DataFrame, runs: pd.DataFrame, changes: pd.DataFrame, digest: str
    ) -> bool:
        """Add rows, all or none.

        Parameters
        ----------
        executions, runs, changes : frames of EXECUTIONS, RUNS, CHANGES
            Every execution and every change belongs to one of `runs`, and runs have their times.
        digest : str
            Hex digest of what the rows came from.

        Returns
        -------
        bool
            False when `digest` is in already; nothing is written then.

        Raises
        ------
        ValueError
            If a frame does not fit its schema.
        HistoryError
            If the folder cannot be read or written.
        """
        tables = [
            from_pandas(frame, rows)
            for frame, rows in ((EXECUTIONS, executions), (RUNS, runs), (CHANGES, changes))
        ]
        return self.append_tables(*tables, digest=digest)

    def append_tables(self, executions: pa.Table, runs: pa.Table, changes: pa.Table, *, digest: str) -> bool:
        """`append` for Arrow tables of the types in `history.tables.SCHEMAS`."""
        check_digest(digest)
        tables = {
            frame.name: check_table(frame, table)
            for frame, table in ((EXECUTIONS, executions), (CHANGES, changes), (RUNS, runs))
        }
        if not runs.num_rows:
            raise ValueError("an ingest without runs: every row belongs to a run")
        _check_belongs(executions, runs, ("run_id", "job", "shard"))
        _check_belongs(changes, runs, ("run_id",))
        sequence = self._retry(lambda: self._sequence_of(digest))
        if sequence is None:
            return False
        newest_us = int(numbers(runs.column("finished_at")).max())
        for name, table in tables.items():  # runs come last: they are the mark
            if table.num_rows:
                folder = self.directory / name
                write_part(folder, table, newest_us=newest_us, sequence=sequence, digest=digest)
        return True

    def has(self, digest: str) -> bool:
        """Whether what has this digest was ingested, also when it was compacted or pruned since."""
        return self._retry(lambda: digest in self._digests(list_parts(self.directory / RUNS.name)))

    def digests(self) -> frozenset[str]:
        """Digests for which `has` is true: those who ask for many list the store once."""
        return self._retry(lambda: frozenset(self._digests(list_parts(self.directory / RUNS.name))))

    def read(self, frame: Frame, *, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read one table with pandas.

        Returns
        -------
        DataFrame
            Frame of `frame`, or its `columns`; one row a key, the last ingested wins, sorted by key.

        Raises
        ------
        HistoryError
            Names a part that is torn, foreign or of another version.
        """
        return to_pandas(self.scan(frame, columns=columns))

    def scan(
        self, frame: Frame, *, columns: Sequence[str] | None = None, newer_than_us: int | None = None
    ) -> pa.Table:
        """Read one table without importing pandas.

        Parameters
        ----------
        frame : Frame
            Which table.
        columns : sequence of str, optional
            Of the frame, in the order wanted; all by default.
        newer_than_us : int, optional
            Leave parts unopened whose runs all finished at or before this time (microseconds since 1970).
            Older rows that share a part with newer ones are still there: callers filter by run.

        Returns
        -------
        pyarrow.Table
            As `read`; names and closed sets are dictionary columns with one dictionary, NaN is NaN, only
            unknown times are null, every column has one chunk. See `history.tables.codes` and `numbers`.

        Raises
        ------
        HistoryError
            Names a part that is torn, foreign or of another version.
        """
        wanted = list(frame.columns if columns is None else columns)
        needed = [name for name in frame.columns if name in wanted or name in frame.key]

        def gather() -> pa.Table:
            parts = [p for p in self._parts(frame) if newer_than_us is None or p.newest_us > newer_than_us]
            tables = [read_part(frame, part, needed) for part in parts]
            return pa.concat_tables(tables) if tables else empty_table(frame).select(needed)

        return one_row_a_key(frame, self._retry(gather)).select(wanted)

    def latest_us(self) -> int | None:
        """Newest finish of any run, microseconds since 1970, from part names; None in an empty history."""
        return max((part.newest_us for part in list_parts(self.directory / RUNS.name)), default=0) or None

    def n_parts(self) -> int:
        """How many parts all tables have; many small ones make reading slow until `compact`."""
        return sum(len(list_parts(self.directory / frame.name)) for frame in HISTORY)

    def compact(self, progress: ProgressHook = silent, *, rows_a_part: int = _ROWS_A_PART) -> int:
        """Rewrite each table as one part, or as few as `rows_a_part` allows.

        Safe at every step: the new parts are in place before the old ones go, and both together read as one.

        Returns
        -------
        int
            Parts that the store has fewer than before.
        """
        n_before = self.n_parts()
        self._retry(lambda: self._rewrite(None, progress, rows_a_part))
        return n_before - self.n_parts()

    def prune(
        self, before: datetime, progress: ProgressHook = silent, *, rows_a_part: int = _ROWS_A_PART
    ) -> int:
        """Drop runs that finished before `before`, with their executions and changes; compacts on the way.

        What was pruned stays known by digest: ingesting its reports again does not bring it back. A prune
        that died halfway is finished by the next.

        Returns
        -------
        int
            Runs (run, job, shard) dropped.

        Raises
        ------
        ValueError
            If `before` has no time zone.
        """
        if before.tzinfo is None:
            raise ValueError(f"before {before.isoformat()} has no time zone")
        before_us = round(before.timestamp() * 1e6)
        return self._retry(lambda: self._rewrite(before_us, progress, rows_a_part))

    def _digests(self, run_parts: Sequence[Part]) -> set[str]:
        """Digests of all ingests that `run_parts` mark as whole."""
        digests = {part.digest for part in run_parts if not part.is_merged}
        for part in run_parts:
            if part.is_merged:
                if part.path not in self._merged_digests:
                    self._merged_digests[part.path] = read_digests(part)
                digests |= self._merged_digests[part.path]
        return digests

    def _parts(self, frame: Frame) -> list[Part]:
        """Parts of whole ingests. Runs are listed first: the other parts of what they name are in place."""
        run_parts = list_parts(self.directory / RUNS.name)
        if frame is RUNS:
            return run_parts
        parts = list_parts(self.directory / frame.name)
        whole = self._digests(run_parts)
        return [part for part in parts if part.is_merged or part.digest in whole]

    def _sequence_of(self, digest: str) -> int | None:
        """Sequence of a new ingest; None where the digest is in already. One listing serves both."""
        parts = list_parts(self.directory / RUNS.name)
        if digest in self._digests(parts):
            return None
        # The clock, but never below what is there: a clock set back must not let old rows win.
        return max(time.time_ns(), max((part.sequence for part in parts), default=0) + 1)

    def _retry(self, work: Callable[[], _T]) -> _T:
        for _ in range(_N_TRIES):
            try:
                return work()
            except FileNotFoundError:
                continue  # a compaction took the part away; what it held is in a new one
        raise HistoryError(
            f"{self.directory}: parts vanished {_N_TRIES} times while they were read",
            hint="wait until other `fastci-ml history` commands are done",
        )

    def _rewrite(self, before_us: int | None, progress: ProgressHook, rows_a_part: int) -> int:
        # Runs are listed first, as in `_parts`.
        listed = {frame.name: self._parts(frame) for frame in (RUNS, EXECUTIONS, CHANGES)}
        digests = self._digests(listed[RUNS.name])
        return rewrite(listed, digests, before_us=before_us, rows_a_part=rows_a_part, progress=progress)


def _check_belongs(table: pa.Table, runs: pa.Table, key: tuple[str, ...]) -> None:
    if not table.num_rows:
        return
    runs = runs.select(key)
    both = pa.concat_tables([runs, table.select(key)]).unify_dictionaries().combine_chunks()
    packed = pack([both.column(name) for name in key])
    lost = np.setdiff1d(packed[runs.num_rows :], packed[: runs.num_rows])
    if len(lost):
        place = int(np.flatnonzero(packed == lost[0])[0])
        raise ValueError(f"{both.slice(place, 1).to_pylist()[0]} is not among the runs of this ingest")
