"""The plan of a run that is over, with ids as the history has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fastci_ml.errors import PlanError
from fastci_ml.records.ids import parse_project, with_project
from fastci_ml.records.plan_reader import loads_plan
from fastci_ml.records.plans import Plan
from fastci_ml.sources.projects import default_project


def bytes_of_plan(path: Path) -> bytes:
    """Content of a plan's file; PlanError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}", hint="fastci-ml rank --out plan.json") from error


def load_plan(content: bytes, path: Path) -> Plan:
    """Plan from the content of its file; PlanError where it is none."""
    try:
        plan = loads_plan(content.decode("utf-8"), name=str(path))
        # JSON can spell halves of characters, which neither a file nor the store can hold.
        "".join((plan.base, plan.head, plan.lane, *(test.id for test in plan.tests))).encode("utf-8")
    except UnicodeError as error:
        raise PlanError(f"{path}: text that is not UTF-8: {error}") from error
    return plan


def project_of(plan: Plan, root: Path) -> str:
    """Folder that pytest's ids start from: what the plan says, else that of the settings."""
    project = plan.summary.get("project")
    if not isinstance(project, str):
        return plan.root or default_project(root)
    try:
        return parse_project(project)
    except ValueError as error:
        raise PlanError(f"plan: {error}", hint="fastci-ml rank --out plan.json") from error


def from_top(plan: Plan) -> Plan:
    """Plan with ids from the top of the repository, of one whose ids start at its root."""
    if not plan.root:
        return plan
    tests = (
        replace(
            test,
            id=with_project(test.id, plan.root),
            kept_by=None if test.kept_by is None else with_project(test.kept_by, plan.root),
        )
        for test in plan.tests
    )
    return replace(plan, root="", tests=tuple(tests))
