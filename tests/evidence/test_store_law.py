"""The store answers as a dictionary of records would, whatever was written, compacted and pruned before."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_records import KILLED, block, bundle, record, seen, unit, write

from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, RunFacts

TESTS = ["t/a.py::a", "t/a.py::b[\udcff]", "t/b.py::c", "d"]
LANES = ["lane", "other"]
SCOPES = ["trunk", "dirty", "pr:1"]
NAMES = ["f", "g", "A"]
PATHS = ["pkg/x.py", "pkg/\udce9.py"]

units = st.builds(unit, st.sampled_from(NAMES), st.integers(1, 3), path=st.sampled_from(PATHS))
files = st.builds(seen, st.sampled_from(["c.json", "d\udcff"]), st.none() | st.integers(1, 2))
records = st.builds(
    record,
    st.sampled_from(TESTS),
    st.frozensets(units, max_size=4),
    at=st.integers(1, 9),
    gaps=st.sampled_from([(), KILLED]),
    lane=st.sampled_from(LANES),
    scope=st.sampled_from(SCOPES),
    commit=st.sampled_from(["", "c" * 40]),
    reads=st.frozensets(files, max_size=2),
    listings=st.frozensets(files, max_size=1),
    roots=st.frozensets(st.sampled_from(PATHS), max_size=2),
    environ=st.frozensets(st.sampled_from(["A", "B\udcff"])),
    native_readers=st.sampled_from([(), ("safetensors",)]),
    facts=st.builds(RunFacts, outcome=st.sampled_from(["passed", "failed"]), started_us=st.integers(1, 9)),
)
edges = st.tuples(st.sampled_from(LANES), st.sampled_from(PATHS), st.sampled_from(PATHS))
import_units = st.tuples(st.sampled_from(LANES), st.sampled_from(PATHS), units)


class Model:
    """The same semantics, in the words of the design."""

    def __init__(self) -> None:
        self.complete: dict[tuple[str, str, str], EvidenceRecord] = {}
        # Of trunk, another complete one of the same commit.
        self.beside: dict[tuple[str, str, str], EvidenceRecord] = {}
        self.incomplete: dict[tuple[str, str, str], EvidenceRecord] = {}
        # Path and blob id of the sources that came with a record, by identity of the record.
        self.sources: dict[int, set[tuple[str, str]]] = {}
        self.seen_us: dict[tuple[object, ...], int] = {}
        self.bundles: dict[str, tuple[str, int]] = {}
        self.kept_alive: list[EvidenceRecord] = []

    def add(self, batch: Sequence[EvidenceRecord], sources: set[tuple[str, str]]) -> None:
        self.kept_alive += batch
        for new in batch:
            self.sources[id(new)] = sources
        for key in {(one.node_id, one.lane, one.scope) for one in batch}:
            there = [one for one in self.records() if (one.node_id, one.lane, one.scope) == key]
            there += [one for one in batch if (one.node_id, one.lane, one.scope) == key]
            # Of one time, the one that was written last.
            there.sort(key=lambda one: (one.recorded_us, self.written(one)), reverse=True)
            complete = [one for one in there if one.is_complete]
            incomplete = [one for one in there if not one.is_complete]
            for kept in (self.complete, self.beside, self.incomplete):
                kept.pop(key, None)
            if complete:
                self.complete[key] = complete[0]
                same = [one for one in complete[1:] if one.commit == complete[0].commit]
                if same and same[0].commit and key[2] == "trunk":
                    self.beside[key] = same[0]
            if incomplete and (not complete or incomplete[0].recorded_us > complete[0].recorded_us):
                self.incomplete[key] = incomplete[0]

    def written(self, record: EvidenceRecord) -> int:
        return next(place for place, one in enumerate(self.kept_alive) if one is record)

    def records(self) -> Iterator[EvidenceRecord]:
        yield from self.complete.values()
        yield from self.beside.values()
        yield from self.incomplete.values()

    def prune(self, older_than_us: int, drop_trunk_older_than_us: int | None) -> None:
        for kept in (self.complete, self.beside, self.incomplete):
            for key, one in list(kept.items()):
                limit = drop_trunk_older_than_us if one.scope == "trunk" else older_than_us
                if limit is not None and one.recorded_us < limit:
                    del kept[key]
        for name, (_, started_us) in list(self.bundles.items()):
            if started_us < older_than_us:
                del self.bundles[name]

    def forget_imports(self) -> None:
        """What a compaction drops: imports that no record of the lane in force is as old as."""
        for key, seen_us in list(self.seen_us.items()):
            if not any(one.lane == key[1] and one.recorded_us <= seen_us for one in self.records()):
                del self.seen_us[key]


class StoreMachine(RuleBasedStateMachine):
    """Random histories of one store."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "evidence.sqlite"
        self.store = EvidenceStore.open(self.path, create=True)
        self.model = Model()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    @rule(
        new=st.lists(records, max_size=6),
        versions=st.sets(st.tuples(st.sampled_from(PATHS), st.sampled_from(["0a", "0b"])), max_size=2),
        edges=st.lists(edges, max_size=2),
        import_units=st.lists(import_units, max_size=2),
        merged_us=st.integers(1, 9),
    )
    def write(self, new, versions, edges, import_units, merged_us) -> None:
        summary = write(
            self.store,
            *new,
            file_versions={key: [block("f")] for key in versions},
            edges=edges,
            import_units=import_units,
            merged_us=merged_us,
        )
        before = {id(one) for one in self.model.records()}
        self.model.add(new, versions)
        after = {id(one) for one in self.model.records()}
        assert summary.n_records == len(after - before)
        assert summary.n_superseded == len(before - after)
        assert summary.n_outdated == len(new) - summary.n_records
        self._note_imports(max([merged_us, *(one.recorded_us for one in new)]), edges, import_units)

    def _note_imports(self, seen_us: int, edges, import_units) -> None:
        for kind, things in (("edge", edges), ("unit", import_units)):
            for thing in things:
                key = (kind, *thing)
                self.model.seen_us[key] = max(seen_us, self.model.seen_us.get(key, 0))

    @rule(
        given=st.sampled_from(["00", "01"]),
        digest=st.sampled_from(["d0", "d1"]),
        started_us=st.integers(1, 9),
        new=records,
    )
    def write_bundle(self, given, digest, started_us, new) -> None:
        known = self.model.bundles.get(given, ("", 0))[0] == digest
        assert self.store.has_bundle(given, digest) == known
        write(self.store, new, bundles=[bundle(given, digest, started_us=started_us)])
        if not known:
            self.model.bundles[given] = (digest, started_us)
            self.model.add([new], set())

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = EvidenceStore.open(self.path)

    @rule()
    def compact(self) -> None:
        self.store.compact()
        self.model.forget_imports()
        self._check_swept()

    @rule(older_than_us=st.integers(1, 9), drop_trunk_older_than_us=st.none() | st.integers(1, 9))
    def prune(self, older_than_us, drop_trunk_older_than_us) -> None:
        n_before = len(list(self.model.records()))
        done = self.store.prune(
            older_than_us=older_than_us, drop_trunk_older_than_us=drop_trunk_older_than_us
        )
        self.model.prune(older_than_us, drop_trunk_older_than_us)
        self.model.forget_imports()
        assert done.n_records == n_before - len(list(self.model.records()))
        self._check_swept()

    def _check_swept(self) -> None:
        """Nothing is left of what no record in force stands on, and one segment for each lane and scope."""
        summary = self.store.summary()
        assert summary.n_dead == 0
        assert summary.n_segments == len({(one.lane, one.scope) for one in self.model.records()})
        stood_on = {key for one in self.model.records() for key in self.model.sources[id(one)]}
        for path in PATHS:
            for blob in ("0a", "0b"):
                assert (self.store.blocks(path, blob) is not None) == ((path, blob) in stood_on)

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def sound(self) -> None:
        assert self.store.check() == []

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def same_records(self) -> None:
        for test in TESTS:
            expected = sorted(
                (one for one in self.model.records() if one.node_id == test),
                key=lambda one: (one.lane, one.scope, -one.recorded_us),
            )
            found = self.store.records_of(test)
            assert sorted(found, key=lambda one: (one.lane, one.scope, -one.recorded_us)) == expected
        heads = [
            (head.node_id, head.lane, head.scope, head.recorded_us, head.gaps, head.commit, head.outcome)
            for head in self.store.records()
        ]
        assert sorted(heads) == sorted(
            (one.node_id, one.lane, one.scope, one.recorded_us, one.gaps, one.commit, one.facts.outcome)
            for one in self.model.records()
        )
        assert self.store.summary().n_tests == len({one.node_id for one in self.model.records()})
        assert self.store.summary().n_bundles == len(self.model.bundles)

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def same_answers(self) -> None:
        head = {("pkg/x.py", "f"): {unit("f", 1).fingerprint}, (PATHS[1], "A"): set(), ("no.py", "f"): set()}
        for lane in LANES:
            for scopes in (["trunk"], ["dirty", "pr:1"]):
                asked = [one for one in self.model.records() if one.lane == lane and one.scope in scopes]
                where = {"lane": lane, "scopes": scopes}
                assert self._found(self.store.affected(head, **where)) == {
                    (one.node_id, (u.path, u.name))
                    for one in asked
                    for u in one.units
                    if u.fingerprint not in head.get((u.path, u.name), {u.fingerprint})
                }
                assert self._found(self.store.tests_of_units([("pkg/x.py", "g")], **where)) == {
                    (one.node_id, (u.path, u.name))
                    for one in asked
                    for u in one.units
                    if (u.path, u.name) == ("pkg/x.py", "g")
                }
                assert self._found(self.store.tests_of_modules(PATHS[1:], **where)) == {
                    (one.node_id, u.path) for one in asked for u in one.units if u.path == PATHS[1]
                }
                assert self._found(self.store.tests_of_roots(PATHS, **where)) == {
                    (one.node_id, root) for one in asked for root in one.roots
                }
                for ask, touched in (
                    (self.store.tests_of_files, lambda one: one.reads),
                    (self.store.tests_of_listings, lambda one: one.listings),
                ):
                    assert self._found(ask(["c.json"], **where)) == {
                        (one.node_id, _key(file))
                        for one in asked
                        for file in touched(one)
                        if file.path == "c.json"
                    }

    def _found(self, touched) -> set[tuple[str, object]]:
        reasons = touched.reasons()
        names = self.store.node_ids(list(reasons))
        assert list(reasons) == list(touched.record_ids())
        return {(name, key) for name, keys in zip(names, reasons.values(), strict=True) for key in keys}

    @invariant()
    @precondition(lambda self: hasattr(self, "store"))
    def same_sources_and_imports(self) -> None:
        for lane in LANES:
            expected = {key[2:] for key in self.model.seen_us if key[:2] == ("edge", lane)}
            assert set(self.store.edges(lane)) == expected
            expected = {key[2:] for key in self.model.seen_us if key[:2] == ("unit", lane)}
            assert set(self.store.import_units(lane)) == expected
            stood_on = {
                one.sources_id: {(path, blob) for path, blobs in one.versions.items() for blob in blobs}
                for one in self.store.sources(lane=lane, scopes=SCOPES)
            }
            found = [
                (head.node_id, head.scope, head.recorded_us, sorted(stood_on[head.sources_id]))
                for head in self.store.records(lane)
            ]
            assert sorted(found) == sorted(
                (one.node_id, one.scope, one.recorded_us, sorted(self.model.sources[id(one)]))
                for one in self.model.records()
                if one.lane == lane
            )


def _key(file: FileSeen) -> tuple[str, str | None]:
    return (file.path, file.blob)


def test_store_is_a_dictionary_of_records() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=25, stateful_step_count=12, deadline=None)
    )


@pytest.mark.slow
def test_store_is_a_dictionary_of_records_for_long() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=150, stateful_step_count=30, deadline=None)
    )
