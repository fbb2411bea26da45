"""Evidence by rule: caches that answer without a call, and threads that a profile hook does not see."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bundle_makers import Recording, names, records_of
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.bits import bits
from fastci_ml.evidence.merge.bundle_evidence import build_records
from fastci_ml.evidence.merge.reachable import settle
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

CONFIG = """\
import functools
from pkg.files import load

_CONFIG = None


def get_config():
    global _CONFIG
    if _CONFIG is None:
        _CONFIG = Config(load("x"))
    return _CONFIG


class Config:
    def __init__(self, values):
        self.values = check(values)


def check(values):
    return values


def unrelated():
    return 1


@functools.lru_cache
def table():
    return check(2)
"""
FILES = "def load(name):\n    return parse(name)\n\n\ndef parse(text):\n    return text\n"
TESTS = """\
from pkg.config import get_config, table, unrelated
import pkg.config


def test_first():
    get_config()


def test_again():
    get_config()


def test_by_global():
    assert pkg.config._CONFIG


def test_table():
    table()


def test_nothing():
    assert True
"""
TEST = "tests/test_config.py"
BEHIND = {
    "pkg/config.py::get_config",
    "pkg/config.py::Config.__init__",
    "pkg/config.py::check",
    "pkg/files.py::load",
    "pkg/files.py::parse",
}


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    recording = Recording(tmp_path / "bundles")
    recording.source("pkg/config.py", CONFIG)
    recording.source("pkg/files.py", FILES)
    recording.source(TEST, TESTS)
    return recording


def _filling(recording: Recording) -> list[int]:
    return [recording.code(*unit.split("::")) for unit in sorted(BEHIND)]


def _test(recording: Recording, name: str, *codes: int, **parts: object) -> None:
    recording.test(f"{TEST}::{name}", recording.code(TEST, name), *codes, **parts)


def _names(bundle: Bundle, name: str) -> set[str]:
    label = f"{TEST}::{name}"
    return names(records_of(bundle)[label]) - {label}


def test_who_enters_a_filled_cache_stands_on_what_filled_it(recording: Recording) -> None:
    _test(recording, "test_first", *_filling(recording), recording.code("pkg/config.py", "unrelated"))
    _test(recording, "test_again", recording.code("pkg/config.py", "get_config"))
    _test(recording, "test_nothing")
    bundle = recording.close()
    assert _names(bundle, "test_again") == BEHIND
    assert _names(bundle, "test_nothing") == set()


def test_who_reads_the_global_that_a_function_fills_stands_on_it(recording: Recording) -> None:
    _test(recording, "test_first", *_filling(recording))
    _test(recording, "test_by_global")
    assert _names(recording.close(), "test_by_global") == BEHIND


def test_who_reads_a_table_that_is_filled_in_place_stands_on_what_fills_it(recording: Recording) -> None:
    text = (
        "TABLE = {}\n\n\ndef add(name):\n    TABLE[name] = make(name)\n\n\ndef make(name):\n    return name\n"
    )
    recording.source("pkg/table.py", text)
    recording.source(TEST, TESTS + "\n\ndef test_reads_table():\n    assert pkg.table.TABLE\n")
    filling = [recording.code("pkg/table.py", name) for name in ("add", "make")]
    _test(recording, "test_first", *filling)
    _test(recording, "test_reads_table")
    _test(recording, "test_nothing")
    bundle = recording.close()
    assert _names(bundle, "test_reads_table") == {"pkg/table.py::add", "pkg/table.py::make"}
    assert _names(bundle, "test_nothing") == set()


def test_what_a_cache_calls_is_followed_through_tables_and_classes(recording: Recording) -> None:
    text = """\
import functools


def read_text():
    return 1


READERS = {0: read_text}


class Loader:
    def __call__(self):
        return READERS[0]()


class Special(Loader):
    pass


def helper():
    return 2


@functools.cache
def load():
    return Special()()
