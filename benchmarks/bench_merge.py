"""CPU time and memory of merging bundles into the store, for bundles of realistic shape.

A repository of 300 modules with 40 functions each, which import others and call them, and 100 of tests. A
test runs 150 functions, stands on a fixture of its module with 40 more, on a collector and on the session,
and reads two files; each module was imported once, and one in ten keeps something in a global. A bundle holds
1,000 tests. Measured: `merge_bundles` from files to the closed store, in a process of its own each time. The
sources are parsed and stored once in a merge, so the share of a test is told apart from them by two sizes.
Prints JSON lines, the last one the summary.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.records.evidence import Capture, Provenance, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind

N_MODULES, N_FUNCTIONS, N_TEST_MODULES = 300, 40, 100
TESTS_A_BUNDLE = 1_000
UNITS_A_TEST = 150
SIZES = (2_000, 4_000, 8_000)
N_RUNS = 3
STARTED_US = 1_790_000_000_000_000

_MERGE = """
import json, sys, time
from pathlib import Path
from fastci_ml.evidence.merge.merge import merge_bundles
start = time.process_time()
summary = merge_bundles([Path(sys.argv[1])], Path(sys.argv[2]), root=Path(sys.argv[1]))
cpu_s = time.process_time() - start
assert not summary.problems, summary.problems
# Not ru_maxrss: a child inherits its parent's.
status = Path("/proc/self/status").read_text()
peak_mb = int(status.split("VmHWM:")[1].split()[0]) / 1024
counts = {"n_records": summary.n_records, "n_complete": summary.n_complete}
print(json.dumps({"cpu_s": cpu_s, "peak_mb": peak_mb, **counts}))
"""


def module_text(number: int, rng: random.Random) -> str:
    """A module of some 330 lines; a third of its functions call one of the next modules."""
    others = [min(number + step, N_MODULES - 1) for step in (1, 2, 5, 9)]
    lines = [*(f"from pkg import m{other}" for other in others), "", f"LIMIT = {number}", "_LAST = None", ""]
    for function in range(N_FUNCTIONS):
        called = rng.choice(others)
        call = f"m{called}.f{called}_{rng.randrange(N_FUNCTIONS)}(total)" if function % 3 == 0 else "x"
        keep = ["    global _LAST", "    _LAST = x"] if function == 7 and number % 10 == 0 else []
        lines += [
            f"def f{number}_{function}(x, scale={function}):",
            f'    """Function {function}."""',
            *keep,
            "    total = x * scale",
            "    for step in range(LIMIT):",
            "        if step % 3:",
            f"            total += {call}",
            "    return total",
            "",
        ]
    return "\n".join(lines)


def make_sources(rng: random.Random) -> dict[str, bytes]:
    """Contents by path."""
    texts = {f"pkg/m{number}.py": module_text(number, rng) for number in range(N_MODULES)}
    for number in range(N_TEST_MODULES):
        lines = ["import pytest", *(f"from pkg import m{rng.randrange(N_MODULES)}" for _ in range(8)), ""]
        for test in range(TESTS_A_BUNDLE // N_TEST_MODULES * 10):
            lines += [f"def test_{test}(model):", "    assert model", ""]
        lines += ["@pytest.fixture(scope='module')", "def model():", "    return 1", ""]
        texts[f"tests/test_m{number}.py"] = "\n".join(lines)
    return {path: text.encode() for path, text in texts.items()}


def write_bundle(directory: Path, number: int, sources: dict[str, bytes]) -> Path:
    """One worker's bundle: every tenth test of ten of the modules, in turn."""
    rng = random.Random(number)
    provenance = Provenance(
        bundle_id=f"{number:08x}",
        session_id="5e55",
        lane="bench",
        scope="trunk",
        commit="c" * 40,
        tree="d" * 40,
        python="3.11.7",
        backend="monitoring",
        worker=f"gw{number}",
        started_us=STARTED_US + number,
    )
    writer = BundleWriter(directory, provenance)
    files = {}
    for path, content in sources.items():
        writer.sources.put(blob_id(content), content)
        files[path] = writer.add_file(path, blob_id(content))
    data = [writer.add_file(f"data/{item}.json", f"{item:040x}") for item in range(200)]
    modules = {path: writer.add_code(files[path], "<module>", 1) for path in files}
    codes: list[int] = []
    for module in range(N_MODULES):
        path = f"pkg/m{module}.py"
        lines = sources[path].decode().split("\n")
        for line, text in enumerate(lines, 1):
            if text.startswith("def "):
                name = text[4:].partition("(")[0]
                codes.append(writer.add_code(files[path], name, line))
    session = writer.new_capture()
    for path in files:
        capture = Capture(kind=CaptureKind.IMPORT, label=path, codes=frozenset({modules[path]}))
        writer.add_capture(writer.new_capture(), capture)
    for test_module in range(N_TEST_MODULES):
        path = f"tests/test_m{test_module}.py"
        home = rng.randrange(len(codes))
        near = [codes[(home + step) % len(codes)] for step in range(2_000)]
        collector, fixture = writer.new_capture(), writer.new_capture()
        writer.add_capture(
            collector, Capture(kind=CaptureKind.COLLECTOR, label=path, imports=frozenset({files[path]}))
        )
        n_tests = TESTS_A_BUNDLE // N_TEST_MODULES
        first_line = 11
        for place in range(n_tests):
            test = number * n_tests % (n_tests * 10) + place
            capture = writer.new_capture()
            if not place:
                line = first_line + 3 * n_tests * 10
                own = writer.add_code(files[path], "model", line)
                model = Capture(
                    kind=CaptureKind.FIXTURE, label="model", codes=frozenset([own, *rng.sample(near, 40)])
                )
                writer.add_capture(fixture, model)
            own = writer.add_code(files[path], f"test_{test}", first_line + 3 * test)
            writer.add_capture(
                capture,
                Capture(
                    kind=CaptureKind.TEST,
                    label=f"{path}::test_{test}",
                    codes=frozenset([own, *rng.sample(near, UNITS_A_TEST)]),
                    reads=frozenset(rng.sample(data, 2)),
                    uses=frozenset({collector, fixture}),
                ),
            )
            writer.add_run(capture, RunFacts(outcome="passed", started_us=STARTED_US + capture, call_s=0.1))
    writer.add_capture(session, Capture(kind=CaptureKind.SESSION, label="", codes=frozenset(codes[:50])))
    writer.close()
    return writer.path


