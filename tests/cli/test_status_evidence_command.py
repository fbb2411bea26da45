"""`fastci-ml status`: its part about evidence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from store_records import LANE, record, unit, write

from fastci_ml.cli import app
from fastci_ml.evidence.overview import view_evidence
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence_kinds import Gap

CHILD = (Gap.CHILD_WITHOUT_RECORD, "torchrun")
FAILED = (Gap.DID_NOT_PASS, "")
HOUR_US = 3_600_000_000


@pytest.fixture
def store_path(tmp_path, monkeypatch) -> Path:
    (tmp_path / "fastci.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".fastci" / "evidence.sqlite"
    with EvidenceStore.open(path, create=True) as store:
        write(
            store,
            record("test_a.py::test_1", [unit("f")], at=HOUR_US),
            record("test_a.py::test_2", [unit("f")], at=2 * HOUR_US, gaps=(CHILD,)),
            record("test_a.py::test_3", [unit("f")], at=3 * HOUR_US, gaps=(CHILD, FAILED)),
            record("test_a.py::test_1", [unit("f")], at=4 * HOUR_US, lane="gpu"),
            record("test_a.py::test_1", [unit("f")], at=5 * HOUR_US, scope="pr:7"),
            record("test_a.py::test_1", [unit("f")], at=9 * HOUR_US, scope="coverage",
                   gaps=((Gap.WEAK_SOURCE, ".coverage"),)),
        )  # fmt: skip
        # A later run that was killed: what was complete before stays, and the test is not complete now.
        write(store, record("test_a.py::test_1", at=6 * HOUR_US, lane="gpu", gaps=((Gap.NO_END_MARK, "x"),)))
    return path


def test_figures_by_lane_and_scope(store_path, capsys):
    assert app.main(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["evidence"]
    assert (found["n_tests"], found["n_complete"], found["complete_ratio"]) == (5, 2, 0.4)
    assert found["reasons"] == {"child_without_record": 2, "did_not_pass": 1, "no_end_mark": 1}
    assert found["newest_trunk_us"] == 6 * HOUR_US
    assert [
        (s["lane"], s["scope"], s["n_tests"], s["n_complete"], s["is_imported"]) for s in found["scopes"]
    ] == [
        ("gpu", "trunk", 1, 0, False),
        (LANE, "coverage", 1, 0, True),
        (LANE, "pr:7", 1, 1, False),
        (LANE, "trunk", 3, 1, False),
    ]
    assert [test["test"] for test in found["worst"]] == [
        "test_a.py::test_3", "test_a.py::test_1", "test_a.py::test_2",
    ]  # fmt: skip


def test_person_gets_reasons_in_words_and_the_worst_tests(store_path, capsys):
    assert app.main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "no history yet" in shown
    assert "evidence: 5 tests recorded, 40.0% of them complete" in shown
    assert "       2  it started a process, or ran beside one, that left no record\n" in shown
    assert (
        f"  test_a.py::test_3  ({LANE}, trunk)\n"
        "    it started a process, or ran beside one, that left no record: torchrun\n" in shown
    )
    (line,) = (line for line in shown.splitlines() if " coverage " in line)
    assert "imported" in line


def test_at_most_ten_tests_are_listed(store_path):
    with EvidenceStore.open(store_path) as store:
        write(store, *(record(f"test_b.py::test_{n}", at=1, gaps=(CHILD,)) for n in range(30)))
        assert len(view_evidence(store).worst) == 10


def test_without_evidence_it_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert app.main(["status"]) == 0
    assert "no evidence yet; `fastci-ml record --merge -- pytest` adds some" in capsys.readouterr().out
    assert app.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evidence"] is None


def test_damaged_store_is_an_error_of_its_own(store_path, capsys):
    store_path.write_text("rubbish")
    assert app.main(["status"]) == 3
    assert str(store_path) in capsys.readouterr().err


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_evidence_is_shown_where_the_history_cannot_be_read(store_path, package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from fastci_ml.cli.app import main\nsys.exit(main(['status']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{package} is not installed, so nothing is said of the history" in done.stderr
    assert done.stdout.startswith("evidence: 5 tests recorded")
