"""Write data/README.md, the card of the recorded history, with figures counted from the recording itself."""

from __future__ import annotations

import argparse
import json
import os
import platform
import string
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from fastci_ml.replay.demo import FAST_TESTS

DATA = Path(__file__).resolve().parent
RUNS = DATA / "selfhistory" / "runs"

TEXT = """# Data

Everything here was recorded by this project's own runs; nothing is copied from elsewhere.

## selfhistory/
The history that `make demo` learns from: this project's fast tests, run for real at the project's own commits
and at commits with one seeded fault each (`fastci_ml/replay/faults.py`). Tests: $tests.

| | |
|---|---|
| runs | $n_runs: $n_plain commits as they are, $n_faults with a seeded fault |
| runs with a failing test | $n_red, of them $n_red_faults with a seeded fault |
| tests | $n_names different ones, $n_cases results, $n_failed of them failures |
| faults by kind | $kinds |
| recorded | $first to $last UTC |
| machine | $machine |
| newest commit | $newest |
| size | $size |

Each run is a folder `runs/<NNN>/`, in the order in which the runs happened:
- `junit.xml`: pytest's report (`junit_family=xunit1`) without captured output. Paths and names of the machine
  are replaced by words such as `TMP`; failure texts are cut short.
- `run.json` (`fastci.run/1`): run, lane, base, head, real start and end, the files of the change with counted
  lines, and the fault (file, operator, line, text before and after) or null. The head of a faulty run is a
  commit that exists in the recording only.

What to know before reading figures into it:
- Durations come from a machine that did other work at the same time.
- The suite grew while the project grew, so early runs have fewer tests, and some commits of a project this
  young fail for reasons that a mature one does not have.
- Seeded faults are small. One that no test notices is a run that passed, and stays in. One after which pytest
  left no report (it hung) was replaced by the next.

To rebuild it (same commits and faults, other times), remove `data/selfhistory/` and run:

    .venv/bin/python data/record_selfhistory.py $arguments --minutes 120
    .venv/bin/python data/selfhistory_card.py $arguments
"""


def main() -> int:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", required=True, help="as given to record_selfhistory.py")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    arguments = f"--until {args.until} --runs {args.runs} --seed {args.seed}"
    (DATA / "README.md").write_text(card(arguments), encoding="utf-8")
    return 0


def card(arguments: str) -> str:
    """Text of the card for a recording that was made with these arguments."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(RUNS.glob("*/run.json"))]
    names: set[tuple[str, str]] = set()
    n_cases = n_failed = 0
    is_red = []
    for path in sorted(RUNS.glob("*/junit.xml")):
        cases = list(ET.parse(path).iter("testcase"))
        failed = [case for case in cases if {"failure", "error"} & {child.tag for child in case}]
        names |= {(case.get("classname", ""), case.get("name", "")) for case in cases}
        n_cases += len(cases)
        n_failed += len(failed)
        is_red.append(bool(failed))
    kinds = Counter(run["fault"]["operator"] for run in runs if run["fault"])
    newest = runs[-1]
    size = sum(path.stat().st_size for path in RUNS.rglob("*") if path.is_file())
    machine = f"{os.cpu_count()} CPU cores, {platform.system()} {platform.machine()}"
    return string.Template(TEXT).substitute(
        tests=", ".join(f"`{name}`" for name in FAST_TESTS),
        n_runs=len(runs),
        n_plain=len(runs) - kinds.total(),
        n_faults=kinds.total(),
        n_red=sum(is_red),
        n_red_faults=sum(red for red, run in zip(is_red, runs, strict=True) if run["fault"]),
        n_names=f"{len(names):,}",
        n_cases=f"{n_cases:,}",
        n_failed=f"{n_failed:,}",
        kinds=", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())),
        first=runs[0]["started_at"][:16],
        last=newest["finished_at"][:16],
        machine=f"{machine}, CPython {platform.python_version()}, no GPU",
        newest=newest["base"] if newest["fault"] else newest["head"],
        size=f"{size / 1e6:.1f} MB",
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
