"""Run pytest with recording on: which functions, files and fixtures each test touches.

What stands after `--` is run as it is, and its exit code is returned: recording changes neither. The command
has to run pytest (`pytest ...`, `python -m pytest ...`, `uv run pytest ...`); others cannot be recorded yet.

  fastci-ml record --merge -- pytest -n 4 tests
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options and the command."""
    parser.usage = "fastci-ml record [--bundles DIR] [--lane NAME] [--merge] [--root ROOT] [-v] -- <command>"
    parser.add_argument(
        "--bundles", type=Path, metavar="DIR", help="folder for what is recorded (default: .fastci/bundles)"
    )
    parser.add_argument(
        "--lane", metavar="NAME", help="name of this environment, in place of the detected one"
    )
    parser.add_argument(
        "--merge", action="store_true", help="merge what was recorded into the evidence store afterwards"
    )
    command = parser.add_argument(
        "command", nargs="+", default=[], metavar="-- <command>", help="what to run, with its arguments"
    )
    # As in `run`: with `*` argparse would refuse what follows an option. Without a command we say more.
    command.required = False


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run the command; its own exit code."""
    from fastci_ml.cli import output
    from fastci_ml.errors import UsageError
    from fastci_ml.execution.recorded_command import run_recorded

    if args.lane is not None and settings.lane is not None and args.lane != settings.lane:
        raise UsageError(
            f"--lane {args.lane!r}, but the settings of {settings.root} say {settings.lane!r}",
            hint="take the lane out of the settings, or leave --lane away",
        )
    bundles_dir = args.bundles or settings.bundles_dir
    recorded = run_recorded(args.command, bundles_dir, lane=args.lane, folder=args.root)
    if not recorded.bundles:
        output.tell(
            f"fastci-ml: nothing was recorded to {bundles_dir}: did pytest load the plugin? fastci-ml doctor"
        )
    elif args.merge:
        _merge(recorded.bundles, settings)
    else:
        output.tell(f"fastci-ml: recorded to {bundles_dir}; to use it: fastci-ml merge")
    return recorded.code


def _merge(bundles: tuple[Path, ...], settings: Settings) -> None:
    """Merge; whatever goes wrong is said, and the exit code stays that of the tests."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError
    from fastci_ml.evidence.merge.merge import merge_bundles
    from fastci_ml.sources.projects import repository_top

    try:
        summary = merge_bundles(bundles, settings.evidence_db, root=repository_top(settings.root))
    except EvidenceError as error:
        output.tell(f"fastci-ml: not merged: {error}")
        return
    for problem in summary.problems:
        output.tell(f"fastci-ml: not merged: {problem}")
    output.tell(
        f"fastci-ml: {summary.n_merged} merged: {summary.n_records:,} tests recorded, {summary.n_complete:,} "
        f"of them complete: {settings.evidence_db}"
    )
