"""How the tests of a run ended: one result for each entry of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastci_ml.execution.gate import plan_functions
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.records.unstable_ids import split_params

if TYPE_CHECKING:
    import pyarrow as pa

    from fastci_ml.records.plans import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one test ended in the run, its attempts taken together.

    Attributes
    ----------
    failure_class : FailureClass
        `NONE` if it did not fail, `TEST` if any attempt is a test failure, `FLAKY` if it failed and passed.
    duration_s : float
        Sum over its attempts; NaN when unknown.
    """

    failure_class: FailureClass
    duration_s: float


def fold_results(executions: pa.Table, plan: Plan) -> dict[NodeId, Result]:
    """One result an entry, from its attempts; attempts without a result of their own count for nothing."""
    results: dict[NodeId, Result] = {}
    named, functions = {test.id for test in plan.tests}, plan_functions(plan)
    rows = zip(
        *(
            executions.column(name).to_pylist()
            for name in ("node_id", "outcome", "failure_class", "duration_s")
        ),
        strict=True,
    )
    for node_id, outcome, word, duration_s in rows:
        if functions and node_id not in named and (function := split_params(node_id)[0]) in functions:
            node_id = function
        before = results.get(node_id)
        if outcome == Outcome.UNKNOWN and before is None:
            continue
        found = FailureClass(word)
        if before is not None:
            found = max(before.failure_class, found, key=_severity)
            duration_s = _add(before.duration_s, duration_s)
        results[NodeId(node_id)] = Result(failure_class=found, duration_s=duration_s)
    return results


def _severity(failure_class: FailureClass) -> int:
    if failure_class is FailureClass.TEST:
        return 3
    if failure_class is FailureClass.FLAKY:
        return 1
    return 0 if failure_class is FailureClass.NONE else 2


def _add(one: float, other: float) -> float:
    """Sum of two durations of which one may be unknown."""
    if one != one:
        return other
    return one if other != other else one + other
