"""What goes into the evidence store comes out again, and a question finds the tests that it is about."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from store_records import KILLED, LANE, block, bundle, record, seen, unit, write

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.evidence.store.touched import Touched
from fastci_ml.records.evidence import RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import Gap

HEAD = {("pkg/mod.py", "f"): [unit("f", 2).fingerprint]}
ODD = "t/b\udcffd \N{SNOWMAN}\0.py"


@pytest.fixture
def store(tmp_path: Path):
    with EvidenceStore.open(tmp_path / "new" / "evidence.sqlite", create=True) as opened:
        yield opened
        assert opened.check() == []


def names(store: EvidenceStore, touched: Touched) -> list[str]:
    return sorted(store.node_ids(touched.record_ids()))


def affected(store: EvidenceStore, *scopes: str, lane: str = LANE, changes=HEAD) -> list[str]:
    with store.snapshot():
        return names(store, store.affected(changes, lane=lane, scopes=scopes or ("trunk",)))


def full_record(node_id: str, **changes: object):
    return record(
        node_id,
        [
            unit("f", 1),
            unit("f.<locals>.g", 2**64 - 1),
            unit("A", 3, kind="class"),
            unit("A.x", 4, kind="binding"),
            unit("<effect>", 5, kind="effect"),
            unit("<file>", 6, path="data/\udce9.cu", kind="file"),
        ],
        reads=frozenset({seen("cfg.json"), seen("big.bin", None), seen(ODD, 7)}),
        listings=frozenset({seen("data", 3), seen("", 4)}),
        roots=frozenset({"tests/test_a.py", "conftest.py"}),
        environ=frozenset({"FASTCI_A", "FASTCI_B"}),
        native_readers=("tokenizers", "safetensors"),
        facts=RunFacts(
            outcome="passed",
            started_us=5,
            setup_s=0.1,
            call_s=1 / 3,
            teardown_s=None,
            is_doctest=True,
            native_readers=("safetensors",),
            notes=("a note", ODD),
        ),
        **changes,
    )


@pytest.mark.parametrize(
    "node_id", ["tests/test_a.py::A::test_b[x::y]", "no-colons", f"{ODD}::test_é[\udc80]", "::"]
)
def test_record_comes_back_as_it_was(store: EvidenceStore, node_id: str) -> None:
    given = full_record(node_id, gaps=((Gap.TORN_LINE, "\udcff"), (Gap.SLOT_LOST, "")))
    write(store, record("tests/test_a.py::other", [unit("f")]), given)
    assert store.record(node_id, lane=LANE, scope="trunk") == given
    assert [head.node_id for head in store.records()] == ["tests/test_a.py::other", node_id]


def test_record_comes_back_after_reopening_and_compaction(tmp_path: Path) -> None:
    path = tmp_path / "odd ?#%\N{SNOWMAN} name.sqlite"
    given = full_record("t::a")
    with EvidenceStore.open(path, create=True) as store:
        write(store, given)
        write(store, full_record("t::b"))
        write(store, full_record("t::b", at=2))
    with EvidenceStore.open(path) as store:
        store.compact()
        assert store.summary().n_segments == 1
    with EvidenceStore.open(path, read_only=True) as store:
        assert store.record("t::a", lane=LANE, scope="trunk") == given
        assert store.record("t::b", lane=LANE, scope="trunk") == full_record("t::b", at=2)
        assert store.check() == []


def test_affected_names_tests_that_executed_another_version(store: EvidenceStore) -> None:
    write(
        store,
        record("t::old", [unit("f", 1)]),
        record("t::head", [unit("f", 2)]),
        record("t::both", [unit("f", 1), unit("f", 2)]),
        record("t::other", [unit("g", 1)]),
        record("t::other_file", [unit("f", 1, path="pkg/mod2.py")]),
    )
    assert affected(store) == ["t::both", "t::old"]
    assert affected(store, changes={("pkg/mod.py", "f"): []}) == ["t::both", "t::head", "t::old"]
    assert affected(store, changes={("pkg/mod.py", "f"): [f"{n:016x}" for n in (1, 2, 3)]}) == []
    assert affected(store, changes={("pkg/mod.py", "nothing"): [], ("none.py", "f"): []}) == []


def test_reasons_name_each_changed_unit_once(store: EvidenceStore) -> None:
    write(
        store,
        record("t::a", [unit("f", 1), unit("f", 3), unit("g", 1)]),
        record("t::b", [unit("g", 1)]),
    )
    with store.snapshot():
        touched = store.tests_of_units(
            [("pkg/mod.py", "f"), ("pkg/mod.py", "g")], lane=LANE, scopes=["trunk"]
        )
        found = touched.reasons()
        by_name = dict(zip(store.node_ids(list(found)), map(set, found.values()), strict=True))
    f, g = ("pkg/mod.py", "f"), ("pkg/mod.py", "g")
    assert by_name == {"t::a": {f, g}, "t::b": {g}}
    assert [len(keys) for keys in found.values()] == [2, 1]
    assert names(store, touched) == ["t::a", "t::b"]
    assert store.node_ids(touched.record_ids([f])) == ["t::a"]
    assert store.node_ids(touched.record_ids([("pkg/mod.py", "h")])) == []


def test_more_units_than_sqlite_takes_at_once(store: EvidenceStore) -> None:
    write(store, *(record(f"t::{n}", [unit(f"f{n}")]) for n in range(2500)))
    changes = {("pkg/mod.py", f"f{n}"): [] for n in range(2500)}
    assert len(affected(store, changes=changes)) == 2500
    paths = [f"no/such/{n}.py" for n in range(2500)]
    assert (
        len(store.tests_of_modules([*paths, "pkg/mod.py"], lane=LANE, scopes=["trunk"]).record_ids()) == 2500
    )


def test_files_listings_modules_and_roots_find_their_tests(store: EvidenceStore) -> None:
    write(store, full_record("t::full"), record("t::cfg", reads=frozenset({seen("cfg.json", 2)})))
    where = {"lane": LANE, "scopes": ["trunk"]}
    touched = store.tests_of_files(["cfg.json", "big.bin", "data"], **where)
    found = {key: names(store, store.tests_of_files([key[0]], **where)) for key in touched.keys}
    assert found[("big.bin", None)] == ["t::full"]
    assert {key for key in touched.keys if key[0] == "cfg.json"} == {
        ("cfg.json", f"{1:040x}"),
        ("cfg.json", f"{2:040x}"),
    }
    assert store.node_ids(touched.record_ids([("cfg.json", f"{2:040x}")])) == ["t::cfg"]
    # A directory that was listed was not read, and the other way round.
    assert store.tests_of_listings(["data", "cfg.json"], **where).keys == [("data", f"{3:040x}")]
    assert names(store, store.tests_of_listings([""], **where)) == ["t::full"]
    assert names(store, store.tests_of_modules(["data/\udce9.cu"], **where)) == ["t::full"]
    assert names(store, store.tests_of_roots(["conftest.py"], **where)) == ["t::full"]
    assert names(store, store.tests_of_roots(["pkg/mod.py"], **where)) == []


def test_scopes_and_lanes_never_mix(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 2)], at=1))
    write(
        store,
        record("t::a", [unit("f", 1)], at=2, scope="pr:7"),
        record("t::b", [unit("f", 1)], scope="dirty"),
    )
    write(store, record("t::a", [unit("f", 1)], at=3, lane="py3.12-cuda"))
    assert affected(store) == []
    assert affected(store, "pr:7") == ["t::a"]
    assert affected(store, "trunk", "dirty") == ["t::b"]
    # Both scopes have a record of one test, so the test is named for each.
    assert affected(store, "trunk", "pr:7", changes={("pkg/mod.py", "f"): []}) == ["t::a", "t::a"]
    assert affected(store, lane="py3.12-cuda") == ["t::a"]
    assert affected(store, lane="no such lane") == []
    assert store.record("t::a", lane=LANE, scope="trunk") == record("t::a", [unit("f", 2)], at=1)
    assert len(store.records_of("t::a")) == 3


def test_another_run_of_the_same_commit_of_trunk_adds_to_the_newest(store: EvidenceStore) -> None:
    def write_at(at: int, name: str, commit: str, scope: str = "trunk") -> None:
        write(store, record("t::a", [unit(name)], at=at, commit=commit, scope=scope))

    def times(scope: str = "trunk") -> list[int]:
        return [one.recorded_us for one in store.records_of("t::a", scope=scope)]

    write_at(1, "f", "c" * 40)
    write_at(2, "g", "c" * 40)
    assert times() == [2, 1]
    head = {("pkg/mod.py", "f"): set(), ("pkg/mod.py", "g"): set()}
    found = store.affected(head, lane=LANE, scopes=["trunk"])
    assert set(store.node_ids(list(found.reasons()))) == {"t::a"}
    assert {key[1] for keys in found.reasons().values() for key in keys} == {"f", "g"}
    # At most two, the newest.
    write_at(3, "f", "c" * 40)
    assert times() == [3, 2]
    # One that is not complete makes the test incomplete, and takes nothing away.
    write(store, record("t::a", at=4, commit="c" * 40, gaps=KILLED))
    assert times() == [4, 3, 2]
    write_at(5, "f", "d" * 40)
    assert times() == [5]
    # An import or a changed checkout is of no commit that says what ran.
    for scope in ("dirty", "coverage", "pr:7"):
        write_at(1, "f", "c" * 40, scope)
        write_at(2, "f", "c" * 40, scope)
        assert times(scope) == [2]
    assert store.check() == []


def test_complete_record_supersedes_all_older_ones(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 1)], at=1))
    write(store, record("t::a", [unit("f", 1)], at=2, gaps=KILLED))
    summary = write(store, record("t::a", [unit("g", 1)], at=3))
    assert (summary.n_records, summary.n_superseded, summary.n_outdated) == (1, 2, 0)
    assert affected(store) == []
    assert [one.recorded_us for one in store.records_of("t::a")] == [3]


def test_killed_run_keeps_what_was_known(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 1)], at=1))
    write(store, record("t::a", [unit("g", 1)], at=2, gaps=KILLED))
    assert affected(store) == ["t::a"]
    newest = store.record("t::a", lane=LANE, scope="trunk")
    assert newest is not None
    assert newest.gaps == KILLED
    write(store, record("t::a", [unit("h", 1)], at=3, gaps=KILLED))
    # The second killed run takes the place of the first, and not of the complete one.
    assert [one.recorded_us for one in store.records_of("t::a")] == [3, 1]


def test_older_evidence_that_comes_later_changes_nothing(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 2)], at=5))
    summary = write(
        store,
        record("t::a", [unit("f", 1)], at=4),
        record("t::a", [unit("f", 1)], at=5, gaps=KILLED),
        record("t::b", [unit("f", 1)], at=4),
    )
    assert (summary.n_records, summary.n_superseded, summary.n_outdated) == (1, 0, 2)
    assert affected(store) == ["t::b"]
    assert write(store, record("t::a", [unit("f", 1)], at=4)).n_outdated == 1


def test_merging_a_bundle_again_is_nothing(store: EvidenceStore) -> None:
    first = bundle("00ab")
    assert not store.has_bundle("00ab")
    assert write(store, record("t::a", [unit("f", 1)], gaps=KILLED), bundles=[first]).n_bundles == 1
    before = store.summary()
    again = write(store, record("t::a", [unit("f", 1)], gaps=KILLED), bundles=[first])
    assert (again.n_bundles, again.n_records) == (0, 0)
    assert store.summary() == before
    assert store.has_bundle("00ab")
    assert store.has_bundle("00ab", "d0")
    # It was merged before it was whole: now it says more.
    whole = bundle("00ab", "d1")
    assert not store.has_bundle("00ab", "d1")
    assert write(store, record("t::a", [unit("f", 2)]), bundles=[whole]).n_superseded == 1
    assert store.bundle("00ab") == whole
    assert store.bundle("00") is None
    assert store.summary().n_bundles == 1


def test_new_bundle_beside_a_known_one_is_written(store: EvidenceStore) -> None:
    write(store, record("t::a"), bundles=[bundle("00ab")])
    write(store, record("t::a", at=2), record("t::b"), bundles=[bundle("00ab"), bundle("00cd")])
    assert sorted(head.node_id for head in store.records()) == ["t::a", "t::b"]


def test_sources_are_those_of_the_merge_that_a_record_came_with(store: EvidenceStore) -> None:
    old = [
        block("f", 1, reads=frozenset({"a", "\udcff"}), binds=("x",), is_memo=True, owner="A"),
        block("X", 2),
    ]
    new = [block("f", 2, doc_fingerprint="ab" * 8, is_dynamic=True, reads_doc=True, is_implicit=True)]
    write(store, record("t::a"), record("t::b"), file_versions={("pkg/mod.py", "0a"): old})
    write(store, record("t::a", at=2, commit="e" * 40), file_versions={("pkg/mod.py", "0b"): new})
    stood_on = {one.sources_id: one for one in store.sources(lane=LANE, scopes=["trunk"])}
    by_test = {head.node_id: stood_on[head.sources_id] for head in store.records(LANE)}
    assert by_test["t::b"].versions == {"pkg/mod.py": ["0a"]}
    assert by_test["t::a"].versions == {"pkg/mod.py": ["0b"]}
    assert by_test["t::a"].commit == "e" * 40
    assert store.blocks("pkg/mod.py", "0a") == tuple(old)
    assert store.blocks("pkg/mod.py", "0b") == tuple(new)
    assert store.blocks("pkg/mod.py", "0c") is None
    write(store, record("t::b", at=2))
    store.compact()
    assert store.blocks("pkg/mod.py", "0a") is None
    assert store.blocks("pkg/mod.py", "0b") == tuple(new)
    assert store.sources(lane="other", scopes=["trunk"]) == []


def test_blocks_are_those_of_the_last_merge(store: EvidenceStore) -> None:
    # A release that computes fingerprints in another way merges the same content anew.
    write(store, record("t::a"), file_versions={("pkg/mod.py", "0a"): [block("f", 1)]})
    write(store, record("t::b"), file_versions={("pkg/mod.py", "0a"): [block("f", 2)]})
    assert store.blocks("pkg/mod.py", "0a") == (block("f", 2),)


def test_imports_stay_until_no_record_can_stand_on_them(store: EvidenceStore) -> None:
    registered = (LANE, "pkg/mod.py", unit("register", 1, path="pkg/registry.py"))
    edge = (LANE, "tests/test_a.py", "pkg/mod.py")
    write(store, record("t::a", at=3), edges=[edge], import_units=[registered])
    write(store, record("t::b", at=9), edges=[(LANE, "a\udcff.py", "b.py")])
    # Seen by an older merge, that came later: what was known of it stays.
    write(store, record("t::c", at=3, lane="other"), edges=[(LANE, "a\udcff.py", "b.py")])
    store.compact()
    assert store.edges(LANE) == [("a\udcff.py", "b.py"), edge[1:]]
    assert store.import_units(LANE) == [registered[1:]]
    assert store.edges("other") == []
    write(store, record("t::a", at=8))
    store.compact()
    assert store.edges(LANE) == [("a\udcff.py", "b.py")]
    assert store.import_units(LANE) == []


def test_imports_of_a_parent_outlive_its_childrens_tests(store: EvidenceStore) -> None:
    # A process that imports, then forks workers: its bundle holds no test, and may come in another batch.
    edge = (LANE, "conftest.py", "pkg/mod.py")
    write(store, bundles=[bundle("00", started_us=1)], edges=[edge], merged_us=9)
    write(store, record("t::a", at=5), bundles=[bundle("01", started_us=4)], merged_us=9)
    store.compact()
    assert store.edges(LANE) == [edge[1:]]


def test_prune_spares_trunk_unless_asked(store: EvidenceStore) -> None:
    write(
        store,
        record("t::a", [unit("f", 1)], at=1),
        record("t::a", [unit("f", 1)], at=1, scope="pr:1"),
        record("t::a", [unit("f", 1)], at=9, scope="pr:2"),
        record("t::b", [unit("g", 1)], at=9, scope="dirty"),
        record("t::c", [unit("h", 1)], at=1, scope="dirty"),
        bundles=[bundle("01", started_us=1), bundle("09", started_us=9)],
    )
    assert store.prune(older_than_us=9).n_records == 2
    kept = [(head.node_id, head.scope) for head in store.records()]
    assert sorted(kept) == [("t::a", "pr:2"), ("t::a", "trunk"), ("t::b", "dirty")]
    assert not store.has_bundle("01")
    assert store.has_bundle("09")
    assert affected(store) == ["t::a"]
    assert store.prune(older_than_us=9, drop_trunk_older_than_us=1).n_records == 0
    assert store.prune(older_than_us=0, drop_trunk_older_than_us=2).n_records == 1
    assert affected(store) == []
    assert affected(store, "pr:2") == ["t::a"]


def test_prune_gives_room_back(store: EvidenceStore) -> None:
    units = [unit(f"f{n}") for n in range(300)]
    write(store, *(record(f"t::{n}", units, scope="pr:1", reads={seen(f"d{n}")}) for n in range(2000)))
    before = store.path.stat().st_size
    done = store.prune(older_than_us=5)
    assert done.n_records == 2000
    assert store.path.stat().st_size == before - done.n_freed_bytes
    assert store.path.stat().st_size < before / 4
    empty = sqlite3.connect(store.path)
    for table in ("record", "segment", "posting", "test", "file", "file_version", "unit_version", "lane"):
        assert empty.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    empty.close()


def test_many_small_merges_leave_few_segments(store: EvidenceStore) -> None:
    n_compacted = 0
    for n in range(60):
        n_compacted += write(store, record(f"t::{n}", [unit("f", 1)], at=n)).n_compacted
    assert n_compacted
    assert store.summary().n_segments <= 8
    assert len(affected(store)) == 60


def test_mostly_superseded_segment_is_rewritten(store: EvidenceStore) -> None:
    write(store, *(record(f"t::{n}", [unit("f", 1)]) for n in range(10)))
    assert write(store, *(record(f"t::{n}", [unit("f", 2)], at=2) for n in range(5))).n_compacted == 0
    assert store.summary().n_dead == 5
    assert write(store, record("t::5", [unit("f", 2)], at=2)).n_compacted == 1
    assert store.summary().n_dead == 0
    assert affected(store) == [f"t::{n}" for n in range(6, 10)]


def test_summary_counts_tests_by_their_newest_record(store: EvidenceStore) -> None:
    twice = ((Gap.CHILD_WITHOUT_RECORD, "a"), (Gap.CHILD_WITHOUT_RECORD, "b"), (Gap.SLOT_LOST, ""))
    write(
        store,
        record("t::whole"),
        record("t::killed", at=1),
        record("t::killed", at=2, gaps=KILLED),
        record("t::never", at=3, gaps=twice),
        record("t::never", at=7, scope="pr:1"),
        bundles=[bundle("00")],
    )
    summary = store.summary()
    assert summary.n_tests == 3
    assert summary.n_records == {(LANE, "pr:1"): 1, (LANE, "trunk"): 4}
    assert summary.n_complete == {(LANE, "pr:1"): 1, (LANE, "trunk"): 1}
    assert summary.n_incomplete == {(LANE, "trunk"): 2}
    assert summary.complete_ratio == 0.5
    # A test that lacks two children has the gap once.
    assert summary.gaps == {Gap.CHILD_WITHOUT_RECORD: 1, Gap.NO_END_MARK: 1, Gap.SLOT_LOST: 1}
    assert [(one.node_id, one.complete_us) for one in summary.worst] == [("t::never", None), ("t::killed", 1)]
    assert (summary.n_bundles, summary.n_segments, summary.n_dead, summary.newest_us) == (1, 2, 0, 7)
    assert summary.n_bytes == store.path.stat().st_size


def test_empty_store_answers(store: EvidenceStore) -> None:
    summary = store.summary()
    assert (summary.n_tests, summary.complete_ratio, summary.newest_us) == (0, None, None)
    assert affected(store) == []
    assert affected(store, changes={}) == []
    assert list(store.tests_of_files([], lane=LANE, scopes=[]).record_ids()) == []
    assert store.record("t", lane=LANE, scope="trunk") is None
    assert store.compact().n_segments == 0


def test_what_is_no_fingerprint_is_refused_and_nothing_stays(store: EvidenceStore) -> None:
    wrong = UnitSeen(path="a.py", name="f", kind=unit("f").kind, fingerprint="FF" * 8)
    with pytest.raises(ValueError, match="hexadecimal"):
        write(store, record("t::a"), record("t::b", [wrong]), bundles=[bundle("00")])
    assert list(store.records()) == []
    assert not store.has_bundle("00")


def test_snapshot_is_one_state_and_nothing_is_written_within(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 1)]))
    with store.snapshot(), store.snapshot():
        for change in (
            lambda: write(store, record("t::b")),
            store.compact,
            lambda: store.prune(older_than_us=1),
        ):
            with pytest.raises(ValueError, match="within a snapshot"):
                change()
        assert affected(store) == ["t::a"]


def test_ids_of_records_that_are_gone_are_refused(store: EvidenceStore) -> None:
    write(store, record("t::a", [unit("f", 1)]))
    ids = store.affected(HEAD, lane=LANE, scopes=["trunk"]).record_ids()
    write(store, record("t::b", at=2))
    store.compact()
    # Never the name of another test.
    with pytest.raises(EvidenceError, match="changed while it was read"):
        store.node_ids(ids)


def test_numpy_is_not_loaded_and_not_needed(tmp_path: Path) -> None:
    program = (
        "import sys, json\n"
        "from pathlib import Path\n"
        "from fastci_ml.evidence.store.store import EvidenceStore\n"
        "with EvidenceStore.open(Path(sys.argv[1])) as store:\n"
        "    touched = store.affected({('pkg/mod.py', 'f'): []}, lane=sys.argv[2], scopes=['trunk'])\n"
        "    ids = list(touched.record_ids())\n"
        "    store.compact()\n"
        "print(json.dumps([ids, sorted(sys.modules.keys() & {'numpy', 'pandas', 'git'})]))\n"
    )
    path = tmp_path / "evidence.sqlite"
    with EvidenceStore.open(path, create=True) as store:
        write(store, *(record(f"t::{n}", [unit("f", n % 3)]) for n in range(40)))
        write(store, *(record(f"t::{n}", [unit("f", n % 3)], at=2) for n in range(20)))
        expected = list(store.affected({("pkg/mod.py", "f"): []}, lane=LANE, scopes=["trunk"]).record_ids())
    command = [sys.executable, "-c", program, str(path), LANE]
    found, heavy = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert found == expected
    assert heavy == []
