"""From executions to one row a (run, test): tries folded, unstable ids joined at their function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastci_ml.records.frames import ATTEMPTS_A_RUN
from fastci_ml.records.outcomes import FailureClass, Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAILED, PASSED, UNCLEAR = 1, 0, -1
_FLAKY = -2
NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRows:
    """Tries of tests, in any order.

    Attributes
    ----------
    run, node : int64, shape (n,)
        Codes; a run is one CI run on one lane.
    job, part : int64, shape (n,)
        Codes of the CI job, and of the shard and the attempt of the CI.
    verdict : int8, shape (n,)
        As `attempt_verdicts` gives them.
    duration_s : float64, shape (n,)
        NaN where unknown.
    """

    run: NDArray[np.int64]
    node: NDArray[np.int64]
    job: NDArray[np.int64]
    part: NDArray[np.int64]
    verdict: NDArray[np.int8]
    duration_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRows:
    """One row a (run, test), ordered so; columns as in `LogRows`, without flaky among the verdicts."""

    run: NDArray[np.int64]
    node: NDArray[np.int64]
    verdict: NDArray[np.int8]
    duration_s: NDArray[np.float64]


def encode(column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Codes of a text column and the sorted values they stand for."""
    from fastci_ml.sources.history.tables import codes

    places, dictionary = codes(column)
    values: list[str] = dictionary.to_pylist()
    # Only values in use, sorted: codes then do not depend on the order of the parts.
    is_used = np.zeros(len(values), dtype=bool)
    is_used[places] = True
    used = sorted(np.flatnonzero(is_used).tolist(), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int64)
    rank[used] = np.arange(len(used))
    return rank[places], [values[i] for i in used]


