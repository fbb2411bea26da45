from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.execution.grouping import arrange

_SPANS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(1, 12)).filter(lambda span: span[0] < span[1]), max_size=8
)


def is_together(places, order):
    found = sorted(order.index(place) for place in places)
    return found[-1] - found[0] == len(found) - 1


@given(spans=_SPANS, ranks=st.permutations(range(12)))
def test_order_keeps_every_span_together_and_loses_no_test(spans, ranks):
    keys = [(rank, "") for rank in ranks]
    order = arrange(12, spans, keys)
    assert sorted(order) == list(range(12))
    assert all(is_together(range(*span), order) for span in spans)
    assert arrange(12, spans[::-1] * 2, keys) == order


@given(ranks=st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_without_spans_the_order_is_that_of_the_keys_ties_by_id(ranks):
    keys = [(rank, f"t{place:02}") for place, rank in enumerate(ranks)]
    assert [keys[place] for place in arrange(len(keys), [], keys)] == sorted(keys)


@given(spans=_SPANS, ranks=st.permutations(range(12)))
def test_lowest_key_goes_first_unless_a_crossing_fixes_its_part(spans, ranks):
    nested = [span for span in spans if all(not _crosses(span, other) for other in spans)]
    keys = [(rank, "") for rank in ranks]
    assert arrange(12, nested, keys)[0] == ranks.index(0)


def _crosses(one, other):
    return one[0] < other[0] < one[1] < other[1] or other[0] < one[0] < other[1] < one[1]


# Runs pytest once for each plan, in one process: every run is a real one, only the start is shared.
_DRIVER = """
import json, os, sys, pytest
for plan in json.load(open("plans.json")):
    open("set-ups", "w").close()
    open("order", "w").close()
    with open("plan.json", "w") as file:
        file.write(plan)
    silence = os.open(os.devnull, os.O_WRONLY)
    kept = os.dup(1)
    os.dup2(silence, 1)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--doctest-modules", "--fastci-plan=plan.json"])
    sys.stdout.flush()
    os.dup2(kept, 1)
    print(json.dumps([int(code), sorted(open("set-ups").read().split()), open("order").read().splitlines()]))
    sys.stdout.flush()
"""
_CONFTEST = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope != "function":
        with open("set-ups", "a") as file:
            file.write(f"{fixturedef.scope}:{fixturedef.argname}:{getattr(request, 'param', '')}\\n")
    return (yield)

def pytest_runtest_logstart(nodeid):
    with open("order", "a") as file:
        file.write(nodeid + "\\n")

@pytest.fixture(scope="session", params=["cpu", "gpu"])
def device(request):
    return request.param

@pytest.fixture(scope="session")
def engine(device):
    return device

@pytest.fixture(scope="module")
def model():
    return 1

@pytest.fixture(scope="module", params=[1, 2])
def depth(request, model):
    return request.param
"""
_FILES = {
    "conftest.py": _CONFTEST,
    "free.py": "def f():\n    '''\n    >>> 1\n    1\n    '''\ndef g():\n    '''\n    >>> 2\n    2\n    '''\n",
    "test_free.py": "def test_a(): pass\ndef test_b(tmp_path): pass\n"
    "class TestC:\n    def test_c(self): pass\n",
    "test_module.py": "def test_a(model): pass\ndef test_b(): pass\ndef test_c(model): pass\n",
    "test_setup.py": "def setup_module(): pass\ndef test_a(): pass\ndef test_b(): pass\n"
    "class TestA:\n    def setup_class(self): pass\n    def test_a(self): pass\n    def test_b(self): pass\n",
    "test_depth.py": "def test_a(depth): pass\ndef test_b(depth): pass\ndef test_c(): pass\n",
    "test_unit.py": "import unittest\nclass A(unittest.TestCase):\n"
    "    @classmethod\n    def setUpClass(cls): pass\n    def test_a(self): pass\n"
    "    def test_b(self): pass\n"
    "class B(A):\n    pass\n",
    "pkg/__init__.py": "",
    "pkg/conftest.py": "import pytest\n"
    "@pytest.fixture(scope='package', autouse=True)\ndef store(): return 1\n",
    "pkg/test_a.py": "def test_a(model): pass\ndef test_b(): pass\n",
    "pkg/test_b.py": "def test_a(): pass\ndef test_b(): pass\n",
    "test_override.py": "import pytest\n@pytest.fixture\ndef model(): return 2\n"
    "def test_a(model): pass\ndef test_b(model): pass\n",
    "test_later.py": "def test_a(request): request.getfixturevalue('model')\ndef test_b(model): pass\n"
    "def test_c(): pass\n",
}
# A parametrised session fixture makes pytest interleave modules, and lifetimes cross.
_CROSSING = {
    **{name: _FILES[name] for name in ("conftest.py", "test_module.py", "test_depth.py")},
    "test_device.py": "def test_a(model): pass\ndef test_b(device, model): pass\ndef test_c(engine): pass\n"
    "def test_d(model): pass\n",
    "test_more.py": "def test_a(model, engine): pass\ndef test_b(): pass\ndef test_c(depth, device): pass\n",
}


def run_plans(suite, orders, left_out=()):
    """Set-ups and order of the real runs of `orders`."""
    plans = [suite.plan(order, left_out).read_text() for order in orders]
    (suite.root / "plans.json").write_text(json.dumps(plans))
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        cwd=suite.root,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio"},
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [code for code, _, _ in found] == [0] * len(orders)
    assert all(sorted(order) == sorted(plan) for plan, (_, _, order) in zip(orders, found, strict=True))
    return [(set_ups, order) for _, set_ups, order in found]


def shuffled(ids, n, seed=7):
    chance = random.Random(seed)
    return [chance.sample(ids, len(ids)) for _ in range(n)]


def collect(suite):
    """Order and set-ups without a plan."""
    (suite.root / "set-ups").unlink(missing_ok=True)
    order = suite.pytest("--doctest-modules").order
    return order, sorted((suite.root / "set-ups").read_text().split())


def test_no_permutation_of_the_plan_costs_or_saves_a_fixture_set_up(make_suite):
    suite = make_suite(_FILES)
    ids, usual = collect(suite)
    assert "module:depth:2" in usual
    found = run_plans(suite, [ids, ids[::-1], *shuffled(ids, 10)])
    assert [set_ups for set_ups, _ in found] == [usual] * 12
    assert len({tuple(order) for _, order in found}) == 12


def test_crossing_lifetimes_never_cost_a_set_up(make_suite):
    suite = make_suite(_CROSSING)
    ids, usual = collect(suite)
    for set_ups, _ in run_plans(suite, [ids, ids[::-1], *shuffled(ids, 10)]):
        assert len(set_ups) <= len(usual)


def test_left_out_tests_do_not_break_groups(make_suite):
    suite = make_suite(_FILES)
    ids, _ = collect(suite)
    kept = ids[::2]
    (usual, _), *others = run_plans(suite, [kept, *shuffled(kept, 4)], ids[1::2])
    for set_ups, _ in others:
        assert set_ups == usual


def test_free_tests_stand_where_the_plan_puts_them(make_suite):
    suite = make_suite(_FILES)
    ids, _ = collect(suite)
    first = [
        "test_module.py::test_b",
        "free.py::free.g",
        "test_free.py::TestC::test_c",
        "test_override.py::test_b",
    ]
    plan = [*first, *(node_id for node_id in ids if node_id not in first)]
    assert run_plans(suite, [plan])[0][1][:4] == first


def test_group_stands_where_its_best_test_stands_and_is_ranked_inside(make_suite):
    suite = make_suite({name: _FILES[name] for name in ("conftest.py", "test_module.py", "test_free.py")})
    a, b, c = (f"test_module.py::test_{x}" for x in "abc")
    free = [f"test_free.py::{x}" for x in ("test_a", "test_b", "TestC::test_c")]
    ((_, order),) = run_plans(suite, [[free[0], c, free[1], b, a, free[2]]])
    assert order == [free[0], c, a, free[1], b, free[2]]


_UNFORESEEN = """
class View:
    def __init__(self, real):
        self.argnames, self.initialnames = real.argnames, real.initialnames
        self.name2fixturedefs = real.name2fixturedefs

def pytest_itemcollected(item):
    item._fixtureinfo = View(item._fixtureinfo)
"""


def test_structure_of_an_unforeseen_pytest_keeps_files_together(make_suite):
    body = "def test_x(): pass\ndef test_y(): pass\n"
    suite = make_suite({"conftest.py": _CONFTEST + _UNFORESEEN, "test_a.py": body, "test_b.py": body})
    plan = ["test_b.py::test_y", "test_a.py::test_y", "test_b.py::test_x", "test_a.py::test_x"]
    ((_, order),) = run_plans(suite, [plan])
    assert order == [plan[0], plan[2], plan[1], plan[3]]


@pytest.mark.parametrize("seed", [1, 2])
def test_equal_input_gives_equal_order(make_suite, seed):
    suite = make_suite(_CROSSING)
    ids, _ = collect(suite)
    (order,) = shuffled(ids, 1, seed)
    first, second = run_plans(suite, [order, order])
    assert first == second
