"""Size and speed of the evidence store: bytes a (test, unit) pair, writing, and the planner's query.

The evidence is made up, of the shape that runs of real suites have (the figures of the generator are in
`SHAPE`, and what came of them in every line): tests of one file share most of their units, a few core units
are executed by nearly all tests, some by the tests of many files, and each test has a few of its own.
`uniform` is the worst case beside it, 137 units a test drawn at random from all, which no suite looks like.

A query asks for 300 changed units, drawn at random from all, core units as likely as others, and ends with
the ids of the records; opening and closing the store is part of it. Milliseconds are CPU time, the system's
included, because shared machines change speed: the median of many, the least, and beside them the median by
the clock.
`with_numpy` is what `rank` has, which loads numpy anyway; `plain` is the standard library. `named` adds the
tests' names.

Bytes are SQLite's own figures of the pages of the inverted index with the names of its units
(`bytes_per_pair`), of the index alone (`bytes_per_pair_of_lists`), and of the whole file. 10,000 tests are
written as `merge` does it, record by record (`write_s`), and once more as a later run, which supersedes all
(`rewrite_s`); for larger stores the records are sorted into the index before (`index_write_s`). `slope` is
that of the logarithms over those of the pairs, from 10,000 to 1,000,000 tests; 1 is linear.
"""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastci_ml.evidence.store.batch import MergeBatch
from fastci_ml.evidence.store.connection import connect, writing
from fastci_ml.evidence.store.draft import Draft, RecordRow
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.evidence.store.writing import add_batch
from fastci_ml.records.evidence import EvidenceRecord, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind

N_CHANGED, N_REPEATS = 300, 31
UNIFORM_UNITS_A_TEST = 137
SHAPE = {
    "tests_a_file": 50,
    "core_units": 40,
    "core_probability": "0.80 to 0.99",
    "popular_units": 400,
    "popular_file_probability": "0.02 to 0.40, most near the lower",
    "units_of_a_file": 140,
    "modules_of_a_file": 10,
    "probability_within_a_file": "0.5 to 1.0 for each unit",
    "own_units_of_a_test": 5,
}
UNITS_A_MODULE = 20


