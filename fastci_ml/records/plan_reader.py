"""Read plan.json, trusting nothing in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from fastci_ml.errors import PlanError
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plans import (
    SCHEMA,
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Decision,
    Plan,
    PlannedTest,
    Reason,
)

# No sum of so many seconds overflows; a plan that names more is damaged.
_LONGEST_S = 1e15


def loads_plan(text: str, *, name: str = "plan") -> Plan:
    """Read a plan, trusting nothing in it.

    Parameters
    ----------
    text : str
        The JSON text.
    name : str
        What to call it in messages, such as its path.

    Returns
    -------
    Plan
        Unknown keys are ignored: within a version keys are only added.

    Raises
    ------
    PlanError
        If it is no JSON object of this major version, a key is missing or of the wrong type, or an id or an
        order stands twice.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{name}: no JSON: {error}", hint="fastci-ml rank --out plan.json") from error
    if not isinstance(document, dict):
        raise PlanError(f"{name}: {type(document).__name__} at the top, expected an object")
    _check_schema(document.get("schema"), name)
    tests = _take(document, "tests", list, name)
    try:
        plan = _plan_from_json(document, tests, name)
    except ValueError as error:
        raise PlanError(f"{name}: {error}", hint="fastci-ml rank --out plan.json") from error
    _check_unique(plan, name)
    return plan


def _plan_from_json(document: dict[str, Any], tests: list[Any], name: str) -> Plan:
    full_run = _take(document, "full_run", list, name, default=[])
    return Plan(
        base=_take(document, "base", str, name),
        head=_take(document, "head", str, name),
        head_tree=_take(document, "head_tree", str, name),
        lane=_take(document, "lane", str, name),
        model=_take(document, "model", dict, name),
        root=_take(document, "root", str, name, default=""),
        evidence=_take(document, "evidence", dict, name, default={}),
        summary=_take(document, "summary", dict, name, default={}),
        notes=tuple(str(note) for note in _take(document, "notes", list, name, default=[])),
        full_run=tuple(_reason_from_json(reason, name) for reason in full_run),
        tests=tuple(_test_from_json(entry, f"{name}: tests[{i}]") for i, entry in enumerate(tests)),
    )


def _check_schema(found: object, name: str) -> None:
    family, _, version = found.partition("/") if isinstance(found, str) else ("", "", "")
    major = version.partition(".")[0]
    if family != SCHEMA_NAME or major != str(SCHEMA_VERSION):
        raise PlanError(
            f"{name}: schema {found!r}, expected {SCHEMA!r}", hint="fastci-ml rank --out plan.json"
        )


def _check_unique(plan: Plan, name: str) -> None:
    ids: set[str] = set()
    orders: set[int] = set()
    for test in plan.tests:
        if test.id in ids:
            raise PlanError(f"{name}: test {test.id!r} stands twice")
        ids.add(test.id)
        if test.decision.is_run:
            if test.order < 1 or test.order in orders:
                raise PlanError(f"{name}: {test.id!r} has order {test.order}, expected one of its own from 1")
            orders.add(test.order)


_ABSENT = object()


def _take(
    entry: Mapping[str, Any], key: str, kind: type | tuple[type, ...], name: str, default: Any = _ABSENT
) -> Any:
    value = entry.get(key, default)
    # bool is an int in Python, and never what a number in a plan means.
    if value is _ABSENT or not isinstance(value, kind) or isinstance(value, bool):
        found = "missing" if value is _ABSENT else f"{type(value).__name__} {value!r:.60}"
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(k.__name__ for k in kinds)
        raise PlanError(f"{name}: {key} is {found}, expected {expected}")
    return value


def _number(entry: Mapping[str, Any], key: str, name: str, *, top: float = math.inf) -> float | None:
    if entry.get(key) is None:
        return None
    number = _take(entry, key, (int, float), name)
    try:
        value = float(number)
    except OverflowError:  # JSON puts no bound on whole numbers
        value = math.inf
    if not 0 <= value <= top or math.isinf(value):
        raise PlanError(f"{name}: {key} is {value}, expected a number from 0 to {top}")
    return value


def _test_from_json(entry: object, name: str) -> PlannedTest:
    if not isinstance(entry, dict):
        raise PlanError(f"{name}: {type(entry).__name__}, expected an object")
    word = _take(entry, "decision", str, name)
    try:
        decision = Decision(word)
    except ValueError as error:
        raise PlanError(f"{name}: decision {word!r}, expected one of {', '.join(Decision)}") from error
    gpus = None if entry.get("gpus") is None else _take(entry, "gpus", int, name)
    if gpus is not None and gpus < 0:
        raise PlanError(f"{name}: gpus is {gpus}, expected a number from 0")
    kept_by = entry.get("kept_by")
    return PlannedTest(
        id=NodeId(_take(entry, "id", str, name)),
        decision=decision,
        order=_take(entry, "order", int, name),
        shard=_take(entry, "shard", int, name, default=0),
        risk=_number(entry, "risk", name, top=1.0),
        duration_s=_number(entry, "duration_s", name, top=_LONGEST_S),
        gpus=gpus,
        reasons=tuple(_reason_from_json(r, name) for r in _take(entry, "reasons", list, name, default=[])),
        workload=_take(entry, "workload", dict, name, default={}),
        kept_by=None if kept_by is None else NodeId(_take(entry, "kept_by", str, name)),
    )


def _reason_from_json(entry: object, name: str) -> Reason:
    if not isinstance(entry, dict):
        raise PlanError(f"{name}: a reason is {type(entry).__name__}, expected an object")
    details = {key: value for key, value in entry.items() if key not in ("code", "text")}
    return Reason(
        code=_take(entry, "code", str, name),
        text=_take(entry, "text", str, name, default=""),
        details=details,
    )
