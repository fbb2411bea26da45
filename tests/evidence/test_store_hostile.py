"""A store that is foreign, damaged, locked or not writable: named, with what to type, and left as it is."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_records import KILLED, LANE, block, bundle, record, seen, unit, write

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.store import connection, schema
from fastci_ml.evidence.store.store import EvidenceStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence.sqlite"


def fill(path: Path) -> None:
    with EvidenceStore.open(path, create=True) as store:
        for n in (1, 2):
            write(
                store,
                *(record(f"t::{k}", [unit(f"f{k}"), unit("g")], at=n, roots={"t"}) for k in range(30 * n)),
                record("t::killed", [unit("g")], gaps=KILLED, reads={seen("c.json")}, listings={seen("d")}),
                bundles=[bundle(f"0{n}")],
                file_versions={("pkg/mod.py", "0a"): [block("g")]},
                edges=[(LANE, "a.py", "b.py")],
                import_units=[(LANE, "a.py", unit("g"))],
            )


def refused(path: Path, *, create: bool = False, read_only: bool = False) -> EvidenceError:
    with pytest.raises(EvidenceError) as caught, EvidenceStore.open(path, create=create, read_only=read_only):
        pass
    assert str(path) in str(caught.value)
    assert caught.value.hint
    return caught.value


def test_missing_store_is_made_only_when_asked(path: Path) -> None:
    for read_only in (False, True):
        error = refused(path, read_only=read_only)
        assert "no evidence yet" in str(error)
        assert error.hint == "fastci-ml merge"
    refused(path, create=True, read_only=True)
    assert not path.exists()


def test_empty_file_is_no_evidence_and_becomes_a_store(path: Path) -> None:
    # What is left when a process is killed as it makes the store.
    path.touch()
    assert "empty file" in str(refused(path))
    assert "empty file" in str(refused(path, read_only=True))
    assert path.stat().st_size == 0
    fill(path)


def test_folder_in_its_place_is_named(path: Path) -> None:
    path.mkdir()
    error = refused(path, create=True)
    assert "folder" in str(error)
    assert error.hint == f"rmdir {path}"


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EvidenceError, match="cannot be made"):
        EvidenceStore.open(tmp_path / "state" / "evidence.sqlite", create=True)


def other_program(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 7")
        other.execute("CREATE TABLE segment (id)")
        other.commit()


def no_application_id(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE record (id)")


def later_schema(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {schema.VERSION + 1}")


def schema_before_all(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 0")


def text(path: Path) -> None:
    path.write_text("{'this': 'is no SQLite file'}\n" * 100)


def cut_in_half(path: Path) -> None:
    fill(path)
    os.truncate(path, path.stat().st_size // 2)


def first_page_lost(path: Path) -> None:
    fill(path)
    with path.open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\xff" * 3000)


@pytest.mark.parametrize(
    ("make", "says", "hint"),
    [
        (other_program, "another program (application id 0x7), expected 0x66434965", "mv"),
        (no_application_id, "another program (application id 0x0)", "mv"),
        (later_schema, f"schema {schema.VERSION + 1}, expected {schema.VERSION}", "pip install --upgrade"),
        (schema_before_all, f"schema 0, expected {schema.VERSION}", "mv"),
        (text, "no SQLite file", "mv"),
        (first_page_lost, "damaged", "mv"),
        (cut_in_half, "damaged", "mv"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_store_of_ours_is_refused_and_left(
    path: Path, make: Callable[[Path], None], says: str, hint: str, read_only: bool
) -> None:
    make(path)
    before = path.read_bytes()
    error = refused(path, create=not read_only, read_only=read_only)
    assert says in str(error)
    assert error.hint is not None
    assert error.hint.startswith(hint)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == [path]


def test_hint_can_be_typed(tmp_path: Path) -> None:
    path = tmp_path / "a b'c" / "evidence.sqlite"
    path.parent.mkdir()
    text(path)
    hint = refused(path).hint
    assert hint is not None
    # The first of the two commands; the second is ours.
    assert os.system(hint.partition(" && ")[0]) == 0
    assert [file.name for file in path.parent.iterdir()] == ["evidence.sqlite.aside"]
    fill(path)


def ask_everything(store: EvidenceStore) -> None:
    where = {"lane": LANE, "scopes": ["trunk"]}
    units = [("pkg/mod.py", f"f{k}") for k in range(9)] + [("pkg/mod.py", "g")]
    for touched in (
        store.affected(dict.fromkeys(units, ()), **where),
        store.tests_of_files(["c.json"], **where),
        store.tests_of_listings(["d"], **where),
        store.tests_of_modules(["pkg/mod.py"], **where),
        store.tests_of_roots(["t"], **where),
    ):
        touched.reasons()
        store.node_ids(touched.record_ids())
    for head in list(store.records()):
        store.records_of(head.node_id)
    for sources in store.sources(**where):
        for version, blobs in sources.versions.items():
            store.blocks(version, blobs[0])
    store.edges(LANE)
    store.import_units(LANE)
    store.bundle("01")
    store.summary()


def change_everything(store: EvidenceStore) -> None:
    write(store, record("t::1", [unit("g", 2)], at=9), file_versions={("pkg/mod.py", "0a"): [block("g")]})
    store.compact()
    store.prune(older_than_us=9)


def test_store_with_lost_pages_is_damaged_and_not_deleted(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        pages = other.execute(
            "SELECT rootpage FROM sqlite_master WHERE name IN ('posting', 'record')"
        ).fetchall()
    with path.open("r+b") as stream:
        # Past the schema: it can be opened, and SQLite sees it when it comes to such a page.
        for (page,) in pages:
            stream.seek((page - 1) * 4096)
            stream.write(b"\xff" * 4096)
    before = path.read_bytes()
    with EvidenceStore.open(path, read_only=True) as store:
        assert store.check()
        with pytest.raises(EvidenceError, match="damaged") as caught:
            ask_everything(store)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("mv")
    with EvidenceStore.open(path, create=True) as store, pytest.raises(EvidenceError):
        change_everything(store)
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "evidence.sqlite"
    fill(path)
    return path


@settings(max_examples=30, deadline=None)
@given(
    places=st.lists(
        st.tuples(st.integers(0, 2**20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6
    )
)
def test_damage_anywhere_is_an_error_of_ours_or_nothing(good: Path, places: list[tuple[int, bytes]]) -> None:
    content = bytearray(good.read_bytes())
    for place, garbage in places:
        place %= len(content) - 8
        content[place : place + len(garbage)] = garbage
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.sqlite"
        path.write_bytes(content)
        for work in (ask_everything, EvidenceStore.check, change_everything):
            with contextlib.suppress(EvidenceError), EvidenceStore.open(path) as store:
                work(store)
            assert path.stat().st_size


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM record WHERE id IN (SELECT max(id) FROM record)", "expected 2 in all"),
        ("UPDATE segment SET n_dead = 1 WHERE n_records = 2", "1 dead"),
        (
            "INSERT INTO record SELECT 5 << 32, test, origin, traits, 1, '', NULL, '{}' FROM record LIMIT 1",
            "no segment",
        ),
        ("UPDATE record SET test = 99", "refers to a test"),
        ("UPDATE posting SET ids = x'0f00'", "posting list"),
        ("UPDATE posting SET ids = x'00ff'", "not ascending from 1 to 2"),
        ("UPDATE posting SET ids = x'0009'", "not ascending from 1 to 2"),
        ("UPDATE posting SET ids = x'000100'", "not ascending from 1 to 2"),
        ("UPDATE posting SET id = id + 100", "unknown"),
        ("UPDATE unit_version SET id = 1", "rows have 1 ids"),
        ("UPDATE record SET test = 1", "2 records, expected 1"),
    ],
)
def test_check_finds_what_must_hold_between_tables(path: Path, damage: str, says: str) -> None:
    with EvidenceStore.open(path, create=True) as store:
        other_commit = record("t::b", [unit("f")], commit="e" * 40)
        write(store, record("t::a", [unit("f"), unit("g")], reads={seen("c")}), other_commit)
        assert store.check() == []
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(damage)
        other.commit()
    with EvidenceStore.open(path, read_only=True) as store:
        problems = store.check()
    assert any(says in problem for problem in problems), problems


def test_full_disk_leaves_the_store_as_it_was(path: Path) -> None:
    fill(path)
    with EvidenceStore.open(path, read_only=True) as store:
        before = sorted(store.records(), key=lambda head: head.record_id)

    def write_much() -> str:
        # Files cannot grow: to the process it is as a full disk.
        limit = path.stat().st_size + 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with EvidenceStore.open(path) as store:
            many = [record(f"t::many[{n}]", [unit(f"much{n}")], at=9) for n in range(4000)]
            try:
                write(store, *many, bundles=[bundle("0f")])
            except EvidenceError as error:
                # The same process can go on.
                assert store.check() == []
                assert not store.has_bundle("0f")
                write(store, record("t::0", [unit("g")], at=9))
                return f"{error} -> {error.hint}"
        return "written"

    said = in_child(write_much)
    assert "not written, the store is as before" in said
    assert f"-> df -h {path.parent}" in said
    with EvidenceStore.open(path) as store:
        assert store.check() == []
        now = {(head.node_id, head.recorded_us) for head in store.records()}
    assert now == {(head.node_id, head.recorded_us) for head in before} - {("t::0", 2)} | {("t::0", 9)}


def in_child(work: Callable[[], str]) -> str:
    """What `work` says in a process of its own, whose limits and rights it may change."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, work().encode())
            os._exit(0)
        finally:
            # Neither pytest nor its fixtures go on in here.
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.fixture
def locked_folder() -> Iterator[Path]:
    """A folder that a user without rights can read and not write."""
    folder = Path(tempfile.mkdtemp(prefix="fastci-"))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def without_rights(work: Callable[[], str]) -> str:
    def run() -> str:
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        return work()

    return in_child(run)


