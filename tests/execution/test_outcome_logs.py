"""The outcome of a plan asks the logs of all ranks, and takes the failure rules of the project."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fastci_ml.execution.results import read_results
from fastci_ml.records.ids import NodeId
from fastci_ml.records.plans import Decision, Plan, PlannedTest
from fastci_ml.sources.failures.rule_files import load_rules

ID = NodeId("t/test_a.py::test_x")
JUNIT = (
    "<testsuite timestamp='2026-01-01T00:00:00'><testcase classname='t.test_a' name='test_x' time='1'>"
    "<failure message='subprocess.CalledProcessError: Command returned non-zero exit status 1.'/>"
    "</testcase></testsuite>"
)
OWN = {"id": "own", "class": "environment", "because": "b", "pattern": "non-zero exit status 1"}


def test_logs_and_rules_of_the_project_tell_the_class_of_a_planned_test(tmp_path: Path) -> None:
    test = PlannedTest(id=ID, decision=Decision.RUN, order=1)
    plan = Plan(base="", head="h", head_tree="t", lane="cpu", model={}, tests=(test,))
    (tmp_path / "plan.json").write_text(plan.dumps())
    (tmp_path / "j.xml").write_text(JUNIT)
    log = tmp_path / "rank_1.log"
    log.write_text(
        "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left on device\n"
    )

    def classes(**options: object) -> tuple[str, str]:
        found = read_results(
            tmp_path / "plan.json",
            [tmp_path / "j.xml"],
            root=tmp_path,
            now=datetime(2026, 1, 2, tzinfo=UTC),
            **options,  # type: ignore[arg-type]
        )
        (row,) = found.executions.to_pylist()
        return found.results[ID].failure_class, row["failure_rule"]

    assert classes() == ("test", "child-failed")
    assert classes(logs=[log]) == ("infrastructure", "disk-full")
    assert classes(rules=load_rules([OWN])) == ("environment", "own")
