from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import PlanError
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plan_reader import loads_plan
from fastci_ml.records.plans import Decision, Plan, PlannedTest, Reason

# JSON has no lone surrogates in what json.loads gives back as UTF-8 text; ids may have any other character.
text = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=3,
)
objects = st.dictionaries(text.filter(lambda key: key not in ("code", "text")), json_values, max_size=2)
reasons = st.builds(Reason, code=text, text=text, details=objects)


@st.composite
def plans(draw) -> Plan:
    ids = draw(st.lists(text, unique=True, max_size=4))
    tests = []
    for place, node_id in enumerate(ids, start=1):
        decision = draw(st.sampled_from(Decision))
        tests.append(
            PlannedTest(
                id=NodeId(node_id),
                decision=decision,
                order=place if decision.is_run else 0,
                shard=draw(st.integers(0, 3)),
                risk=draw(st.none() | st.floats(0, 1)),
                duration_s=draw(st.none() | st.floats(0, 1e6)),
                gpus=draw(st.none() | st.integers(0, 8)),
                reasons=tuple(draw(st.lists(reasons, max_size=2))),
                workload=draw(objects),
                kept_by=draw(st.none() | text.map(NodeId)),
            )
        )
    return Plan(
        base=draw(text),
        head=draw(text),
        head_tree=draw(text),
        lane=draw(text),
        model=draw(objects),
        tests=tuple(tests),
        evidence=draw(objects),
        summary=draw(objects),
        notes=tuple(draw(st.lists(text, max_size=2))),
    )


def document() -> dict:
    return {
        "schema": "fastci.plan/1", "base": "b", "head": "h", "head_tree": "t", "lane": "l", "model": {},
        "tests": [
            {"id": "a.py::x", "decision": "run", "order": 1, "risk": 0.5, "duration_s": 1, "gpus": 2,
             "reasons": [{"code": "risk", "text": "why", "value": 3}]},
            {"id": "a.py::y", "decision": "pruned", "order": 0, "kept_by": "a.py::x"},
        ],
    }  # fmt: skip


@given(plans())
@settings(max_examples=40)
def test_dumps_then_loads_gives_the_same_plan(plan):
    assert loads_plan(plan.dumps()) == plan


@given(plans())
@settings(max_examples=40)
def test_equal_plans_give_equal_ascii_bytes(plan):
    written = plan.dumps()
    assert loads_plan(written).dumps() == written
    assert written.isascii()
    assert written.endswith("}\n")


def test_optional_keys_may_be_absent_and_unknown_keys_are_ignored():
    plan = loads_plan(json.dumps(document() | {"added_later": [1]}))
    first, second = plan.tests
    assert first == PlannedTest(
        id=NodeId("a.py::x"), decision=Decision.RUN, order=1, risk=0.5, duration_s=1.0, gpus=2,
        reasons=(Reason(code="risk", text="why", details={"value": 3}),),
    )  # fmt: skip
    assert second.kept_by == "a.py::x"
    assert plan.notes == ()


def test_minor_versions_of_ours_are_read():
    assert loads_plan(json.dumps(document() | {"schema": "fastci.plan/1.4"})).head == "h"


@pytest.mark.parametrize(
    "schema",
    ["fastci.plan/2", "fastci.plan", "fastci.plan/", "fastci.plan/11", "other/1", None, 1, ["fastci.plan/1"]],
)
def test_other_schemas_are_refused_with_what_was_found(schema):
    with pytest.raises(PlanError, match=r"expected 'fastci\.plan/1'") as caught:
        loads_plan(json.dumps(document() | {"schema": schema}))
    assert repr(schema) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"plan"', "[" * 100_000, '{"schema": "fastci.plan/1"}', "\ufeff{}"],
    ids=["empty", "torn", "list", "null", "string", "deep", "bare", "bom"],
)
def test_what_is_no_plan_is_refused_by_name(text):
    with pytest.raises(PlanError, match=r"^from-ci\.json"):
        loads_plan(text, name="from-ci.json")


@pytest.mark.parametrize("key", ["base", "head", "head_tree", "lane", "model", "tests"])
def test_missing_key_is_named(key):
    broken = document()
    del broken[key]
    with pytest.raises(PlanError, match=f"{key} is missing"):
        loads_plan(json.dumps(broken))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("id", 3, "id is int 3, expected str"),
        ("decision", "maybe", "decision 'maybe', expected one of run, audit"),
        ("decision", ["run"], "decision is list"),
        ("order", "1", "order is str '1', expected int"),
        ("order", True, "order is bool True, expected int"),
        ("order", 0, "has order 0, expected one of its own from 1"),
        ("order", -1, "has order -1"),
        ("order", 1.5, "order is float"),
        ("shard", None, "shard is NoneType"),
        ("risk", 1.5, "risk is 1.5, expected a number from 0 to 1.0"),
        ("risk", -0.1, "risk is -0.1"),
        ("risk", True, "risk is bool"),
        ("risk", "high", "risk is str"),
        ("duration_s", -1, "duration_s is -1"),
        ("duration_s", 1e300, "duration_s is 1e+300"),
        ("duration_s", math.inf, "duration_s is inf"),
        ("duration_s", math.nan, "duration_s is nan"),
        ("duration_s", 10**400, "duration_s is inf"),
        ("gpus", -1, "gpus is -1"),
        ("gpus", 1.5, "gpus is float 1.5, expected int"),
        ("reasons", "risk", "reasons is str"),
        ("reasons", ["risk"], "a reason is str"),
        ("reasons", [{"text": "x"}], "code is missing"),
        ("workload", [], "workload is list"),
        ("kept_by", 7, "kept_by is int"),
    ],
)
def test_wrong_value_is_named_with_its_place(key, value, says):
    broken = document()
    broken["tests"][0][key] = value
    with pytest.raises(PlanError) as caught:
        loads_plan(json.dumps(broken))
    assert says in str(caught.value)


