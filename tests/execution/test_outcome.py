from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from fastci_ml.errors import PlanError, ReportError
from fastci_ml.execution.outcome import SCHEMA, outcome_record
from fastci_ml.execution.results import read_results
from fastci_ml.features.log import build_log
from fastci_ml.learn.registry.versions import OutcomeRecord
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.sources.history.store import HistoryStore

IDS = [f"tests/test_a.py::test_{c}" for c in "abcdef"]
A, B, C, D, E, F = IDS


def case(node_id, time="1.0", inside=""):
    path, name = node_id.split("::", 1)
    classname = path.removesuffix(".py").replace("/", ".")
    return f'<testcase classname="{classname}" name="{name}" time="{time}">{inside}</testcase>'


def failed(message="AssertionError: no"):
    return f'<failure message="{message}">x</failure>'


@pytest.fixture
def write(make_suite):
    """Write a plan and one JUnit report; read what they come to."""
    suite = make_suite({"tests/test_a.py": "".join(f"def test_{c}(): pass\n" for c in "abcdef")})

    def make(run, left_out, cases, **changes):
        plan = suite.plan(run, left_out, **changes)
        report = suite.root / "out.xml"
        report.write_text(
            f'<testsuites><testsuite name="pytest" timestamp="2026-01-02T03:04:05+00:00" time="9">'
            f"{''.join(cases)}</testsuite></testsuites>"
        )
        return plan, report, suite.root

    return make


def record_of(plan, report, root):
    return outcome_record(read_results(plan, [report], root=root))


def test_record_says_how_the_order_and_the_risks_did(write):
    plan, report, root = write([C, A, B], [D], [case(A, inside=failed()), case(B, "2.0"), case(C, "3.0")])
    document = json.loads(plan.read_text())
    for test, risk in zip(document["tests"], [0.5, 0.25, None, 0.9], strict=True):
        test["risk"] = risk
    document["model"] = {"kind": "model", "name": "m", "version": "3"}
    plan.write_text(json.dumps(document))
    record = record_of(plan, report, root)
    assert record["schema"] == SCHEMA
    assert record["model"] == document["model"]
    assert record["at"].startswith("2026-01-02T03:04:14")
    assert record["tags"]["head"] == document["head"]
    assert record["metrics"] == {
        "n_tests": 4,
        "n_run": 3,
        "n_left_out": 1,
        "n_left_out_run": 0,
        "n_left_out_failures": 0,
        "n_missing": 0,
        "n_unplanned": 0,
        "n_failures": 1,
        "n_unplanned_failures": 0,
        "n_other_failures": 0,
        "n_flaky": 0,
        "expected_failures": 0.75,
        "observed_failures": 1,
        "first_failure_place": 2,
        "first_failure_s": 4.0,
        "apfd": 1 - 2 / 3 + 1 / 6,
        "apfdc": (1 + 2 - 0.5) / 6,
        "run_s": 6.0,
        "expected_saved_s": 2.0,
    }
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert OutcomeRecord.from_json(record).metrics["expected_failures"] == 0.75


def test_planned_test_without_a_result_is_a_failure_of_the_run_and_unknown_in_the_history(write, tmp_path):
    plan, report, root = write([A, B], [], [case(A)])
    found = read_results(plan, [report], root=root)
    metrics = outcome_record(found)["metrics"]
    assert (metrics["n_missing"], metrics["n_failures"], metrics["n_run"]) == (1, 1, 1)
    assert metrics["observed_failures"] == 0
    assert metrics["apfd"] is None
    store = HistoryStore(tmp_path / "history")
    assert store.append_tables(found.executions, found.runs, found.changes, digest=found.digest)
    rows = store.read(EXECUTIONS).set_index("node_id")["outcome"]
    assert rows.to_dict() == {A: "passed", B: "unknown"}


def test_only_test_failures_count_for_or_against_the_order(write):
    disk = failed("OSError: [Errno 28] No space left on device")
    plan, report, root = write([A, B, C], [], [case(A, inside=disk), case(B, inside=failed()), case(C)])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["observed_failures"], metrics["n_other_failures"], metrics["n_failures"]) == (1, 1, 2)
    assert metrics["first_failure_place"] == 2


def test_test_that_failed_and_passed_is_flaky_and_no_failure(write):
    plan, report, root = write([A], [], [case(A, inside=failed()), case(A)])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["n_flaky"], metrics["n_failures"], metrics["observed_failures"]) == (1, 0, 0)
    assert metrics["run_s"] == 2.0


