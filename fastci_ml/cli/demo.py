"""The whole job on this project's own recorded history, step by step.

Runs in a checkout of fastci-ml. Each step prints the command that you would type and its answer: ingest the
recorded runs, train and register a model, plan for a change with a mistake in it, run the plan, log the
outcome, and replay the policies over the history. Everything happens in a folder of its own.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.cli.output import answer, tell
from fastci_ml.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastci_ml.replay.demo import DemoRepository
    from fastci_ml.settings import Settings

_TESTS_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in this new folder and leave it (default: a temporary one)",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Walk through the steps; the exit code of the first that does not do its job."""
    from fastci_ml.replay.demo import make_repository

    with _folder(args.keep) as folder:
        tell(f"demo: works in {folder}")
        demo = make_repository(settings.root, folder / "repo")
        code = _walk(demo, settings.root)
    if code:
        tell(f"demo: the last command ended with exit code {code}, so the demo stops here")
    return code


def _walk(demo: DemoRepository, checkout: Path) -> int:
    """Exit code of the first step that does not do its job, else 0."""
    steps = _steps(demo, checkout)
    for number, step in enumerate(steps, start=1):
        into = f" > {step.into}" if step.into else ""
        answer(f"\n# {number}/{len(steps)} {step.text}")
        answer(f"$ {step.program} {shlex.join(step.words)}{into}")
        sys.stdout.flush()
        code = _run_step(step, demo.root)
        if code and not (step.words[0] == "run" and code == _TESTS_FAILED):
            return code
    return 0


def _run_step(step: _Step, folder: Path) -> int:
    # -P: the program is the installed one; the folder that it starts in holds a copy with a fault, which is
    # what pytest has to import.
    program = ["-m", "pytest"] if step.program == "pytest" else ["-P", "-m", "fastci_ml"]
    command = [sys.executable, *program, *step.words]
    if not step.into:
        return subprocess.run(command, cwd=folder, check=False).returncode
    with (folder / step.into).open("wb") as file:
        return subprocess.run(command, cwd=folder, check=False, stdout=file).returncode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One command of the demo: what it is for, its words, and the file that its output goes into."""

    text: str
    program: str = "fastci-ml"
    words: list[str]
    into: str = ""


def _steps(demo: DemoRepository, checkout: Path) -> list[_Step]:
    from fastci_ml.replay.demo import ARGUMENTS_FILE, SELF_HISTORY

    fault, tests = demo.fault, f"@{ARGUMENTS_FILE}"
    base, head = demo.base[:12], demo.head[:12]
    return [
        _Step(
            text="Read the recorded runs of this project's own tests.",
            words=["ingest", str(checkout / SELF_HISTORY)],
        ),
        _Step(text="What is in the history now?", words=["status"]),
        _Step(text="Learn which tests fail on which changes; log and register the model.", words=["train"]),
        _Step(
            text="A change has come in. Which tests are there?\n"
            f"#     {demo.path}:{fault.line} said {fault.before}\n"
            f"#     {demo.path}:{fault.line} says {fault.after}",
            program="pytest",
            words=["--collect-only", tests],
            into="collected.txt",
        ),
        _Step(
            text="Plan for the change: which tests first, and why.",
            words=["rank", "--base", base, "--head", head, "--collected", "collected.txt"],
        ),
        _Step(
            text="Run the plan. Tests fail, as they should: the question is how soon.",
            words=["run", "plan.json", "--junit", "junit.xml", "--", tests],
        ),
        _Step(
            text="Log what the run showed on the model version that ranked it.",
            words=["outcome", "plan.json", "junit.xml"],
        ),
        _Step(text="Which versions are there, and how did they do?", words=["models"]),
        _Step(
            text="How would other policies have ordered the recorded runs?", words=["replay", "--prediction"]
        ),
    ]


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="fastci-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise UsageError(f"{keep}: is not empty, expected a new folder", hint="fastci-ml demo --keep DIR")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()