def run_times(
    runs: Any, run_codes: NDArray[np.int64], n_runs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Start and end of each run over its jobs and shards, and its head."""
    from fastci_ml.sources.history.tables import numbers

    starts, ends = numbers(runs.column("started_at")), numbers(runs.column("finished_at"))
    started = np.full(n_runs, np.iinfo(np.int64).max, dtype=np.int64)
    finished = np.full(n_runs, NO_TIME, dtype=np.int64)
    np.minimum.at(started, run_codes, starts)
    np.maximum.at(finished, run_codes, ends)
    heads = [""] * n_runs
    for code, head in zip(run_codes.tolist(), runs.column("head").to_pylist(), strict=True):
        heads[code] = head or heads[code]
    return started, finished, heads


def row_parts(rows: Any) -> NDArray[np.int64]:
    """Code of the shard and the attempt of the CI that each row is from."""
    from fastci_ml.sources.history.tables import numbers

    shards, names = encode(rows.column("shard"))
    of_ci = numbers(rows.column("attempt")) // ATTEMPTS_A_RUN + 1  # -1, which stands for no attempt, gives 0
    parts: NDArray[np.int64] = shards + len(names) * of_ci
    return parts


def attempt_verdicts(rows: Any) -> NDArray[np.int8]:
    """Verdict of each attempt; a flaky failure is marked -2 until the attempts are folded."""
    outcome_codes, outcomes = encode(rows.column("outcome"))
    class_codes, classes = encode(rows.column("failure_class"))
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


def fold_attempts(rows: LogRows) -> FoldedRows:
    """One verdict for each test of a run.

    Failed if any try did, unless the same job passed it in another shard or attempt of the CI: then it is
    flaky, which says nothing, as do failures that were classed so. Durations are summed.
    """
    order = np.lexsort((rows.node, rows.run))
    run, node, verdict = rows.run[order], rows.node[order], rows.verdict[order]
    starts = _starts(run, node)
    if not len(starts):
        return FoldedRows(run=run, node=node, verdict=verdict, duration_s=rows.duration_s[order])
    has_failed = np.maximum.reduceat(verdict, starts) == FAILED
    has_passed = np.logical_or.reduceat(verdict == PASSED, starts)
    is_mixed = has_failed & has_passed
    if is_mixed.any():
        group = np.repeat(np.where(is_mixed, np.cumsum(is_mixed) - 1, -1), np.diff(starts, append=len(run)))
        within = np.flatnonzero(group >= 0)
        job, part = rows.job[order[within]], rows.part[order[within]]
        has_failed[is_mixed] = _fails_alone(group[within], job, part, verdict[within])
    is_flaky = (np.minimum.reduceat(verdict, starts) == _FLAKY) | is_mixed
    folded = np.where(has_passed & ~is_flaky, PASSED, UNCLEAR)
    return FoldedRows(
        run=run[starts],
        node=node[starts],
        verdict=np.where(has_failed, FAILED, folded).astype(np.int8),
        duration_s=_sum_known(rows.duration_s[order], starts)[0],
    )


def join_keys(rows: FoldedRows, keys: Sequence[str], node_ids: Sequence[str]) -> tuple[FoldedRows, list[str]]:
    """Put tests under what their history is kept under.

    Parameters
    ----------
    rows : FoldedRows
        Under their own ids.
    keys, node_ids : sequence of str, shape (n_nodes,)
        What each code is to stand under, and what it stands for now, sorted.

    Returns
    -------
    rows : FoldedRows
        A function failed if one of its tests did, and passed if the others say nothing. Its duration is the
        mean over its tests, as each of them will be expected to take that long.
    names : list of str
        What the codes stand for then, sorted.
    """
    if list(keys) == list(node_ids):
        return rows, list(node_ids)
    names = sorted(set(keys))
    place = {name: code for code, name in enumerate(names)}
    node = np.array([place[key] for key in keys], dtype=np.int64)[rows.node]
    order = np.lexsort((node, rows.run))
    run, node = rows.run[order], node[order]
    starts = _starts(run, node)
    total_s, n_known = _sum_known(rows.duration_s[order], starts)
    joined = FoldedRows(
        run=run[starts],
        node=node[starts],
        # FAILED > PASSED > UNCLEAR.
        verdict=np.maximum.reduceat(rows.verdict[order], starts) if len(starts) else rows.verdict,
        duration_s=total_s / np.maximum(n_known, 1),
    )
    return joined, names


def _starts(run: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each (run, node) of ordered rows begins."""
    is_first = np.ones(len(run), dtype=bool)
    is_first[1:] = (run[1:] != run[:-1]) | (node[1:] != node[:-1])
    return np.flatnonzero(is_first)


def _fails_alone(
    group: NDArray[np.int64], job: NDArray[np.int64], part: NDArray[np.int64], verdict: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """Whether, for each group, a job failed it and passed it in no other part, shape (n_groups,).

    Within a part a failure stands: a reader that knew the tries to be alike has classed it as flaky already.
    """
    order = np.lexsort((part, job, group))
    group, job, part, verdict = group[order], job[order], part[order], verdict[order]
    n_groups = int(group[-1]) + 1
    of_job = np.cumsum(np.append(False, (group[1:] != group[:-1]) | (job[1:] != job[:-1])))
    is_first = np.append(True, (of_job[1:] != of_job[:-1]) | (part[1:] != part[:-1]))
    starts = np.flatnonzero(is_first)
    highest = np.maximum.reduceat(verdict, starts)
    cell_job, cell_group = of_job[starts], group[starts]
    has_failed = np.bincount(cell_job, highest == FAILED) > 0
    has_passed = np.bincount(cell_job, highest == PASSED) > 0
    group_of_job = np.zeros(len(has_failed), dtype=np.int64)
    group_of_job[cell_job] = cell_group
    alone: NDArray[np.bool_] = np.bincount(group_of_job, has_failed & ~has_passed, minlength=n_groups) > 0
    return alone


def _sum_known(
    durations_s: NDArray[np.float64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Sum of the known durations of each group, NaN without one, and how many are known."""
    if not len(starts):
        return np.empty(0), np.empty(0, dtype=np.int64)
    is_known = ~np.isnan(durations_s)
    total_s = np.add.reduceat(np.where(is_known, durations_s, 0.0), starts)
    n_known = np.add.reduceat(is_known.astype(np.int64), starts)
    return np.where(n_known > 0, total_s, np.nan), n_known