def test_shadow_run_shows_what_leaving_out_would_have_missed(write):
    plan, report, root = write([A], [B, C, D], [case(A), case(B, inside=failed()), case(C)])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["n_left_out_run"], metrics["n_left_out_failures"]) == (2, 1)
    assert metrics["expected_saved_s"] == 2.0
    assert (metrics["observed_failures"], metrics["n_failures"]) == (0, 1)


def test_result_that_the_plan_does_not_name_is_counted_and_stays_out_of_the_order(write):
    plan, report, root = write([A], [], [case(E, inside=failed()), case(A)])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["n_unplanned"], metrics["n_failures"], metrics["observed_failures"]) == (1, 1, 0)
    assert metrics["n_unplanned_failures"] == 1


def test_unknown_durations_are_taken_from_the_plan(write):
    plan, report, root = write([A, B], [], [case(A, time=""), case(B, "4.0", failed())])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["first_failure_s"], metrics["run_s"]) == (5.5, 4.0)


def test_report_log_of_a_real_run_gives_the_same_outcome_as_its_junit_file(make_suite):
    suite = make_suite(
        {"tests/test_a.py": "def test_a(): assert 0\ndef test_b(): pass\ndef test_c(): pass\n"}
    )
    plan = suite.plan([B, A], [C])
    suite.pytest(f"--fastci-plan={plan}", "--junitxml=out.xml")
    log = suite.root.parent / "report.jsonl"
    by_log, by_junit = (record_of(plan, report, suite.root) for report in (log, suite.root / "out.xml"))
    timed = {"run_s", "first_failure_s", "apfdc"}
    assert {k: v for k, v in by_log["metrics"].items() if k not in timed} == {
        k: v for k, v in by_junit["metrics"].items() if k not in timed
    }
    assert by_log["metrics"]["first_failure_place"] == 2


def test_plan_of_nothing_has_an_outcome(write):
    plan, report, root = write([], [A], [])
    metrics = record_of(plan, report, root)["metrics"]
    assert (metrics["n_run"], metrics["apfd"], metrics["expected_failures"]) == (0, None, None)
    assert metrics["expected_saved_s"] == 2.0


def test_id_follows_the_bytes_and_neither_names_nor_order_of_files(write):
    plan, report, root = write([A, B], [], [case(A)])
    other = report.with_name("b.xml")
    other.write_text(f"<testsuite>{case(B)}</testsuite>")
    one = read_results(plan, [report, other], root=root)
    moved = other.rename(report.with_name("0.xml"))
    assert read_results(plan, [moved, report], root=root).digest == one.digest
    assert set(one.results) == {A, B}
    moved.write_text(f"<testsuite>{case(B)} </testsuite>")
    assert read_results(plan, [report, moved], root=root).digest != one.digest


def test_change_of_the_plan_goes_into_the_history(write, tmp_path):
    plan, report, root = write([A], [], [case(A)])
    (root / "tests" / "test_a.py").write_text("def test_a(): pass\n")
    subprocess.run(["git", "commit", "-qam", "change"], cwd=root, check=True)
    document = json.loads(plan.read_text())
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True)
    plan.write_text(json.dumps({**document, "head": head.stdout.strip()}))
    found = read_results(plan, [report], root=root, run_id="ci-7")
    store = HistoryStore(tmp_path / "history")
    store.append_tables(found.executions, found.runs, found.changes, digest=found.digest)
    (run,) = store.read(RUNS).to_dict("records")
    assert (run["run_id"], run["base"], run["head"]) == ("ci-7", document["base"], head.stdout.strip())
    (change,) = store.read(CHANGES).to_dict("records")
    assert (change["run_id"], change["path"], change["n_deleted"]) == ("ci-7", "tests/test_a.py", 5.0)
    assert found.notes == ()


def test_change_that_git_does_not_know_leaves_a_note_and_the_run(write):
    plan, report, root = write([A], [], [case(A)], base="1" * 40)
    found = read_results(plan, [report], root=root)
    assert found.changes.num_rows == 0
    assert found.runs.num_rows == 1
    assert "the change of this run is unknown" in found.notes[0]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"schema":"fastci.plan/9"}'])
