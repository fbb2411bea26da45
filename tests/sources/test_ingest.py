"""Folders of reports become runs, each once; what cannot be used costs one line."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.sources.history import HistoryStore
from fastci_ml.sources.ingest import IngestOptions, IngestReport, ingest_paths
from fastci_ml.sources.report_files import ReportKind, find_reports, recognise
from fastci_ml.sources.run_file import RunInfo, read_run_file
from fastci_ml.sources.tables import TableMapping

JUNIT = (
    "<testsuite timestamp='2026-01-01T00:00:00' time='4'>"
    "<testcase classname='t.test_a' name='{name}' time='1'>{inner}</testcase></testsuite>"
)
FAILURE = "<failure message='assert 0'/>"


def junit(path: Path, name: str = "a", inner: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(JUNIT.format(name=name, inner=inner))
    return path


def run_json(folder: Path, **document: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    path.write_text(json.dumps({"schema": "fastci.run/1", "run_id": folder.name, **document}))
    return path


def ingest(tmp_path: Path, *paths: Path, **options: object) -> tuple[IngestReport, HistoryStore]:
    store = HistoryStore(tmp_path / "history")
    return ingest_paths(store, list(paths), IngestOptions(**{"lane": "cpu", **options})), store  # type: ignore[arg-type]


def test_a_run_json_speaks_for_the_reports_in_and_below_its_folder(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    run_json(
        logs / "r1",
        job="unit",
        lane="gpu",
        base="b" * 40,
        head="a" * 40,
        started_at="2026-01-01T00:00:00Z",
        finished_at="2026-01-01T01:00:00+00:00",
        changes=[
            {"path": "new.py", "old_path": "old.py", "status": "R100", "n_added": 1, "n_deleted": None},
            {"path": "x.py"},
        ],
    )
    junit(logs / "r1" / "a.xml", "a")
    junit(logs / "r1" / "deep" / "b.xml", "b")
    report, store = ingest(tmp_path, logs)
    assert (report.n_files, report.n_runs, report.n_executions, report.problems) == (2, 1, 2, [])
    run = store.read(RUNS).iloc[0]
    assert (run["run_id"], run["job"], run["head"]) == ("r1", "unit", "a" * 40)
    assert (run.finished_at - run.started_at).total_seconds() == 3600
    assert set(store.read(EXECUTIONS).lane) == {"gpu"}
    changes = store.read(CHANGES)
    assert changes.path.tolist() == ["new.py", "x.py"]
    assert changes.status.tolist() == ["R", "M"]
    assert changes.n_added.isna().tolist() == [False, True]


def test_the_same_files_are_ingested_once_wherever_they_lie(tmp_path: Path) -> None:
    junit(tmp_path / "one" / "j.xml")
    ingest(tmp_path, tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "two")
    report, store = ingest(tmp_path, tmp_path / "two", tmp_path / "two" / "j.xml")
    assert (report.n_files, report.n_runs, report.n_duplicates, report.problems) == (1, 0, 1, [])
    assert len(store.read(RUNS)) == 1


def test_reports_of_one_run_together_hold_attempts(tmp_path: Path) -> None:
    first = junit(tmp_path / "a.xml", inner=FAILURE)
    second = junit(tmp_path / "b.xml")
    _, store = ingest(tmp_path, first, second, run=RunInfo(run_id="4711"))
    found = store.read(EXECUTIONS)
    assert found.attempt.tolist() == [0, 1]
    assert found.failure_class.tolist() == ["flaky", ""]


def test_shards_with_the_same_file_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for shard in ("0", "1"):
        run_json(tmp_path / "logs" / shard, run_id="r", shard=shard)
        junit(tmp_path / "logs" / shard / "junit.xml")
    _, store = ingest(tmp_path, tmp_path / "logs")
    assert store.read(EXECUTIONS).shard.tolist() == ["0", "1"]
    assert len(store.read(RUNS)) == 2


def test_a_problem_costs_one_line_and_the_others_go_on(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    junit(logs / "good.xml")
    (logs / "torn.xml").write_text("<testsuite><testcase name='a'")
    (logs / "empty.xml").touch()
    (logs / "coverage.xml").write_text("<coverage/>")
    (logs / "notes.txt").write_text("ignored below a folder")
    (logs / "bad").mkdir()
    (logs / "bad" / "run.json").write_text('{"schema": "fastci.run/9"}')
    junit(logs / "bad" / "lost.xml", "lost")
    (logs / "cut.xml").write_text("<?xml vers")
    report, store = ingest(tmp_path, logs, tmp_path / "none")
    assert len(report.problems) == 5
    for word in ("torn.xml", "empty.xml", "cut.xml", "run.json: schema fastci.run/9", "no such file"):
        assert sum(word in line for line in report.problems) == 1, word
    assert all("\n" not in line for line in report.problems)
    assert len(store.read(RUNS)) == 1
    # The mended file goes in, the good one is known.
    junit(logs / "torn.xml", "torn")
    again, _ = ingest(tmp_path, logs)
    assert (again.n_runs, again.n_duplicates) == (1, 1)


def test_a_file_that_is_named_must_be_a_report(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "neither JUnit XML nor a pytest report log" in ingest(tmp_path, path)[0].problems[0]
    table = tmp_path / "t.csv"
    table.write_text("a,b\n")
    assert "a table needs --preset, --table or --map" in ingest(tmp_path, table)[0].problems[0]
    (tmp_path / "void").mkdir()
    assert "no test report found" in ingest(tmp_path, tmp_path / "void")[0].problems[0]


def test_reports_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    assert recognise(junit(tmp_path / "report.txt")) is ReportKind.JUNIT
    (tmp_path / "log.xml").write_text('{"pytest_version": "9", "$report_type": "SessionStart"}\n')
    assert recognise(tmp_path / "log.xml") is ReportKind.REPORTLOG
    wide = tmp_path / "wide.xml"
    wide.write_text(JUNIT.format(name="a", inner=""), encoding="utf-16")
    assert recognise(wide) is ReportKind.JUNIT
    os.mkfifo(tmp_path / "pipe.xml")
    files, problems = find_reports([tmp_path], has_mapping=False)
    assert [file.path.name for file in files] == ["log.xml", "report.txt", "wide.xml"]
    assert problems == []


def test_without_a_time_in_the_report_the_file_has_one_and_a_warning_says_so(tmp_path: Path) -> None:
    path = tmp_path / "j.xml"
    path.write_text("<testsuite><testcase classname='t.test_a' name='a' time='2'/></testsuite>")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    report, store = ingest(tmp_path, path)
    assert "the time of the file is used" in report.warnings[0]
    run = store.read(RUNS).iloc[0]
    assert run.finished_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert (run.finished_at - run.started_at).total_seconds() == 2


def test_changes_come_from_a_real_repository(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    clock = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}

    def git(*words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *words],
            cwd=repo,
            env={**os.environ, **clock},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    base = git("rev-parse", "HEAD")
    Path(os.fsdecode(os.fsencode(repo) + b"/bad\xff.py")).write_text("x\n")
    git("add", "-A")
    git("commit", "-q", "-m", "two")
    run = RunInfo(run_id="r", base=base, head=git("rev-parse", "HEAD"))
    _, store = ingest(tmp_path, junit(tmp_path / "j.xml"), run=run, repository=repo)
    changes = store.read(CHANGES)
    assert changes.path.tolist() == ["bad\\xff.py"]
    assert changes.n_added.tolist() == [1.0]


def test_tables_are_ingested_once_and_need_a_clock_to_be_put_together(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("a", "b"):
        (logs / f"{name}.csv").write_text(f"run,test,n\n{name}1,t,0\n{name}2,t,1\n")
    mapping = TableMapping(run="run", test="test", n_failures="n")
    with pytest.raises(UsageError, match="2 tables without a time column"):
        ingest(tmp_path, logs, mapping=mapping)
    report, store = ingest(tmp_path, logs / "a.csv", mapping=mapping)
    assert (report.n_runs, report.n_executions) == (2, 2)
    again, _ = ingest(tmp_path, logs / "a.csv", mapping=mapping)
    assert (again.n_runs, again.n_duplicates) == (0, 1)
    assert store.read(EXECUTIONS).outcome.tolist() == ["passed", "failed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no readable JSON"),
        ("[]", "schema list, expected fastci.run/1"),
        ('{"schema": "fastci.run/1"}', "no run_id"),
        ('{"schema": "fastci.run/1", "run_id": 7}', "run_id is int, expected str"),
        ('{"schema": "fastci.run/1", "run_id": "r", "started_at": "noon"}', "started_at is 'noon'"),
        (
            '{"schema": "fastci.run/1", "run_id": "r", "started_at": "2026-01-02", '
            '"finished_at": "2026-01-01"}',
            "finished_at lies before started_at",
        ),
        ('{"schema": "fastci.run/1", "run_id": "r", "changes": [3]}', r"changes\[0\] is int"),
        ('{"schema": "fastci.run/1", "run_id": "r", "changes": [{}]}', r"changes\[0\] has no path"),
        (
            '{"schema": "fastci.run/1", "run_id": "r", "changes": [{"path": "a", "status": "Z"}]}',
            r"changes\[0\] has status 'Z'",
        ),
        (
            '{"schema": "fastci.run/1", "run_id": "r", "changes": [{"path": "a", "n_added": -1}]}',
            "n_added is -1, expected a count or null",
        ),
    ],
)
def test_a_run_json_that_makes_no_sense_is_a_named_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ReportError, match=f"run.json: {message}"):
        read_run_file(path)
