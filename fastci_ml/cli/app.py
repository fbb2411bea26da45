"""The command line: find the command, load it alone, turn errors into one line and an exit code.

A command is a module of this package, named as the command, with `add_arguments(parser)` and
`run(args, settings) -> int`. Only the chosen one is imported, so ``--help`` stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from typing import TYPE_CHECKING

from fastci_ml.errors import FastCIError, UsageError

if TYPE_CHECKING:
    # Whatever `--help` does not need is imported where it is used: 80 ms of CPU is its budget.
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = {
    "doctor": "is everything in place: interpreter, packages, plugin, evidence, history, git",
    "record": "run pytest with recording on: what each test touches",
    "merge": "merge what was recorded into the evidence store; import data of other tools",
    "ingest": "read CI logs, test reports and tables into the history",
    "status": "what the history and the evidence hold: runs, tests, failure classes, gaps",
    "failures": "why tests failed: by class, with the rule that gave it; try the rules on a text",
    "history": "compact or prune the history store",
    "train": "train the risk model on the history and register it",
    "rank": "the CI pre-step: write plan.json for a change",
    "explain": "what a test was seen to touch, and why that may not be all",
    "run": "run a plan with pytest",
    "outcome": "append what a plan's run showed to the history and to the model version",
    "gpu": "what can be read of the GPUs here, and why not",
    "models": "list registered model versions, promote one, send spooled outcomes",
    "replay": "replay policies over recorded history and print one table",
    "demo": "the whole job on this project's own recorded history",
}
_BUG_EXIT_CODE = 70
_INTERRUPTED_EXIT_CODE = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; ``sys.argv`` by default.

    Returns
    -------
    int
        0 done, 1 the answer is no, 2 usage or settings, 3 data unusable, 4 git, GPU or registry failed, 70
        our bug; `run` returns the tests' own code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _answer(words)
    except FastCIError as error:
        _tell_traceback(words)
        _tell(f"fastci-ml: {error}")
        if error.hint:
            _tell(f"  hint: {error.hint}")
        return error.exit_code
    except BrokenPipeError:
        # The reader of our stdout went away (`| head`): nothing is wrong here.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        _tell("fastci-ml: interrupted")
        return _INTERRUPTED_EXIT_CODE
    except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS: one line, the traceback on -v
        _tell_traceback(words)
        _tell(f"fastci-ml: bug: {type(error).__name__}: {error}")
        _tell("  hint: repeat with -v for the traceback, and report it")
        return _BUG_EXIT_CODE


def _answer(words: list[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A test id may hold what the terminal cannot show: escaped is better than no answer.
        sys.stdout.reconfigure(errors="backslashreplace")
    name, rest = _split(words)
    code = _run(importlib.import_module(f"fastci_ml.cli.{name}"), name, rest) if name else 0
    if sys.stdout is not None:
        # A short answer still waits in the buffer: a reader that went away must show here, not at exit.
        sys.stdout.flush()
    return code


def _run(module: ModuleType, name: str, words: list[str]) -> int:
    import logging
    from pathlib import Path

    from fastci_ml.settings import find_root, load_settings

    parser = argparse.ArgumentParser(
        prog=f"fastci-ml {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--root", type=Path, help="target repository (default: found from here upwards)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show log messages and tracebacks")
    module.add_arguments(parser)
    args = parser.parse_args(words)
    level = logging.DEBUG if args.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    settings = load_settings(args.root or find_root(Path.cwd()))
    return int(module.run(args, settings))


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")


def _tell_traceback(words: list[str]) -> None:
    if "-v" in words or "--verbose" in words:
        import traceback

        traceback.print_exc()


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """Name of the command and its own arguments; prints help and gives None where there is none."""
    parser = argparse.ArgumentParser(
        prog="fastci-ml",
        description="Cheap CI for LLM training frameworks that lets no failure through.",
        epilog="commands:\n" + "\n".join(f"  {name:<9} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fastci-ml [--version] <command> [options]",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    if not words or words[0] in ("-h", "--help"):
        parser.print_help()
        return None, []
    if words[0] == "--version":
        from importlib.metadata import version

        sys.stdout.write(f"fastci-ml {version('fastci-ml')}\n")
        return None, []
    name = words[0]
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `fastci-ml {near[0]}`?" if near else "fastci-ml --help"
        raise UsageError(f"unknown command {name!r}", hint=hint)
    return name, words[1:]
