"""A merge that is killed at any moment: the store is sound, and merging again gives what it should."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from bundle_makers import STARTED_US, Recording, store_content

from fastci_ml.evidence.merge import merge
from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.evidence.store.store import EvidenceStore

NOW_US = STARTED_US + 10**9
N_BUNDLES = 10


def _merge(bundles: list[Path], store: Path) -> None:
    # Many transactions, so that many kills fall into one or between two.
    merge._MAX_BUNDLES = 2
    merge_bundles(bundles, store, root=store.parent, now_us=NOW_US)


def _record(directory: Path, number: int) -> Path:
    functions = "".join(f"def f{line}():\n    return {line + number}\n\n\n" for line in range(40))
    recording = Recording(directory, f"{number:04x}", started_us=STARTED_US + number * 1_000_000)
    recording.source("pkg/mod.py", functions)
    recording.source("tests/test_mod.py", "def test_f():\n    pass\n")
    for test in range(20):
        codes = [recording.code("pkg/mod.py", f"f{(test + step) % 40}") for step in range(20)]
        recording.test(
            f"tests/test_mod.py::test_f[{test}]", recording.code("tests/test_mod.py", "test_f"), *codes
        )
    recording.writer.close()
    return recording.path


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("bundles")
    return [_record(directory, number) for number in range(N_BUNDLES)]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_MAX_BUNDLES", merge._MAX_BUNDLES)


def _merge_in_child(bundles: list[Path], store: Path) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            _merge(bundles, store)
            status = 0
        finally:
            # Neither pytest nor its fixtures go on in here.
            os._exit(status)
    return child


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("n_kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_merge_killed_at_any_moment_can_be_done_again(
    bundles: list[Path], tmp_path: Path, n_kills: int
) -> None:
    before = bundles[:2]
    first = tmp_path / "first.sqlite"
    _merge(before, first)
    recorded = store_content(first)
    whole = tmp_path / "whole.sqlite"
    _merge(before, whole)
    start = time.perf_counter()
    _, status = os.waitpid(_merge_in_child(bundles, whole), 0)
    whole_s = time.perf_counter() - start
    assert status == 0
    expected = store_content(whole)
    rng = random.Random(n_kills)
    for number in range(n_kills):
        store = tmp_path / f"{number}.sqlite"
        store.write_bytes(first.read_bytes())
        child = _merge_in_child(bundles, store)
        # No moment is better than another; those after the end of a merge are as good.
        time.sleep(rng.random() * whole_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with EvidenceStore.open(store) as opened:
            assert opened.check() == []
            merged = [opened.bundle(f"{bundle:04x}") is not None for bundle in range(N_BUNDLES)]
            # Whole transactions, in their order, and what was there before.
            assert merged == sorted(merged, reverse=True)
            assert sum(merged) >= 2
        if sum(merged) == 2:
            assert store_content(store) == recorded
        _merge(bundles, store)
        assert store_content(store) == expected


def test_a_merge_that_is_not_killed_takes_all(bundles: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "evidence.sqlite"
    merge_bundles(bundles, store, root=tmp_path, now_us=NOW_US)
    with EvidenceStore.open(store) as opened:
        assert all(opened.bundle(f"{bundle:04x}") for bundle in range(N_BUNDLES))
        # Of each test two: all bundles are of one commit.
        assert len(list(opened.records())) == 40
