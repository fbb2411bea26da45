"""Folders of reports become runs, each once; what cannot be used costs one line."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fastci_ml.errors import ReportError, UsageError
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.ingest import IngestOptions, IngestReport, ingest_paths
from fastci_ml.sources.ingest.report_files import ReportKind, find_reports, recognise
from fastci_ml.sources.ingest.run_file import RunInfo, read_run_file
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
        junit(tmp_path / "logs" / shard / "junit.xml", inner=FAILURE if shard == "1" else "")
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


def test_reports_beside_a_torn_run_json_are_not_ingested_under_a_guessed_run(tmp_path: Path) -> None:
    for run in ("torn", "whole"):
        junit(tmp_path / "logs" / run / "one.xml", "one")
        junit(tmp_path / "logs" / run / "deep" / "two.xml", "two")
        document = run_json(tmp_path / "logs" / run)
    torn = tmp_path / "logs" / "torn" / "run.json"
    torn.write_bytes(document.read_bytes()[:-5])
    report, store = ingest(tmp_path, tmp_path / "logs", run=RunInfo(run_id="guess"))
    assert len(report.problems) == 1
    assert f"{torn}: no readable JSON" in report.problems[0]
    assert store.read(RUNS).run_id.tolist() == ["whole"]
    named, _ = ingest(tmp_path, tmp_path / "logs" / "torn" / "one.xml")
    assert (named.n_runs, len(named.problems)) == (0, 1)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_run_of_the_future_is_refused_by_name_since_it_would_hide_later_runs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    run_json(logs / "ahead", finished_at="2026-01-03T00:00:00Z")
    junit(logs / "ahead" / "one.xml", "one")
    junit(logs / "ahead" / "two.xml", "two")
    run_json(logs / "mixed")
    junit(logs / "mixed" / "good.xml")
    far = junit(logs / "mixed" / "far.xml")
    far.write_text(far.read_text().replace("2026", "9999"))
    run_json(logs / "told", started_at="2025-12-31T00:00:00Z", finished_at="2025-12-31T01:00:00Z")
    junit(logs / "told" / "far.xml").write_text(far.read_text())
    report, store = ingest(tmp_path, logs, now=NOW)
    assert len(report.problems) == 2
    for path, run, time in (
        (logs / "ahead" / "run.json", "ahead", "2026-01-03T00:00:00"),
        (far, "mixed", "9999-01-01T00:00:04"),
    ):
        found = [line for line in report.problems if line.startswith(f"{path}: run {run} ")]
        assert len(found) == 1, report.problems
        assert time in found[0]
    # Where run.json tells the times, those of the reports are not those of the run.
    assert store.read(RUNS).run_id.tolist() == ["mixed", "told"]
    assert store.latest_us() == int(NOW.timestamp() * 1e6) + 4_000_000


def test_a_day_ahead_is_a_matter_of_time_zones(tmp_path: Path) -> None:
    report, _ = ingest(tmp_path, junit(tmp_path / "j.xml"), now=NOW - timedelta(hours=23))
    assert (report.n_runs, report.problems) == (1, [])


def test_a_table_with_a_run_of_the_future_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("run,test,n,at\nlate,t,0,2026-01-03\nearly,t,0,2025-12-01\n")
    mapping = TableMapping(run="run", test="test", n_failures="n", time="at")
    report, store = ingest(tmp_path, table, mapping=mapping, now=NOW)
    assert report.n_runs == 0
    assert len(report.problems) == 1
    assert "run late " in report.problems[0]
    assert "2026-01-03T00:00:00" in report.problems[0]
    assert store.latest_us() is None


def test_names_that_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    bad = "a\udcff"
    run = RunInfo(run_id=bad, job=bad, shard=bad, base=bad, head=bad)
    _, store = ingest(tmp_path, junit(tmp_path / f"{bad}.xml"), run=run, lane=bad)
    told = store.read(RUNS).iloc[0]
    spelled = "a\\xff"
    assert [told[name] for name in ("run_id", "job", "shard", "base", "head")] == [spelled] * 5
    assert told.source == f"junit {spelled}.xml"
    assert store.read(EXECUTIONS).lane.tolist() == [spelled]
    run_json(tmp_path / "logs", run_id="b\ud800", lane="l\ud800", changes=[{"path": "\ud800.py"}])
    _, store = ingest(tmp_path, junit(tmp_path / "logs" / "j.xml").parent)
    assert store.read(RUNS).run_id.tolist() == [spelled, "b\\ud800"]
    assert store.read(CHANGES).path.tolist() == ["\\ud800.py"]


def test_a_file_without_a_time_that_took_forever_has_the_time_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "j.xml"
    cases = "".join(f"<testcase classname='t' name='{n}' time='9e8'/>" for n in range(3))
    path.write_text(f"<testsuite>{cases}</testsuite>")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    _, store = ingest(tmp_path, path)
    run = store.read(RUNS).iloc[0]
    assert run.started_at == run.finished_at == datetime.fromtimestamp(1_700_000_000, UTC)


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
    assert problems == [f"{tmp_path / 'pipe.xml'}: a pipe, expected a regular file"]


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
