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
