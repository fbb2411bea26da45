"""Break the trainer in one place, and see that a test notices: ``python tools/mutate.py [WORD ...]``.

Every fault of ``mutations.toml`` that has one of the words, or every one, is put into a copy of the package,
and the tests that must notice it are run on that copy. The table of faults and of the tests that killed them
goes to stdout, and with ``--readme`` into the README. Exit code 1 means that a fault survived.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT_S = 600
HEAD = "| module | fault | killed by | with |\n|---|---|---|---|"
# The table stands between these in the README.
START, END = "<!-- faults -->", "<!-- end of faults -->"


@dataclass(frozen=True)
class Mutation:
    """One fault: in `file`, `old` becomes `new`, and one of `tests` must fail."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Put the fault into a copy; the text must be there exactly once."""
        path = root / "minitrain" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SystemExit(
                f"{self.what}: {self.file} holds {text.count(self.old)} times {self.old!r}, expected 1"
            )
        path.write_text(text.replace(self.old, self.new))


def read_mutations() -> list[Mutation]:
    """Read all faults."""
    tables = tomllib.loads((Path(__file__).parent / "mutations.toml").read_text())["mutation"]
    return [Mutation(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def killer(mutation: Mutation) -> tuple[str, str] | None:
    """Return the id of the first test that fails on the fault, and its error; None when it survives."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "minitrain"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", ".*", "runs", "*.egg-info"))
        mutation.apply(copy)
        selected = [f"tests/{test}" for test in mutation.tests]
        found = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *selected],
            cwd=copy, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
    failed = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", found.stdout, re.MULTILINE)
    if found.returncode == 1 and failed:
        # A rank's error stands last, in the message of the error that tells of it.
        errors = re.findall(r"^E +(?:\w+\.)*(\w+(?:Error|Exception))\b", found.stdout, re.MULTILINE)
        return failed[1], errors[-1] if errors else "AssertionError"
    if found.returncode == 0:
        return None
    raise SystemExit(
        f"{mutation.what}: the tests could not run\n{found.stdout[-3000:]}{found.stderr[-3000:]}"
    )


def row_of(mutation: Mutation) -> str:
    """Try one fault, and return its row of the table."""
    found = killer(mutation)
    test, error = (f"`{found[0]}`", found[1]) if found else ("**survived**", "")
    return f"| {Path(mutation.file).stem} | {mutation.what} | {test} | {error} |"


def main() -> int:
    """Try faults, and print what killed them."""
    parser = argparse.ArgumentParser(description="Break the trainer, and see that a test notices.")
    parser.add_argument("words", nargs="*", help="try only faults whose text or file holds one of these")
    parser.add_argument("--readme", action="store_true", help="try all, and put the table into the README")
    options = parser.parse_args()
    if options.readme and options.words:
        parser.error("the README holds all faults: --readme takes no words")
    chosen = [
        mutation
        for mutation in read_mutations()
        if not options.words or any(word in f"{mutation.what} {mutation.file}" for word in options.words)
    ]
    print(HEAD, flush=True)
    rows = []
    for mutation in chosen:
        rows.append(row_of(mutation))
        print(rows[-1], flush=True)
    if options.readme:
        path = ROOT / "README.md"
        before, _, rest = path.read_text().partition(START)
        after = rest.partition(END)[2]
        path.write_text("\n".join([before + START, HEAD, *sorted(rows), END + after]))
    n_survived = sum("**survived**" in row for row in rows)
    print(f"\n{len(chosen)} faults, {n_survived} survived", file=sys.stderr)
    return min(n_survived, 1)


if __name__ == "__main__":
    sys.exit(main())
