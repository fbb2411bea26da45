"""Whether public suites end the same, test by test, when they are recorded.

    python benchmarks/record_no_change.py [--package "NAME PART ..."] [--folder "DIR OPTION ..."] [--python X]

A package is one that is installed together with its tests; a folder is any project. Each is copied into a
repository of its own and run plain, then recorded; where it is green with warnings as errors it is run so
recorded too. Prints a JSON line a suite, the last a summary. Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

from record.arms import OURS, PLAIN, Run, run_arm, tell
from record.suites import Suite, checkout, installed, minitrain

_PACKAGES = (
    "networkx classes utils readwrite",
    "sympy core/tests/test_basic.py core/tests/test_args.py logic sets",
)


def compare(suite: Suite, python: Path, folder: Path) -> dict[str, object]:
    """Run one suite both ways."""
    line: dict[str, object] = {"bench": "record_no_change", "what": "suite", "suite": suite.name}
    line |= {"options": list(suite.options)}
    plain, recorded = _pair(suite, python, folder, ())
    differing = _differing(plain, recorded)
    line |= {
        "tests": len(plain.outcomes),
        "differences": len(differing),
        "differing": differing[:10],
        "exit_codes": [plain.code, recorded.code],
        "added_graph_breaks": _graph_breaks(recorded) - _graph_breaks(plain),
        "backend": recorded.added["backend"],
    }
    strict, strict_recorded = _pair(suite, python, folder, ("-W", "error"))
    strictly = _differing(strict, strict_recorded)
    line |= {
        "strict_is_green": strict.code == 0,
        "strict_differences": len(strictly),
        "strict_differing": strictly[:10],
    }
    return line


def _pair(suite: Suite, python: Path, folder: Path, extra: tuple[str, ...]) -> tuple[Run, Run]:
    runs = []
    for arm in (PLAIN, OURS):
        run = run_arm(suite, arm, python, folder, extra)
        tell(f"{suite.name} {' '.join(extra)} {arm}: {len(run.outcomes)} tests, exit code {run.code}")
        runs.append(run)
    return runs[0], runs[1]


def _differing(plain: Run, recorded: Run) -> list[str]:
    names = plain.outcomes.keys() | recorded.outcomes.keys()
    found = [
        f"{name}: {plain.outcomes.get(name)} plain, {recorded.outcomes.get(name)} recorded"
        for name in sorted(names)
        if plain.outcomes.get(name) != recorded.outcomes.get(name)
    ]
    if plain.code != recorded.code:
        found.append(f"exit code {plain.code} plain, {recorded.code} recorded")
    return found


def _graph_breaks(run: Run) -> int:
    counted = run.added["dynamo"]
    assert isinstance(counted, dict)
    return sum(counted.get("graph_break", {}).values())


def main() -> None:
    parser = argparse.ArgumentParser(description="outcomes of public suites, plain and recorded")
    parser.add_argument("--package", action="append", default=[], help="name of a package, and parts of it")
    parser.add_argument(
        "--folder", action="append", default=[], help="folder of a project, and options for pytest"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter of the runs")
    given = parser.parse_args()
    python = Path(os.path.abspath(given.python))  # noqa: PTH100  a link that must be called by its name
    is_default = not given.package and not given.folder
    lines = []
    with tempfile.TemporaryDirectory(prefix="record-no-change-") as name:
        folder = Path(name)
        suites = [minitrain(folder)] if is_default else []
        suites.extend(
            installed(folder, words[0], python, words[1:])
            for words in map(shlex.split, _PACKAGES if is_default else given.package)
        )
        suites.extend(
            checkout(folder, Path(words[0]).resolve(), words[1:]) for words in map(shlex.split, given.folder)
        )
        for suite in suites:
            lines.append(compare(suite, python, folder / "run"))
            print(json.dumps(lines[-1]), flush=True)
    summary = {
        "bench": "record_no_change",
        "what": "summary",
        "suites": len(lines),
        **{
            key: sum(int(line[key]) for line in lines)  # type: ignore[call-overload]
            for key in ("tests", "differences", "strict_differences", "added_graph_breaks")
        },
    }
    print(json.dumps(summary))
    if summary["differences"] or summary["strict_differences"] or summary["added_graph_breaks"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
