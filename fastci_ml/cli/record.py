"""Run pytest with recording on: which functions, files and fixtures each test touches.

What stands after `--` is run as it is, and its exit code is returned: recording changes neither. Either the
command runs pytest (`pytest ...`, `python -m pytest ...`, `uv run pytest ...`), or it is one test by itself,
with the name that --id gives it.

  fastci-ml record --merge -- pytest -n 4 tests
  fastci-ml record --merge --id smoke/two-ranks -- torchrun --nproc-per-node 2 train.py

With FASTCI_EVIDENCE_KEY in the environment the bundles are sealed: a merge with the same key believes what
they say of whose code ran. The command does not get the key.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastci_ml.evidence.seal_key import SealKey
    from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options and the command."""
    parser.usage = (
        "fastci-ml record [--id ID] [--bundles DIR] [--lane NAME] [--merge] [--root ROOT] [-v] -- <command>"
    )
    parser.add_argument(
        "--id",
        metavar="ID",
        help="the command is one test of this name, and its processes record themselves",
    )
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
    from fastci_ml.evidence.seal_key import take_key
    from fastci_ml.execution.command_case import record_case
    from fastci_ml.execution.recorded_command import run_recorded

    if args.lane is not None and settings.lane is not None and args.lane != settings.lane:
        raise UsageError(
            f"--lane {args.lane!r}, but the settings of {settings.root} say {settings.lane!r}",
            hint="take the lane out of the settings, or leave --lane away",
        )
    bundles_dir = args.bundles or settings.bundles_dir
    key = take_key(os.environ, is_hidden=True)
    if args.id is None:
        recorded = run_recorded(args.command, bundles_dir, lane=args.lane, folder=args.root)
    else:
        recorded = record_case(args.id, args.command, settings, bundles_dir, lane=args.lane, folder=args.root)
    if recorded.n_living:
        output.tell(
            f"fastci-ml: {recorded.n_living} processes of it live on, and what they touch is not complete"
        )
    if key is not None and recorded.bundles:
        _seal(recorded.bundles, bundles_dir, key)
    if not recorded.bundles:
        output.tell(
            f"fastci-ml: nothing was recorded to {bundles_dir}: did pytest load the plugin? fastci-ml doctor"
        )
    elif args.merge:
        _merge(recorded.bundles, settings, key)
    else:
        output.tell(f"fastci-ml: recorded to {bundles_dir}; to use it: fastci-ml merge")
    return recorded.code


def _seal(bundles: tuple[Path, ...], folder: Path, key: SealKey) -> None:
    """Seal; whatever goes wrong is said, and the exit code stays that of the tests."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError
    from fastci_ml.evidence.seal_key import VARIABLE
    from fastci_ml.evidence.seals import seal_bundles
    from fastci_ml.sources.scope import detect_pull_request

    if key.is_empty:
        output.tell(f"fastci-ml: not sealed: {VARIABLE} is empty")
        return
    scope = detect_pull_request(os.environ)
    if scope is not None:
        # Its tests may have written anything among the bundles.
        output.tell(f"fastci-ml: not sealed: this is the code of a pull request ({scope})")
        return
    try:
        seal_bundles(bundles, folder, key)
    except EvidenceError as error:
        output.tell(f"fastci-ml: not sealed: {error}")


def _merge(bundles: tuple[Path, ...], settings: Settings, key: SealKey | None) -> None:
    """Merge; whatever goes wrong is said, and the exit code stays that of the tests."""
    from fastci_ml.cli import output
    from fastci_ml.errors import EvidenceError
    from fastci_ml.evidence.merge.merge import merge_bundles
    from fastci_ml.evidence.merge.trust import read_trust
    from fastci_ml.sources.projects import repository_top

    try:
        trust, problems = read_trust(bundles, key=key)
        summary = merge_bundles(
            bundles, settings.evidence_db, root=repository_top(settings.root), trust=trust
        )
    except EvidenceError as error:
        output.tell(f"fastci-ml: not merged: {error}")
        return
    for problem in (*problems, *summary.problems):
        output.tell(f"fastci-ml: not merged: {problem}")
    output.tell(
        f"fastci-ml: {summary.n_merged} merged: {summary.n_records:,} tests recorded, {summary.n_complete:,} "
        f"of them complete: {settings.evidence_db}"
    )
    if summary.n_processes:
        output.tell(
            f"fastci-ml: with {summary.n_processes:,} processes that they started; recording took "
            f"{1e3 * summary.recorder_s / summary.n_processes:.0f} ms of CPU in each"
        )
