"""`fastci-ml explain --evidence`: what a test touched, in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from store_records import LANE, record, seen, unit, write

from fastci_ml.cli import app
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import RunFacts
from fastci_ml.records.evidence_kinds import Gap

TEST = "tests/test_a.py::test_x[1]"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    (tmp_path / "fastci.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    with EvidenceStore.open(tmp_path / ".fastci" / "evidence.sqlite", create=True) as store:
        write(
            store,
            record(
                TEST,
                [unit("f"), unit("A.step"), unit("test_x", path="tests/test_a.py")],
                commit="c" * 40,
                at=1_700_000_000_000_000,
                reads=frozenset({seen("data/a.json"), seen("data/big.bin", None)}),
                listings=frozenset({seen("data")}),
                roots=frozenset({"tests/test_a.py", "tests/conftest.py"}),
                environ=frozenset({"MODEL_SIZE"}),
                native_readers=("safetensors",),
                facts=RunFacts(
                    outcome="passed", started_us=5, call_s=0.25, notes=("a thread lives on",)
                ),
            ),
            record("tests/test_a.py::test_x[2]", gaps=((Gap.CHILD_WITHOUT_RECORD, "torchrun train.py"),)),
            record("tests/test_a.py::test_other", at=5, facts=RunFacts(
                outcome="passed", started_us=5, cpu_s=0.5, peak_rss_bytes=812 * 2**20, n_gpus=2, gpu_s=3.25,
                gpu_peak_bytes=21 * 2**29, gpu_by="process", processes=("python train.py, rank 0 of 2",),)),
            record(TEST, at=6, lane="gpu", scope="pr:7", gaps=((Gap.NO_END_MARK, "a.fastci-bundle"),)),
            record("tests/test_b.py::test_cov", at=7, scope="coverage", backend="coverage",
                   gaps=((Gap.WEAK_SOURCE, ".coverage"),)),
        )  # fmt: skip
    return tmp_path


def explain(capsys, *words: str) -> str:
    assert app.main(["explain", "--evidence", *words]) == 0
    return capsys.readouterr().out


def test_everything_that_a_record_holds_is_shown(root, capsys):
    shown = explain(capsys, TEST, "--lane", LANE)
    assert (
        shown
        == f"""\
{TEST}

lane {LANE}
  recorded by monitoring, scope trunk, commit cccccccccc, 2023-11-14 22:13:20 UTC
  passed, call 0.25 s
  note: a thread lives on
  complete: what it does not name here, it did not touch
  ran 3 units of 2 files
    pkg/mod.py
      A.step, f
    tests/test_a.py
      test_x
  read (2)
    data/a.json  0000000000
    data/big.bin  content not known
  listed (1)
    data  0000000000
  imports start at (2)
    tests/conftest.py
    tests/test_a.py
  environment variables (1)
    MODEL_SIZE
  libraries that read files unseen (1)
    safetensors

other parameters (1)
  tests/test_a.py::test_x[2]  not complete
"""
    )


def test_what_a_test_took_is_one_line_of_what_is_known(root, capsys):
    shown = explain(capsys, "tests/test_a.py::test_other")
    took = "0.5 s of CPU, 812 MiB of memory, 2 GPUs, 3.25 GPU-seconds, 10.5 GiB of GPU memory (by process)"
    assert shown.splitlines()[4:6] == ["  passed", f"  took {took}"]
    assert shown.splitlines()[6] == "  with processes of its own: python train.py, rank 0 of 2"
    document = json.loads(explain(capsys, "tests/test_a.py::test_other", "--json"))
    facts = document["records"][0]["facts"]
    assert (facts["cpu_s"], facts["peak_rss_bytes"]) == (0.5, 812 * 2**20)
    assert (facts["n_gpus"], facts["gpu_s"], facts["gpu_by"]) == (2, 3.25, "process")
    assert facts["gpu_peak_bytes"] == 21 * 2**29
    assert json.loads(explain(capsys, TEST, "--json"))["records"][0]["facts"]["gpu_s"] is None


def test_reasons_are_given_in_words_with_their_detail(root, capsys):
    shown = explain(capsys, "tests/test_a.py::test_x[2]")
    assert "not complete, so the test is run for every change:\n" in shown
    assert "    it started a process, or ran beside one, that left no record: torchrun train.py\n" in shown


def test_records_of_all_lanes_are_shown_newest_first(root, capsys):
    shown = explain(capsys, TEST)
    assert shown.index(f"lane {LANE}") < shown.index("lane gpu")
    assert "scope pr:7" in shown


def test_imported_evidence_says_where_it_comes_from(root, capsys):
    shown = explain(capsys, "tests/test_b.py::test_cov")
    assert "imported from coverage, scope coverage" in shown


def test_function_lists_the_tests_that_it_has(root, capsys):
    shown = explain(capsys, "tests/test_a.py::test_x")
    assert shown.startswith("tests/test_a.py::test_x: no record of its own\n")
    assert "tests/test_a.py::test_x[1]  complete" in explain(capsys, "tests/test_a.py::test_x[3]")
    assert "tests/test_a.py::test_x[2]  not complete" in shown


def test_json_holds_the_same(root, capsys):
    document = json.loads(explain(capsys, TEST, "--lane", LANE, "--json"))
    assert document["schema"] == "fastci.explain/1"
    (found,) = document["records"]
    assert found["is_complete"] is True
    assert found["units"]["pkg/mod.py"] == [
        {"name": "A.step", "kind": "function", "fingerprint": "0000000000000001"},
        {"name": "f", "kind": "function", "fingerprint": "0000000000000001"},
    ]
    assert found["reads"] == [
        {"path": "data/a.json", "blob": f"{1:040x}"},
        {"path": "data/big.bin", "blob": None},
    ]
    assert document["siblings"] == [{"test": "tests/test_a.py::test_x[2]", "is_complete": False}]


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("tests/test_a.py::test_othr", "tests/test_a.py::test_other"),
        ("test_other", "tests/test_a.py::test_other"),
        ("elsewhere/y.py::test_cov", "tests/test_b.py::test_cov"),
    ],
)
def test_unknown_test_gets_the_nearest_ones(root, capsys, typed, near):
    assert app.main(["explain", "--evidence", typed]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"no record of {typed!r}" in shown.err
    assert near in shown.err


def test_lane_without_records_gets_those_that_have(root, capsys):
    assert app.main(["explain", "--evidence", TEST, "--lane", "other"]) == 2
    assert f"lanes with records: gpu, {LANE}" in capsys.readouterr().err


def test_id_may_start_at_the_folder_of_the_project(root, monkeypatch, capsys):
    (root / ".git").mkdir()
    project = root / "services"
    project.mkdir()
    (project / "fastci.toml").write_text("")
    monkeypatch.chdir(project)
    path = project / ".fastci" / "evidence.sqlite"
    with EvidenceStore.open(path, create=True) as store:
        write(store, record("services/tests/test_a.py::test_x", [unit("f")]))
    assert explain(capsys, "tests/test_a.py::test_x").startswith("services/tests/test_a.py::test_x\n")


def test_without_a_store_it_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert app.main(["explain", "--evidence", TEST]) == 3
    assert "no evidence yet" in capsys.readouterr().err
