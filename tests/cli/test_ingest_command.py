"""`fastci-ml ingest`, `status` and `history`, as typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JUNIT = (
    "<testsuite timestamp='2026-01-01T00:00:00' time='4'>"
    "<testcase classname='t.test_a' name='a' time='1'/>"
    "<testcase classname='t.test_a' name='b' time='1'><failure message='assert 0'/></testcase></testsuite>"
)


def fastci(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastci_ml", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "fastci.toml").write_text(
        "lane = 'cpu'\n[tables.nightly]\nrun = 'r'\ntest = 't'\noutcome = 'o'\nfailed = 'F'\n"
    )
    (tmp_path / "j.xml").write_text(JUNIT)
    (tmp_path / "n.csv").write_text("r,t,o\n1,x,F\n2,x,P\n")
    return tmp_path


def test_ingest_status_compact_and_prune(project: Path) -> None:
    done = fastci(project, "ingest", "j.xml", "--run-id", "r1", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "fastci.ingest/1"
    assert (answer["n_files"], answer["n_runs"], answer["n_executions"]) == (1, 1, 2)
    assert "ingest: 1/1" in done.stderr
    again = fastci(project, "ingest", "j.xml", "--run-id", "r1")
    assert again.returncode == 0
    assert "1 files known already" in again.stdout

    (project / "collected.txt").write_text("t/test_a.py::a\nt/test_a.py::new\n\n2 tests collected\n")
    status = json.loads(fastci(project, "status", "--json", "--collected", "collected.txt").stdout)
    assert status["schema"] == "fastci.status/1"
    assert (status["n_runs"], status["n_failing_runs"], status["n_tests"]) == (1, 1, 2)
    assert status["failure_classes"] == {"test": 1}
    assert status["lanes"] == {"cpu": 2}
    assert (status["join_ratio"], status["known_ratio"]) == (0.0, 0.5)
    assert status["first"] == "2026-01-01T00:00:00+00:00"
    assert "join rate" in fastci(project, "status").stdout

    assert "2 files are now 2" in fastci(project, "history", "compact").stdout
    pruned = fastci(project, "history", "prune", "--before", "2026-02-01", "--json")
    assert json.loads(pruned.stdout)["n_runs_dropped"] == 1
    assert "no history yet" in fastci(project, "status").stdout


def test_collected_ids_make_the_join_certain(project: Path) -> None:
    (project / "collected.txt").write_text("t/test_a.py::a\nt/test_a.py::b\n")
    fastci(project, "ingest", "j.xml", "--collected", "collected.txt", "--history", "other")
    assert json.loads(fastci(project, "status", "--json", "--history", "other").stdout)["join_ratio"] == 1.0


def test_tables_by_settings_and_by_map(project: Path) -> None:
    assert fastci(project, "ingest", "n.csv", "--table", "nightly").returncode == 0
    changed = fastci(
        project, "ingest", "n.csv", "--table", "nightly", "--history", "h2", "--map", "failed=P", "--json"
    )
    assert json.loads(changed.stdout)["n_runs"] == 2
    outcomes = json.loads(fastci(project, "status", "--json", "--history", "h2").stdout)["outcomes"]
    assert outcomes == {"failed": 1, "passed": 1}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("ingest", "none.xml"), 3, "none.xml: no such file or folder"),
        (("ingest", "fastci.toml"), 3, "neither JUnit XML nor a pytest report log"),
        (("ingest", "n.csv", "--preset", "nope"), 2, "unknown preset 'nope'"),
        (
            ("ingest", "n.csv", "--table", "nope"),
            2,
            "no table mapping 'nope' in the settings (known: nightly)",
        ),
        (("ingest", "n.csv", "--map", "run"), 2, "--map 'run', expected KEY=VALUE"),
        (("ingest", "j.xml", "--collected", "none.txt"), 2, "none.txt: cannot be read"),
        (("ingest", "j.xml", "--selected", "none.txt"), 2, "none.txt: cannot be read"),
        (("ingest", "j.xml", "--attempt", "0"), 2, "--attempt 0, expected 1 to 100,000"),
        (("ingest", "j.xml", "--n-shards", "-1"), 2, "--n-shards -1, expected 1 to 100,000"),
        (("ingest", "j.xml", "--project", "/etc"), 2, "--project: project '/etc'"),
        (("ingest", "j.xml", "--repo", "."), 4, "fastci-ml: "),
        (("status", "--collected", "none.txt"), 2, "none.txt: cannot be read"),
        (("history", "prune"), 2, "prune needs a date"),
        (("history", "prune", "--before", "noon"), 2, "--before 'noon' is no ISO date"),
        (("history", "compact", "--before", "2026-01-01"), 2, "compact takes no --before"),
    ],
)
def test_mistakes_get_a_line_and_the_right_exit_code(
    project: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = fastci(project, *words)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("time", ["1e15", "1e39", "1e300"])
def test_times_that_can_be_none_are_no_bug(project: Path, time: str) -> None:
    (project / "j.xml").write_text(JUNIT.replace("time='4'", f"time='{time}'").replace("'1'", f"'{time}'"))
    done = fastci(project, "ingest", "j.xml")
    assert done.returncode == 0, done.stderr
    assert "times could not be read" in done.stderr


def test_a_lane_that_is_no_text_is_spelled_out(project: Path) -> None:
    assert fastci(project, "ingest", "j.xml", "--lane", os.fsdecode(b"a\xff")).returncode == 0
    assert json.loads(fastci(project, "status", "--json").stdout)["lanes"] == {"a\\xff": 2}


def test_a_run_of_the_future_and_a_torn_run_json_are_unusable(project: Path) -> None:
    (project / "j.xml").write_text(JUNIT.replace("2026-01-01", "9999-01-01"))
    done = fastci(project, "ingest", "j.xml", "--run-id", "r1")
    assert done.returncode == 3
    assert "unusable: j.xml: run r1 " in done.stderr
    (project / "run.json").write_text('{"schema": "fastci.run/1", "run_id": "r')
    torn = fastci(project, "ingest", "j.xml", "--run-id", "r1")
    assert torn.returncode == 3
    assert torn.stderr.count("unusable: run.json: no readable JSON") == 1
    assert "no history yet" in fastci(project, "status").stdout


def test_a_listing_of_another_system_with_warnings_counts_tests_only(project: Path) -> None:
    fastci(project, "ingest", "j.xml")
    listing = "\ufefft/test_a.py::a\r\n\r\n=== warnings summary ===\r\nstd::map\r\n"
    (project / "collected.txt").write_bytes(listing.encode())
    status = fastci(project, "status", "--json", "--collected", "collected.txt")
    assert json.loads(status.stdout)["known_ratio"] == 1.0


def test_a_history_in_the_place_of_a_file_is_named_with_exit_code_3(project: Path) -> None:
    done = fastci(project, "ingest", "j.xml", "--history", "n.csv")
    assert done.returncode == 3
    assert "n.csv" in done.stderr
    (project / "store").mkdir()
    (project / "store" / "executions").write_text("a file")
    done = fastci(project, "ingest", "j.xml", "--history", "store")
    assert done.returncode == 3
    assert "fastci-ml: store/executions: " in done.stderr


def test_a_damaged_history_is_named_with_exit_code_3(project: Path) -> None:
    fastci(project, "ingest", "j.xml")
    part = next((project / ".fastci" / "history" / "executions").iterdir())
    part.write_bytes(part.read_bytes()[:100])
    done = fastci(project, "status")
    assert done.returncode == 3
    assert part.name in done.stderr


def test_attempts_shards_selection_and_project_as_typed(project: Path) -> None:
    """case 30, case 36: what the options say is what a run.json would."""
    (project / "selected.txt").write_text(
        "t/test_a.py::a\nt/test_a.py::b\nt/test_a.py::c\n\n3 tests collected\n"
    )
    words = ("ingest", "j.xml", "--run-id", "7", "--job", "unit", "--project", "services/a")
    words = (*words, "--selected", "selected.txt", "--shard", "1/2")
    done = fastci(project, *words, "--attempt", "2", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["n_incomplete_runs"], answer["n_absent_shards"], answer["n_missing"]) == (1, 1, 1)
    assert (answer["n_noted"], answer["n_unjoined"]) == (0, 0)  # the selection makes the names certain
    assert "warning: run 7, job unit: 1 of 2 shards absent: 2/2" in done.stderr
    assert "warning: run 7, job unit: 1 of 3 selected tests have no result" in done.stderr
    assert fastci(project, *words, "--attempt", "1", "--n-shards", "3").stdout.splitlines()[1] == (
        "incomplete: 1 runs, 2 absent shards, 1 tests without a result"
    )
    status = json.loads(fastci(project, "status", "--json").stdout)
    assert (status["n_runs"], status["n_tests"]) == (1, 3)
    assert status["outcomes"] == {"failed": 2, "passed": 2, "unknown": 1}


def test_strict_refuses_with_exit_code_3_and_a_line_for_each_reason(project: Path) -> None:
    words = ("ingest", "j.xml", "--run-id", "7", "--shard", "1/2", "--strict")
    done = fastci(project, *words)
    assert done.returncode == 3
    told = [line for line in done.stderr.splitlines() if line.startswith("unusable: ")]
    assert len(told) == 2
    assert "1 of 2 shards absent: 2/2: what they ran is unknown (--strict: run 7 is left out)" in told[0]
    assert "names are guessed from class names" in told[1]
    assert "0 runs and 0 executions added" in done.stdout
    assert "no history yet" in fastci(project, "status").stdout
    assert fastci(project, *words[:-1]).returncode == 0


def test_a_run_that_died_before_its_report_was_written_is_unknown(project: Path) -> None:  # case 30
    (project / "selected.txt").write_text("t/test_a.py::a\nt/test_a.py::b\n")
    done = fastci(project, "ingest", "none.xml", "--run-id", "7", "--selected", "selected.txt")
    assert done.returncode == 3
    assert "unusable: none.xml: no such file" in done.stderr
    assert "run 7: 2 of 2 selected tests have no result" in done.stderr
    outcomes = json.loads(fastci(project, "status", "--json").stdout)["outcomes"]
    assert outcomes == {"unknown": 2}


def test_a_selection_without_tests_is_told(project: Path) -> None:
    (project / "selected.txt").write_text("no tests collected in 0.01s\n")
    done = fastci(project, "ingest", "j.xml", "--run-id", "7", "--selected", "selected.txt")
    assert done.returncode == 0
    assert "selected.txt: no test in the list of selected tests, so it is unknown" in done.stderr


def test_names_that_no_terminal_can_show_are_one_line(project: Path) -> None:
    (project / "j.xml").rename(project / os.fsdecode(b"a\nb\xff.xml"))
    (project / "empty\n.xml").touch()
    done = fastci(project, "ingest", ".")
    assert done.returncode == 3
    assert done.stderr.count("unusable: ") == 1
    assert "unusable: empty\\n.xml: empty" in done.stderr


def test_help_tells_what_strict_does_and_the_exit_codes(project: Path) -> None:
    text = fastci(project, "ingest", "--help").stdout
    for words in ("--strict", "--selected", "--n-shards", "--attempt", "--project", "Exit code 3"):
        assert words in text