def test_wrong_entry_is_named_by_its_index():
    broken = document()
    broken["tests"][1] = None
    with pytest.raises(PlanError, match=r"tests\[1\]: NoneType, expected an object"):
        loads_plan(json.dumps(broken))


def test_test_that_stands_twice_is_refused():
    broken = document()
    broken["tests"][1]["id"] = "a.py::x"
    with pytest.raises(PlanError, match=r"'a\.py::x' stands twice"):
        loads_plan(json.dumps(broken))


def test_order_that_stands_twice_is_refused():
    broken = document()
    broken["tests"][1] |= {"decision": "audit", "order": 1}
    with pytest.raises(PlanError, match=r"'a\.py::y' has order 1"):
        loads_plan(json.dumps(broken))


@given(json_values)
def test_any_json_is_a_plan_or_a_plan_error(value):
    with pytest.raises(PlanError):
        loads_plan(json.dumps(value))


@given(st.sampled_from(sorted(document()["tests"][0])), json_values)
def test_any_value_of_a_test_is_read_or_refused(key, value):
    changed = document()
    changed["tests"][0][key] = value
    try:
        plan = loads_plan(json.dumps(changed))
    except PlanError:
        return
    assert loads_plan(plan.dumps()) == plan


def test_a_plan_never_writes_what_json_cannot_say():
    plan = Plan(base="", head="", head_tree="", lane="", model={"score": math.nan}, tests=())
    with pytest.raises(ValueError, match="not JSON compliant"):
        plan.dumps()


def test_only_run_and_audit_run():
    assert [decision for decision in Decision if decision.is_run] == [Decision.RUN, Decision.AUDIT]


def test_a_plan_is_written_as_json_dumps_would_write_it() -> None:
    """The tests of a plan are put together by hand; the slow, obvious way gives the same bytes."""
    reason = Reason(code="risk", text='é \u2028 "x"', details={"value": None, "effect": 1e-17})
    tests = (
        PlannedTest(
            id=NodeId("t/a.py::test_x[\\udcff \x1b é]"),
            decision=Decision.RUN,
            order=1,
            risk=0.1,
            duration_s=1e300,
            gpus=2,
            reasons=(reason, reason),
            workload={"train_steps": 20},
        ),
        PlannedTest(id=NodeId("t/b.py::y"), decision=Decision.PRUNED, order=0, kept_by=NodeId("t/a.py::é")),
    )
    plan = Plan(base="", head="h", head_tree="t", lane="é", model={}, tests=tests, notes=("n",))
    document = json.loads(plan.dumps())
    assert json.dumps(document, separators=(",", ":")) + "\n" == plan.dumps()
    assert list(document) == [
        "schema", "base", "head", "head_tree", "lane", "root", "model", "evidence", "summary", "notes",
        "full_run", "tests",
    ]  # fmt: skip
    assert document["tests"][0] == {
        "id": tests[0].id,
        "decision": "run",
        "order": 1,
        "shard": 0,
        "risk": 0.1,
        "duration_s": 1e300,
        "gpus": 2,
        "workload": {"train_steps": 20},
        "reasons": [{"code": "risk", "text": reason.text, "value": None, "effect": 1e-17}] * 2,
        "kept_by": None,
    }


@pytest.mark.parametrize("field", ["risk", "duration_s"])
def test_a_number_that_is_none_is_never_written(field: str) -> None:
    test = PlannedTest(id=NodeId("t"), decision=Decision.RUN, order=1, **{field: float("nan")})
    plan = Plan(base="", head="", head_tree="", lane="", model={}, tests=(test,))
    with pytest.raises(ValueError, match="no numbers of a plan"):
        plan.dumps()


def test_a_full_run_leaves_nothing_out() -> None:
    reason = Reason(code="unknown_change", text="the base is not there")
    test = PlannedTest(id=NodeId("t.py::a"), decision=Decision.UNAFFECTED, order=0)
    with pytest.raises(ValueError, match=r"'t\.py::a' is unaffected.*unknown_change"):
        Plan(base="", head="", head_tree="", lane="", model={}, tests=(test,), full_run=(reason,))


def test_a_plan_file_cannot_narrow_a_full_run() -> None:
    reason = Reason(code="unknown_change", text="the base is not there")
    test = PlannedTest(id=NodeId("t.py::a"), decision=Decision.RUN, order=1)
    plan = Plan(base="", head="", head_tree="", lane="", model={}, tests=(test,), full_run=(reason,))
    text = plan.dumps()
    assert loads_plan(text) == plan
    with pytest.raises(PlanError, match="unaffected"):
        loads_plan(text.replace('"decision":"run","order":1', '"decision":"unaffected","order":0'))
