"""A sign that a pytest session came to its end: an exit code of 0 alone does not say so.

A test that calls ``os._exit(0)``, or native code that calls ``exit(0)``, ends pytest with code 0 while tests
have not run. `runner` names a file on pytest's command line, which neither workers nor pytest runs inside of
tests take for theirs, and trusts a 0 only where the file says it too. Standard library and pytest only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

_CUT = "cut"


class FinishMark:
    """Writes the file of one session.

    Parameters
    ----------
    path : Path
        Which.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()
        self._was_cut = False

    def pytest_keyboard_interrupt(self) -> None:
        """Take note that the session was cut short: ``pytest.exit`` may give any exit code, also 0."""
        self._was_cut = True

    # First: suites whose threads or drivers hang at the end leave by `os._exit` in a hook of their own, when
    # every test has had its say.
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write what the tests came to, before other hooks may change it or leave."""
        self.write(int(exitstatus))

    def write(self, code: int) -> None:
        """Write the exit code; a file that cannot be written is a session that cannot be trusted."""
        if os.getpid() != self._process:
            return  # a fork that a test let go on: the session is not its own
        self._path.write_text(_CUT if self._was_cut and code == 0 else str(code), encoding="ascii")


def judge(path: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code of a run whose process ended with 0, and why if it is another.

    Parameters
    ----------
    path : Path
        The file that was named.
    arguments : sequence of str
        What the user gave to pytest.

    Returns
    -------
    code : int
        0 only if the session ended with 0 of its own accord.
    message : str
        One line; empty for 0.
    """
    # pytest prints its version before it loads any plugin.
    if arguments.count("--version") + arguments.count("-V") == 1:
        return 0, ""
    try:
        word = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        word = ""
    if word == "0":
        return 0, ""
    if word == _CUT:
        return 1, "pytest was told to leave with exit code 0 before all tests had run: this run failed"
    if word.lstrip("-").isdecimal():
        # What a shell sees of a code is its lowest byte, which may be 0.
        code = int(word) & 0xFF or 1
        return code, f"the tests ended with code {word}, and the process with 0: this run failed"
    return 1, (
        "pytest ended with exit code 0 and its session did not come to its end: something ended the process "
        "(os._exit, exit() in native code), and tests have not run: this run failed"
    )