def test_read_only_folder_can_be_read(locked_folder: Path) -> None:
    path = locked_folder / "evidence.sqlite"
    fill(path)
    path.chmod(0o444)
    locked_folder.chmod(0o555)

    def work() -> str:
        with EvidenceStore.open(path, read_only=True) as store:
            ask_everything(store)
            assert store.check() == []
        said = []
        with EvidenceStore.open(path) as store:
            for change in (
                lambda: write(store, record("t")),
                store.compact,
                lambda: store.prune(older_than_us=9),
            ):
                try:
                    change()
                except EvidenceError as error:
                    said.append(f"{error} -> {error.hint}")
        try:
            EvidenceStore.open(locked_folder / "new.sqlite", create=True)
        except EvidenceError as error:
            said.append(f"{error} -> {error.hint}")
        return "\n".join(said)

    lines = without_rights(work).splitlines()
    assert len(lines) == 4
    assert all("no access" in line and f"-> ls -ld {locked_folder}" in line for line in lines), lines


def test_half_written_store_in_a_read_only_folder_is_named(
    locked_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = locked_folder / "evidence.sqlite"
    fill(path)
    monkeypatch.setattr(connection, "_CACHE_KIB", 16)

    def die_half_way() -> str:
        store = EvidenceStore.open(path)
        store._connection.set_trace_callback(lambda text: os._exit(0) if text == "COMMIT" else None)
        write(store, *(record(f"t::{n}", [unit(f"new{n}")], at=9) for n in range(300)))
        return "not dead"

    assert in_child(die_half_way) == ""
    path.with_name("evidence.sqlite-journal").chmod(0o444)
    path.chmod(0o444)
    locked_folder.chmod(0o555)

    def work() -> str:
        try:
            EvidenceStore.open(path, read_only=True)
        except EvidenceError as error:
            return f"{error} -> {error.hint}"
        return "opened"

    said = without_rights(work)
    assert "undoing that needs write access" in said
    assert f"-> ls -ld {locked_folder}" in said


def write_five(path: Path, name: str) -> None:
    for n in range(5):
        with EvidenceStore.open(path, create=True) as store:
            write(store, record(f"t::{name}[{n}]", [unit("g")], at=n), bundles=[bundle(f"{name}{n}")])
            if n == 3:
                store.compact()


def test_writers_wait_for_each_other(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_five, args=(path, f"{n:02d}")) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with EvidenceStore.open(path) as store:
        assert store.check() == []
        assert len(list(store.records())) == 20
        assert store.summary().n_bundles == 20


def test_writer_that_waits_in_vain_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other,
        EvidenceStore.open(path) as store,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EvidenceError, match=r"another process has kept it for 0\.05 s") as caught:
            write(store, record("t::x"))
        assert caught.value.hint is not None
        assert f"fuser -v {path}" in caught.value.hint
        # Readers do not wait for a writer that has not come to its end.
        assert store.record("t::1", lane=LANE, scope="trunk") is not None
        other.execute("COMMIT")
        write(store, record("t::x"))


