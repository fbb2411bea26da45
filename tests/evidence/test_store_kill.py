"""A process killed while it writes the store: the next one finds it as it was before, or after."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from store_records import LANE, block, bundle, record, unit, write

from fastci_ml.evidence.store import connection
from fastci_ml.evidence.store.store import EvidenceStore

# So little that changes go to the file, and their undoing to the journal, long before a transaction ends.
SMALL_CACHE_KIB = 16
N_TESTS = 40


def step(store: EvidenceStore, n: int) -> None:
    """Write, and compact or prune now and then: test t::<n> comes to stay, the others are superseded."""
    units = [unit(f"f{k}", n) for k in range(30)]
    write(
        store,
        record(f"t::{n}", units, at=n),
        *(record(f"t::again[{k}]", units, at=n) for k in range(N_TESTS)),
        *(record(f"t::{n}", units, at=n, scope=f"pr:{k}") for k in range(3)),
        bundles=[bundle(f"{n:04x}", started_us=n)],
        file_versions={("pkg/mod.py", f"{n:040x}"): [block("f", n)]},
        edges=[(LANE, "a.py", f"b{n}.py")],
    )
    if n % 3 == 0:
        store.compact()
    if n % 4 == 0:
        store.prune(older_than_us=n - 2)


def forked(run: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            run()
            os._exit(0)
        finally:
            # Neither pytest nor its fixtures go on in here.
            os._exit(1)
    return child


def n_steps_found(path: Path) -> int:
    """Steps that the store holds, each whole or not at all; it is sound, and can be written."""
    if not path.exists():
        return 0
    with EvidenceStore.open(path, create=True) as store:
        assert store.check() == []
        heads = [head for head in store.records() if head.scope == "trunk"]
        stayed = sorted(int(head.node_id[3:]) for head in heads if "again" not in head.node_id)
        n_steps = max(stayed, default=0)
        assert stayed == list(range(1, n_steps + 1))
        again = [head for head in heads if "again" in head.node_id]
        assert len(again) == (N_TESTS if n_steps else 0)
        assert {head.recorded_us for head in again} <= {n_steps}
        for n in range(1, n_steps + 1):
            (one,) = store.records_of(f"t::{n}", scope="trunk")
            assert one.units == {unit(f"f{k}", n) for k in range(30)}
            assert store.blocks("pkg/mod.py", f"{n:040x}") == (block("f", n),)
        scopes = {head.scope for head in store.records() if head.node_id == f"t::{n_steps}"}
        assert scopes == ({"trunk", "pr:0", "pr:1", "pr:2"} if n_steps else set())
        write(store, record("t::probe", scope="probe", at=0))
        assert store.prune(older_than_us=1).n_records == 1
        return n_steps


def kill_at_random(path: Path, n_kills: int, seed: int) -> int:
    """Kill a writer again and again; returns how many left something to undo."""
    chance = random.Random(seed)
    n_hot = 0
    for _ in range(n_kills):
        n_done = n_steps_found(path)
        receiver, sender = os.pipe()

        def work(first: int = n_done + 1, sender: int = sender) -> None:
            with EvidenceStore.open(path, create=True) as store:
                for n in range(first, first + 1000):
                    step(store, n)
                    os.write(sender, b".")

        child = forked(work)
        os.close(sender)
        # Some are killed while they make the store, most in the middle of a later step.
        n_waited = sum(len(os.read(receiver, 1)) for _ in range(chance.choice([0, 0, 1, 2])))
        time.sleep(chance.uniform(0, 0.05))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        n_waited += len(os.read(receiver, 1000))
        os.close(receiver)
        n_hot += path.with_name(path.name + "-journal").exists()
        # What was said to be written is there; at most the step that was not is there, too.
        assert n_done + n_waited <= n_steps_found(path) <= n_done + n_waited + 1
    return n_hot


@pytest.mark.parametrize("cache_kib", [SMALL_CACHE_KIB, 64 << 10])
def test_killed_writer_leaves_the_store_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_kib: int
) -> None:
    monkeypatch.setattr(connection, "_CACHE_KIB", cache_kib)
    kill_at_random(tmp_path / "evidence.sqlite", 10, seed=cache_kib)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_writer_killed_two_hundred_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    if seed % 2:
        monkeypatch.setattr(connection, "_CACHE_KIB", SMALL_CACHE_KIB)
    n_hot = sum(kill_at_random(tmp_path / f"{n}.sqlite", 10, seed=seed * 100 + n) for n in range(5))
    # Else the kills never fell where it matters.
    assert n_hot > 5


def killed_at(
    path: Path, is_last: Callable[[int, str], bool], work: Callable[[EvidenceStore], object]
) -> bool:
    """Run `work` in a process that dies as the statement begins; False if it does not come to it."""

    def run() -> None:
        with EvidenceStore.open(path) as store:
            numbers = itertools.count(1)

            def look(statement: str) -> None:
                if is_last(next(numbers), statement):
                    os.kill(os.getpid(), signal.SIGKILL)

            store._connection.set_trace_callback(look)
            work(store)

    child = forked(run)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize("name", ["write", "compact", "prune"])
def test_death_at_any_statement_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(connection, "_CACHE_KIB", SMALL_CACHE_KIB)
    path = tmp_path / "evidence.sqlite"
    with EvidenceStore.open(path, create=True) as store:
        for n in (1, 2, 5, 7):
            step(store, n)
        before = dump(store)
    work = {
        "write": lambda store: write(
            store, *(record(f"t::again[{k}]", [unit("g")], at=99) for k in range(9))
        ),
        "compact": lambda store: store.compact(),
        "prune": lambda store: store.prune(older_than_us=50),
    }[name]
    n, n_killed = 1, 0
    while killed_at(path, lambda number, _, last=n: number == last, work):
        n_killed += 1
        # A store opened for reading only is no exception: what was half-written is undone.
        with EvidenceStore.open(path, read_only=True) as store:
            assert store.check() == []
            assert dump(store) == before
        n = max(n + 1, int(n * 1.6))
    assert n_killed >= 8
    with EvidenceStore.open(path) as store:
        assert store.check() == []
        assert dump(store) != before


def dump(store: EvidenceStore) -> list[str]:
    """Every row, ids included."""
    with sqlite3.connect(f"{store.path.as_uri()}?mode=ro", uri=True) as reader:
        found = list(reader.iterdump())
    reader.close()
    return found


def test_half_written_store_is_undone_for_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CACHE_KIB", SMALL_CACHE_KIB)
    path = tmp_path / "evidence.sqlite"
    journal = path.with_name(path.name + "-journal")
    with EvidenceStore.open(path, create=True) as store:
        step(store, 1)
        before = path.read_bytes()
    assert killed_at(path, lambda _, statement: statement == "COMMIT", lambda store: step(store, 2))
    assert journal.exists()
    assert path.read_bytes() != before
    with EvidenceStore.open(path, read_only=True) as store:
        assert [head.recorded_us for head in store.records()] == [1] * (N_TESTS + 4)
    assert not journal.exists()
    assert path.read_bytes() == before