def merge_once(bundles: Path, folder: Path) -> dict[str, float]:
    """Figures of one merge into a new store."""
    store = folder / "evidence.sqlite"
    store.unlink(missing_ok=True)
    command = [sys.executable, "-c", _MERGE, str(bundles), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    figures["store_mb"] = store.stat().st_size / 1e6
    return figures


def main() -> None:
    cpu_s: dict[int, float] = {}
    bundle_mb: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, float] = {}
        for size in SIZES:
            bundles = folder / str(size)
            sources = make_sources(random.Random(1))
            paths = [write_bundle(bundles, number, sources) for number in range(size // TESTS_A_BUNDLE)]
            bundle_mb[size] = sum(path.stat().st_size for path in paths) / 1e6
            runs = [merge_once(bundles, folder) for _ in range(N_RUNS)]
            figures = runs[0]
            assert figures["n_complete"] == figures["n_records"] == size, figures
            cpu_s[size] = statistics.median(run["cpu_s"] for run in runs)
            line = {
                "n_tests": size,
                "bundle_mb": bundle_mb[size],
                "cpu_s": cpu_s[size],
                "all_cpu_s": sorted(round(run["cpu_s"], 2) for run in runs),
                "peak_mb": max(run["peak_mb"] for run in runs),
                "store_mb": figures["store_mb"],
                "store_bytes_a_pair": figures["store_mb"] * 1e6 / (size * UNITS_A_TEST),
            }
            print(json.dumps(line), flush=True)
    small, large = SIZES[0], SIZES[-1]
    a_test_s = (cpu_s[large] - cpu_s[small]) / (large - small)
    summary = {
        "bench": "merge",
        "measured": "CPU time of merge_bundles, bundles of 1,000 tests with 150 units each, 400 source files",
        "tests_per_s": large / cpu_s[large],
        "mb_per_s": bundle_mb[large] / cpu_s[large],
        # What each further test costs, and what is paid once: sources that are parsed and stored.
        "ms_a_test": a_test_s * 1e3,
        "once_s": cpu_s[small] - a_test_s * small,
        # 1 is linear: time of the largest over the smallest, without what is paid once, by size.
        "slope": (cpu_s[large] - cpu_s[SIZES[1]]) / (cpu_s[SIZES[1]] - cpu_s[small]) / 2,
        "peak_mb": line["peak_mb"],
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
