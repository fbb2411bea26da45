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
    for number, (text, words) in enumerate(steps, start=1):
        answer(f"\n# {number}/{len(steps)} {text}")
        answer(f"$ fastci-ml {shlex.join(words)}")
        sys.stdout.flush()
        # -P: the program is the installed one; the folder that it starts in holds a copy with a fault.
        command = [sys.executable, "-P", "-m", "fastci_ml", *words]
        code = subprocess.run(command, cwd=demo.root, check=False).returncode
        if code and not (words[0] == "run" and code == _TESTS_FAILED):
            return code
    return 0


def _steps(demo: DemoRepository, checkout: Path) -> list[tuple[str, list[str]]]:
    """What each step is for, and its command."""
    from fastci_ml.replay.demo import ARGUMENTS_FILE, SELF_HISTORY

    fault = demo.fault
    return [
        ("Read the recorded runs of this project's own tests.", ["ingest", str(checkout / SELF_HISTORY)]),
        ("What is in the history now?", ["status"]),
        ("Learn which tests fail on which changes; log and register the model.", ["train"]),
        (
            "Plan for a change that has just come in: which tests first, and why.\n"
            f"#     {demo.path}:{fault.line} said {fault.before}\n"
            f"#     {demo.path}:{fault.line} says {fault.after}",
            ["rank", "--base", demo.base[:12], "--head", demo.head[:12]],
        ),
        (
            "Run the plan. Tests fail, as they should: the question is how soon.",
            ["run", "plan.json", "--junit", "junit.xml", "--", f"@{ARGUMENTS_FILE}"],
        ),
        (
            "Log what the run showed on the model version that ranked it.",
            ["outcome", "plan.json", "junit.xml"],
        ),
        ("Which versions are there, and how did they do?", ["models"]),
        ("How would other policies have ordered the recorded runs?", ["replay", "--prediction"]),
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
