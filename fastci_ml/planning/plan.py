"""Make the plan for one change: gather what is known, rank it, and say what was not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.errors import HistoryError
from fastci_ml.features.log import build_log
from fastci_ml.features.schema import feature_index
from fastci_ml.features.state import FeatureState
from fastci_ml.planning.change import Change
from fastci_ml.planning.prioritize import Objective, Ranking, rank_by_model, rank_by_nothing, rank_by_policy
from fastci_ml.records.ids import NodeId, node_path
from fastci_ml.records.plans import Decision, Plan, PlannedTest, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.learn.bundle import ModelBundle
    from fastci_ml.sources.history import HistoryStore

# A test that did not run in this many of the lane's last runs is not expected any more. Should it exist after
# all, it is collected, unknown to the plan, and so it runs.
_KNOWN_WITHIN_RUNS = 50
_N_SHOWN = 3


def make_plan(
    change: Change,
    *,
    lane: str,
    bundle: ModelBundle | None,
    store: HistoryStore,
    collected: Sequence[str] = (),
    objective: Objective = Objective.COST,
    notes: Sequence[str] = (),
) -> Plan:
    """Plan every known and every collected test of a lane.

    A known test that was not collected stays in the plan, unless another test of its file was collected: then
    it is gone, and the plan says so.

    Parameters
    ----------
    change : Change
        What differs from the base.
    lane : str
        Where the plan will run.
    bundle : ModelBundle or None
        The model; its state is brought up to date with newer runs of `store`.
    store : HistoryStore
        The history.
    collected : sequence of str
        Node ids that pytest collected, where the caller asked it.
    objective : Objective
        What the order is good for.
    notes : sequence of str
        What the caller has to say in the plan, such as why there is no model.

    Returns
    -------
    Plan
        The same input gives the same plan.
    """
    state = FeatureState() if bundle is None else bundle.state
    found = _advance(state, store, lane)
    files = change.change_set.files if change.is_known else None
    known, gone = _split_gone(_known_tests(state, lane, change.paths), collected)
    node_ids = sorted({*known, *collected})
    matrix = state.matrix(node_ids, lane, files)
    if bundle is not None:
        ranking = rank_by_model(bundle, matrix, objective)
    elif state.watermark_us is not None:
        ranking = rank_by_policy(matrix, objective, "no model")
    else:
        ranking = rank_by_nothing(node_ids, "no model and no history")
    tests = _planned_tests(node_ids, matrix, ranking, set(collected))
    return Plan(
        base=change.change_set.base,
        head=change.change_set.head,
        head_tree=change.change_set.head_tree,
        lane=lane,
        root=change.root,
        model=ranking.model,
        summary=_summary(tests),
        notes=(*notes, *change.notes, *found, *gone, *ranking.notes),
        full_run=change.full_run,
        tests=tests,
    )


def _advance(state: FeatureState, store: HistoryStore, lane: str) -> list[str]:
    """Bring the state up to date; what hinders it, in words. A damaged history must not stop the build."""
    try:
        state.advance(build_log(store, newer_than_us=state.watermark_us))
    except HistoryError as error:
        return [f"the history is unusable, and its newer runs are unknown: {error}"]
    lanes = sorted(set(state.lanes))
    if lanes and lane not in lanes:
        return [f"no test is known on lane {lane}; the history has {', '.join(lanes)}"]
    return []


def _known_tests(state: FeatureState, lane: str, paths: frozenset[str]) -> list[str]:
    """Tests of the lane that ran lately and whose file, where the id names one, is still there.

    An id that is a file of the head is the report of a failed collection, not a test.
    """
    known = state.tests_of(lane, within_runs=_KNOWN_WITHIN_RUNS)
    return [node_id for node_id in known if ("::" in node_id) == (node_path(node_id) in paths)]


def _split_gone(known: list[str], collected: Sequence[str]) -> tuple[list[str], list[str]]:
    """Known tests that may still exist, and a note about those that are gone.

    A file that was collected without a test of old no longer has it. A file of which nothing was collected
    may have failed to import, so its tests stay, and a run without their results is a failure.
    """
    found = set(collected)
    files = {node_path(node_id) for node_id in found}
    gone = [node_id for node_id in known if node_id not in found and node_path(node_id) in files]
    if not gone:
        return known, []
    shown = ", ".join(gone[:_N_SHOWN]) + (", ..." if len(gone) > _N_SHOWN else "")
    note = f"{len(gone)} known tests are gone, as their files were collected without them: {shown}"
    return sorted(set(known) - set(gone)), [note]


def _planned_tests(
    node_ids: list[str], matrix: NDArray[np.float32], ranking: Ranking, collected: set[str]
) -> tuple[PlannedTest, ...]:
    # node_ids are sorted, so a stable sort breaks ties by id.
    order = np.argsort(-ranking.scores, kind="stable").tolist()
    durations_s = matrix[:, feature_index("duration_mean_s")].astype(np.float64).tolist()
    n_runs = matrix[:, feature_index("n_runs")].tolist()
    risks = ranking.risks.tolist()
    tests = []
    for place, i in enumerate(order, start=1):
        reasons = ranking.reasons[i]
        if not n_runs[i]:
            reasons = (_NEW_TEST, *reasons)
        elif collected and node_ids[i] not in collected:
            reasons = (*reasons, _NOT_COLLECTED)
        tests.append(
            PlannedTest(
                id=NodeId(node_ids[i]),
                decision=Decision.RUN,
                order=place,
                risk=_known(risks[i]),
                duration_s=_known(durations_s[i]),
                reasons=reasons,
            )
        )
    return tuple(tests)


_NEW_TEST = Reason(code="new_test", text="it never ran on this lane")
_NOT_COLLECTED = Reason(code="not_collected", text="history knows it, and the collection did not list it")


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _summary(tests: tuple[PlannedTest, ...]) -> dict[str, float | int | None]:
    """Totals over the plan; seconds are those of the tests with a known duration."""
    running = [test for test in tests if test.decision.is_run]
    risks = [test.risk for test in running if test.risk is not None]
    return {
        "n_tests": len(tests),
        "n_run": len(running),
        "n_unknown_duration": sum(test.duration_s is None for test in tests),
        "duration_s": math.fsum(test.duration_s or 0.0 for test in running),
        "duration_s_full": math.fsum(test.duration_s or 0.0 for test in tests),
        "expected_failures": math.fsum(risks) if risks else None,
    }
