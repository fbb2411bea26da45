"""Processes that died and tests without a result (case 30), and --strict, at the level of folders."""

from __future__ import annotations

import json
import shutil
from itertools import permutations
from pathlib import Path

import pytest
from ci_folders import FAILURE, ids, ingest, outcomes, run_pytest, write_junit, write_run

from fastci_ml.features.log import UNCLEAR, build_log
from fastci_ml.records.frames import EXECUTIONS, NO_ATTEMPT, RUNS
from fastci_ml.records.ids import NodeId
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.run_file import RunInfo

_REPORTLOG = ("-p", "pytest_reportlog.plugin", "--report-log=out.jsonl")
_DIES = "import os\ndef test_a(): pass\ndef test_b(): {how}\ndef test_c(): assert 0\n"


def real_run(folder: Path, body: str, *words: str) -> int:
    """List and run real tests in a folder with a run.json; the exit code of pytest."""
    folder.mkdir(parents=True)
    (folder / "test_a.py").write_text(body)
    (folder / "selected.txt").write_text(run_pytest(folder, "--collect-only").stdout)
    write_run(folder, run_id="7", selected="selected.txt")
    return run_pytest(folder, *words).returncode


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("os._exit(0)", 0),
        ("os.kill(os.getpid(), 9)", -9),
        ("__import__('ctypes').CDLL(None).exit(0)", 0),
    ],
    ids=["os._exit", "SIGKILL", "exit of C"],
)
def test_a_real_process_that_dies_leaves_tests_that_are_unknown_not_passed(
    tmp_path: Path, how: str, code: int
) -> None:  # case 30
    logs = tmp_path / "logs"
    assert real_run(logs, _DIES.format(how=how), "--junitxml=junit.xml") == code
    assert not (logs / "junit.xml").exists()
    report = ingest(tmp_path / "history", logs)
    assert report.problems == []
    assert report.warnings == [
        f"run 7: no report ({logs}/run.json): the process may have died",
        "run 7: 3 of 3 selected tests have no result: the process may have died",
    ]
    assert (report.n_incomplete_runs, report.n_missing, report.n_executions) == (1, 3, 3)
    found = outcomes(tmp_path / "history")
    assert found == {(name, NO_ATTEMPT): "unknown" for name in ("test_a", "test_b", "test_c")}
    log = build_log(HistoryStore(tmp_path / "history"))
    assert log.verdicts.tolist() == [UNCLEAR] * 3


def test_a_real_process_that_dies_in_a_report_log_keeps_what_it_wrote(tmp_path: Path) -> None:  # case 30
    assert real_run(tmp_path / "logs", _DIES.format(how="os._exit(0)"), *_REPORTLOG) == 0
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert "run 7: 2 of 3 selected tests have no result: the process may have died" in report.warnings
    found = outcomes(tmp_path / "history")
    assert found["test_a", 0] == "passed"
    assert found["test_c", NO_ATTEMPT] == "unknown"
    assert {outcome for (name, _), outcome in found.items() if name == "test_b"} == {"unknown"}
    assert len(found) == 3


def test_a_real_worker_that_crashes_leaves_a_crash_and_nothing_missing(tmp_path: Path) -> None:  # case 30
    body = "import os\ndef test_a(): pass\ndef test_b(): os._exit(1)\ndef test_c(): pass\n"
    words = ("-p", "xdist.plugin", "-n", "2", "--junitxml=junit.xml")
    assert real_run(tmp_path / "logs", body, *words) == 1
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_missing, report.n_incomplete_runs) == (0, 0)
    frame = HistoryStore(tmp_path / "history").read(EXECUTIONS).set_index("node_id")
    assert set(frame.index) == {"test_a.py::test_a", "test_a.py::test_b", "test_a.py::test_c"}
    assert frame.failure_class["test_a.py::test_b"] == "crash"
    assert frame.outcome["test_a.py::test_b"] in ("failed", "error")


def test_a_run_that_stops_early_leaves_the_rest_unknown(tmp_path: Path) -> None:  # case 30
    body = "def test_a(): assert 0\ndef test_b(): pass\ndef test_c(): pass\n"
    assert real_run(tmp_path / "logs", body, "-x", "--junitxml=junit.xml") == 1
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert report.warnings == ["run 7: 2 of 3 selected tests have no result: the process may have died"]
    assert outcomes(tmp_path / "history") == {
        ("test_a", 0): "failed",
        ("test_b", NO_ATTEMPT): "unknown",
        ("test_c", NO_ATTEMPT): "unknown",
    }