def test_unreadable_plan_is_an_error(write, content):
    plan, report, root = write([A], [], [case(A)])
    plan.write_bytes(content)
    with pytest.raises(PlanError, match=r"plan\.json"):
        read_results(plan, [report], root=root)


def test_plan_with_half_characters_is_an_error(write):
    plan, report, root = write(["t.py::test_\ud800"], [], [case(A)])
    with pytest.raises(PlanError, match="not UTF-8"):
        read_results(plan, [report], root=root)


def test_missing_report_and_empty_folder_are_errors(write, tmp_path):
    plan, report, root = write([A], [], [case(A)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReportError, match="no test report in it"):
        read_results(plan, [report, tmp_path / "empty"], root=root)
    with pytest.raises(ReportError, match="no such file"):
        read_results(plan, [tmp_path / "gone.xml"], root=root)
    (tmp_path / "torn.xml").touch()
    with pytest.raises(ReportError, match="did not get that far"):
        read_results(plan, [report, tmp_path / "torn.xml"], root=root)


def test_other_files_in_the_folder_of_the_reports_are_passed_over(write):
    plan, report, root = write([A], [], [case(A)])
    folder = root / "reports"
    folder.mkdir()
    report.rename(folder / "out.xml")
    plan.rename(folder / "plan.json")
    (folder / "coverage.json").write_text('{"meta": {}}')
    (folder / "coverage.xml").write_text("<coverage/>")
    (folder / "pytest.log").write_text("INFO root: started\n")
    assert set(read_results(folder / "plan.json", [folder], root=root).results) == {A}


def test_parts_of_one_run_never_overwrite_each_other(write, tmp_path):
    plan, report, root = write([A, B], [], [case(A, inside=failed())])
    other = report.with_name("b.xml")
    other.write_text(f"<testsuite>{case(B, inside=failed())}</testsuite>")
    store = HistoryStore(tmp_path / "history")
    for part in (report, other, report):
        found = read_results(plan, [part], root=root, run_id="ci-7")
        store.append_tables(found.executions, found.runs, found.changes, digest=found.digest)
    log = build_log(store)
    assert log.run_ids == ["ci-7"]
    assert dict(zip(log.node_ids, log.verdicts.tolist(), strict=True)) == {A: 1, B: 1}


def test_a_run_of_the_future_is_refused_by_name(write):
    """Its time would hide every later run from `rank`, which goes on from the newest."""
    plan, report, root = write([A], [], [case(A)])
    with pytest.raises(ReportError, match="more than a day from now"):
        read_results(plan, [report], root=root, now=datetime(2020, 1, 1, tzinfo=UTC))


def run_with_junit(suite, *arguments):
    options = [f"--fastci-plan={suite.root}/plan.json", "--junitxml=out.xml", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *options, *arguments]
    subprocess.run(command, cwd=suite.root, check=False, capture_output=True)
    return suite.root / "out.xml"


@pytest.mark.parametrize("arguments", [[], ["-n", "2"]])
def test_a_run_that_did_not_follow_the_plan_is_no_outcome_of_it(make_suite, arguments):
    suite = make_suite({"test_a.py": "def test_x(): pass\ndef test_y(): pass\n"})
    plan = suite.plan(["test_a.py::test_x", "test_a.py::test_y"])
    assert read_results(plan, [run_with_junit(suite, *arguments)], root=suite.root).results
    (suite.root / "test_a.py").write_text("def test_x(): assert 0\n")  # the tree is dirty now
    report = run_with_junit(suite, *arguments)
    with pytest.raises(ReportError, match="these tests ran without the plan") as caught:
        read_results(plan, [report], root=suite.root)
    assert "fastci-ml ingest" in caught.value.hint


def test_a_shadow_run_is_an_outcome_and_says_so(make_suite):
    suite = make_suite({"test_a.py": "def test_x(): pass\ndef test_y(): pass\n"})
    plan = suite.plan(["test_a.py::test_y"], ["test_a.py::test_x"])
    found = read_results(plan, [run_with_junit(suite, "--fastci-shadow")], root=suite.root)
    assert "a shadow run" in found.notes[0]
    assert len(found.results) == 2


def test_a_plan_of_an_unknown_change_gives_a_run_of_an_unknown_change(write):
    plan, report, root = write([A], [], [case(A)], base="")
    found = read_results(plan, [report], root=root)
    assert found.changes.num_rows == 0
    assert found.runs.column("base").to_pylist() == [""]
