"""Entries that stand for all tests of a function, whose ids change between the plan and the run (case 25)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.execution.gate import Admission, Entry
from fastci_ml.execution.selection import rank_key, select
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plans import Decision

F, G = NodeId("t.py::f"), NodeId("t.py::g")
RUN, OUT = Entry(Decision.RUN, 1, 6.0), Entry(Decision.UNAFFECTED, 0, 4.0)


def objects(function, n=3):
    return [NodeId(f"{function}[<C object at 0x7f00c0ffe{i}00>]") for i in range(n)]


def admission(entries, functions):
    return Admission(holds=True, message="", entries=entries, functions=frozenset(functions))


def test_function_that_runs_runs_all_its_tests_and_counts_its_seconds_once():
    ids = objects(F)
    kept, tally = select(ids, ids, admission({F: RUN}, [F]))
    assert kept == [0, 1, 2]
    assert (tally.unknown, tally.missing, tally.n_deselected, tally.n_untimed) == ([], [], 0, 0)
    assert tally.expected_s == 6.0


def test_function_that_is_left_out_leaves_out_all_its_tests():
    ids = [*objects(F), G]
    kept, tally = select(ids, ids, admission({F: OUT, G: RUN}, [F]))
    assert kept == [3]
    assert (tally.left_out, tally.saved_s) == ({"unaffected": 3}, 4.0)


def test_entry_of_one_test_says_nothing_of_parameters_that_it_has_got_since():
    """`f` was left out as a test without parameters; its new ones are unknown, and run."""
    ids = objects(F)
    kept, tally = select(ids, ids, admission({F: OUT}, []))
    assert kept == [0, 1, 2]
    assert tally.unknown == ids


def test_own_entry_of_a_test_wins_over_that_of_its_function():
    ids = [*objects(F), NodeId(f"{F}[None]")]
    own = {NodeId(f"{F}[None]"): Entry(Decision.UNAFFECTED, 0, 1.0), F: RUN}
    kept, tally = select(ids, ids, admission(own, [F]))
    assert kept == [0, 1, 2]
    assert tally.left_out == {"unaffected": 1}


def test_function_none_of_whose_tests_was_collected_is_missing():
    kept, tally = select([G], [G], admission({F: RUN, G: Entry(Decision.RUN, 2, 1.0)}, [F]))
    assert (kept, tally.missing) == ([0], [F])
    _, tally = select([G], [G, *objects(F)], admission({F: RUN, G: Entry(Decision.RUN, 2, 1.0)}, [F]))
    assert (tally.missing, tally.n_deselected) == ([], 1)


def test_tests_of_a_function_keep_their_usual_order():
    """Their ids are others in every process, so they must not decide."""
    plan = admission({F: Entry(Decision.RUN, 2, None), G: Entry(Decision.RUN, 1, None)}, [F])
    assert {rank_key(node_id, plan) for node_id in objects(F)} == {(2, F)}
    assert rank_key(G, plan) == (1, G)
    assert rank_key(NodeId("t.py::new[a]"), plan) == (0, "t.py::new[a]")


functions = st.sets(st.sampled_from([F, G]))


@given(functions, st.dictionaries(st.sampled_from([F, G, *objects(F, 2)]), st.sampled_from([RUN, OUT])))
def test_answer_reaches_a_worker_with_its_functions(functions, entries):
    answer = admission(entries, functions & entries.keys())
    again = Admission.loads(answer.dumps())
    assert again == answer
    for node_id in (*objects(F), G, NodeId("t.py::h[\udcff]")):
        assert again.entry_id(node_id) == answer.entry_id(node_id)
        assert again.entry_id(node_id) in (node_id, F, G)


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_real_run_follows_entries_of_functions(make_suite, workers):
    body = (
        "import pytest\nclass C: pass\n"
        "@pytest.mark.parametrize('x', [C(), C()], ids=repr)\ndef test_f(x): pass\n"
        "@pytest.mark.parametrize('x', [C(), C()], ids=repr)\ndef test_g(x): assert 0\n"
        "def test_h(): pass\n"
    )
    suite = make_suite({"test_a.py": body})
    suite.plan(["test_a.py::test_h", "test_a.py::test_f"], ["test_a.py::test_g"])
    path = suite.root / "plan.json"
    text = path.read_text()
    for name in ("f", "g"):
        reasons = '"reasons":[{"code":"unstable_ids","text":""}]'
        before, mark, after = text.partition(f'"id": "test_a.py::test_{name}"')
        text = before + mark + after.replace('"reasons": []', reasons, 1)
    path.write_text(text)
    ran = suite.pytest("--fastci-plan=plan.json", *workers)
    assert (ran.code, [node_id.partition("[")[0] for node_id in ran.order]) == (
        0,
        ["test_a.py::test_h", "test_a.py::test_f", "test_a.py::test_f"],
    )
    assert "left out by decision: 2 (2 unaffected), expected 2.0 s" in ran.output
    shadow = suite.pytest("--fastci-plan=plan.json", "--fastci-shadow", *workers)
    assert "of which 2 failed" in shadow.output
