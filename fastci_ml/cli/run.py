"""Run a plan with pytest: its tests, in its order.

What stands after `--` goes to pytest as it is. The exit code is that of pytest, except that a plan which
leaves out every test on purpose gives 0 (pytest says 5), and that a process which ended with 0 before its
tests had (a test called os._exit(0), say) gives 1.

If plan.json cannot be read, or is for another tree or lane than the one that is checked out here, EVERYTHING
runs, in the usual order, and the output of pytest says so at its top and at its end: a bad plan never hides a
test.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fastci_ml.cli import output
from fastci_ml.execution.runner import run_plan
from fastci_ml.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the plan, the options and what goes to pytest."""
    parser.usage = (
        "fastci-ml run plan.json [--shadow] [--junit FILE] [--python EXE] [--root ROOT] [-v] "
        "[-- <pytest arguments>]"
    )
    parser.add_argument("plan", type=Path, help="the plan, as `fastci-ml rank` wrote it")
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="run everything in the usual order; report what the plan would have left out and missed",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, for `fastci-ml outcome`")
    parser.add_argument(
        "--python", default=sys.executable, metavar="EXE", help="interpreter that has pytest and fastci-ml"
    )
    rest = parser.add_argument(
        "pytest_arguments",
        nargs="+",
        default=[],
        metavar="-- <pytest arguments>",
        help="given to pytest as is",
    )
    # With `*` argparse would match nothing as soon as it has the plan, and refuse what follows an option.
    rest.required = False


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run pytest; its own exit code, but no 0 of a process that ended before its tests had."""
    del settings  # the plugin finds them itself: it also runs where nobody used this command
    return run_plan(
        args.plan,
        args.pytest_arguments,
        python=args.python,
        is_shadow=args.shadow,
        junit=args.junit,
        folder=args.root,
        tell=output.tell,
    )
