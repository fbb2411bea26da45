"""A failure's own words are told from what it quotes, whatever the text is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.sources.failures.texts import (
    TEXT_LIMIT,
    assertion_in,
    bounded,
    exit_statuses,
    launcher_list,
    own_words,
    program_error_in,
)

RECORDINGS = Path(__file__).parent / "rank_recordings"


def test_source_that_pytest_quotes_is_not_the_failures_own() -> None:
    body = (
        "    def test_full():\n"
        ">       with pytest.raises(OSError, match='No space left on device'):\n"
        "E       RuntimeError: worker 3 is gone\n"
        "\nt.py:3: RuntimeError"
    )
    assert own_words(body) == "RuntimeError: worker 3 is gone"


def test_frames_of_tracebacks_are_left_out_and_every_exception_of_a_chain_stays() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n    raise OSError("x")\n'
        "OSError: x\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 2\n    assert "ValueError: quoted"\n'
        "RuntimeError: y\nsecond line"
    )
    assert own_words(text).split() == ["OSError:", "x", "RuntimeError:", "y", "second", "line"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[rank3]: ValueError: x", "ValueError: x"),
        ("[default0]:[rank0]: ValueError: x", "ValueError: x"),
        ("2026-01-02T03:04:05.1234567Z \x1b[31mValueError: x\x1b[0m", "ValueError: x"),
    ],
)
def test_prefixes_of_launchers_and_logs_are_left_out(line: str, words: str) -> None:
    assert own_words(line) == words


@pytest.mark.parametrize(
    "words",
    [
        "AssertionError: no",
        "torch.testing._internal.common.MyAssertionError: no",
        "assert 1 == 2",
        "Failed: DID NOT RAISE <class 'OSError'>",
        "Failed: the log says: Segmentation fault (core dumped)",
        "org.opentest4j.AssertionFailedError: expected 1",
        "python: ops.cpp:12: void f(int): Assertion `x > 0' failed.",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: the worker said\n  | AssertionError: 1 != 2",
    ],
)
def test_assertions_are_seen(words: str) -> None:
    assert assertion_in(words)


@pytest.mark.parametrize(
    "words", ["Failed: Timeout (>3.0s) from pytest-timeout.", "OSError: assert me", "asserting"]
)
def test_other_words_are_no_assertion(words: str) -> None:
    assert not assertion_in(words)


def test_errors_of_the_program_are_told_from_those_of_the_world() -> None:
    assert program_error_in("builtins.KeyError: 'x'")
    assert program_error_in("IndexError")
    assert not program_error_in("OSError: KeyError: 'x'")
    assert not program_error_in("MyValueErrorLike: x")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("died with <Signals.SIGSEGV: 11>.", {-11}),
        ("process 1 terminated with signal SIGKILL", {-9}),
        ("returned non-zero exit status 139.", {-11}),
        ("exitcode  : -6 (pid: 5)", {-6}),
        ("Signal 9 (SIGKILL) received by PID 4", {-9}),
        ("terminated with exit code 3", {3}),
        ("terminated with signal SIGNONSENSE", set()),
        ("code 9000", set()),
    ],
)
def test_exit_statuses_are_read(words: str, expected: set[int]) -> None:
    assert exit_statuses(words) == expected


def test_the_list_of_a_real_launcher_is_read_with_its_tracebacks() -> None:
    text = (RECORDINGS / "disk" / "launcher.log").read_text()
    found = launcher_list(text)
    assert found.is_whole
    assert [(e.name, e.status) for e in found.entries] == [("rank 0", -15), ("rank 1", 1)]
    assert found.entries[1].messages == ("OSError: [Errno 28] No space left on device",)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9])
def test_a_list_that_was_cut_off_says_so(share: float) -> None:
    text = (RECORDINGS / "disk" / "launcher.log").read_text()
    assert not launcher_list(text[: int(share * len(text))]).is_whole


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    words = own_words(text)
    assertion_in(words), program_error_in(words), exit_statuses(words), launcher_list(text)


@given(st.text(max_size=50), st.integers(2, 20))
def test_a_bounded_text_keeps_both_ends(text: str, limit: int) -> None:
    short = bounded(text, limit)
    assert len(short) <= max(limit + 1, 0)
    assert short == text or (text.startswith(short[: limit // 2]) and text.endswith(short[-(limit // 2) :]))


def test_the_end_of_a_long_text_counts() -> None:
    assert assertion_in(own_words("x\n" * TEXT_LIMIT + "AssertionError: at the end"))