def test_a_report_that_was_cut_off_or_never_begun_leaves_its_tests_unknown(tmp_path: Path) -> None:  # case 30
    for name, content in (("torn", b"<testsuite><testcase name='a'"), ("empty", b"")):
        write_run(tmp_path / "logs" / name, selected=ids("test_a", "test_b"))
        (tmp_path / "logs" / name / "junit.xml").write_bytes(content)
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert len(report.problems) == 2
    assert (report.n_incomplete_runs, report.n_missing, report.n_runs) == (2, 4, 2)
    assert report.warnings == [
        f"run {name}: 2 of 2 selected tests have no result: the process may have died"
        for name in ("torn", "empty")
    ]
    # The file is mended: results take the places.
    write_junit(tmp_path / "logs" / "torn" / "junit.xml", ["test_a"])
    again = ingest(tmp_path / "history", tmp_path / "logs")
    assert again.n_missing == 3
    runs = HistoryStore(tmp_path / "history").read(RUNS).set_index("run_id")
    assert runs.source.to_dict() == {"torn": "junit junit.xml", "empty": "no report"}
    frame = HistoryStore(tmp_path / "history").read(EXECUTIONS)
    of_torn = frame[frame.run_id == "torn"]
    assert dict(zip(of_torn.node_id, of_torn.outcome, strict=True)) == dict(
        zip(ids("test_a", "test_b"), ("passed", "unknown"), strict=True)
    )


def _parts(logs: Path, selected: object) -> None:
    for shard in ("1/3", "2/3", "3/3"):
        folder = logs / shard[0]
        write_run(folder, run_id="7", shard=shard, selected=selected)
        write_junit(folder / "junit.xml", [f"test_{shard[0]}"], inner=FAILURE if shard[0] == "2" else "")


@pytest.mark.parametrize("order", list(permutations("123")), ids="".join)
def test_parts_in_any_order_end_in_the_same_history(tmp_path: Path, order: str) -> None:
    """case 36: what was unknown never overwrites a result, whether that came before or comes after."""
    selected = ids("test_1", "test_2", "test_3", "test_4")
    _parts(tmp_path / "logs", selected)
    history = tmp_path / "history"
    for place, part in enumerate(order, 1):
        report = ingest(history, tmp_path / "logs" / part)
        assert report.n_missing == 4 - place
        assert report.n_absent_shards == 3 - place
        found = outcomes(history)
        assert len(found) == 4
        assert sum(outcome == "unknown" for outcome in found.values()) == 4 - place
    for _ in range(2):
        again = ingest(history, tmp_path / "logs")
        assert (again.n_runs, again.n_executions, again.n_duplicates, again.n_missing) == (0, 0, 3, 1)
        assert outcomes(history) == {
            ("test_1", 0): "passed",
            ("test_2", 0): "failed",
            ("test_3", 0): "passed",
            ("test_4", NO_ATTEMPT): "unknown",
        }
        HistoryStore(history).compact()


def test_parts_together_are_as_parts_one_by_one(tmp_path: Path) -> None:
    _parts(tmp_path / "logs", ids("test_1", "test_2", "test_3", "test_4"))
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.n_missing, report.n_executions) == (1, 4)
    assert report.warnings == ["run 7: 1 of 4 selected tests have no result: the process may have died"]


def test_a_test_that_ran_in_another_shard_or_attempt_is_not_missing(tmp_path: Path) -> None:
    for attempt, name in ((1, "test_a"), (2, "test_b")):
        write_run(tmp_path / "logs" / name, run_id="7", attempt=attempt, selected=ids("test_a", "test_b"))
        write_junit(tmp_path / "logs" / name / "junit.xml", [name])
    assert ingest(tmp_path / "history", tmp_path / "logs").n_missing == 0