def test_writer_waits_for_a_reader(path: Path) -> None:
    fill(path)
    is_writing = threading.Event()

    def add() -> None:
        with EvidenceStore.open(path) as writer:
            is_writing.set()
            write(writer, record("t::x"))

    thread = threading.Thread(target=add)
    with EvidenceStore.open(path) as reader:
        with reader.snapshot():
            before = reader.summary()
            thread.start()
            is_writing.wait()
            # However far the writer is, this is the state that was seen before.
            assert reader.summary() == before
        thread.join()
        assert reader.summary().n_tests == before.n_tests + 1


def test_reader_that_never_ends_keeps_a_writer_out_and_nothing_is_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    with EvidenceStore.open(path) as reader, EvidenceStore.open(path) as writer:
        with reader.snapshot():
            reader.summary()
            with pytest.raises(EvidenceError, match="another process"):
                write(writer, record("t::x"))
        assert writer.record("t::x", lane=LANE, scope="trunk") is None
        write(writer, record("t::x"))
        assert reader.record("t::x", lane=LANE, scope="trunk") is not None


def test_older_schema_is_upgraded_and_nothing_is_dropped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)
    with EvidenceStore.open(path) as store:
        before = [store.records_of(head.node_id) for head in store.records()]

    def add_rank(upgraded: sqlite3.Connection) -> None:
        upgraded.execute("ALTER TABLE traits ADD COLUMN n_ranks INTEGER NOT NULL DEFAULT 1")

    def rename_outcomes(upgraded: sqlite3.Connection) -> None:
        upgraded.execute("UPDATE record SET outcome = 'was ' || outcome")

    version = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", version + 2)
    monkeypatch.setitem(schema.UPGRADES, version, add_rank)
    monkeypatch.setitem(schema.UPGRADES, version + 1, rename_outcomes)
    untouched = path.read_bytes()
    assert f"schema {version}, expected {version + 2}" in str(refused(path, read_only=True))
    assert path.read_bytes() == untouched
    with EvidenceStore.open(path) as store:
        assert store.check() == []
        after = [store.records_of(head.node_id) for head in store.records()]
        assert store.summary().schema == version + 2
        assert store._connection.execute("SELECT DISTINCT n_ranks FROM traits").fetchall() == [(1,)]
    assert [[one.units for one in found] for found in after] == [
        [one.units for one in found] for found in before
    ]
    assert {one.facts.outcome for found in after for one in found} == {"was passed"}
    # It is done once.
    with EvidenceStore.open(path, read_only=True) as store:
        assert store.record("t::1", lane=LANE, scope="trunk").facts.outcome == "was passed"


def test_upgrade_that_fails_half_way_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path)

    def fail(upgraded: sqlite3.Connection) -> None:
        upgraded.execute("DELETE FROM record")
        upgraded.execute("SELECT nonsense FROM record")

    before = path.read_bytes()
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setitem(schema.UPGRADES, schema.VERSION - 1, fail)
    assert "nonsense" in str(refused(path))
    assert path.read_bytes() == before
