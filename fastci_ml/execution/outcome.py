"""The CI outcome of a plan: how its order and its risks did against what the run showed.

Only failures of class `TEST` count for or against what ranked the plan: no order foresees a full disk. A
planned test without a result is never taken for passed; it counts as a failure of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from fastci_ml.execution.entry_results import Result
from fastci_ml.execution.results import PlanResults
from fastci_ml.metrics.ordering import apfd, apfdc
from fastci_ml.records.ids import NodeId
from fastci_ml.records.outcomes import FailureClass
from fastci_ml.records.plans import PlannedTest

SCHEMA = "fastci.outcome/1"
_HARMLESS = frozenset({FailureClass.NONE, FailureClass.FLAKY})


def outcome_record(found: PlanResults) -> dict[str, Any]:
    """Sum up the outcome of one plan, for MLflow and for the spool.

    Parameters
    ----------
    found : PlanResults
        The plan and what its run left.

    Returns
    -------
    dict
        JSON values: ``schema``, ``outcome_id``, ``model`` (as in the plan), ``at`` (end of the run), ``tags``
        and ``metrics``. Of the metrics, null is "cannot be said":

        - ``n_tests``, ``n_left_out`` of the plan; ``n_run``: those that it runs and that have a result;
          ``n_missing``: those that it runs and that have none; ``n_unplanned``: results of others;
          ``n_left_out_run``, ``n_left_out_failures``: left out, yet run (shadow mode), and failed then
        - ``n_failures``: tests that speak against the change: test failures, other failures, missing;
          ``n_unplanned_failures``: test failures of those that the plan does not name;
          ``n_other_failures``: set-up, timeout, crash, infrastructure, environment; ``n_flaky``: failed and
          passed, which speaks against nothing
        - ``expected_failures``: sum of the risks of what ran; ``observed_failures``: test failures among them
        - ``first_failure_place``: place of the first of these among what ran, in the order of the plan, from
          1; ``first_failure_s``: seconds until it has ended, had the tests run one after the other
        - ``apfd``, ``apfdc``: of that order, one fault a failing test (per_failure)
        - ``run_s``: seconds that all tests took; ``expected_saved_s``: expected seconds of what did not run
    """
    plan, results = found.plan, found.results
    planned = sorted((t for t in plan.tests if t.decision.is_run), key=lambda test: test.order)
    left_out = [test for test in plan.tests if not test.decision.is_run]
    ran = [test for test in planned if test.id in results]
    named = {test.id for test in plan.tests}
    n_missing = len(planned) - len(ran)
    n_failed = sum(result.failure_class is FailureClass.TEST for result in results.values())
    n_other = sum(result.failure_class not in _HARMLESS for result in results.values()) - n_failed
    risks = [test.risk for test in ran if test.risk is not None]
    metrics = {
        "n_tests": len(plan.tests),
        "n_run": len(ran),
        "n_left_out": len(left_out),
        "n_left_out_run": sum(test.id in results for test in left_out),
        "n_left_out_failures": sum(_has_failed(test, results) for test in left_out),
        "n_missing": n_missing,
        "n_unplanned": len(results.keys() - named),
        "n_failures": n_failed + n_other + n_missing,
        "n_unplanned_failures": sum(
            result.failure_class is FailureClass.TEST
            for node_id, result in results.items()
            if node_id not in named
        ),
        "n_other_failures": n_other,
        "n_flaky": sum(result.failure_class is FailureClass.FLAKY for result in results.values()),
        "expected_failures": math.fsum(risks) if risks else None,
        **_order_metrics(ran, results),
        "run_s": math.fsum(r.duration_s for r in results.values() if not math.isnan(r.duration_s)),
        "expected_saved_s": math.fsum(t.duration_s or 0.0 for t in left_out if t.id not in results),
    }
    return {
        "schema": SCHEMA,
        "outcome_id": found.digest,
        "model": dict(plan.model),
        "at": found.finished_at.isoformat(),
        "tags": {"run_id": found.run_id, "base": plan.base, "head": plan.head, "lane": plan.lane},
        "metrics": metrics,
    }


def _has_failed(test: PlannedTest, results: Mapping[NodeId, Result]) -> bool:
    result = results.get(test.id)
    return result is not None and result.failure_class is FailureClass.TEST


def _order_metrics(ran: Sequence[PlannedTest], results: Mapping[NodeId, Result]) -> dict[str, float | None]:
    """Metrics of the order in which the plan puts what ran."""
    places = [place for place, test in enumerate(ran, start=1) if _has_failed(test, results)]
    costs = _costs(ran, results)
    first = places[0] if places else None
    return {
        "observed_failures": len(places),
        "first_failure_place": first,
        "first_failure_s": None if first is None else math.fsum(costs[:first]),
        "apfd": _finite(apfd(places, len(ran))),
        "apfdc": _finite(apfdc(places, costs)),
    }


def _costs(ran: Sequence[PlannedTest], results: Mapping[NodeId, Result]) -> list[float]:
    """Seconds of each test: measured, else expected, else the median of the others."""
    known = [
        result_s if not math.isnan(result_s := results[test.id].duration_s) else test.duration_s
        for test in ran
    ]
    typical_s = median([seconds for seconds in known if seconds is not None] or [0.0])
    return [typical_s if seconds is None else seconds for seconds in known]


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value
