"""The features against slow, obvious ones, and against a world without a future."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_runs import Run, runs_of, to_log

from fastci_ml.features.log import RunLog
from fastci_ml.features.matrix import FeatureState, build_matrix, run_events
from fastci_ml.features.schema import _DEFINITIONS, FEATURE_NAMES, N_FEATURES, feature_index
from fastci_ml.records.changes import ChangeStatus, FileChange

HISTORY = FEATURE_NAMES[: FEATURE_NAMES.index("run_n_tests")]


def known_runs(runs: list[Run], now: int, lane: str) -> Iterator[Run]:
    """Runs of the lane that ended strictly before `now`, by their ends."""
    ended = [(run.end, i, run) for i, run in enumerate(runs) if run.end < now and run.lane == lane]
    return (run for _, _, run in sorted(ended, key=lambda row: row[:2]))


def module_of(node: str) -> str:
    return node.partition("::")[0] if "::" in node else node.rpartition("/")[0]


def slow_history(runs: list[Run], now: int, lane: str, node: str) -> dict[str, float]:
    """Every history feature of one test from its definition in the schema."""
    past: list[tuple[int, int, float]] = []  # (place on the lane's clock, verdict, seconds)
    module = math.nan
    for clock, run in enumerate(known_runs(runs, now, lane)):
        peers = [v for other, v, _ in run.results if module_of(other) == module_of(node) and v >= 0]
        if peers:
            module = (0 if math.isnan(module) else module) * 0.8 + 0.2 * sum(peers) / len(peers)
        past += [(clock, v, s) for other, v, s in run.results if other == node and v >= 0]
    n_clock = sum(1 for _ in known_runs(runs, now, lane))
    verdicts = [v for _, v, _ in past]
    fails = sum(verdicts)
    new_fails = sum(b > a for a, b in pairwise(verdicts))
    seconds = [s for _, _, s in past if not math.isnan(s)]
    mean = sum(seconds) / len(seconds) if seconds else math.nan
    decays = {}
    for name, decay in (("50", 0.5), ("80", 0.8), ("95", 0.95)):
        value = 0.0
        for verdict in verdicts:
            value = value * decay + verdict * (1 - decay)
        decays[f"fail_decay_{name}"] = value
    streak = 0
    for verdict in reversed(verdicts):
        if verdict != verdicts[-1]:
            break
        streak += 1
    return {
        "n_runs": len(past),
        "pass_streak": streak if verdicts and not verdicts[-1] else 0,
        "n_new_fails": new_fails,
        "fail_streak": streak if verdicts and verdicts[-1] else 0,
        "last_verdict": verdicts[-1] if verdicts else math.nan,
        "n_fails": fails,
        **decays,
        "repeat_fail_share": (fails - new_fails) / (fails + 1),
        "duration_mean_s": mean,
        "duration_trend": seconds[-1] / mean if seconds and mean else math.nan,
        "runs_since_fail": min((n_clock - c for c, v, _ in past if v), default=math.nan),
        "runs_since_run": n_clock - past[-1][0] if past else math.nan,
        "runs_since_first": n_clock - past[0][0] if past else math.nan,
        "fail_rate": (fails + 0.01) / (len(past) + 0.5),
        "new_fail_rate": new_fails / (len(past) - fails + 1),
        "module_fail_decay_80": module,
    }


def assert_equal(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6, equal_nan=True)


@given(runs_of())
@settings(max_examples=60, deadline=None)
def test_history_features_equal_their_definitions(runs: list[Run]) -> None:
    log = to_log(runs)
    matrix = build_matrix(log)
    for i, run in enumerate(runs):
        rows = log.rows(i)
        for row in range(rows.start, rows.stop):
            slow = slow_history(runs, run.start, run.lane, log.node_ids[log.tests[row]])
            assert tuple(slow) == HISTORY
            assert_equal(matrix[row, : len(HISTORY)], np.array(list(slow.values())))


@given(runs_of(), st.data())
@settings(max_examples=60, deadline=None)
def test_no_feature_changes_when_the_future_is_deleted(runs: list[Run], data: st.DataObject) -> None:
    chosen = data.draw(st.integers(0, len(runs) - 1))
    past = [run for run in runs if run.end < runs[chosen].start]
    log, short = to_log(runs), to_log([*past, runs[chosen]])
    with_future = build_matrix(log)[log.rows(chosen)]
    without = build_matrix(short)[short.rows(len(past))]
    np.testing.assert_array_equal(with_future, without)


@given(runs_of())
@settings(max_examples=40, deadline=None)
def test_a_state_at_rank_time_gives_what_training_saw(runs: list[Run]) -> None:
    """The last run, read from a state of the runs that ended before it, equals its rows of the matrix."""
    last = runs[-1]
    log = to_log(runs)
    ended = log.select_runs([i for i, run in enumerate(runs) if run.end < last.start])
    rows = log.rows(len(runs) - 1)
    node_ids = [log.node_ids[code] for code in log.tests[rows]]
    now = FeatureState.from_log(ended).matrix(node_ids, last.lane, last.changes)
    np.testing.assert_array_equal(now, build_matrix(log)[rows])


@given(runs_of(), st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_advancing_in_two_steps_equals_one(runs: list[Run], split: int) -> None:
    runs = sorted(runs, key=lambda run: run.end)
    log = to_log(sorted(runs, key=lambda run: run.start))
    by_end = np.lexsort((np.arange(log.n_runs), log.finished_us))
    first = log.select_runs(np.sort(by_end[:split]))
    second = to_log_part(log, np.sort(by_end[split:]))
    state = FeatureState.from_log(first)
    state.advance(second)
    whole = FeatureState.from_log(log)
    changes = next((run.changes for run in runs if run.changes), None)
    for lane in ("cpu", "gpu"):
        nodes = whole.tests_of(lane)
        np.testing.assert_array_equal(state.matrix(nodes, lane, changes), whole.matrix(nodes, lane, changes))
    assert state.watermark_us == whole.watermark_us


def to_log_part(log: RunLog, picked: np.ndarray) -> RunLog:
    """Some runs, with test codes of their own as a second read of the store would give them."""
    part = log.select_runs(picked)
    used = np.unique(part.tests)
    rank = np.full(log.n_tests, -1)
    rank[used] = np.arange(len(used))
    return RunLog(
        node_ids=[log.node_ids[i] for i in used],
        lanes=[log.lanes[i] for i in used],
        run_ids=part.run_ids,
        run_lanes=part.run_lanes,
        heads=part.heads,
        started_us=part.started_us,
        finished_us=part.finished_us,
        offsets=part.offsets,
        tests=rank[part.tests].astype(np.int32),
        verdicts=part.verdicts,
        durations_s=part.durations_s,
        changes=part.changes,
    )


@given(runs_of())
@settings(max_examples=30, deadline=None)
def test_events_end_a_run_only_before_a_later_start(runs: list[Run]) -> None:
    log = to_log(runs)
    ended: set[int] = set()
    started = []
    for is_start, run in run_events(log):
        if is_start:
            started.append(run)
            assert ended == {i for i, other in enumerate(runs) if other.end < runs[run].start}
        else:
            ended.add(run)
    assert started == list(range(len(runs)))


def test_an_unknown_change_is_nan_and_an_empty_one_is_not() -> None:
    results = (("tests/a/test_x.py::test_a", 0, 1.0),)
    unknown, empty = (Run("cpu", 0, 1, results, changes) for changes in (None, ()))
    for run, is_nan in ((unknown, True), (empty, False)):
        matrix = build_matrix(to_log([run]))
        assert np.isnan(matrix[0, feature_index("name_affinity")]) == is_nan
        assert np.isnan(matrix[0, feature_index("change_n_files")]) == is_nan


def test_an_empty_log_has_an_empty_matrix() -> None:
    log = to_log([Run("cpu", 0, 1, (("a.py::t", 0, 1.0),), None)]).select_runs([])
    assert build_matrix(log).shape == (0, N_FEATURES)
    assert FeatureState.from_log(log).watermark_us is None


def test_progress_is_told_for_every_run() -> None:
    told: list[tuple[str, int, int]] = []
    runs = [Run("cpu", i, i, (("a.py::t", 0, 1.0),), None) for i in range(3)]
    build_matrix(to_log(runs), lambda *step: told.append(step))
    assert told == [("features", i + 1, 3) for i in range(3)]


def test_a_changed_file_raises_the_test_that_failed_with_it() -> None:
    changed = (FileChange(path="pkg/optim/adam.py", status=ChangeStatus.MODIFIED),)
    nodes = ("tests/optim/test_adam.py::test_step", "tests/data/test_loader.py::test_resume")
    runs = [
        Run("cpu", 10 * i, 10 * i + 1, ((nodes[0], 1, 1.0), (nodes[1], 0, 1.0)), changed) for i in range(3)
    ]
    runs.append(Run("cpu", 100, 101, ((nodes[0], 0, 1.0), (nodes[1], 0, 1.0)), changed))
    log = to_log(runs)
    by_node = {log.node_ids[log.tests[row]]: build_matrix(log)[row] for row in range(6, 8)}
    for name, near, far in (
        ("file_cofail_rate", 3 / 4, 0),
        ("folder_cofail_rate", 3 / 4, 0),
        ("folder_affinity", 1 / 2, 0),
        ("name_affinity", 1, 0),
        ("is_test_changed", 0, 0),
        ("change_churn", 3, 3),
        ("change_fail_share", 1, 1),
    ):
        column = feature_index(name)
        assert by_node[nodes[0]][column] == pytest.approx(near), name
        assert by_node[nodes[1]][column] == pytest.approx(far), name


def test_a_run_of_no_tests_with_a_change_has_no_rows() -> None:
    changed = (FileChange(path="pkg/optim/adam.py", status=ChangeStatus.MODIFIED),)
    assert FeatureState().matrix([], "cpu", changed).shape == (0, N_FEATURES)


@pytest.mark.parametrize("seconds", [3e38, 1e300, math.inf, -1.0])
def test_a_duration_that_can_be_none_is_an_unknown_one(seconds: float) -> None:
    runs = [
        Run("cpu", i, i, (("t.py::test", 0, s),), None) for i, s in enumerate([seconds, 2.0, seconds, 2.0])
    ]
    unknown = [Run("cpu", i, i, (("t.py::test", 0, s),), None) for i, s in enumerate([math.nan, 2.0] * 2)]
    assert np.array_equal(build_matrix(to_log(runs)), build_matrix(to_log(unknown)), equal_nan=True)


# Number of NaN and sum of each feature over the runs below, by definitions 1.
MEANINGS = {
    "n_runs": (0, 5358),
    "pass_streak": (0, 1271),
    "n_new_fails": (0, 937),
    "fail_streak": (0, 182),
    "last_verdict": (27, 146),
    "n_fails": (0, 1260),
    "fail_decay_50": (0, 134.77),
    "fail_decay_80": (0, 108.196),
    "fail_decay_95": (0, 48.7311),
    "repeat_fail_share": (0, 71.8948),
    "duration_mean_s": (35, 668.142),
    "duration_trend": (35, 528.365),
    "runs_since_fail": (131, 1990),
    "runs_since_run": (27, 839),
    "runs_since_first": (27, 7957),
    "fail_rate": (0, 118.596),
    "new_fail_rate": (0, 108.297),
    "module_fail_decay_80": (19, 113.662),
    "run_n_tests": (0, 5720),
    "lane_fail_decay_80": (19, 115.738),
    "change_n_files": (109, 1006),
    "change_n_lines": (109, 4024),
    "change_n_folders": (109, 1006),
    "change_test_share": (109, 93.0833),
    "change_source_share": (109, 216.833),
    "change_config_share": (109, 0),
    "change_churn": (109, 2783),
    "change_fail_share": (165, 270.154),
    "is_test_changed": (109, 116),
    "name_affinity": (109, 282),
    "folder_affinity": (109, 227.5),
    "file_cofail_rate": (109, 59.4392),
    "folder_cofail_rate": (109, 59.4392),
}


def test_the_definitions_of_the_features_are_those_that_the_digest_stands_for() -> None:
    # case 48: models and frames remember the digest. Whoever changes what a feature means raises _DEFINITIONS
    # in the schema, so that these are refused and not scored; then the figures here are taken anew.
    rng = random.Random(7)  # draws the same in every release
    files = ("pkg/optim/adam.py", "pkg/data/loader.py", "tests/optim/test_adam.py", "README.md")
    nodes = [
        f"tests/{part}/test_{name}.py::test_{i}"
        for part, name in (("optim", "adam"), ("data", "loader"))
        for i in range(6)
    ]
    runs = [
        Run(
            ("cpu", "gpu")[i % 2],
            10 * i,
            10 * i + 1 + int(29 * rng.random()),
            tuple(
                (node, [0, 0, 0, 1, -1][int(5 * rng.random())], [0.5, 2.0, math.nan][int(3 * rng.random())])
                for node in nodes
                if rng.random() < 0.8
            ),
            None
            if i % 5 == 0
            else tuple(
                FileChange(path=path, status=ChangeStatus.MODIFIED, n_added=3.0, n_deleted=1.0)
                for path in files
                if rng.random() < 0.5
            ),
        )
        for i in range(60)
    ]
    X = build_matrix(to_log(runs)).astype(np.float64)
    found = {
        name: (int(np.isnan(column).sum()), pytest.approx(float(np.nansum(column)), rel=1e-4))
        for name, column in zip(FEATURE_NAMES, X.T, strict=True)
    }
    assert _DEFINITIONS == 1
    assert found == MEANINGS