"""
    recording.source("pkg/readers.py", text)
    recording.source(TEST, TESTS + "\n\ndef test_load():\n    load()\n")
    codes = [
        recording.code("pkg/readers.py", name) for name in ("load", "Loader.__call__", "read_text", "helper")
    ]
    _test(recording, "test_first", *codes)
    _test(recording, "test_load")
    assert _names(recording.close(), "test_load") == {
        f"pkg/readers.py::{name}" for name in ("load", "Loader.__call__", "read_text")
    }


def test_nothing_that_runs_later_is_implied(recording: Recording) -> None:
    _test(recording, "test_by_global")
    _test(recording, "test_first", *_filling(recording))
    assert _names(recording.close(), "test_by_global") == set()


def test_what_a_test_filled_itself_while_it_ran_is_its_own(recording: Recording) -> None:
    number = recording.writer.new_capture()
    # The import within the test has a higher number, and ends before the next test.
    recording.capture(CaptureKind.IMPORT, "pkg/config.py", *_filling(recording))
    recording.test(f"{TEST}::test_by_global", recording.code(TEST, "test_by_global"), number=number)
    _test(recording, "test_nothing")
    assert _names(recording.close(), "test_by_global") == BEHIND


def test_a_cache_filled_by_an_import_is_behind_the_next_import_that_asks_it(recording: Recording) -> None:
    recording.source("pkg/second.py", "from pkg.config import get_config\n\nVALUE = get_config()\n")
    recording.source("pkg/by_global.py", "import pkg.config\n\nVALUE = pkg.config._CONFIG\n")
    recording.source("pkg/third.py", "VALUE = 1\n")
    recording.capture(CaptureKind.IMPORT, "pkg/first.py", *_filling(recording))
    asked = recording.code("pkg/config.py", "get_config")
    recording.capture(CaptureKind.IMPORT, "pkg/second.py", recording.code("pkg/second.py", "<module>"), asked)
    for path in ("pkg/by_global.py", "pkg/third.py"):
        recording.capture(CaptureKind.IMPORT, path, recording.code(path, "<module>"))
    bundle = recording.close()
    evidence = build_records(bundle, SourcesAtHand(bundle.path, bundle.path.parent))
    found = {
        path: {f"{unit.path}::{unit.name}" for _, module, unit in evidence.import_units if module == path}
        for path in ("pkg/second.py", "pkg/by_global.py", "pkg/third.py")
    }
    assert found == {"pkg/second.py": BEHIND, "pkg/by_global.py": BEHIND, "pkg/third.py": set()}


def test_what_was_read_while_a_cache_was_filled_is_read_by_who_is_served(recording: Recording) -> None:
    config, own, folder = (recording.file(name, None) for name in ("config.json", "own.json", "data"))
    gap = (Gap.CHILD_WITHOUT_RECORD, "git")
    later = (Gap.THREAD_UNSEEN, "loader")
    parts = {"reads": [config], "listings": [folder], "environ": ["CONFIG"], "gaps": [gap]}
    _test(recording, "test_first", *_filling(recording), **parts)
    # It entered the memo and was served: what it reads and what goes wrong is its own affair.
    asked = recording.code("pkg/config.py", "get_config")
    _test(recording, "test_table", asked, reads=[own], gaps=[later])
    _test(recording, "test_by_global")
    _test(recording, "test_nothing")
    records = records_of(recording.close())
    by_global = records[f"{TEST}::test_by_global"]
    assert {seen.path for seen in by_global.reads} == {"config.json"}
    assert {seen.path for seen in by_global.listings} == {"data"}
    assert by_global.environ == {"CONFIG"}
    assert by_global.gaps == (gap,)
    assert {seen.path for seen in records[f"{TEST}::test_table"].reads} == {"config.json", "own.json"}
    nothing = records[f"{TEST}::test_nothing"]
    assert (nothing.reads, nothing.environ, nothing.gaps) == (set(), set(), ())


def test_each_filling_of_a_cache_counts_but_none_that_comes_later(recording: Recording) -> None:
    asked, load = recording.code("pkg/config.py", "get_config"), recording.code("pkg/files.py", "load")
    for place in range(4):
        recording.test(
            f"{TEST}::test_first[{place}]",
            recording.code(TEST, "test_first"),
            asked,
            load,
            reads=[recording.file(f"{place}.json", None)],
        )
    records = records_of(recording.close())
    for place in range(4):
        reads = {seen.path for seen in records[f"{TEST}::test_first[{place}]"].reads}
        assert reads == {f"{number}.json" for number in range(place + 1)}


def test_a_cache_that_was_watched_needs_no_rule(recording: Recording) -> None:
    filling = (recording.code("pkg/config.py", "table"), recording.code("pkg/config.py", "check"))
    cache = recording.capture(CaptureKind.CACHE, "pkg/config.py::table", *filling)
    _test(recording, "test_first", uses=[cache])
    _test(recording, "test_table")
    bundle = recording.close()
    assert _names(bundle, "test_first") == {"pkg/config.py::table", "pkg/config.py::check"}
    # Nobody saw that it was served: then it was not.
    assert _names(bundle, "test_table") == set()


def test_a_cache_that_was_not_watched_is_followed_by_its_name(recording: Recording) -> None:
    codes = (recording.code("pkg/config.py", "table"), recording.code("pkg/config.py", "check"))
    _test(recording, "test_first", *codes)
    _test(recording, "test_table")
    assert _names(recording.close(), "test_table") == {"pkg/config.py::table", "pkg/config.py::check"}


FLASH = """\
import torch
from pkg.kernels import run_backward
import pkg.kernels as kernels


class Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return scale(run_backward(grad))


def scale(x):
    return x


def log_hook(grad):
    return kernels.note(grad)


def unrelated():
    return 1
"""
KERNELS = """\
def run_backward(grad):
    return tile(grad)


def tile(grad):
    return grad


def note(grad):
    return grad


def unrelated():
    return 1
"""


@pytest.mark.parametrize(
    ("backend", "text", "expected"),
    [
        (
            "profile",
            FLASH,
            {
                "pkg/flash.py::Flash.backward",
                "pkg/flash.py::scale",
                "pkg/flash.py::log_hook",
                "pkg/kernels.py::run_backward",
                "pkg/kernels.py::tile",
                "pkg/kernels.py::note",
            },
        ),
        ("monitoring", FLASH, set()),
        ("profile", FLASH.replace("import torch", "import numpy").replace("torch.", "numpy."), set()),
    ],
    ids=["profile", "monitoring", "no torch"],
)
def test_backward_passes_and_hooks_are_run_by_who_ran_their_file_where_threads_are_not_seen(
    tmp_path: Path, backend: str, text: str, expected: set[str]
) -> None:
    recording = Recording(tmp_path, backend=backend)
    recording.source(TEST, TESTS)
    recording.source("pkg/flash.py", text)
    kernels = recording.source("pkg/kernels.py", KERNELS)
    forward = recording.code("pkg/flash.py", "Flash.forward")
    _test(recording, "test_first", forward, imports=[kernels])
    _test(recording, "test_nothing")
    bundle = recording.close()
    assert _names(bundle, "test_first") == {"pkg/flash.py::Flash.forward", *expected}
    assert _names(bundle, "test_nothing") == set()


@given(st.integers(0, 1 << 200))
def test_bits_are_the_places_of_ones(mask: int) -> None:
    assert sum(1 << place for place in bits(mask)) == mask


@given(st.integers(1, 30), st.integers(0, 80), st.integers())
def test_what_is_reached_is_what_a_slow_search_reaches(n_nodes: int, n_edges: int, seed: int) -> None:
    rng = random.Random(seed)
    nodes = [str(number) for number in range(n_nodes)]
    steps: dict[str, list[str]] = {node: [] for node in nodes}
    for _ in range(n_edges):
        steps[rng.choice(nodes)].append(rng.choice(nodes))
    settled: dict[str, int] = {}
    for node in rng.sample(nodes, n_nodes):
        if node not in settled:
            settle(node, steps.__getitem__, lambda node: 1 << int(node), settled)
    for node in nodes:
        reached = {node}
        todo = [node]
        while todo:
            for other in steps[todo.pop()]:
                if other not in reached:
                    reached.add(other)
                    todo.append(other)
        assert settled[node] == sum(1 << int(other) for other in reached)


def test_a_long_chain_is_followed_without_going_deep() -> None:
    settled: dict[str, int] = {}
    settle(
        "0",
        lambda node: [str(int(node) + 1)] if int(node) < 50_000 else [],
        lambda node: int(node == "50000"),
        settled,
    )
    assert settled["0"] == 1
