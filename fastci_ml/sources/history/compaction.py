"""Rewriting parts of the history store as few, crash-safe at every step.

The new parts of a table are in place before the old ones go; both together read as one, since rows with equal
keys are settled on reading. Runs are rewritten last: as long as they are there, a prune that died can be done
again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fastci_ml.records.frames import CHANGES, EXECUTIONS, HISTORY, RUNS, Frame
from fastci_ml.sources.history.parts import Part, check_rewritable, read_part, remove_parts, write_part
from fastci_ml.sources.history.tables import empty_table, indices, numbers, one_row_a_key, pack

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from fastci_ml.records.progress import ProgressHook


def rewrite(
    listed: Mapping[str, Sequence[Part]],
    digests: Collection[str],
    *,
    before_us: int | None,
    rows_a_part: int,
    progress: ProgressHook,
) -> int:
    """Rewrite the listed parts of each table as few, without runs that finished before `before_us`.

    Parameters
    ----------
    listed : mapping of str to sequence of Part
        Parts by name of the table, in order of ingest; what is appended later is left alone.
    digests : collection of str
        Ingests that the parts stand for, kept in the metadata of the new runs part.
    before_us : int or None
        Microseconds since 1970; None drops nothing.
    rows_a_part : int
        Most rows in one part.
    progress : ProgressHook
        Called before each step.

    Returns
    -------
    int
        Runs (run, job, shard) dropped.

    Raises
    ------
    FileNotFoundError
        If another compaction took a part away: list again.
    HistoryError
        If a part is torn, foreign or of another version, or has columns that would be lost.
    """
    runs = _gather(RUNS, listed[RUNS.name])
    finish_us = numbers(runs.column("finished_at")) if runs.num_rows else np.empty(0, np.int64)
    oldest_us = np.iinfo(np.int64).min if before_us is None else before_us
    n_dropped = int((finish_us < oldest_us).sum())
    # Runs go last: as long as they are there, a prune that dies can be done again.
    for step, frame in enumerate((EXECUTIONS, CHANGES, RUNS)):
        progress(f"compact {frame.name}", step, len(HISTORY))
        parts = listed[frame.name]
        is_compact = len(parts) <= 1 or (
            all(part.is_merged for part in parts) and len({part.sequence for part in parts}) == 1
        )
        if not parts or (is_compact and n_dropped == 0):
            continue
        table = runs if frame is RUNS else _gather(frame, parts)
        row_finish_us = finish_us if frame is RUNS else _finish_of_rows(frame, table, runs, finish_us)
        if n_dropped:
            keep = np.flatnonzero(row_finish_us >= oldest_us)
            table, row_finish_us = table.take(indices(keep)), row_finish_us[keep]
        new = _write_merged(frame, table, row_finish_us, parts, digests, rows_a_part)
        progress(f"replace parts of {frame.name}", step, len(HISTORY))
        remove_parts([part for part in parts if part.path not in new])
    progress("compact", len(HISTORY), len(HISTORY))
    return n_dropped


def _write_merged(
    frame: Frame,
    table: pa.Table,
    finish_us: np.ndarray,
    parts: Sequence[Part],
    digests: Collection[str],
    rows_a_part: int,
) -> set[Path]:
    """Write `table` in slices and return their paths; a runs part is written even without rows."""
    sequence = max(part.sequence for part in parts)
    if table.num_rows > rows_a_part:
        # By time, so that a reader of what is new leaves the old slices unopened.
        order = np.argsort(finish_us, kind="stable")
        table, finish_us = table.take(indices(order)), finish_us[order]
    starts = range(0, table.num_rows, rows_a_part) if table.num_rows else range(int(frame is RUNS))
    paths = set()
    for start in starts:
        names = [part.path.name for part in parts] + [str(start), str(table.num_rows)]
        rows = slice(start, start + rows_a_part)
        part = write_part(
            parts[0].path.parent,
            table.slice(start, rows_a_part),
            newest_us=int(finish_us[rows].max(initial=0)),
            sequence=sequence,
            digest=f"merged-{sha256('/'.join(names).encode()).hexdigest()[:32]}",
            digests=digests if frame is RUNS and start == 0 else (),
        )
        paths.add(part.path)
    return paths


def _gather(frame: Frame, parts: Sequence[Part]) -> pa.Table:
    for part in parts:
        check_rewritable(frame, part)
    tables = [read_part(frame, part, list(frame.columns)) for part in parts]
    return one_row_a_key(frame, pa.concat_tables(tables) if tables else empty_table(frame))


def _finish_of_rows(frame: Frame, table: pa.Table, runs: pa.Table, finish_us: np.ndarray) -> np.ndarray:
    """Newest finish of the runs that a row of executions or changes belongs to, for each row."""
    key = [name for name in RUNS.key if name in frame.key]
    both = pa.concat_tables([runs.select(key), table.select(key)]).unify_dictionaries().combine_chunks()
    values, group = np.unique(pack([both.column(name) for name in key]), return_inverse=True)
    newest_us = np.full(len(values), np.iinfo(np.int64).min)
    np.maximum.at(newest_us, group[: runs.num_rows], finish_us)
    return newest_us[group[runs.num_rows :]]
