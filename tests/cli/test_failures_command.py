"""`fastci-ml failures`, as typed: the history by class and rule, the rules in force, a text tried on them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.cli import app

RECORDINGS = Path(__file__).parents[1] / "sources" / "rank_recordings"
OWN_RULE = (
    "[[failure_rules]]\nid = 'depot'\nclass = 'infrastructure'\nbecause = 'the depot is down'\n"
    "pattern = 'depot .{0,40} down'\n[[failure_rules]]\nid = 'unreachable'\nenabled = false\n"
)
REPORT = (
    "<testsuite timestamp='2026-01-01T00:00:00' time='4'>"
    "<testcase classname='t.test_a' name='test_ok' time='1'/>"
    "<testcase classname='t.test_a' name='test_one' time='1'><failure message='assert 0'/></testcase>"
    "<testcase classname='t.test_a' name='test_two' time='1'><failure message='assert 1 == 2'/></testcase>"
    "<testcase classname='t.test_b' name='test_disk' time='1'>"
    "<failure message='OSError: [Errno 28] No space left on device'/></testcase>"
    "<testcase classname='t.test_b' name='test_odd' time='1'>"
    "<failure message='RuntimeError: odd'/></testcase>"
    "<testcase classname='t.test_b' name='test_depot' time='1'>"
    "<failure message='OSError: depot 7 is down'/></testcase>"
    "<testcase classname='t.test_c' name='test_flaky' time='1'><failure message='assert 0'/></testcase>"
    "<testcase classname='t.test_c' name='test_flaky' time='1'/></testsuite>"
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fastci.toml").write_text(f"lane = 'cpu'\n{OWN_RULE}")
    (tmp_path / "j.xml").write_text(REPORT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert app.main(["failures", "--json", *words]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fastci.failures/1"
    return document


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, str, int]]:
    groups = answer(capsys, *words)["failures"]
    assert isinstance(groups, list)
    return [(group["class"], group["rule"], group["n_executions"]) for group in groups]


@pytest.fixture
def history(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert app.main(["ingest", "j.xml", "--run-id", "r1"]) == 0
    capsys.readouterr()
    return project


def test_failures_are_listed_by_class_and_rule(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys) == [
        ("test", "assertion", 2),
        ("test", "", 1),
        ("infrastructure", "depot", 1),
        ("infrastructure", "disk-full", 1),
        ("flaky", "failed-and-passed", 1),
    ]
    groups = answer(capsys)["failures"]
    assert isinstance(groups, list)
    assert groups[0] == {
        "class": "test",
        "rule": "assertion",
        "explanation": "an assertion of the test or the code does not hold",
        "n_executions": 2,
        "n_tests": 2,
        "n_runs": 1,
        "examples": [
            {"test": "t/test_a.py::test_one", "run_id": "r1", "message": "assert 0"},
            {"test": "t/test_a.py::test_two", "run_id": "r1", "message": "assert 1 == 2"},
        ],
    }
    assert groups[2]["explanation"] == "the depot is down"


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        (["--class", "infrastructure"], ["depot", "disk-full"]),
        (["--class", "flaky", "--class", "test"], ["assertion", "", "failed-and-passed"]),
        (["--rule", "disk-full"], ["disk-full"]),
        (["--rule", "none"], [""]),
        (["--test", "test_b"], ["", "depot", "disk-full"]),
        (["--test", "test_b", "--class", "crash"], []),
    ],
)
def test_a_choice_of_failures(
    history: Path, capsys: pytest.CaptureFixture[str], words: list[str], rules: list[str]
) -> None:
    assert [rule for _, rule, _ in listed(capsys, *words)] == rules


def test_a_person_reads_class_rule_counts_and_examples(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["failures", "--class", "infrastructure", "--examples", "1"]) == 0
    assert capsys.readouterr().out == (
        "infrastructure  depot: the depot is down\n"
        "  1 executions, 1 tests, 1 runs\n"
        "  r1  t/test_b.py::test_depot\n"
        "      OSError: depot 7 is down\n"
        "infrastructure  disk-full: the disk is full, or a quota on it\n"
        "  1 executions, 1 tests, 1 runs\n"
        "  r1  t/test_b.py::test_disk\n"
        "      OSError: [Errno 28] No space left on device\n"
    )


def test_a_rule_that_is_no_longer_in_force_is_said_to_be_so(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (history / "fastci.toml").write_text("lane = 'cpu'\n")
    assert app.main(["failures", "--rule", "depot"]) == 0
    assert "depot: no rule of this name is in force now" in capsys.readouterr().out


def test_an_empty_history_has_no_failures(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["failures"]) == 0
    assert "no such failures" in capsys.readouterr().out


def test_rules_are_listed_with_where_they_come_from(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer(capsys, "--rules")
    rules, switched_off = document["rules"], document["switched_off"]
    assert isinstance(rules, list)
    assert [(rule["id"], rule["origin"]) for rule in rules[:2]] == [
        ("depot", "project"),
        ("preempted", "shipped"),
    ]
    assert switched_off == ["unreachable"]
    assert rules[0]["any"] == ["depot .{0,40} down"]
    assert app.main(["failures", "--rules"]) == 0
    shown = capsys.readouterr().out
    assert "project  infrastructure  depot: the depot is down\n" in shown
    assert "shipped  asks the ranks  child-failed: " in shown
    assert shown.endswith("shipped, but switched off or replaced: unreachable\n")


def test_a_text_is_tried_with_what_matches_and_what_nearly_does(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["failures", "--try", "OSError: [Errno 28] No space left on device"]) == 0
    assert capsys.readouterr().out == (
        "class infrastructure\n"
        "  disk-full: the disk is full, or a quota on it\n"
        "matches disk-full (shipped, infrastructure): message says 'No space left on device'\n"
    )
    assert app.main(["failures", "--try", "Error: ErrImagePull: manifest unknown"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("class test\n  (no rule): the test failed, and nothing says")
    assert "nearly matches image-not-pulled (shipped, infrastructure): " in shown
    assert shown.endswith("but excluded by 'manifest unknown'\n")


def test_an_assertion_that_quotes_says_why_no_rule_was_asked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = answer(capsys, "--try", "AssertionError: No space left on device")
    assert (document["class"], document["rule"]) == ("test", "assertion")
    assert document["barred_by"] == "AssertionError: No space left on device"
    assert document["rules"] == [
        {
            "id": "disk-full",
            "class": "infrastructure",
            "matches": True,
            "why": "message says 'No space left on device'",
        }
    ]


def test_a_log_is_tried_as_message_and_as_log(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "job.log").write_text("step 1\n[9.1] Out of memory: Killed process 42 (python)\n")
    document = answer(capsys, "--try", "job.log")
    assert document["class"] == "test"
    assert document["as_log"] == {"class": "crash", "rule": "killed-for-memory"}


def test_stdin_and_the_logs_of_all_ranks_are_tried(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = b"subprocess.CalledProcessError: Command 'torchrun' returned non-zero exit status 1.\xff"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(message)))
    assert answer(capsys, "--try", "-")["rule"] == "child-failed"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(message)))
    document = answer(capsys, "--try", "-", "--logs", str(RECORDINGS / "disk"))
    assert (document["class"], document["rule"]) == ("infrastructure", "disk-full")
    assert document["cause"] == "rank 1: OSError: [Errno 28] No space left on device"


def test_the_output_of_a_real_launcher_is_tried(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, "--try", str(RECORDINGS / "kill" / "launcher.log"))
    assert (document["class"], document["rule"], document["cause"]) == (
        "crash",
        "killed",
        "rank 1: exit status -9",
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--class", "infra"], 2, "--class 'infra', expected one of test, setup"),
        (["--examples", "-1"], 2, "--examples -1, expected 0 or more"),
        (["--try", "x", "--logs", "nowhere"], 3, "nowhere: no such file or folder of logs"),
    ],
)
def test_what_cannot_be_done_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert app.main(["failures", *words]) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", [["failures"], ["ingest", "j.xml"]])
def test_a_wrong_rule_of_the_project_stops_what_would_use_it(
    project: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (project / "fastci.toml").write_text(OWN_RULE.replace(".{0,40}", ".*"))
    assert app.main(command) == 2
    shown = capsys.readouterr().err
    assert (
        "failure_rules[0] (depot): pattern 'depot .* down' has a repetition without an upper limit" in shown
    )


def test_it_runs_as_a_program(project: Path) -> None:
    command = [sys.executable, "-m", "fastci_ml", "failures", "--try", "-", "--phase", "setup"]
    done = subprocess.run(command, input=b"KeyError: 'x'", capture_output=True, check=True)
    assert done.stdout.startswith(b"class setup\n  setup: ")
