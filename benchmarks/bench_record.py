"""What recording costs: CPU time of whole suites recorded, against the same suites plain, beside two peers.

    python benchmarks/bench_record.py [--pairs 15] [--peer-pairs N] [--python X]
                                      [--torch-suite DIR [PATH OPTION ...]]

CPU time is user and system time of the process and its children, as the kernel counts it. Each round runs a
suite plain and with each tool, from scratch, in an order that changes from round to round; a round gives
one ratio a tool. Printed are their median and a bound of it: 95% of bootstrap samples of the rounds have a
smaller median. The run fails when a test's outcome differs between plain and recorded, or when the bundle
is not complete.

`ratio_torch` is minitrain trained in one process, unless `--torch-suite` names another; `ratio_python` is
networkx's `classes`, `utils`, `convert` and `relabel`: what a small library with plain data structures is
like. Code that does little else than call its own small functions pays more: `generators` with `readwrite`,
and some of `algorithms`, are printed too, with fewer rounds.

`child_ms` is what recording adds to a child that does next to nothing, `ratio_children` is of a suite that
starts 500: workers of data loaders, ranks, programs. Both need the start-up hook installed for it.

JSON lines, the last is the summary. `--resume FILE` keeps what was measured, and goes on from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from record.arms import ARMS, COVERAGE, OURS, PLAIN, TESTMON, Run, has_module, run_arm, tell
from record.children import N_CHILDREN, cost_of_child, suite_of_children
from record.suites import Suite, checkout, installed, minitrain

_PACKAGE = Path(__file__).resolve().parents[1] / "fastci_ml"
_TOOLS = {OURS: "fastci_ml", COVERAGE: "pytest_cov", TESTMON: "testmon"}
# `test_special` repeats the tests of the others on subclasses.
_PYTHON_PARTS = (
    "classes",
    "utils",
    "tests/test_convert.py",
    "tests/test_relabel.py",
    "--ignore=networkx/classes/tests/test_special.py",
)
_HEAVIER = {
    "networkx-generators-readwrite": ("generators", "readwrite"),
    "networkx-algorithms": (
        "algorithms/centrality",
        "algorithms/coloring",
        "algorithms/community",
        "algorithms/shortest_paths",
        "algorithms/traversal",
        "algorithms/tree",
    ),
}
_N_SAMPLES = 10_000


class Notebook:
    """Measured runs, kept in a file if one is given.

    Parameters
    ----------
    path : Path or None
        File of JSON lines; what it holds of the same code, interpreter and suite is not measured again.
    python : Path
        Interpreter.
    """

    def __init__(self, path: Path | None, python: Path) -> None:
        self._path = path
        self._python = str(python)
        self._digest = _digest_of_recorder()
        self._runs: dict[tuple[str, ...], Run] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self._runs[tuple(entry["key"])] = Run(**entry["run"])

    def _key(self, suite: Suite, arm: str, turn: int) -> tuple[str, ...]:
        return (self._python, self._digest, suite.name, " ".join(suite.options), arm, str(turn))

    def get(self, suite: Suite, arm: str, turn: int) -> Run | None:
        """A run that was measured before."""
        return self._runs.get(self._key(suite, arm, turn))

    def put(self, suite: Suite, arm: str, turn: int, run: Run) -> None:
        """Keep a run."""
        key = self._key(suite, arm, turn)
        self._runs[key] = run
        if self._path is not None:
            fields = {name: getattr(run, name) for name in Run.__slots__ if name != "output"}
            with self._path.open("a") as stream:
                stream.write(json.dumps({"key": key, "run": fields | {"output": ""}}) + "\n")


def _digest_of_recorder() -> str:
    digest = hashlib.sha256()
    for folder in ("evidence/recorder", "evidence/bundle", "execution"):
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def measure_round(
    suite: Suite, arms: Sequence[str], turn: int, python: Path, folder: Path, notebook: Notebook
) -> dict[str, Run]:
    """One run of each arm; each has every place in the order equally often."""
    runs = {}
    shift = turn % len(arms)
    for arm in (*arms[shift:], *arms[:shift]):
        run = notebook.get(suite, arm, turn)
        if run is None:
            run = run_arm(suite, arm, python, folder)
            notebook.put(suite, arm, turn, run)
        tell(f"{suite.name} round {turn + 1}, {arm}: {run.cpu_s:.2f} s")
        runs[arm] = run
    _check_outcomes(suite, runs)
    return runs


def _check_outcomes(suite: Suite, runs: dict[str, Run]) -> None:
    """Leave when recording changed an outcome; a peer that does so is told of."""
    plain = runs[PLAIN]
    if not plain.outcomes or plain.code not in (0, 1):
        raise SystemExit(f"{suite.name}: the plain run ended with {plain.code}:\n{plain.output}")
    for arm, run in runs.items():
        both = plain.outcomes.keys() | run.outcomes.keys()
        differing = sorted(n for n in both if plain.outcomes.get(n) != run.outcomes.get(n))
        if differing:
            text = f"{suite.name}: {len(differing)} outcomes differ with {arm}, such as {differing[0]}: "
            text += f"{plain.outcomes.get(differing[0])} plain, {run.outcomes.get(differing[0])} with it"
            if arm == OURS:
                raise SystemExit(text)
            tell(text)


def ratios(rounds: Sequence[dict[str, Run]], arm: str) -> list[float]:
    """CPU time of each recorded run over that of the plain run of its round, where the tool ran in it."""
    return [runs[arm].cpu_s / runs[PLAIN].cpu_s for runs in rounds if arm in runs]


def upper_bound(values: Sequence[float], seed: int = 0) -> float:
    """What 95% of the medians of bootstrap samples do not exceed."""
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(_N_SAMPLES))
    return medians[int(0.95 * _N_SAMPLES)]


def line_of(suite: Suite, rounds: Sequence[dict[str, Run]]) -> dict[str, object]:
    """What was measured of one suite."""
    line: dict[str, object] = {
        "bench": "record",
        "what": "suite",
        "suite": suite.name,
        "options": list(suite.options),
        "n_tests": sum("call:" in words for words in rounds[0][PLAIN].outcomes.values()),
        "pairs": len(rounds),
        "plain_cpu_s": statistics.median(runs[PLAIN].cpu_s for runs in rounds),
    }
    for arm in rounds[0]:
        if arm == PLAIN:
            continue
        found = ratios(rounds, arm)
        line |= {
            f"{arm}_ratio": statistics.median(found),
            f"{arm}_upper": upper_bound(found),
            f"{arm}_pairs": len(found),
            f"{arm}_ratios": [round(value, 4) for value in found],
        }
    added = rounds[0][OURS].added
    return line | {name: value for name, value in added.items() if name != "dynamo"}


def summary_of(torch: dict[str, Any], python: dict[str, Any], children: dict[str, Any]) -> dict[str, object]:
    """The last line."""
    line: dict[str, object] = {"bench": "record", "what": "summary", "backend": torch["backend"]}
    for kind, found in (("torch", torch), ("python", python)):
        line[f"suite_{kind}"] = found["suite"]
        line[f"n_tests_{kind}"] = found["n_tests"]
        for arm, prefix in ((OURS, ""), (COVERAGE, "coverage_"), (TESTMON, "testmon_")):
            line[f"{prefix}ratio_{kind}"] = found.get(f"{arm}_ratio")
            line[f"{prefix}upper_{kind}"] = found.get(f"{arm}_upper")
    line["pairs"] = min(torch["pairs"], python["pairs"])
    line["peer_pairs"] = min(
        found.get(f"{arm}_pairs", 0) for found in (torch, python) for arm in (COVERAGE, TESTMON)
    )
    line["python"] = torch["python"]
    line["child_ms"] = children["child_ms"]
    line["ratio_children"] = children[f"{OURS}_ratio"]
    line["upper_children"] = children[f"{OURS}_upper"]
    line["n_children"] = children["n_children"]
    line["pairs_children"] = children["pairs"]
    return line


def parse(words: Iterable[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="CPU time of recorded suites against plain ones")
    parser.add_argument("--pairs", type=int, default=15, help="rounds of each suite (default: %(default)s)")
    parser.add_argument(
        "--heavier-pairs", type=int, default=3, help="rounds of the heavier suites (default: %(default)s)"
    )
    parser.add_argument(
        "--children-pairs", type=int, default=3, help="rounds of the suite of children (default: %(default)s)"
    )
    parser.add_argument(
        "--peer-pairs", type=int, help="rounds in which the peers run, too (default: all of each suite)"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter of the runs")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep measured runs, and use those kept")
    parser.add_argument(
        "--only", choices=("torch", "python", "heavier", "children"), help="one kind, without a summary"
    )
    parser.add_argument(
        "--arms", default=",".join(ARMS), help="what to compare, by commas (default: %(default)s)"
    )
    parser.add_argument(
        "--torch-suite",
        nargs=argparse.REMAINDER,
        metavar="DIR",
        help="folder of a project that uses torch, and what pytest is given there; last on the line",
    )
    return parser.parse_args(words if words is None else list(words))


def _arms(names: str, python: Path) -> list[str]:
    arms = [PLAIN]
    for arm in names.split(","):
        if arm != PLAIN and has_module(python, _TOOLS[arm]):
            arms.append(arm)
        elif arm != PLAIN:
            tell(f"{arm}: {_TOOLS[arm]} is not installed for {python}, left out")
    if OURS not in arms:
        raise SystemExit(f"{python}: fastci_ml is not installed there")
    return arms


def _plans(given: argparse.Namespace, python: Path, folder: Path) -> list[tuple[str, Suite, int]]:
    """What to measure: kind, suite, number of rounds."""
    plans = []
    if given.only in (None, "torch"):
        if given.torch_suite:
            source, *options = given.torch_suite
            plans.append(("torch", checkout(folder, Path(source).resolve(), options), given.pairs))
        else:
            plans.append(("torch", minitrain(folder), given.pairs))
    if given.only in (None, "python"):
        plans.append(("python", installed(folder, "networkx", python, _PYTHON_PARTS), given.pairs))
    if given.only in (None, "children"):
        plans.append(("children", suite_of_children(folder), given.children_pairs))
    if given.only in (None, "heavier"):
        for name, parts in _HEAVIER.items():
            suite = installed(folder, "networkx", python, parts, name)
            plans.append((name, suite, given.heavier_pairs))
    return plans


def main() -> None:
    given = parse()
    # Not resolved: the interpreter of a virtual environment is a link that must be called by its name.
    python = Path(os.path.abspath(given.python))  # noqa: PTH100
    arms = _arms(given.arms, python)
    notebook = Notebook(given.resume, python)
    with tempfile.TemporaryDirectory(prefix="bench-record-") as name:
        folder = Path(name)
        plans = _plans(given, python, folder)
        rounds: dict[str, list[dict[str, Run]]] = {kind: [] for kind, _, _ in plans}
        # The first round fills the caches of byte code, and is not counted.
        for turn in range(-1, max(n_pairs for _, _, n_pairs in plans)):
            for kind, suite, n_pairs in plans:
                if turn < n_pairs:
                    peers_run = given.peer_pairs is None or 0 <= turn < given.peer_pairs
                    is_ours_alone = not peers_run or kind == "children"
                    tools = [arm for arm in arms if arm in (PLAIN, OURS)] if is_ours_alone else arms
                    runs = measure_round(suite, tools, turn, python, folder / "run", notebook)
                    if turn >= 0:
                        rounds[kind].append(runs)
    lines = {kind: line_of(suite, rounds[kind]) for kind, suite, _ in plans if rounds[kind]}
    if "children" in lines:
        lines["children"] |= {"n_children": N_CHILDREN, "child_ms": cost_of_child(python)}
    for line in lines.values():
        print(json.dumps(line), flush=True)
    if given.only is None:
        print(json.dumps(summary_of(lines["torch"], lines["python"], lines["children"])))


if __name__ == "__main__":
    main()
