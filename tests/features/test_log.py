"""How executions become one row a run and test: tries, attempts of the CI, ids that change between runs."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from projects import FIRST, to_frame

from fastci_ml.features.log import FAILED, PASSED, UNCLEAR, RunLog, build_log
from fastci_ml.features.matrix import build_matrix
from fastci_ml.features.schema import feature_index
from fastci_ml.features.state import FeatureState
from fastci_ml.records.frames import ATTEMPTS_A_RUN, CHANGES, EXECUTIONS, RUNS
from fastci_ml.records.unstable_ids import Instability
from fastci_ml.sources.history.store import HistoryStore

TEST = "t.py::test_x"
OBJECT = "t.py::f[<C object at 0x7f00c0ffe{:02x}0>]"


def row(node_id: str = TEST, outcome: str = "passed", **other: object) -> dict[str, object]:
    """One execution; a failure is one of the test."""
    return {
        "node_id": node_id,
        "outcome": outcome,
        "failure_class": "test" if outcome == "failed" else "",
        "run_id": "r0",
        "job": "",
        "shard": "",
        "lane": "cpu",
        "attempt": 0,
        "duration_s": 1.0,
        "is_joined": True,
        **other,
    }


def store_of(folder: Path, rows: list[dict[str, object]]) -> HistoryStore:
    """A history of the rows; runs end an hour apart, by their names."""
    store = HistoryStore(folder)
    frame = pd.DataFrame(rows)
    ids = sorted(frame["run_id"].unique())
    times = {run_id: FIRST + pd.Timedelta(hours=i) for i, run_id in enumerate(ids)}
    when = frame["run_id"].map(times)
    executions = frame.assign(
        started_at=when, finished_at=when, n_gpus=np.nan, gpu_s=np.nan, message="", failure_rule=""
    )
    runs = frame[["run_id", "job", "shard"]].drop_duplicates()
    when = runs["run_id"].map(times)
    runs = runs.assign(base="", head="", started_at=when, finished_at=when, source="test")
    changes = pd.DataFrame(
        {"run_id": [], "path": [], "old_path": [], "status": [], "n_added": [], "n_deleted": []}
    )
    store.append(
        executions=to_frame(EXECUTIONS, executions),
        runs=to_frame(RUNS, runs),
        changes=to_frame(CHANGES, changes),
        digest="0" * 8,
    )
    return store


def verdicts(log: RunLog) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for test, verdict in zip(log.tests.tolist(), log.verdicts.tolist(), strict=True):
        found.setdefault(log.node_ids[test], []).append(verdict)
    return found


LATER = {"attempt": ATTEMPTS_A_RUN}


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        # Another attempt of the CI, another shard: other ingests of the same run.
        ([row(outcome="failed"), row(**LATER)], UNCLEAR),
        ([row(), row(outcome="failed", **LATER)], UNCLEAR),
        ([row(outcome="failed", shard="a"), row(shard="b")], UNCLEAR),
        ([row(outcome="failed"), row(outcome="failed", **LATER)], FAILED),
        ([row(outcome="failed"), row(outcome="skipped", **LATER)], FAILED),
        ([row(outcome="failed"), row(outcome="unknown", attempt=-1)], FAILED),
        ([row(outcome="failed"), row(attempt=1), row(outcome="failed", **LATER)], FAILED),
        # Tries within one part: a table that did not say that they are alike.
        ([row(outcome="failed"), row(attempt=1)], FAILED),
        ([row(outcome="failed", failure_class="flaky"), row(attempt=1)], UNCLEAR),
        # Jobs of one lane may differ in what they run: no retry of one another.
        ([row(outcome="failed", job="a"), row(job="b")], FAILED),
        ([row(outcome="failed", job="a"), row(job="a", **LATER), row(job="b")], UNCLEAR),
        ([row(outcome="failed", job="a"), row(job="a", **LATER), row(outcome="failed", job="b")], FAILED),
        ([row(outcome="error", failure_class="infrastructure"), row(**LATER)], PASSED),
    ],
)
def test_verdict_of_a_test_in_a_run(tmp_path: Path, rows: list[dict[str, object]], verdict: int) -> None:
    other = [row("t.py::aa", outcome="failed"), row("t.py::zz")]
    found = verdicts(build_log(store_of(tmp_path, [*rows, *other])))
    assert found == {TEST: [verdict], "t.py::aa": [FAILED], "t.py::zz": [PASSED]}


def test_verdicts_of_different_runs_and_lanes_stay_apart(tmp_path: Path) -> None:
    rows = [row(outcome="failed"), row(run_id="r1"), row(lane="gpu"), row(outcome="failed", run_id="r2")]
    log = build_log(store_of(tmp_path, rows))
    assert sorted(zip(log.run_ids, log.run_lanes, log.verdicts.tolist(), strict=True)) == [
        ("r0", "cpu", FAILED),
        ("r0", "gpu", PASSED),
        ("r1", "cpu", PASSED),
        ("r2", "cpu", FAILED),
    ]


def test_flakiness_is_decided_before_ids_are_joined(tmp_path: Path) -> None:
    """case 25: one address failed in each attempt of the CI, another passed in both."""
    first, second = OBJECT.format(1), OBJECT.format(2)
    rows = [row(first, "failed"), row(second), row(first, "failed", **LATER), row(second, **LATER)]
    assert verdicts(build_log(store_of(tmp_path / "a", rows))) == {"t.py::f": [FAILED]}
    rows = [row(first, "failed"), row(second), row(first, **LATER), row(second, **LATER)]
    assert verdicts(build_log(store_of(tmp_path / "b", rows))) == {"t.py::f": [PASSED]}
    rows = [row(first, "failed"), row(first, **LATER), row(second, "skipped")]
    assert verdicts(build_log(store_of(tmp_path / "c", rows))) == {"t.py::f": [UNCLEAR]}


def test_duration_of_a_function_is_the_mean_of_its_tests(tmp_path: Path) -> None:
    rows = [
        row(OBJECT.format(1), duration_s=1.0),
        row(OBJECT.format(1), attempt=1, duration_s=2.0),
        row(OBJECT.format(2), duration_s=5.0),
        row(OBJECT.format(3), duration_s=np.nan),
        row("t.py::g[<C object at 0x7f00c0ffee10>]", duration_s=np.nan),
    ]
    log = build_log(store_of(tmp_path, rows))
    assert log.node_ids == ["t.py::f", "t.py::g"]
    np.testing.assert_array_equal(log.durations_s, [4.0, np.nan])
    assert log.unstable == dict.fromkeys(log.node_ids, Instability.ADDRESS)


def test_history_of_a_function_goes_on_from_run_to_run(tmp_path: Path) -> None:
    rows = [row(OBJECT.format(run), "failed" if run % 2 else "passed", run_id=f"r{run}") for run in range(6)]
    log = build_log(store_of(tmp_path, rows))
    matrix = build_matrix(log)
    assert matrix[:, feature_index("n_runs")].tolist() == [0, 1, 2, 3, 4, 5]
    state = FeatureState.from_log(log)
    now = state.matrix([OBJECT.format(99), OBJECT.format(98)], "cpu", None)
    assert now[:, feature_index("n_runs")].tolist() == [6, 6]
    # A run counts its functions, in training and now.
    assert now[:, feature_index("run_n_tests")].tolist() == [1, 1]


def test_newer_runs_join_what_a_model_keeps_under_a_function(tmp_path: Path) -> None:
    """Training and the pre-step agree: a state that goes on equals one that saw all."""
    runs = [
        [row(f"t.py::f[obj{i}]", "failed" if i == run % 3 else "passed", run_id=f"r{run}") for i in range(3)]
        + [row(OBJECT.format(run), run_id=f"r{run}"), row(f"t.py::g[id-{run * run}]", run_id=f"r{run}")]
        for run in range(8)
    ]
    whole = build_log(store_of(tmp_path / "whole", list(chain(*runs))))
    assert sorted(whole.unstable.items()) == [
        ("t.py::f", Instability.POSITION),
        ("t.py::g", Instability.TURNOVER),
    ]
    old = FeatureState.from_log(build_log(store_of(tmp_path / "old", list(chain(*runs[:5])))))
    old.save(tmp_path / "state")
    state = FeatureState.load(tmp_path / "state")
    assert state.unstable == old.unstable
    store = HistoryStore(tmp_path / "whole")
    state.advance(build_log(store, newer_than_us=state.watermark_us, unstable=state.unstable))
    ids = ["t.py::f[obj0]", "t.py::f[obj7]", OBJECT.format(77), "t.py::g[id-1]", "t.py::f", "t.py::new[a0]"]
    at_once = FeatureState.from_log(whole)
    np.testing.assert_array_equal(state.matrix(ids, "cpu", None), at_once.matrix(ids, "cpu", None))
    assert (state.n_attempts, state.n_certain) == (at_once.n_attempts, at_once.n_certain) == (40, 40)
    assert state.n_runs_of("cpu") == 8
    assert state.n_runs_of("gpu") == 0


def test_state_of_a_bundle_from_before_is_read(tmp_path: Path) -> None:
    state = FeatureState.from_log(
        build_log(store_of(tmp_path / "h", [row(f"t.py::f[obj{i}]") for i in (0, 1)]))
    )
    state.save(tmp_path)
    names = json.loads((tmp_path / "names.json").read_text())
    del names["unstable"], names["counts"]
    (tmp_path / "names.json").write_text(json.dumps(names))
    again = FeatureState.load(tmp_path)
    assert (again.unstable, again.n_attempts, again.n_certain) == ({}, 0, 0)
    assert again.tests_of("cpu") == state.tests_of("cpu")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["f[a]", "f[b]", "g", "h[<C at 0x7f00c0ffee10>]", "h[<C at 0x7f00c0ffee20>]", "h[1]"]
            ),
            st.sampled_from(["passed", "failed", "skipped"]),
            st.sampled_from(["r0", "r1"]),
            st.sampled_from(["", "j"]),
            st.sampled_from([0, 1, ATTEMPTS_A_RUN]),
        ),
        min_size=1,
        max_size=20,
        unique_by=lambda cells: (cells[0], *cells[2:]),
    )
)
@settings(max_examples=40)
def test_verdicts_are_those_of_a_slow_obvious_fold(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str, str, str, int]]
) -> None:
    rows = [row(f"t.py::{n}", o, run_id=r, job=j, attempt=a) for n, o, r, j, a in cells]
    log = build_log(store_of(tmp_path_factory.mktemp("h"), rows))
    runs = np.repeat(log.run_ids, np.diff(log.offsets)).tolist()
    codes = zip(runs, log.tests.tolist(), strict=True)
    found = {
        (run, log.node_ids[code]): v for (run, code), v in zip(codes, log.verdicts.tolist(), strict=True)
    }
    expected: dict[tuple[str, str], int] = {}
    for run, name in {(r, n) for n, _, r, _, _ in cells}:
        words = [
            slow_job([(o, a) for n, o, r, j, a in cells if (n, r, j) == (name, run, job)])
            for job in ("", "j")
        ]
        verdict = next(
            (v for w, v in (("failed", FAILED), ("flaky", UNCLEAR), ("passed", PASSED)) if w in words),
            UNCLEAR,
        )
        key = "t.py::h" if " at 0x" in name else f"t.py::{name}"
        expected[run, key] = max(verdict, expected.get((run, key), UNCLEAR))
    assert found == expected


def slow_job(tries: list[tuple[str, int]]) -> str:
    """What the tries of a test in one job say."""
    parts = [{o for o, a in tries if a // ATTEMPTS_A_RUN == part} for part in (0, 1)]
    words = {"failed" if "failed" in part else "passed" if "passed" in part else "" for part in parts} - {""}
    return "flaky" if len(words) == 2 else next(iter(words), "")
