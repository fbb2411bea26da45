"""Failures are classed with care: what no rule is sure of stays a test failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.failures.classify import Classification, classify, first_line
from fastci_ml.sources.junit.reader import read_junit


@pytest.mark.parametrize(
    ("phase", "message", "expected"),
    [
        ("call", "AssertionError: 1 != 2", "test"),
        ("call", "assert 'Segmentation fault' in log", "test"),
        ("teardown", "RuntimeError: leak", "test"),
        ("", "ModuleNotFoundError: No module named 'flash_attn'", "test"),
        ("", "torch.OutOfMemoryError: CUDA out of memory", "test"),
        ("", "ConnectionRefusedError: [Errno 111] Connection refused", "test"),
        ("setup", "KeyError: 'x'", "setup"),
        ("setup", "OSError: [Errno 28] No space left on device", "infrastructure"),
        ("setup", "worker 'gw0' crashed while running 't.py::a'", "crash"),
        ("call", "subprocess.CalledProcessError: ['x'] died with <Signals.SIGSEGV: 11>.", "crash"),
        ("call", "Failed: Timeout (>30.0s) from pytest-timeout.", "timeout"),
        ("call", "Failed: Timeout >30.0s", "timeout"),
        ("call", "subprocess.TimeoutExpired: Command 'torchrun' timed out after 60 seconds", "timeout"),
        ("call", "RuntimeError: NCCL error: ncclSystemError: System call failed", "test"),
        ("call", "RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "environment"),
        (
            "call",
            "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            "infrastructure",
        ),
        ("call", "ImportError: libcudart.so.12: cannot open shared object file", "environment"),
    ],
)
def test_rules(phase: str, message: str, expected: str) -> None:
    found = classify(Outcome.FAILED, phase, message)
    assert found.failure_class == expected
    assert found.explanation


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("java.lang.AssertionError", "No space left on device", ("test", "assertion")),
        ("org.junit.ComparisonFailure", "expected: Connection reset by peer", ("test", "assertion")),
        ("ValueError", "No space left on device", ("test", "program-error")),
        ("java.io.IOException", "No space left on device", ("infrastructure", "disk-full")),
        ("", "No space left on device", ("infrastructure", "disk-full")),
    ],
)
def test_a_type_that_a_report_gives_apart_counts(kind: str, message: str, expected: tuple[str, str]) -> None:
    found = classify(Outcome.FAILED, "", message, kind=kind)
    assert (found.failure_class, found.rule) == expected


HEAD = "Traceback (most recent call last):\n  File 'train.py', line 3\n"
NOISE = (
    "[W socket.cpp:460] No space left on device, Connection reset by peer\nSegmentation fault (core dumped)\n"
)


@pytest.mark.parametrize(
    ("child", "expected"),
    [
        (f"{HEAD}RuntimeError: shapes do not match\n", ("test", "rank-failed")),
        (f"{HEAD}AssertionError: 1 != 2\n", ("test", "assertion")),
        (f"{HEAD}KeyError: 'x'\n", ("test", "program-error")),
        (f"{HEAD}OSError: [Errno 28] No space left on device\n", ("infrastructure", "disk-full")),
        ("", ("infrastructure", "disk-full")),
    ],
)
@pytest.mark.parametrize("mark", ["", "E       "])
def test_an_exception_in_what_a_child_wrote_outweighs_the_noise_around_it(
    child: str, expected: tuple[str, str], mark: str
) -> None:
    text = f"RuntimeError: train.py failed and wrote:\n{child}{NOISE}"
    message = "\n".join(mark + line for line in text.split("\n"))
    found = classify(Outcome.FAILED, "call", message)
    assert (found.failure_class, found.rule) == expected


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.is_failure])
def test_what_did_not_fail_has_no_class(outcome: Outcome) -> None:
    assert classify(outcome, "setup", "Segmentation fault") == Classification(failure_class=FailureClass.NONE)


def test_the_first_line_is_short_and_not_blank() -> None:
    assert first_line(" \n\t\n one \n two") == "one"
    assert len(first_line("x" * 10_000)) == 200
    assert first_line("\n" * 10_000) == ""


def test_the_type_attribute_of_a_junit_failure_counts(tmp_path: Path) -> None:
    cases = [
        ("java.lang.AssertionError", "No space left on device"),
        ("java.io.IOException", "No space left on device"),
        ("ValueError", "No space left on device"),
    ]
    body = "".join(
        f"<testcase classname='T' name='t{i}'><failure type='{kind}' message='{message}'/></testcase>"
        for i, (kind, message) in enumerate(cases)
    )
    (tmp_path / "j.xml").write_text(f"<testsuite>{body}</testsuite>")
    assert read_junit(tmp_path / "j.xml").rules == {0: "assertion", 1: "disk-full", 2: "program-error"}
