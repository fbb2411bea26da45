"""CPU time of reading JUnit XML, against a bare expat handler that fills columns; memory of a whole ingest.

Measured for us: from a path to a checked Arrow table of EXECUTIONS (`read_junit`, node ids mapped, attempts
counted, failures classified, `executions_table`, `check_table`). Measured for the peer: expat, one handler
that appends class name, name, time as a float and status to four lists. Pairs alternate; the ratio is the
median of the pairs' ratios. Peaks are resident memory of a process that ingests the largest report, and of
those that read 200 MB in 16 bodies: JUnit, the same with something to repair, a report log; beside one that
reads bodies of 1 kB. Prints JSON lines, the last one the summary.
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
from functools import partial
from pathlib import Path
from xml.parsers import expat

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.tables import check_table
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reports import changes_table, executions_table, runs_table

SIZES = (50_000, 100_000, 200_000)
N_PAIRS = 15
BODY_BYTES = 12_500_000


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


def write_bodies(path: Path, *, n_bytes: int = BODY_BYTES, hurt: bytes = b"") -> None:
    """A report that consists of 16 large bodies: outputs of lines and in one line, texts of failures."""
    line = b"[2026-11-30 10:00:00] step 100: loss 2.3456, 1.2e5 tokens/s, lr 3e-4\n"
    with path.open("wb") as file:
        file.write(b"<testsuites><testsuite name='pytest' tests='16'>")
        for case in range(16):
            tag = (b"system-out", b"system-err", b"failure", b"error")[case % 4]
            file.write(b"<testcase classname='tests.test_a' name='test_%d' time='1.0'><%s>" % (case, tag))
            file.write(hurt)
            words = line.replace(b"\n", b" ") if case % 4 == 1 else line
            file.writelines([words] * (n_bytes // len(words)))
            file.write(b"</%s></testcase>" % tag)
        file.write(b"</testsuite></testsuites>")


def write_log_lines(path: Path) -> None:
    """A report log that consists of 16 large lines: long texts and long tracebacks in turn."""
    start = '{"outcome": "failed", "when": "call", "duration": 1.0, "$report_type": "TestReport", "nodeid": '
    words, entry = "loss 2.3456, 1.2e5 tokens/s\\n", '"line of a traceback", '
    with path.open("w", encoding="utf-8") as file:
        for case in range(16):
            file.write(f'{start}"tests/test_a.py::test_{case}", "longrepr": ')
            if case % 2:
                file.writelines(['"', *[words] * (BODY_BYTES // len(words)), '"}\n'])
            else:
                entries = [entry] * (BODY_BYTES // len(entry))
                file.writelines(['{"reprtraceback": [', *entries, '0], "reprcrash": null}}\n'])
        file.write('{"exitstatus": 1, "$report_type": "SessionFinish"}\n')


def peak_mb(program: str, *arguments: str) -> float:
    """Peak resident memory of a Python process."""
    # Not ru_maxrss: a child inherits its parent's.
    program += (
        "\nfrom pathlib import Path\nstatus = Path('/proc/self/status').read_text()\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) / 1024)\n"
    )
    command = [sys.executable, "-c", program, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def peaks_mb(path: Path) -> dict[str, float]:
    """Peaks of processes that only import the readers, ingest a report of many cases, read huge ones."""
    imports = (
        "import sys\nfrom pathlib import Path\nfrom fastci_ml.sources.history.store import HistoryStore\n"
        "from fastci_ml.sources.ingest.ingest import IngestOptions, ingest_paths\n"
        "import pandas\n"  # pyarrow imports it on the first conversion
    )
    ingest = (
        "store, options = HistoryStore(Path(sys.argv[2])), IngestOptions(lane='b')\n"
        "assert ingest_paths(store, [Path(sys.argv[1])], options).n_runs == 1"
    )
    reader = "import sys\nfrom pathlib import Path\nfrom fastci_ml.sources.%s import %s as read\n"
    rows = "assert len(read(Path(sys.argv[1]))) == 16"
    junit, log = reader % ("junit.reader", "read_junit"), reader % ("reportlog", "read_reportlog")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "peak_mb": peak_mb(imports + ingest, str(path), str(Path(folder, "history"))),
            "peak_mb_imports_only": peak_mb(imports),
        }
        huge = Path(folder, "huge")
        for name, program, write in (
            ("peak_mb_small_bodies", junit, partial(write_bodies, n_bytes=1_000)),
            ("peak_mb_200_mb_of_bodies", junit, write_bodies),
            ("peak_mb_200_mb_repaired", junit, partial(write_bodies, hurt=b"\x1b[0m a & b")),
            ("peak_mb_200_mb_log", log, write_log_lines),
        ):
            write(huge)
            found[name] = peak_mb(program + rows, str(huge))
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
        memory = peaks_mb(path)
        summary = {
            "bench": "ingest",
            "measured": "file path to checked EXECUTIONS table, CPU time; peak of a process that ingests",
            "ratio_to_expat": statistics.median(ratios),
            **memory,
            "ratio_with_parquet_write": statistics.median(written_s) / statistics.median(bare_s),
            "cases_per_s": largest / medians[largest],
            # 1 is linear: time of the largest over the smallest, by size.
            "growth_slope": medians[largest] / medians[SIZES[0]] / (largest / SIZES[0]),
        }
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
