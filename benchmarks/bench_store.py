"""Size and speed of the evidence store: bytes a (test, unit) pair, writing, and the planner's query.

The evidence is made up, of the shape that runs of real suites have (the figures of the generator are in
`SHAPE`, and what came of it in every line): tests of one file share most of their units, a few core units are
executed by nearly all tests, some by the tests of many files, and each test has a few of its own. `uniform` is
the worst case beside it, 137 units a test drawn at random from all, which no suite looks like.

A query asks for 300 changed units, drawn at random from all, core units as likely as others, and ends with the ids
of the tests; opening and closing the store is part of it. Each figure is a median; beside it stands the least
one, because shared machines change speed. `with_numpy` is what `rank` has, which loads numpy anyway; `plain`
is the standard library. `named` adds the tests' names. Bytes are SQLite's own figures of the pages of the index
and of the names of its units (`index`), and of the whole file. Small sizes are written as `merge` does, record by
record; for the larger ones the records are already sorted into the index (`index_write_s`).
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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastci_ml.evidence.store.batch import MergeBatch
from fastci_ml.evidence.store.connection import connect, writing
from fastci_ml.evidence.store.draft import Draft, RecordRow
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.evidence.store.writing import add_batch
from fastci_ml.records.evidence import BlockKind, EvidenceRecord, RunFacts, UnitSeen

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
    return grouped(np.concatenate(units), np.concatenate(tests), n_tests)


def uniform(n_tests: int, n_units: int, seed: int = 5) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The same for units drawn at random."""
    rng = np.random.default_rng(seed)
    units = rng.integers(0, n_units, n_tests * UNIFORM_UNITS_A_TEST).astype(np.uint16)
    tests = np.repeat(np.arange(1, n_tests + 1, dtype=np.uint32), UNIFORM_UNITS_A_TEST)
    return grouped(units, tests, n_tests)


def grouped(
    units: npt.NDArray[Any], tests: npt.NDArray[Any], n_tests: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
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
    """Seconds of writing a segment whose index is made."""
    connection = connect(path, create=True, read_only=False)
    start_s = time.perf_counter()
    with writing(connection):
        add_batch(connection, MergeBatch(bundles=(), records=(), merged_us=0), {("lane", "trunk"): made})
    seconds = time.perf_counter() - start_s
    connection.close()
    return seconds


def sizes(path: Path) -> dict[str, int]:
    """Bytes of the pages of the index with the names of its units, and of the file."""
    connection = sqlite3.connect(path)
    index = "SELECT sum(pgsize) FROM dbstat WHERE name IN ('posting', 'unit_version')"
    (n_bytes,) = connection.execute(index).fetchone()
    connection.close()
    return {"index_bytes": n_bytes, "file_bytes": path.stat().st_size}


def query_ms(path: Path, n_units: int, *, names: bool = False) -> dict[str, float]:
    """Median and least milliseconds of a query, and how many tests it found."""
    rng = random.Random(3)
    times, found = [], []
    for _ in range(N_REPEATS):
        changes = {
            (unit.path, unit.name): {"0" * 16} for unit in map(unit_of, rng.sample(range(n_units), N_CHANGED))
        }
        start_s = time.perf_counter()
        with EvidenceStore.open(path, read_only=True) as store, store.snapshot():
            touched = store.affected(changes, lane="lane", scopes=["trunk"]).record_ids()
            if names:
                store.node_ids(touched)
        times.append((time.perf_counter() - start_s) * 1e3)
        found.append(len(touched))
    return {
        "query_ms": statistics.median(times),
        "least_ms": min(times),
        "n_found": statistics.median(found),
    }


def query_rows(path: Path, n_units: int) -> dict[str, dict[str, float]]:
    """Figures of queries with numpy, and without it in a process of its own."""
    found = {"with_numpy": query_ms(path, n_units)}
    loaded = sys.modules.pop("numpy")
    try:
        # The store looks for a loaded numpy, and finds none now.
        found["plain"] = query_ms(path, n_units)
    finally:
        sys.modules["numpy"] = loaded
    return found


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    summary: dict[str, Any] = {}
    steps = []
    cases = [
        ("realistic", 10_000, 20_000),
        ("realistic", 100_000, 30_000),
        ("realistic", 1_000_000, 50_000),
        ("uniform", 10_000, 20_000),
    ]
    for shape, n_tests, n_units in cases:
        path = folder / f"{shape}-{n_tests}.sqlite"
        units, tests = (realistic if shape == "realistic" else uniform)(n_tests, n_units)
        row: dict[str, Any] = {"case": shape, "n_tests": n_tests, "n_units": n_units, "n_pairs": len(units)}
        row["units_a_test"] = len(units) / n_tests
        if n_tests <= 10_000:
            made_of = records(units, tests, n_tests)
            start_s = time.perf_counter()
            with EvidenceStore.open(folder / "by-record.sqlite", create=True) as store:
                store.write(MergeBatch(bundles=(), records=made_of, merged_us=0))
            row["write_s"] = time.perf_counter() - start_s
            del made_of
            (folder / "by-record.sqlite").unlink()
        made = draft(units, tests, n_tests)
        n_pairs = len(units)
        del units, tests
        row["index_write_s"] = write_draft(path, made)
        del made
        row |= sizes(path)
        row["bytes_per_pair"] = row["index_bytes"] / n_pairs
        row |= query_rows(path, n_units)
        if n_tests <= 10_000:
            row["named"] = query_ms(path, n_units, names=True)
        print(json.dumps(row), flush=True)
        path.unlink()
        if shape == "realistic":
            steps.append((n_pairs, row["index_write_s"], row["with_numpy"]["query_ms"]))
            if n_tests == 10_000:
                summary |= {
                    "bytes_per_pair": row["bytes_per_pair"],
                    "query_ms_10k": row["with_numpy"]["query_ms"],
                }
                summary |= {"write_s_10k": row["write_s"], "named_ms_10k": row["named"]["query_ms"]}
            if n_tests == 1_000_000:
                summary["query_ms_1m"] = row["with_numpy"]["query_ms"]
                summary["bytes_per_pair_1m"] = row["bytes_per_pair"]
        else:
            summary["bytes_per_pair_uniform"] = row["bytes_per_pair"]
            summary["query_ms_uniform"] = row["with_numpy"]["query_ms"]
    pairs, writes, queries = (np.log(column) for column in zip(*steps, strict=True))
    summary["slope"] = {
        "write": float(np.polyfit(pairs, writes, 1)[0]),
        "query": float(np.polyfit(pairs, queries, 1)[0]),
    }
    print(json.dumps({"benchmark": "store", **summary, "data": {"made_up": True, **SHAPE}}))


if __name__ == "__main__":
    main()
