"""Running tests plain and recorded, with what must be the same of both."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHANGING = (
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\bin \d+\.\d+s( \(\d+:\d\d:\d\d\))?"), "in some time"),
    (re.compile(r"pytest-\d+\b"), "pytest-N"),
    (re.compile(r"\b\d+\.\d+s (call|setup|teardown)"), r"some \1"),
    # Our lines of the header.
    (re.compile(r"^fastci: (recording by|GPU readings) .*\n", re.MULTILINE), ""),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run showed to the world.

    Attributes
    ----------
    status : int
        Exit code; negative for a signal.
    output : str
        Standard output and error, without what changes from run to run.
    tests : dict of str to (str, str)
        By id: outcome, and what the test printed with its failure.
    """

    status: int
    output: str
    tests: dict[str, tuple[str, str]]


def run(
    root: Path,
    arguments: Sequence[str],
    *,
    is_recorded: bool,
    python: str | None = None,
    path: Sequence[Path] = (),
    program: Sequence[str] = ("-m", "pytest"),
    prepare: Callable[[], None] | None = None,
    close_stdin: bool = False,
    **environ: str,
) -> Seen:
    """Run pytest once.

    Parameters
    ----------
    root : Path
        Working directory, a repository.
    arguments : sequence of str
        For pytest.
    is_recorded : bool
        Whether to record, into ``.fastci/bundles``.
    python : str, optional
        Interpreter; this one by default. Another one has no entry points of ours, so the plugin is named.
    path : sequence of Path
        Of PYTHONPATH.
    program : sequence of str
        What the interpreter runs.
    prepare : callable, optional
        Called in the new process.
    close_stdin : bool
        Whether it has no standard input at all.
    **environ : str
        More variables.
    """
    report = root.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = [python or sys.executable, *program, "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += ["-o", "junit_logging=all", *arguments]
    if python:
        command += ["-p", "fastci_ml.execution.plugin"]
    if is_recorded:
        command.append("--fastci-record")
    if close_stdin:
        command = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    ours = ("PYTEST_", "CI", "GITHUB_", "FASTCI_", "COV", "PYTHON")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        command,
        cwd=root,
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            **environ,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=600,
        preexec_fn=functools.partial(_prepare, prepare),
    )
    return Seen(status=done.returncode, output=steady(done.stdout), tests=_tests(report))


def _prepare(prepare: Callable[[], None] | None) -> None:
    # What is started in the background ignores it, and hands that down.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if prepare is not None:
        prepare()


def steady(text: str) -> str:
    """Text without what changes from run to run: addresses, times, our line of the header."""
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return text


def _tests(report: Path) -> dict[str, tuple[str, str]]:
    if not report.exists():
        return {}
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        words = [child.tag for child in case if child.tag not in ("system-out", "system-err", "properties")]
        text = "\n".join(child.text or "" for child in case)
        found[name] = (" ".join(words) or "passed", steady(text))
    return found
