from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.execution.gate import Admission, Entry, admit
from fastci_ml.records.plans import Decision
from fastci_ml.sources.environment import VARIABLE


def ask(suite, path, rootdir=".", start="."):
    return admit(path, rootdir=suite.root / rootdir, start=suite.root / start)


def test_plan_for_this_tree_and_lane_holds(suite):
    found = ask(suite, suite.plan(["test_a.py::test_x"], ["test_a.py::test_y"]))
    assert found.holds
    assert "it runs 1 of 2 tests" in found.message
    assert found.entries["test_a.py::test_y"] == Entry(Decision.UNAFFECTED, 0, 2.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"head_tree": "0" * 40}, "expected 000000000000"),
        ({"head_tree": ""}, "expected none"),
        ({"lane": "cpython-2.7"}, "the lane is lane-of-the-tests, expected cpython-2.7"),
        ({"schema": "fastci.plan/2"}, "schema 'fastci.plan/2', expected 'fastci.plan/1'"),
        ({"tests": "all"}, "tests is str 'all', expected list"),
        ({"tests": [{"id": "a", "decision": "maybe", "order": 1}]}, "decision 'maybe'"),
        ({"tests": [{"id": "a", "decision": "run", "order": 1}] * 2}, "'a' stands twice"),
    ],
)
def test_refusal_says_what_was_found_and_expected(suite, changes, said):
    found = ask(suite, suite.plan(["test_a.py::test_x"], **changes))
    assert not found.holds
    assert said in found.message
    assert found.hint or "tests" in changes
    assert found.entries == {}


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"schema":"fastci.plan/1"}']
)
def test_missing_or_hostile_file_is_refused(suite, content):
    path = suite.root / "plan.json"
    if content is not None:
        path.write_bytes(content)
    found = ask(suite, path)
    assert not found.holds
    assert "the plan cannot be used" in found.message


def test_folder_or_pipe_in_place_of_a_plan_is_refused(suite):
    assert not ask(suite, suite.root).holds
    os.mkfifo(suite.root / "pipe")
    assert "no regular file" in ask(suite, suite.root / "pipe").message


def test_edited_tracked_file_is_refused_and_an_untracked_one_is_not(suite):
    plan = suite.plan([])
    (suite.root / "note.txt").write_text("x")
    assert ask(suite, plan).holds
    (suite.root / "test_b.py").write_text("")
    assert "tracked files are changed and not committed" in ask(suite, plan).message


def test_lane_of_the_settings_is_the_lane(suite, monkeypatch):
    plan = suite.plan([], lane="image-7")
    (suite.root / "fastci.toml").write_text('lane = "image-7"')
    monkeypatch.delenv(VARIABLE)
    assert ask(suite, plan).holds
    (suite.root / "fastci.toml").write_text("lane = 7")
    assert "setting 'lane' is int" in ask(suite, plan).message


def test_outside_of_a_repository_no_plan_holds(suite, tmp_path):
    plan = suite.plan([])
    (tmp_path / "outside").mkdir()
    found = admit(plan, rootdir=tmp_path / "outside", start=tmp_path / "outside")
    assert not found.holds


@pytest.mark.parametrize(
    ("rootdir", "node_id"),
    [(".", "pkg/t.py::x[../a]"), ("pkg", "t.py::x[../a]"), ("..", "repo/pkg/t.py::x[../a]")],
)
def test_plan_id_is_from_the_repository_wherever_the_root_of_pytest_is(suite, rootdir, node_id):
    (suite.root / "pkg").mkdir()
    assert ask(suite, suite.plan([]), rootdir=rootdir).plan_id(node_id) == "pkg/t.py::x[../a]"


@pytest.mark.parametrize(("rootdir", "path"), [("pkg", "t.py"), (".", "pkg/t.py"), ("..", "repo/pkg/t.py")])
def test_ids_of_a_project_below_the_top_start_at_the_project(suite, rootdir, path):
    (suite.root / "pkg").mkdir()
    found = ask(suite, suite.plan([], root="pkg"), rootdir=rootdir)
    assert found.plan_id(f"{path}::x") == "t.py::x"
    if rootdir == ".":
        assert found.plan_id("t.py::x") == "../t.py::x"


def test_another_checkout_named_by_the_environment_is_refused(suite, monkeypatch):
    plan = suite.plan([], ["test_a.py::test_x"])
    other = suite.root.with_name("other")
    subprocess.run(["git", "clone", "-q", suite.root, other], check=True)
    monkeypatch.setenv("GIT_DIR", str(suite.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(suite.root))
    found = admit(plan, rootdir=other, start=other)
    assert not found.holds
    assert f"git takes {suite.root} for the checkout, expected {other}" in found.message


@given(
    entries=st.dictionaries(
        st.text(st.characters(codec=None)),
        st.builds(Entry, st.sampled_from(Decision), st.integers(0), st.none() | st.floats(0, 1e9)),
    )
)
def test_answer_reaches_a_worker_unchanged(entries):
    answer = Admission(holds=True, message="m", rootdir="/r/p", plan_root="/r", entries=entries)
    text = answer.dumps()
    assert text.isascii()
    assert Admission.loads(text) == answer
