"""Make the plan for one change: gather what is known, rank it, and say what was not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.errors import HistoryError
from fastci_ml.features.log import build_log
from fastci_ml.features.schema import feature_index
from fastci_ml.features.state import FeatureState
from fastci_ml.planning.change import Change
from fastci_ml.planning.join_rate import JoinRate
from fastci_ml.planning.planned_ids import PlannedIds
from fastci_ml.planning.prioritize import Objective, Ranking, rank_by_model, rank_by_nothing, rank_by_policy
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plans import Decision, Plan, PlannedTest, Reason
from fastci_ml.records.unstable_ids import UNSTABLE_REASON, describe_unstable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fastci_ml.learn.bundle import ModelBundle
    from fastci_ml.sources.history.store import HistoryStore

# A test that did not run in this many of the lane's last runs is not expected any more. Should it exist after
# all, it is collected, unknown to the plan, and so it runs.
_KNOWN_WITHIN_RUNS = 50


def make_plan(
    change: Change,
    *,
    lane: str,
    bundle: ModelBundle | None,
    store: HistoryStore,
    collected: Sequence[str] = (),
    objective: Objective = Objective.COST,
    notes: Sequence[str] = (),
    project: str | None = None,
    min_join_ratio: float = 0.9,
    root: Path | None = None,
) -> Plan:
    """Plan every known and every collected test of a lane.

    A known test that was not collected stays in the plan, unless another test of its file was collected: then
    it is gone, and the plan says so. Ids start at the top of the repository. Tests whose ids will be others
    when they run stand in the plan as their function.

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
        Node ids that pytest collected, where the caller asked it, from the top of the repository.
    objective : Objective
        What the order is good for.
    notes : sequence of str
        What the caller has to say in the plan, such as why there is no model.
    project : str, optional
        Folder of the tests from the top of the repository: known tests of other projects are left to those;
        that of the change by default.
    min_join_ratio : float
        Share of known tests, and of results joined for certain, below which the plan is a full run.
    root : Path, optional
        Folder of the repository, whose files help to tell ids that change where no model has.

    Returns
    -------
    Plan
        The same input gives the same plan.
    """
    project = change.root if project is None else project
    state = FeatureState() if bundle is None else bundle.state
    found = _advance(state, store, lane, root, is_new=bundle is None)
    files = change.change_set.files if change.is_known else None
    known = state.tests_of(lane, within_runs=_KNOWN_WITHIN_RUNS)
    ids = PlannedIds(known, collected, state.unstable, change, project)
    state.unstable.update(ids.addressed)
    matrix = state.matrix(ids.node_ids, lane, files)
    if bundle is not None:
        ranking = rank_by_model(bundle, matrix, objective, lane)
    elif state.watermark_us is not None:
        ranking = rank_by_policy(matrix, objective, "no model")
    else:
        ranking = rank_by_nothing(ids.node_ids, "no model and no history")
    tests = _planned_tests(ids, matrix, ranking)
    n_runs = matrix[:, feature_index("n_runs")].tolist()
    joined = JoinRate(
        n_collected=sum(ids.n_collected.values()),
        n_known=sum(
            ids.n_collected.get(node_id, 0) for node_id, n in zip(ids.node_ids, n_runs, strict=True) if n > 0
        ),
        n_attempts=state.n_attempts,
        n_certain=state.n_certain,
        n_runs=state.n_runs_of(lane),
    )
    unstable = describe_unstable(ids.unstable)
    return Plan(
        base=change.change_set.base,
        head=change.change_set.head,
        head_tree=change.change_set.head_tree,
        lane=lane,
        model=ranking.model,
        summary={**_summary(tests), **joined.to_json(), "project": project},
        notes=(
            *notes,
            *change.notes,
            *found,
            *ids.notes,
            *([unstable] if unstable else []),
            *ranking.notes,
        ),
        full_run=(*change.full_run, *joined.obstacles(min_join_ratio, has_model=bundle is not None)),
        tests=tests,
    )


def _advance(
    state: FeatureState, store: HistoryStore, lane: str, root: Path | None, *, is_new: bool
) -> list[str]:
    """Bring the state up to date; what hinders it, in words. A damaged history must not stop the build."""
    # What a model's state keeps under a function stays there; a new state decides by the whole history.
    unstable = None if is_new else state.unstable
    try:
        log = build_log(store, newer_than_us=state.watermark_us, unstable=unstable, root=root)
    except HistoryError as error:
        return [f"the history is unusable, and its newer runs are unknown: {error}"]
    state.advance(log)
    lanes = sorted(set(state.lanes))
    if lanes and lane not in lanes:
        return [f"no test is known on lane {lane}; the history has {', '.join(lanes)}"]
    return []


def _planned_tests(ids: PlannedIds, matrix: NDArray[np.float32], ranking: Ranking) -> tuple[PlannedTest, ...]:
    # The ids are sorted, so a stable sort breaks ties by id.
    order = np.argsort(-ranking.scores, kind="stable").tolist()
    durations_s = matrix[:, feature_index("duration_mean_s")].astype(np.float64).tolist()
    n_runs = matrix[:, feature_index("n_runs")].tolist()
    risks = ranking.risks.tolist()
    tests = []
    for place, i in enumerate(order, start=1):
        node_id = ids.node_ids[i]
        reasons = ranking.reasons[i]
        n_collected = ids.n_collected.get(node_id, 0)
        if not n_runs[i]:
            reasons = (_NEW_TEST, *reasons)
        elif ids.n_collected and not n_collected:
            reasons = (*reasons, _NOT_COLLECTED)
        if node_id in ids.functions:
            kind = ids.functions[node_id]
            text = f"stands for all its parameters, as their ids change between runs ({kind})"
            reasons = (
                *reasons,
                Reason(code=UNSTABLE_REASON, text=text, details={"n_collected": n_collected}),
            )
        tests.append(
            PlannedTest(
                id=NodeId(node_id),
                decision=Decision.RUN,
                order=place,
                risk=_known(risks[i]),
                # What is known is the mean of a function's tests.
                duration_s=_known(durations_s[i] * max(1, n_collected)),
                reasons=reasons,
            )
        )
    return tuple(tests)


_NEW_TEST = Reason(code="new_test", text="it never ran on this lane")
_NOT_COLLECTED = Reason(code="not_collected", text="history knows it, and the collection did not list it")


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _summary(tests: tuple[PlannedTest, ...]) -> Mapping[str, float | int | None]:
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
