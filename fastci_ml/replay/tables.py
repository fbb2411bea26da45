"""What a prediction replay says: text for a person, numbers for a notebook, one object for a machine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fastci_ml.metrics.intervals import Interval
from fastci_ml.replay.comparison import Comparison, Row, compare_all_failures, compare_new_failures
from fastci_ml.replay.prediction import PredictionReplay
from fastci_ml.replay.scoring import METRICS, MODEL

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "fastci.replay/1"
# Heading, metric, and whether the difference to the best simple policy stands beside it: it does for the two
# metrics by which an order is judged; the JSON has all.
_COLUMNS = (
    ("APFD", "apfd", True),
    ("APFDc", "apfdc", True),
    ("NAPFD@50%", "napfd_50", False),
    ("caught@10%", "recall_10", False),
    ("@20%", "recall_20", False),
    ("@50%", "recall_50", False),
)
_HEADINGS = {
    "all": "all failures",
    "pass_to_fail": "pass-to-fail failures (the test's run before had passed)",
}


def replay_cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Lay out one comparison.

    Returns
    -------
    tuple of (list of str, list of list of str)
        Header and rows of text, one row a policy.
    """
    header = ["policy"]
    for heading, _, has_difference in _COLUMNS:
        header += [heading, "vs best simple [95%]"] if has_difference else [heading]
    return header, [_cells(row, comparison) for row in comparison.rows]


def _cells(row: Row, comparison: Comparison) -> list[str]:
    cells = [row.name]
    for _, metric, has_difference in _COLUMNS:
        cells.append(_number(row.means[metric]))
        if has_difference:
            is_best = comparison.best_simple.get(metric) == row.name
            cells.append("best" if is_best else _difference(row.differences.get(metric)))
    return cells


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _difference(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def comparison_frame(comparison: Comparison) -> pd.DataFrame:
    """Lay out one comparison as numbers.

    Returns
    -------
    pandas.DataFrame
        One row a policy, by kind and name, in the order of the replay. Columns by metric and figure: ``mean``
        over the runs; ``vs_best``, the paired difference to the best simple policy of that metric, with the
        ends ``low`` and ``high`` of its 95% interval. NaN without runs; NaN differences without simple
        policies.
    """
    import pandas as pd

    unknown = Interval(mean=math.nan, low=math.nan, high=math.nan)
    cells: dict[tuple[str, str], list[float]] = {}
    for metric in METRICS:
        found = [row.differences.get(metric, unknown) for row in comparison.rows]
        cells[metric, "mean"] = [row.means[metric] for row in comparison.rows]
        cells[metric, "vs_best"] = [interval.mean for interval in found]
        cells[metric, "low"] = [interval.low for interval in found]
        cells[metric, "high"] = [interval.high for interval in found]
    rows = [(row.kind, row.name) for row in comparison.rows]
    frame = pd.DataFrame(cells, index=pd.MultiIndex.from_tuples(rows, names=["kind", "policy"]))
    return frame.rename_axis(columns=["metric", "figure"])


def replay_notes(replay: PredictionReplay) -> list[str]:
    """Say, in lines of text, what was scored and by which rules."""
    choice, protocol = replay.choice, replay.protocol
    lines = [
        f"runs: {choice.n_runs:,}, of which {choice.n_runs - choice.n_predicted:,} came before the start "
        f"({protocol.start_share:.0%}) and only teach",
        f"  {choice.n_predicted:,} predicted: {len(choice.scored):,} failing runs scored, "
        f"{choice.n_passing:,} without failures (no APFD), {choice.n_too_small:,} dropped "
        f"(fewer than two tests)",
        f"failures: {int(replay.n_failures.sum()):,}, pass-to-fail {int(replay.n_new_failures.sum()):,} in "
        f"{int((replay.n_new_failures > 0).sum()):,} runs; one fault per failing test (per_failure)",
        f"ties at random (seed {protocol.seed}): mean of {protocol.n_repeats} orders, "
        f"{protocol.n_random_repeats} for random and thompson; means over runs",
    ]
    if choice.n_unclear:
        lines.append(f"left out of the orders: {choice.n_unclear:,} results that say nothing about the code")
    if replay.n_imputed:
        lines.append(f"unknown durations taken to be the expected ones: {replay.n_imputed:,}")
    return [*lines, _model_note(replay)]


def _model_note(replay: PredictionReplay) -> str:
    if replay.model_absence:
        return f"no row {MODEL}: {replay.model_absence}"
    times = "once" if replay.n_trainings == 1 else f"{replay.n_trainings} times"
    return f"{MODEL}: trained {times}, on the runs that had ended by then"


def replay_comparisons(replay: PredictionReplay) -> tuple[Comparison, ...]:
    """Both comparisons: all failures, then pass-to-fail."""
    return compare_all_failures(replay), compare_new_failures(replay)


def comparison_heading(comparison: Comparison) -> str:
    """Title of one comparison, with its counts; without a run there is no table to print under it."""
    counts = f"{comparison.n_failures:,} in {comparison.n_runs:,} runs" if comparison.n_runs else "none"
    return f"{_HEADINGS[comparison.failures]}: {counts}"


def replay_document(replay: PredictionReplay) -> dict[str, Any]:
    """Everything as one object of schema ``fastci.replay/1``; floats unrounded, NaN for unknown."""
    choice, protocol = replay.choice, replay.protocol
    return {
        "schema": SCHEMA,
        "kind": "prediction",
        "protocol": {
            "start_share": protocol.start_share,
            "retrain_share": protocol.retrain_share,
            "seed": protocol.seed,
            "n_repeats": protocol.n_repeats,
            "n_random_repeats": protocol.n_random_repeats,
            "fault_mapping": "per_failure",
        },
        "runs": {
            "n_runs": choice.n_runs,
            "n_predicted": choice.n_predicted,
            "n_scored": len(choice.scored),
            "n_passing": choice.n_passing,
            "n_too_small": choice.n_too_small,
            "n_unclear_results": choice.n_unclear,
            "n_imputed_durations": replay.n_imputed,
        },
        "model": {"n_trainings": replay.n_trainings, "absence": replay.model_absence or None},
        "metrics": list(METRICS),
        "comparisons": [_comparison_document(comparison) for comparison in replay_comparisons(replay)],
    }


def _comparison_document(comparison: Comparison) -> dict[str, Any]:
    return {
        "failures": comparison.failures,
        "n_runs": comparison.n_runs,
        "n_failures": comparison.n_failures,
        "best_simple": dict(comparison.best_simple),
        "policies": [
            {
                "name": row.name,
                "kind": row.kind,
                "means": dict(row.means),
                "vs_best_simple": {
                    metric: {"mean": interval.mean, "low": interval.low, "high": interval.high}
                    for metric, interval in row.differences.items()
                },
            }
            for row in comparison.rows
        ],
    }
