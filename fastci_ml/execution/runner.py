"""Run a plan with pytest as a child process. Standard library only."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fastci_ml.errors import UsageError
from fastci_ml.execution.finish_mark import judge

_LOG = logging.getLogger(__name__)
# What a shell adds to the number of the signal that ended a program.
_SHELL_SIGNAL_BASE = 128
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def pytest_command(
    plan: Path,
    arguments: Sequence[str],
    *,
    python: str,
    is_shadow: bool,
    junit: Path | None,
    finished: Path | None = None,
) -> list[str]:
    """Command line that runs a plan.

    Parameters
    ----------
    plan : Path
        The plan; pytest reads it, and runs everything where it cannot.
    arguments : sequence of str
        Arguments of pytest; they stand last, so that a user's option wins over ours.
    python : str
        Interpreter with pytest and this package.
    is_shadow : bool
        Run everything, and only report what the plan would have left out.
    junit : Path or None
        Where to write JUnit XML.
    finished : Path, optional
        Where pytest says that its session came to its end.

    Returns
    -------
    list of str
        Program and arguments.
    """
    command = [python, "-m", "pytest"]
    # By name, so that it is loaded where PYTEST_DISABLE_PLUGIN_AUTOLOAD is set, and not twice elsewhere. One
    # word with `=`: before plugins are loaded pytest would take the bare path for one to collect from.
    command += ["-p", "fastci", f"--fastci-plan={plan.absolute()}"]
    if is_shadow:
        command.append("--fastci-shadow")
    if junit is not None:
        command.append(f"--junitxml={junit.absolute()}")
    if finished is not None:
        command.append(f"--fastci-finished={finished.absolute()}")
    return [*command, *arguments]


def run_plan(
    plan: Path,
    arguments: Sequence[str],
    *,
    python: str = sys.executable,
    is_shadow: bool = False,
    junit: Path | None = None,
    folder: Path | None = None,
    tell: Callable[[str], None] = _LOG.error,
) -> int:
    """Run a plan with pytest, on the same stdin, stdout and stderr.

    Parameters
    ----------
    plan, arguments, python, is_shadow, junit
        As in `pytest_command`.
    folder : Path, optional
        Where to run; the current folder by default.
    tell : callable
        Takes a line for the user where the exit code is not that of the process.

    Returns
    -------
    int
        The exit code of pytest; ``128 + n`` where signal n ended it, as a shell says it; another than 0 where
        the process ended with 0 before its tests had.

    Raises
    ------
    UsageError
        If the interpreter cannot be started, or there is no room for a temporary file.
    """
    with _temporary_folder() as temporary:
        finished = temporary / "finished"
        command = pytest_command(
            plan, arguments, python=python, is_shadow=is_shadow, junit=junit, finished=finished
        )
        try:
            child = subprocess.Popen(command, cwd=folder)
        except OSError as error:
            raise UsageError(
                f"{python}: cannot be started: {error}", hint="fastci-ml run --python EXE"
            ) from error
        with forwarding_signals(child):
            code = child.wait()
        if code == 0:
            code, message = judge(finished, arguments)
            if message:
                tell(message)
    return shell_code(code)


def shell_code(code: int) -> int:
    """Exit code of a child as a shell says it: ``128 + n`` where signal n ended it."""
    return code if code >= 0 else _SHELL_SIGNAL_BASE - code


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="fastci-run-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(
            f"no temporary folder: {error}", hint="set TMPDIR to a folder that can be written"
        ) from error
    with folder as name:
        yield Path(name)


@contextmanager
def forwarding_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals that end a program on to the child, which has its own way to end."""

    def forward(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches the whole foreground group. A second one would cut off the teardown of pytest.
        if number != signal.SIGINT or not _is_foreground():
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_foreground() -> bool:
    """Whether a terminal sends its signals to this process, and so to the child too."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
