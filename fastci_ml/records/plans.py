"""The plan: which tests run, in what order, and why. Schema "fastci.plan/1".

Within a version keys are only added; a reader refuses an unknown major version. The same plan always gives
the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastci_ml.records.ids import NodeId

SCHEMA_NAME = "fastci.plan"
SCHEMA_VERSION = 1
SCHEMA = f"{SCHEMA_NAME}/{SCHEMA_VERSION}"

_dump_text = json.encoder.encode_basestring_ascii
_NO_JSON = frozenset({"nan", "inf", "-inf"})


class Followed(StrEnum):
    """What a pytest run did with its plan; stands in its JUnit report as the property `FOLLOWED_PROPERTY`."""

    YES = "yes"
    SHADOW = "shadow"  # everything ran in the usual order, and the plan was only compared
    NO = "no"  # the plan did not hold there, so everything ran


FOLLOWED_PROPERTY = "fastci.plan_followed"


class Decision(StrEnum):
    """What a plan says of one test."""

    RUN = "run"
    AUDIT = "audit"  # would be left out, runs as a random check of the selector
    PRUNED = "pruned"
    UNAFFECTED = "unaffected"
    OVER_BUDGET = "over_budget"

    @property
    def is_run(self) -> bool:
        """Whether the test runs."""
        return self in (Decision.RUN, Decision.AUDIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a test is in or out, or stands where it stands.

    Attributes
    ----------
    code : str
        Stable name of the kind of reason, such as ``"risk"`` or ``"new_test"``.
    text : str
        The same in words, for a person.
    details : mapping
        Further keys by kind, such as ``unit`` or ``feature``, ``value`` and ``effect``; JSON values only. In
        plan.json they stand beside code and text.
    """

    code: str
    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """One test of a plan; the attributes are those of plan.json.

    Attributes
    ----------
    id : NodeId
        As collected.
    decision : Decision
        Whether it runs.
    order : int
        Place among the tests that run, from 1; 0 for a test that does not.
    shard : int
        Shard that runs it, from 0.
    risk : float or None
        Probability of failing, in [0, 1]; None where nothing could say.
    duration_s : float or None
        Expected seconds; None when unknown.
    gpus : int or None
        GPUs that it holds; None when unknown.
    reasons : tuple of Reason
        At least one.
    workload : mapping
        Shrunk dimensions; empty for the full workload.
    kept_by : NodeId or None
        The test that covers a pruned one.
    """

    id: NodeId
    decision: Decision
    order: int
    shard: int = 0
    risk: float | None = None
    duration_s: float | None = None
    gpus: int | None = None
    reasons: tuple[Reason, ...] = ()
    workload: Mapping[str, Any] = field(default_factory=dict)
    kept_by: NodeId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan for one change on one lane; the attributes are those of plan.json.

    Attributes
    ----------
    base, head, head_tree : str
        Full shas; the plan holds for this head tree only.
    lane : str
        The plan holds for this lane only.
    model : mapping
        ``name`` and ``version`` of what ranked it (``version`` None for a simple policy) and ``kind``.
    tests : tuple of PlannedTest
        Those that run by `order`, then the others by id.
    root : str
        Folder that the ids of the tests start from, from the top of the repository with ``/``: that of the
        settings; empty for the top itself.
    evidence, summary : mapping
        As in plan.json.
    notes : tuple of str
        What widened the plan or made it fall back, in words.
    full_run : tuple of Reason
        Why nothing may be left out, such as a change that git cannot tell; empty where narrowing is allowed.

    Raises
    ------
    ValueError
        If a test is left out although there is a reason for a full run.
    """

    base: str
    head: str
    head_tree: str
    lane: str
    model: Mapping[str, Any]
    tests: tuple[PlannedTest, ...]
    root: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    full_run: tuple[Reason, ...] = ()

    def __post_init__(self) -> None:
        """Hold the one promise that no later stage may break."""
        if self.full_run:
            left_out = next((test for test in self.tests if not test.decision.is_run), None)
            if left_out is not None:
                why = self.full_run[0].code
                raise ValueError(f"{left_out.id!r} is {left_out.decision}, and the plan is a full run: {why}")

    def dumps(self) -> str:
        """One JSON object, floats unrounded, ending in a newline; equal plans give equal bytes."""
        head = {
            "schema": SCHEMA,
            "base": self.base,
            "head": self.head,
            "head_tree": self.head_tree,
            "lane": self.lane,
            "root": self.root,
            "model": dict(self.model),
            "evidence": dict(self.evidence),
            "summary": dict(self.summary),
            "notes": list(self.notes),
        }
        encode = _ReasonEncoder()
        full_run = ",".join(map(encode, self.full_run))
        tests = ",".join(_dump_test(test, encode) for test in self.tests)
        return f'{_dump(head)[:-1]},"full_run":[{full_run}],"tests":[{tests}]}}\n'


# `json.dumps` would make an encoder anew for each of thousands of reasons.
_dump = json.JSONEncoder(allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode


class _ReasonEncoder:
    """JSON of reasons; the tests of a plan share most of theirs, so each is encoded once."""

    def __init__(self) -> None:
        # The reason is kept beside its text, so that its id cannot be given to another.
        self._texts: dict[int, tuple[Reason, str]] = {}

    def __call__(self, reason: Reason) -> str:
        known = self._texts.get(id(reason))
        if known is None:
            details = "".join(
                [f",{_dump_text(key)}:{_dump_value(value)}" for key, value in reason.details.items()]
            )
            text = f'{{"code":{_dump_text(reason.code)},"text":{_dump_text(reason.text)}{details}}}'
            known = self._texts[id(reason)] = (reason, text)
        return known[1]


def _dump_test(test: PlannedTest, encode: _ReasonEncoder) -> str:
    """One test as `json.dumps` would write it, by hand because a plan has tens of thousands of them."""
    risk = "null" if test.risk is None else repr(test.risk)
    duration_s = "null" if test.duration_s is None else repr(test.duration_s)
    if risk in _NO_JSON or duration_s in _NO_JSON:
        raise ValueError(f"{test.id}: risk {risk}, duration_s {duration_s}: no numbers of a plan")
    gpus = "null" if test.gpus is None else str(int(test.gpus))
    workload = _dump(dict(test.workload)) if test.workload else "{}"
    kept_by = "null" if test.kept_by is None else _dump_text(test.kept_by)
    return (
        f'{{"id":{_dump_text(test.id)},"decision":"{test.decision}","order":{test.order},'
        f'"shard":{test.shard},"risk":{risk},"duration_s":{duration_s},"gpus":{gpus},'
        f'"workload":{workload},"reasons":[{",".join(map(encode, test.reasons))}],"kept_by":{kept_by}}}'
    )


def _dump_value(value: Any) -> str:
    """Any value of a detail; texts and numbers, which most of them are, without an encoder."""
    kind = type(value)
    if kind is float and math.isfinite(value):
        return repr(value)
    return _dump_text(value) if kind is str else _dump(value)