def test_a_lane_or_job_that_died_is_not_hidden_by_another(tmp_path: Path) -> None:
    for place, told in enumerate(({"lane": "a"}, {"lane": "b"}, {"lane": "a", "job": "j"})):
        write_run(tmp_path / "logs" / str(place), run_id="7", selected=ids("test_a", "test_b"), **told)
    write_junit(tmp_path / "logs" / "0" / "junit.xml", ["test_a", "test_b"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert report.n_missing == 4
    frame = HistoryStore(tmp_path / "history").read(EXECUTIONS)
    assert sorted(zip(frame.job, frame.lane, frame.outcome, strict=True)) == sorted(
        [("", "a", "passed")] * 2 + [("", "b", "unknown")] * 2 + [("j", "a", "unknown")] * 2
    )


def test_an_attempt_that_died_does_not_take_the_place_of_the_one_before(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "1", run_id="7", attempt=1)
    write_junit(tmp_path / "logs" / "1" / "junit.xml", ["test_a"])
    write_run(tmp_path / "logs" / "2", run_id="7", attempt=2, finished_at="2026-01-01T09:00:00Z")
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert "run 7, attempt 2: no report" in report.warnings[0]
    runs = HistoryStore(tmp_path / "history").read(RUNS)
    assert runs.source.tolist() == ["junit junit.xml"]
    assert outcomes(tmp_path / "history") == {("test_a", 0): "passed"}


def test_a_run_that_is_named_on_the_command_line_may_have_died_too(tmp_path: Path) -> None:  # case 30
    run = RunInfo(run_id="7", selected=tuple(map(NodeId, ids("test_a", "test_b"))))
    report = ingest(tmp_path / "history", tmp_path / "junit.xml", run=run)
    assert "no such file" in report.problems[0]
    assert report.n_missing == 2
    assert set(outcomes(tmp_path / "history").values()) == {"unknown"}
    path = write_junit(tmp_path / "junit.xml", ["test_a"])
    again = ingest(tmp_path / "history", path, run=run)
    assert (again.problems, again.n_missing) == ([], 1)
    assert outcomes(tmp_path / "history") == {("test_a", 0): "passed", ("test_b", NO_ATTEMPT): "unknown"}


def test_a_run_json_above_those_of_its_shards_describes_them_and_did_not_die(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", run_id="7", n_shards=2, selected=ids("test_1", "test_2", "test_3"))
    for shard in ("1", "2"):
        write_run(tmp_path / "logs" / shard, run_id="7", shard=shard)
        write_junit(tmp_path / "logs" / shard / "junit.xml", [f"test_{shard}"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert report.warnings == ["run 7: 1 of 3 selected tests have no result: the process may have died"]
    assert outcomes(tmp_path / "history")["test_3", NO_ATTEMPT] == "unknown"


def test_ids_of_a_project_start_at_the_top_of_the_repository_in_results_and_selections(
    tmp_path: Path,
) -> None:
    for project, told in (("services/a", {"project": "services/a"}), ("services/b", {})):
        folder = tmp_path / "logs" / project
        write_run(folder, run_id="7", selected=ids("test_a", "test_b"), **told)
        write_junit(folder / "junit.xml", ["test_a"])
    ingest(tmp_path / "history", tmp_path / "logs", project="services/b")
    frame = HistoryStore(tmp_path / "history").read(EXECUTIONS)
    assert dict(zip(frame.node_id, frame.outcome, strict=True)) == {
        "services/a/t/test_a.py::test_a": "passed",
        "services/a/t/test_a.py::test_b": "unknown",
        "services/b/t/test_a.py::test_a": "passed",
        "services/b/t/test_a.py::test_b": "unknown",
    }


@pytest.mark.parametrize(
    ("selected", "words"),
    [
        ("absent.txt", "absent.txt: cannot be read"),
        ("empty.txt", "empty.txt: no test in the list of selected tests"),
        ("folder", "folder: a folder, expected a regular file"),
    ],
)
def test_a_selection_that_cannot_be_read_costs_a_line_not_the_reports(
    tmp_path: Path, selected: str, words: str
) -> None:
    write_run(tmp_path / "logs", run_id="7", selected=selected)
    (tmp_path / "logs" / "empty.txt").touch()
    (tmp_path / "logs" / "folder").mkdir()
    write_junit(tmp_path / "logs" / "junit.xml", ["test_a"])
    report = ingest(tmp_path / "history", tmp_path / "logs")
    assert (report.problems, report.n_executions, len(report.warnings)) == ([], 1, 1)
    assert words in report.warnings[0]


def test_what_was_pruned_is_not_reported_as_missing(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    write_run(tmp_path / "logs", run_id="7", shard="1/2", selected=ids("test_a"))
    write_junit(tmp_path / "logs" / "junit.xml", ["test_a"])
    history = tmp_path / "history"
    ingest(history, tmp_path / "logs")
    HistoryStore(history).prune(datetime(2027, 1, 1, tzinfo=UTC))
    report = ingest(history, tmp_path / "logs")
    assert (report.n_duplicates, report.warnings, report.n_executions) == (1, [], 0)
    assert len(HistoryStore(history).read(RUNS)) == 0


# --strict


def _untimed(folder: Path) -> None:
    path = write_junit(folder / "junit.xml", ["test_a"])
    path.write_text(path.read_text().replace("timestamp='2026-01-01T00:00:00'", ""))
    document = json.loads((folder / "run.json").read_text())
    del document["started_at"]
    (folder / "run.json").write_text(json.dumps(document))


def _bad_time(folder: Path) -> None:
    path = write_junit(folder / "junit.xml", ["test_a"])
    path.write_text(path.read_text().replace("time='1'", "time='soon'"))


def _repaired(folder: Path) -> None:
    path = write_junit(folder / "junit.xml", ["test_a"])
    path.write_bytes(path.read_bytes().replace(b"<testcase", b"<system-out>a\x1bb</system-out><testcase", 1))


def _torn_log(folder: Path) -> None:
    lines = [
        {"pytest_version": "9", "$report_type": "SessionStart"},
        *(
            {"nodeid": "t.py::a", "when": when, "outcome": "passed", "$report_type": "TestReport"}
            for when in ("setup", "call", "teardown")
        ),
    ]
    text = "\n".join(map(json.dumps, lines))
    (folder / "out.jsonl").write_text(text + '\n{"nodeid": "t.py::b", "wh')


def _torn_beside_good(folder: Path) -> None:
    write_junit(folder / "junit.xml", ["test_a"])
    (folder / "torn.xml").write_text("<testsuite><testcase")


def _empty_beside_good(folder: Path) -> None:
    write_junit(folder / "junit.xml", ["test_a"])
    (folder / "empty.xml").touch()


def _unjoined(folder: Path) -> None:
    path = write_junit(folder / "junit.xml", ["test_a"])
    path.write_text(path.read_text().replace(" file='t/test_a.py'", ""))


_ODD = {
    "a time that cannot be read": (_bad_time, {}),
    "times from the age of the file": (_untimed, {}),
    "a torn last line": (_torn_log, {}),
    "bytes that are repaired": (_repaired, {}),
    "a torn file beside a good one": (_torn_beside_good, {}),
    "an empty file beside a good one": (_empty_beside_good, {}),
    "names guessed from class names": (_unjoined, {}),
    "an absent shard": (None, {"shard": "1/2"}),
    "a test without a result": (None, {"selected": ids("test_a", "test_b")}),
    "a selection that cannot be read": (None, {"selected": "nothing.txt"}),
    "a list of changes that may be cut off": (
        None,
        {"changes": [{"path": f"{place}.py"} for place in range(300)]},
    ),
}


@pytest.mark.parametrize(("spoil", "told"), _ODD.values(), ids=_ODD)
def test_strict_refuses_a_run_with_anything_odd_as_a_whole(
    tmp_path: Path, spoil: object, told: dict[str, object]
) -> None:
    odd, good = tmp_path / "logs" / "odd", tmp_path / "logs" / "good"
    write_run(odd, **told)
    write_junit(odd / "junit.xml", ["test_a"])
    # Another job of the same run is spotless, and goes with it.
    write_run(tmp_path / "logs" / "job", run_id="odd", job="other")
    write_junit(tmp_path / "logs" / "job" / "junit.xml", ["test_z"])
    if spoil is not None:
        (odd / "junit.xml").unlink()
        spoil(odd)  # type: ignore[operator]
    write_run(good)
    write_junit(good / "junit.xml", ["test_a"], second=7)
    strict = ingest(tmp_path / "strict", tmp_path / "logs", is_strict=True)
    assert HistoryStore(tmp_path / "strict").read(RUNS).run_id.tolist() == ["good"]
    assert strict.warnings == []
    assert strict.problems
    assert all(
        "--strict: run odd is left out" in line or "torn" in line or "empty.xml" in line
        for line in strict.problems
    )
    # Without it, the same lines are warnings and the run is in.
    lax = ingest(tmp_path / "lax", tmp_path / "logs")
    assert len(lax.warnings) + len(lax.problems) == len(strict.problems)
    assert set(HistoryStore(tmp_path / "lax").read(RUNS).run_id) == {"odd", "good"}
    # Nothing of the refusal stays: the run goes in later.
    assert ingest(tmp_path / "strict", tmp_path / "logs").n_runs == 2


def test_strict_says_nothing_of_a_clean_folder(tmp_path: Path) -> None:
    _parts(tmp_path / "logs", ids("test_1", "test_2", "test_3"))
    report = ingest(tmp_path / "history", tmp_path / "logs", is_strict=True)
    assert (report.problems, report.warnings, report.n_runs) == ([], [], 3)
    shutil.rmtree(tmp_path / "logs" / "1")
    # What is known already is not asked again.
    assert ingest(tmp_path / "history", tmp_path / "logs", is_strict=True).problems == []


def test_strict_takes_what_was_passed_over_for_a_problem(tmp_path: Path) -> None:
    write_junit(tmp_path / "logs" / "junit.xml", ["test_a"])
    (tmp_path / "logs" / "artifact.zip").write_bytes(b"PK\x03\x04")
    assert len(ingest(tmp_path / "lax", tmp_path / "logs").warnings) == 1
    report = ingest(tmp_path / "strict", tmp_path / "logs", is_strict=True)
    assert report.problems == [f"{tmp_path}/logs/artifact.zip: packed (zip): unpack it first (--strict)"]
    assert report.n_runs == 1