def realistic(n_tests: int, n_units: int, seed: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Unit and test (from 1) of each pair, ascending by unit, then by test."""
    rng = np.random.default_rng(seed)
    core_probabilities = rng.uniform(0.80, 0.99, 40)
    popular_probabilities = 0.02 + 0.38 * rng.power(0.4, 400)
    n_modules = (n_units - 440) // UNITS_A_MODULE
    units, tests = [], []
    for first in range(0, n_tests, 50):
        n = min(50, n_tests - first)
        popular = 40 + np.flatnonzero(rng.random(400) < popular_probabilities)
        # Neighbouring test files are about neighbouring modules.
        near = (first * n_modules // n_tests + rng.integers(-15, 16, 10)) % n_modules
        own = 440 + near[:, None] * UNITS_A_MODULE + np.arange(UNITS_A_MODULE)
        shared = np.concatenate((popular, np.unique(rng.choice(own.ravel(), 140, replace=False))))
        chosen = np.concatenate((np.arange(40), shared))
        chance = np.concatenate((core_probabilities, rng.uniform(0.5, 1.0, len(shared))))
        test, column = np.nonzero(rng.random((n, len(chosen))) < chance)
        private = rng.integers(440, n_units, n * 5)
        units.append(np.concatenate((chosen[column], private)).astype(np.uint16))
        tests.append(np.concatenate((test, np.repeat(np.arange(n), 5))).astype(np.uint32) + first + 1)
    return grouped(np.concatenate(units), np.concatenate(tests))


def uniform(n_tests: int, n_units: int, seed: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The same for units drawn at random."""
    rng = np.random.default_rng(seed)
    units = rng.integers(0, n_units, n_tests * UNIFORM_UNITS_A_TEST).astype(np.uint16)
    tests = np.repeat(np.arange(1, n_tests + 1, dtype=np.uint32), UNIFORM_UNITS_A_TEST)
    return grouped(units, tests)


def grouped(units: npt.NDArray[Any], tests: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Pairs in order, each once."""
    keys = units.astype(np.uint64) << np.uint64(32) | tests
    del units, tests
    keys.sort()
    keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    return (keys >> np.uint64(32)).astype(np.uint16), keys.astype(np.uint32)


def unit_of(number: int) -> UnitSeen:
    module = number // UNITS_A_MODULE
    return UnitSeen(
        path=f"package/part_{module // 25}/module_{module}.py",
        name=f"Class{number % 4}.method_{number}",
        kind=BlockKind.FUNCTION,
        fingerprint=f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}",
    )


def node_id_of(number: int) -> str:
    file = number // 50
    return f"tests/part_{file // 40:04d}/test_module_{file:05d}.py::TestClass::test_case_{number:07d}"


def records(units: npt.NDArray[Any], tests: npt.NDArray[Any], n_tests: int) -> list[EvidenceRecord]:
    """Records, as `merge` makes them."""
    known = [unit_of(number) for number in range(int(units.max()) + 1)]
    by_test: list[list[UnitSeen]] = [[] for _ in range(n_tests)]
    for unit, test in zip(units.tolist(), tests.tolist(), strict=True):
        by_test[test - 1].append(known[unit])
    return [
        EvidenceRecord(
            node_id=node_id_of(number),
            lane="lane",
            scope="trunk",
            commit="c" * 40,
            recorded_us=1_700_000_000_000_000 + number,
            backend="monitoring",
            units=frozenset(seen),
            reads=frozenset(),
            listings=frozenset(),
            roots=frozenset({node_id_of(number).partition("::")[0]}),
            environ=frozenset(),
            native_readers=(),
            gaps=(),
            facts=RunFacts(outcome="passed", started_us=1_700_000_000_000_000 + number, call_s=0.25),
        )
        for number, seen in enumerate(by_test)
    ]


def draft(units: npt.NDArray[Any], tests: npt.NDArray[Any], n_tests: int) -> Draft:
    """The same records as an index already; units are in order."""
    rows = [
        RecordRow(
            node_id=node_id_of(number),
            commit="c" * 40,
            recorded_us=1_700_000_000_000_000 + number,
            backend="monitoring",
            environ=frozenset(),
            native_readers=(),
            gaps=(),
            facts=RunFacts(outcome="passed", started_us=1_700_000_000_000_000 + number, call_s=0.25),
        )
        for number in range(n_tests)
    ]
    ends = np.flatnonzero(np.diff(units, append=-1)) + 1
    lists: dict[UnitSeen, array[int]] = {}
    first = 0
    for end in ends.tolist():
        lists[unit_of(int(units[first]))] = array("I", tests[first:end].tobytes())
        first = end
    roots: dict[str, array[int]] = {}
    for number, row in enumerate(rows, 1):
        roots.setdefault(row.node_id.partition("::")[0], array("I")).append(number)
    return Draft(rows=rows, units=lists, roots=roots)


def write_draft(path: Path, made: Draft) -> float:
    """CPU seconds of writing a segment whose index is made."""
    connection = connect(path, create=True, read_only=False)
    start_s = time.process_time()
    with writing(connection):
        add_batch(connection, MergeBatch(bundles=(), records=(), merged_us=0), {("lane", "trunk"): made})
    seconds = time.process_time() - start_s
    connection.close()
    return seconds


def write_records(path: Path, made: list[EvidenceRecord]) -> dict[str, float]:
    """CPU seconds of writing records, and of writing them again as a later run's."""
    found = {}
    for name, later_us in (("write_s", 0), ("rewrite_s", 1)):
        again = [replace(one, recorded_us=one.recorded_us + later_us) for one in made]
        start_s = time.process_time()
        with EvidenceStore.open(path, create=True) as store:
            store.write(MergeBatch(bundles=(), records=again, merged_us=0))
        found[name] = time.process_time() - start_s
    return found


def sizes(path: Path, n_pairs: int) -> dict[str, float]:
    """Bytes of the pages of the index with the names of its units, and of the file."""
    connection = sqlite3.connect(path)
    pages = dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"))
    connection.close()
    return {
        "bytes_per_pair": (pages["posting"] + pages["unit_version"]) / n_pairs,
        "bytes_per_pair_of_lists": pages["posting"] / n_pairs,
        "bytes_per_pair_of_file": path.stat().st_size / n_pairs,
        "file_bytes": path.stat().st_size,
    }


def query_ms(path: Path, n_units: int, *, names: bool = False) -> dict[str, float]:
    """Milliseconds of a query, and how many records it found."""
    rng = random.Random(3)
    cpu_ms, clock_ms, found = [], [], []
    for _ in range(N_REPEATS):
        changes = {
            (unit.path, unit.name): {"0" * 16} for unit in map(unit_of, rng.sample(range(n_units), N_CHANGED))
        }
        start_s, cpu_start_s = time.perf_counter(), time.process_time()
        with EvidenceStore.open(path, read_only=True) as store, store.snapshot():
            touched = store.affected(changes, lane="lane", scopes=["trunk"]).record_ids()
            if names:
                store.node_ids(touched)
        cpu_ms.append((time.process_time() - cpu_start_s) * 1e3)
        clock_ms.append((time.perf_counter() - start_s) * 1e3)
        found.append(len(touched))
    return {
        "query_ms": statistics.median(cpu_ms),
        "least_ms": min(cpu_ms),
        "clock_ms": statistics.median(clock_ms),
        "n_found": statistics.median(found),
    }


def queries(path: Path, n_units: int) -> dict[str, dict[str, float]]:
    """Figures of queries with numpy and without."""
    found = {"with_numpy": query_ms(path, n_units)}
    loaded = sys.modules.pop("numpy")
    try:
        # The store looks for a loaded numpy, and finds none now.
        found["plain"] = query_ms(path, n_units)
    finally:
        sys.modules["numpy"] = loaded
    return found


def measure(folder: Path, shape: str, n_tests: int, n_units: int) -> dict[str, Any]:
    """One line of figures."""
    path = folder / f"{shape}-{n_tests}.sqlite"
    units, tests = (realistic if shape == "realistic" else uniform)(n_tests, n_units)
    n_pairs = len(units)
    row: dict[str, Any] = {"case": shape, "n_tests": n_tests, "n_units": n_units, "n_pairs": n_pairs}
    row["units_a_test"] = n_pairs / n_tests
    if n_tests <= 10_000:
        row |= write_records(folder / "by-record.sqlite", records(units, tests, n_tests))
        (folder / "by-record.sqlite").unlink()
    made = draft(units, tests, n_tests)
    del units, tests
    row["index_write_s"] = write_draft(path, made)
    del made
    row |= sizes(path, n_pairs)
    row |= queries(path, n_units)
    if n_tests <= 10_000:
        row["named"] = query_ms(path, n_units, names=True)
    path.unlink()
    return row


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = {}
        for shape, n_tests, n_units in (
            ("realistic", 10_000, 20_000),
            ("realistic", 100_000, 30_000),
            ("realistic", 1_000_000, 50_000),
            ("uniform", 10_000, 20_000),
        ):
            row = rows[shape, n_tests] = measure(Path(folder), shape, n_tests, n_units)
            print(json.dumps(row), flush=True)
    small, large, worst = rows["realistic", 10_000], rows["realistic", 1_000_000], rows["uniform", 10_000]
    steps = [rows["realistic", n] for n in (10_000, 100_000, 1_000_000)]
    pairs = np.log([row["n_pairs"] for row in steps])
    slopes = {
        "write": np.polyfit(pairs, np.log([row["index_write_s"] for row in steps]), 1)[0],
        "query": np.polyfit(pairs, np.log([row["with_numpy"]["query_ms"] for row in steps]), 1)[0],
    }
    summary = {
        "bytes_per_pair": small["bytes_per_pair"],
        "bytes_per_pair_1m": large["bytes_per_pair"],
        "bytes_per_pair_uniform": worst["bytes_per_pair"],
        "bytes_per_pair_uniform_of_lists": worst["bytes_per_pair_of_lists"],
        "query_ms_10k": small["with_numpy"]["query_ms"],
        "query_ms_10k_plain": small["plain"]["query_ms"],
        "query_ms_1m": large["with_numpy"]["query_ms"],
        "query_ms_1m_plain": large["plain"]["query_ms"],
        "query_ms_uniform": worst["with_numpy"]["query_ms"],
        "write_s_10k": small["write_s"],
        "slope": slopes,
    }
    data = "made up, realistic shape; uniform is the worst case, drawn at random"
    print(json.dumps({"benchmark": "store", **summary, "data": data, "shape": SHAPE}))


if __name__ == "__main__":
    main()
