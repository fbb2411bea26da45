"""Logs change a report only where they say more, and only for the test that they are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastci_ml.errors import ReportError
from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.failures.rank_reports import with_rank_logs
from fastci_ml.sources.failures.run_logs import WHOLE_RUN, RunLogs, logs_by_test, parse_run_logs
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.ingest import IngestOptions, IngestReport, ingest_paths
from fastci_ml.sources.ingest.run_file import read_run_file
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reports import CLASSES, Report

CHILD_FAILED = "subprocess.CalledProcessError: Command &apos;torchrun&apos; returned non-zero exit status 1."
DISK_FULL = "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left on device\n"
ASSERTION = "Traceback (most recent call last):\n  File 'x'\nAssertionError: 1 != 2\n"


def report(path: Path, *messages: str) -> Path:
    cases = "".join(
        f"<testcase classname='t.test_a' name='test_{i}' time='1'>"
        + (f"<failure message='{message}'/>" if message else "")
        + "</testcase>"
        for i, message in enumerate(messages)
    )
    path.write_text(f"<testsuite timestamp='2026-01-01T00:00:00' time='4'>{cases}</testsuite>")
    return path


def log(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def classes(found: Report) -> list[str]:
    return [CLASSES[code].value for code in found.classes]


def test_a_child_that_failed_is_explained_and_keeps_its_own_words(tmp_path: Path) -> None:
    read = read_junit(report(tmp_path / "j.xml", CHILD_FAILED, "", "assert 0"))
    assert (classes(read), dict(read.rules)) == (["test", "", "test"], {0: "child-failed", 2: "assertion"})
    path = log(tmp_path, "rank_1.log", DISK_FULL)
    found = with_rank_logs(read, {"t/test_a.py::test_0": [path]})
    assert (classes(found), dict(found.rules)) == (
        ["infrastructure", "", "test"],
        {0: "disk-full", 2: "assertion"},
    )
    assert found.messages[0].startswith("subprocess.CalledProcessError: Command 'torchrun'")
    assert found.messages[0].endswith("(rank 1: OSError: [Errno 28] No space left on device)")
    assert found.notes == read.notes
    assert classes(read) == ["test", "", "test"]


def test_an_assertion_of_a_rank_takes_back_any_other_class(tmp_path: Path) -> None:
    timeout = "subprocess.TimeoutExpired: Command &apos;torchrun&apos; timed out after 60 seconds"
    read = read_junit(report(tmp_path / "j.xml", timeout, timeout))
    assert classes(read) == ["timeout", "timeout"]
    logs = {"t/test_a.py::test_0": [log(tmp_path, "a/rank_1.log", ASSERTION)]}
    logs["t/test_a.py::test_1"] = [log(tmp_path, "b/rank_1.log", DISK_FULL)]
    found = with_rank_logs(read, logs)
    # What a report says for certain, no log makes less of.
    assert (classes(found), found.rules[0], found.rules[1]) == (
        ["test", "timeout"],
        "assertion",
        "process-timeout",
    )


def test_a_set_up_that_only_says_that_a_child_failed_is_explained_too(tmp_path: Path) -> None:
    message = f"failed on setup with &quot;{CHILD_FAILED}&quot;"
    read = read_junit(report(tmp_path / "j.xml", message))
    assert (classes(read), read.rules[0]) == (["setup"], "child-failed")
    found = with_rank_logs(read, {WHOLE_RUN: [log(tmp_path, "rank_0.log", DISK_FULL)]})
    assert classes(found) == ["infrastructure"]


def test_logs_of_the_whole_run_speak_for_one_test_alone(tmp_path: Path) -> None:
    path = log(tmp_path, "rank_0.log", DISK_FULL)
    one = read_junit(report(tmp_path / "one.xml", CHILD_FAILED, "assert 0"))
    assert classes(with_rank_logs(one, {WHOLE_RUN: [path]})) == ["infrastructure", "test"]
    two = read_junit(report(tmp_path / "two.xml", CHILD_FAILED, CHILD_FAILED))
    found = with_rank_logs(two, {WHOLE_RUN: [path]})
    assert classes(found) == ["test", "test"]
    assert "2 failures may be explained by logs that do not say which test they are of" in found.notes[-1]
    named = with_rank_logs(two, {WHOLE_RUN: [path], "t/test_a.py::test_1": [path]})
    assert classes(named) == ["infrastructure", "infrastructure"]


def test_logs_that_explain_nothing_change_nothing(tmp_path: Path) -> None:
    read = read_junit(report(tmp_path / "j.xml", CHILD_FAILED))
    found = with_rank_logs(read, {WHOLE_RUN: [log(tmp_path, "rank_0.log", "step 1\nstep 2\n")]})
    assert (classes(found), dict(found.messages)) == (classes(read), dict(read.messages))


def test_logs_that_are_gone_are_a_note_and_the_report_is_as_good(tmp_path: Path) -> None:
    read = read_junit(report(tmp_path / "j.xml", CHILD_FAILED))
    found = with_rank_logs(read, {WHOLE_RUN: [tmp_path / "nowhere"]})
    assert classes(found) == ["test"]
    assert "nowhere: no such file or folder of logs" in found.notes[-1]


def test_logs_are_not_even_opened_where_nothing_asks_for_them(tmp_path: Path) -> None:
    read = read_junit(report(tmp_path / "j.xml", "assert 0", ""))
    assert with_rank_logs(read, {WHOLE_RUN: [tmp_path / "nowhere"]}).notes == read.notes


def ingest(tmp_path: Path, *paths: Path, **options: object) -> tuple[IngestReport, list[dict[str, str]]]:
    store = HistoryStore(tmp_path / "history")
    done = ingest_paths(store, list(paths), IngestOptions(lane="cpu", **options))  # type: ignore[arg-type]
    return done, store.scan(EXECUTIONS).to_pylist()


def run_json(folder: Path, **keys: object) -> None:
    document = {"schema": "fastci.run/1", "run_id": "r", **keys}
    (folder / "run.json").write_text(json.dumps(document))


@pytest.mark.parametrize("logs", ["ranks", ["ranks/rank_0.log"], {"t/test_a.py::test_0": "ranks"}])
def test_a_run_json_names_logs_of_the_run_or_of_tests(tmp_path: Path, logs: object) -> None:
    ci = tmp_path / "ci"
    log(ci, "ranks/rank_0.log", DISK_FULL)
    report(ci / "j.xml", CHILD_FAILED)
    run_json(ci, logs=logs)
    done, rows = ingest(tmp_path, ci)
    assert (done.problems, [row["failure_rule"] for row in rows]) == ([], ["disk-full"])
    assert ingest(tmp_path, ci)[0].n_duplicates == 1


def test_ids_of_logs_start_where_those_of_the_report_start(tmp_path: Path) -> None:
    ci = tmp_path / "ci"
    log(ci, "ranks/rank_0.log", DISK_FULL)
    report(ci / "j.xml", CHILD_FAILED)
    run_json(ci, project="services/a", logs={"t/test_a.py::test_0": "ranks"})
    _, rows = ingest(tmp_path, ci)
    assert [(row["node_id"], row["failure_class"]) for row in rows] == [
        ("services/a/t/test_a.py::test_0", "infrastructure")
    ]


def test_logs_that_come_later_are_taken_with_the_same_report(tmp_path: Path) -> None:
    ci = tmp_path / "ci"
    log(ci, "ranks/rank_0.log", DISK_FULL)
    report(ci / "j.xml", CHILD_FAILED)
    run_json(ci)
    assert [row["failure_rule"] for row in ingest(tmp_path, ci)[1]] == ["child-failed"]
    run_json(ci, logs="ranks")
    assert [row["failure_rule"] for row in ingest(tmp_path, ci)[1]] == ["disk-full"]


@pytest.mark.parametrize(
    ("logs", "says"),
    [
        ("/etc", "expected a file or folder beside it"),
        ("../other", "expected a file or folder beside it"),
        (["a", "x/../../y"], "expected a file or folder beside it"),
        ({"t.py::x": "/etc/passwd"}, r"logs\['t.py::x'\] is '/etc/passwd'"),
        (3, "logs is 3, expected a name"),
        ([""], "logs is '', expected a name"),
        ("a\0b", "expected a file or folder beside it"),
    ],
)
def test_a_run_json_of_strangers_names_no_file_that_did_not_come_with_it(
    tmp_path: Path, logs: object, says: str
) -> None:
    run_json(tmp_path, logs=logs)
    with pytest.raises(ReportError, match=says):
        read_run_file(tmp_path / "run.json")


def test_names_of_several_run_files_add_up() -> None:
    logs = parse_run_logs(Path("one/run.json"), {"t.py::x": "a"}) + parse_run_logs(
        Path("two/run.json"), ["b", "c"]
    )
    logs += (RunLogs((("t.py::x", ("d",)),), Path("three")),)
    assert logs_by_test(logs, "") == {
        "t.py::x": (Path("one/a"), Path("three/d")),
        WHOLE_RUN: (Path("two/b"), Path("two/c")),
    }
    assert parse_run_logs(Path("run.json"), None) == ()
