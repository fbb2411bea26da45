"""CPU time of reading JUnit XML, against a bare expat handler that fills columns; memory of a whole ingest.

Measured for us: from a path to a checked Arrow table of EXECUTIONS (`read_junit`, node ids mapped, attempts
counted, failures classified, `executions_table`, `check_table`). Measured for the peer: expat, one handler
that appends class name, name, time as a float and status to four lists. Pairs alternate; the ratio is the
median of the pairs' ratios. Prints JSON lines, the last one the summary.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from xml.parsers import expat

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import check_table
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reports import changes_table, executions_table, runs_table

SIZES = (50_000, 100_000, 200_000)
N_PAIRS = 15


def write_report(path: Path, n_cases: int) -> None:
    """Cases in modules of 100 with five classes each, 1% failures with a message and a traceback."""
    rng = random.Random(n_cases)
    with path.open("w", encoding="utf-8") as file:
        file.write(
            f'<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" '
            f'tests="{n_cases}" time="100.0" timestamp="2026-11-30T10:00:00.000000+00:00" hostname="ci">'
        )
        for case in range(n_cases):
            module = f"tests.unit_{case // 4000}.test_module_{case // 100}.TestThing{case // 20 % 5}"
            name = f"test_case_{case % 20}[param{case % 7}-{case % 3}]"
            head = f'<testcase classname="{module}" name="{name}" time="{rng.random():.3f}"'
            if case % 100 == 7:
                trace = f"def test_case():\n&gt;   assert value == {case}\nE   AssertionError: {case}\n" * 5
                file.write(
                    f'{head}><failure message="AssertionError: assert {case} == 3&#10;  where it is">'
                    f"{trace}</failure></testcase>"
                )
            else:
                file.write(f"{head} />")
        file.write("</testsuite></testsuites>")


def read_bare(path: Path) -> int:
    """The peer: what an expat user writes first."""
    classnames: list[str] = []
    names: list[str] = []
    times_s: list[float] = []
    statuses: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            classnames.append(attributes["classname"])
            names.append(attributes["name"])
            times_s.append(float(attributes["time"]))
            statuses.append("passed")
        elif tag in ("failure", "error", "skipped"):
            statuses[-1] = tag

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    with path.open("rb") as file:
        parser.ParseFile(file)
    return len(names)


def read_ours(path: Path) -> int:
    table = executions_table(read_junit(path), run_id="r", job="", shard="", lane="bench")
    return int(check_table(EXECUTIONS, table).num_rows)


def read_and_write(path: Path) -> int:
    table = executions_table(read_junit(path), run_id="r", job="", shard="", lane="bench")
    run = runs_table([{"run_id": "r", "started_at": 1, "finished_at": 2}])
    with tempfile.TemporaryDirectory() as folder:
        HistoryStore(Path(folder)).append_tables(table, run, changes_table("r", ()), digest="0" * 64)
    return int(table.num_rows)


def cpu_s(work: Callable[[Path], int], path: Path, expected: int) -> float:
    gc.collect()
    start = time.process_time()
    assert work(path) == expected
    return time.process_time() - start


def peak_mb(path: Path) -> dict[str, float]:
    """Peak resident memory of a process that ingests the file, and of one that only imports the readers."""
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from fastci_ml.sources.history.store import HistoryStore\n"
        "from fastci_ml.sources.ingest.ingest import IngestOptions, ingest_paths\n"
        "import pandas\n"  # pyarrow imports it on the first conversion
        "if sys.argv[1]:\n"
        "    store = HistoryStore(Path(sys.argv[2]))\n"
        "    report = ingest_paths(store, [Path(sys.argv[1])], IngestOptions(lane='b'))\n"
        "    assert report.n_runs == 1, report\n"
        # Not ru_maxrss: a child inherits its parent's.
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) / 1024)\n"
    )
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, argument in (("whole", str(path)), ("imports", "")):
            done = subprocess.run(
                [sys.executable, "-c", program, argument, folder], capture_output=True, text=True, check=True
            )
            found[name] = float(done.stdout)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        medians: dict[int, float] = {}
        ratios: list[float] = []
        for n_cases in SIZES:
            path = Path(folder, f"{n_cases}.xml")
            write_report(path, n_cases)
            cpu_s(read_ours, path, n_cases), cpu_s(read_bare, path, n_cases)  # warm: imports, file cache
            pairs = [
                (cpu_s(read_ours, path, n_cases), cpu_s(read_bare, path, n_cases)) for _ in range(N_PAIRS)
            ]
            ratios = [ours / bare for ours, bare in pairs]
            medians[n_cases] = statistics.median(ours for ours, _ in pairs)
            line = {
                "n_cases": n_cases,
                "file_mb": path.stat().st_size / 1e6,
                "ours_cpu_s": medians[n_cases],
                "expat_cpu_s": statistics.median(bare for _, bare in pairs),
                "ratio_to_expat": statistics.median(ratios),
                "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
            }
            print(json.dumps(line), flush=True)
        largest = SIZES[-1]
        bare_s = [cpu_s(read_bare, path, largest) for _ in range(3)]
        written_s = [cpu_s(read_and_write, path, largest) for _ in range(3)]
        memory = peak_mb(path)
        summary = {
            "bench": "ingest",
            "measured": "file path to checked EXECUTIONS table, CPU time; peak of a process that ingests",
            "ratio_to_expat": statistics.median(ratios),
            "peak_mb": memory["whole"],
            "peak_mb_imports_only": memory["imports"],
            "ratio_with_parquet_write": statistics.median(written_s) / statistics.median(bare_s),
            "cases_per_s": largest / medians[largest],
            # 1 is linear: time of the largest over the smallest, by size.
            "growth_slope": medians[largest] / medians[SIZES[0]] / (largest / SIZES[0]),
        }
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
