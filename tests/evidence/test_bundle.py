"""Bundles: what is written comes back, and no damage passes for a whole bundle with other content."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import PROVENANCE, STARTED_US, content, write_small_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.lines import seal
from fastci_ml.evidence.bundle.reader import digest_bundle, find_bundles, open_bundle, read_bundle
from fastci_ml.evidence.bundle.source_pack import SourcePack
from fastci_ml.evidence.bundle.source_pack_writer import SourcePackWriter
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.records.evidence import Capture, CodeSeen, FileSeen, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

# Paths and ids may hold bytes that are no UTF-8 (lone surrogates), line ends, anything.
TEXTS = st.text(st.characters(), max_size=8)


@st.composite
def _captures(draw: st.DrawFn, n_files: int, n_codes: int) -> Capture:
    def some(n: int) -> st.SearchStrategy[frozenset[int]]:
        return st.frozensets(st.integers(0, n - 1), max_size=4) if n else st.just(frozenset())

    return Capture(
        kind=draw(st.sampled_from(CaptureKind)),
        label=draw(TEXTS),
        codes=draw(some(n_codes)),
        reads=draw(some(n_files)),
        listings=draw(some(n_files)),
        imports=draw(some(n_files)),
        environ=draw(st.frozensets(TEXTS, max_size=3)),
        uses=draw(some(5)),
        gaps=tuple(draw(st.lists(st.tuples(st.sampled_from(Gap), TEXTS), max_size=3, unique=True))),
    )


FACTS = st.builds(
    RunFacts,
    outcome=st.sampled_from(["passed", "failed", "anything"]),
    started_us=st.integers(0, 2**63 - 1),
    setup_s=st.none() | st.floats(0, 1e9),
    call_s=st.none() | st.floats(0, 1e9),
    teardown_s=st.none(),
    is_doctest=st.booleans(),
    native_readers=st.lists(TEXTS, max_size=2).map(tuple),
    notes=st.lists(TEXTS, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(data=st.data())
def test_everything_written_comes_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    writer = BundleWriter(tmp_path_factory.mktemp("bundles"), PROVENANCE)
    files = data.draw(st.lists(st.builds(FileSeen, path=TEXTS, blob=st.sampled_from([None, "a" * 40]))))
    for file in files:
        writer.add_file(file.path, file.blob)
    places = st.integers(0, len(files) - 1)
    codes = (
        data.draw(st.lists(st.builds(CodeSeen, file=places, name=TEXTS, line=st.integers(0, 9))))
        if files
        else []
    )
    for code in codes:
        writer.add_code(code.file, code.name, code.line)
    captures = data.draw(st.lists(_captures(len(files), len(codes)), max_size=4))
    runs = {}
    for capture in captures:
        number = writer.new_capture()
        writer.add_capture(number, capture)
        if capture.kind is CaptureKind.TEST and data.draw(st.booleans()):
            runs[number] = data.draw(FACTS)
            writer.add_run(number, runs[number])
        if data.draw(st.booleans()):
            writer.flush()
    edges = data.draw(st.lists(st.tuples(places, places), max_size=3)) if files else []
    for edge in edges:
        writer.add_edge(*edge)
    writer.close()

    bundle = read_bundle(writer.path)

    assert content(bundle) == (
        PROVENANCE,
        dict(enumerate(files)),
        dict(enumerate(codes)),
        dict(enumerate(captures)),
        runs,
        edges,
    )
    assert bundle.gaps == []
    with open_bundle(writer.path) as stream:
        assert digest_bundle(writer.path, stream) == (PROVENANCE, bundle.digest, bundle.n_bytes)
    assert bundle.digest == hashlib.sha256(writer.path.read_bytes()).hexdigest()
    assert bundle.n_bytes == writer.path.stat().st_size


def test_a_capture_written_twice_is_one(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path, PROVENANCE)
    files = [writer.add_file(name, None) for name in "ab"]
    number = writer.new_capture()
    for file, gap in zip(files, (Gap.THREAD_UNSEEN, Gap.SLOT_LOST), strict=True):
        writer.add_capture(
            number,
            Capture(kind=CaptureKind.FIXTURE, label="f", reads=frozenset({file}), gaps=((gap, ""),)),
        )
    writer.close()
    capture = read_bundle(writer.path).captures[number]
    assert capture.reads == {0, 1}
    assert capture.gaps == ((Gap.THREAD_UNSEEN, ""), (Gap.SLOT_LOST, ""))


def test_a_capture_too_long_for_one_line_comes_back_whole(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path, PROVENANCE)
    file = writer.add_file("a.py", None)
    codes = frozenset(writer.add_code(file, "f", line) for line in range(120_001))
    number = writer.new_capture()
    capture = Capture(kind=CaptureKind.TEST, label="t", codes=codes, environ=frozenset({"A"}))
    writer.add_capture(number, capture)
    writer.close()
    bundle = read_bundle(writer.path)
    assert bundle.captures == {number: capture}
    assert not bundle.gaps
    assert sum(line.startswith(b'["capture"', 9) for line in writer.path.read_bytes().splitlines()) == 3


def test_a_forked_child_writes_nothing_into_its_parents_bundle(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path, PROVENANCE)
    writer.add_file("a.py", None)
    child = os.fork()
    if not child:
        writer.flush()
        os._exit(0)
    os.waitpid(child, 0)
    writer.close()
    assert read_bundle(writer.path).gaps == []


def _outcome(path: Path, data: bytes) -> tuple[object, ...] | None:
    """What is read of these bytes; None when it is refused."""
    path.write_bytes(data)
    try:
        bundle = read_bundle(path)
    except EvidenceError:
        return None
    return (bool(bundle.gaps), content(bundle))


def _is_part(part: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Whether every line of the part is in the whole; nothing in this bundle is added to twice."""
    return part[0] == whole[0] and all(
        name.items() <= of.items() for name, of in zip(part[1:5], whole[1:5], strict=True)
    )


def test_a_bundle_cut_anywhere_is_never_complete(tmp_path: Path) -> None:
    path = write_small_bundle(tmp_path)
    data = path.read_bytes()
    whole = content(read_bundle(path))
    for n_bytes in range(len(data)):
        found = _outcome(path, data[:n_bytes])
        if found is None:
            assert n_bytes <= data.index(b"\n")
        else:
            is_gapped, read = found
            assert is_gapped, n_bytes
            assert _is_part(read, whole)  # type: ignore[arg-type]
    assert _outcome(path, data) == (False, whole)


@pytest.mark.parametrize(
    "values",
    [
        # Bits of letters, digits and case, and the two bytes that lines are told apart by.
        (lambda byte: {byte ^ 1, byte ^ 0x20, 10} - {byte}),
        pytest.param(lambda byte: {*range(0, 256, 5), 10, 32} - {byte}, marks=pytest.mark.slow),
    ],
    ids=["few", "many"],
)
def test_a_changed_byte_is_never_a_complete_bundle(tmp_path: Path, values: Any) -> None:
    path = write_small_bundle(tmp_path)
    data = path.read_bytes()
    whole = content(read_bundle(path))
    for place, byte in enumerate(data):
        for value in values(byte):
            found = _outcome(path, data[:place] + bytes([value]) + data[place + 1 :])
            if found is not None:
                is_gapped, read = found
                assert is_gapped, (place, value)
                assert _is_part(read, whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:1] + lines[2:],
        lambda lines: lines[:3] + lines[2:],
        lambda lines: [*lines, lines[1]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines[:-1], b"\n", *lines[-1:]],
        lambda lines: [*lines[:-1], lines[0], *lines[-1:]],
        lambda lines: lines[1:2] + lines[:1] + lines[2:],
    ],
    ids=["dropped", "doubled", "behind the end", "two ends", "an empty line", "two begins", "swapped"],
)
def test_whole_lines_lost_doubled_or_moved_are_damage(tmp_path: Path, change: Any) -> None:
    path = write_small_bundle(tmp_path)
    found = _outcome(path, b"".join(change(path.read_bytes().splitlines(keepends=True))))
    assert found is None or found[0]


# One wrong value each; the lines before them are those of the small bundle.
WRONG_LINES = [
    [],
    ["unknown", 1],
    ["file"],
    ["file", True, "a.py", None],
    ["file", 3.0, "a.py", None],
    ["file", -1, "a.py", None],
    ["file", 1 << 64, "a.py", None],
    ["file", 3, 7, None],
    ["file", 3, ["a.py"], None],
    ["file", 3, "a.py", "no blob"],
    ["file", 3, "a.py", "A" * 40],
    ["file", 3, "a.py", 7],
    ["file", 3, "a.py", None, "more"],
    ["file", 0, "other.py", None],
    ["code", 2, 0, "f"],
    ["code", 2, 9, "f", 1],
    ["code", 2, True, "f", 1],
    ["code", 2, [0], "f", 1],
    ["code", 2, 0, None, 1],
    ["code", 2, 0, "f", 1.0],
    ["code", 2, 0, "f", True],
    ["code", 0, 0, "other", 1],
    ["capture", 3, "test", "t"],
    ["capture", 3, "test", "t", []],
    ["capture", 3, "test", "t", None],
    ["capture", 3, "unknown", "t", {}],
    ["capture", 3, ["test"], "t", {}],
    ["capture", 3, "test", None, {}],
    ["capture", 3.0, "test", "t", {}],
    ["capture", 3, "test", "t", {"codes": [9]}],
    ["capture", 3, "test", "t", {"codes": [True]}],
    ["capture", 3, "test", "t", {"codes": [0.0]}],
    ["capture", 3, "test", "t", {"codes": 0}],
    ["capture", 3, "test", "t", {"codes": "01"}],
    ["capture", 3, "test", "t", {"codes": {"0": 0}}],
    ["capture", 3, "test", "t", {"reads": [[0]]}],
    ["capture", 3, "test", "t", {"reads": [9]}],
    ["capture", 3, "test", "t", {"imports": [None]}],
    ["capture", 3, "test", "t", {"listings": [-1]}],
    ["capture", 3, "test", "t", {"uses": ["1"]}],
    ["capture", 3, "test", "t", {"environ": "AB"}],
    ["capture", 3, "test", "t", {"environ": [1]}],
    ["capture", 3, "test", "t", {"gaps": [["unheard_of", ""]]}],
    ["capture", 3, "test", "t", {"gaps": [["slot_lost"]]}],
    ["capture", 3, "test", "t", {"gaps": [["slot_lost", None]]}],
    ["capture", 3, "test", "t", {"gaps": 1}],
    ["capture", 3, "test", "t", {"unheard_of": [0]}],
    ["capture", 2, "fixture", "tests/test_a.py::test_x[é\n]", {}],
    ["capture", 2, "test", "another", {}],
    ["ran", 2],
    ["ran", 2, []],
    ["ran", 2, {}],
    ["ran", 9, {"outcome": "passed", "started_us": 1}],
    ["ran", 1, {"outcome": "passed", "started_us": 1}],
    ["ran", [2], {"outcome": "passed", "started_us": 1}],
    ["ran", 2.0, {"outcome": "passed", "started_us": 1}],
    ["ran", 2, {"outcome": True, "started_us": 1}],
    ["ran", 2, {"outcome": "\ud800", "started_us": 1}],
    ["ran", 2, {"outcome": "passed", "started_us": True}],
    ["ran", 2, {"outcome": "passed", "started_us": 1.5}],
    ["ran", 2, {"outcome": "passed", "started_us": -1}],
    ["ran", 2, {"outcome": "passed", "started_us": 1 << 63}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "call_s": "1"}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "call_s": True}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "call_s": float("nan")}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "call_s": float("inf")}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "call_s": 10**400}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "is_doctest": 1}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "notes": "text"}],
    ["ran", 2, {"outcome": "passed", "started_us": 1, "native_readers": [1]}],
    ["edge", 0],
    ["edge", 0, 9],
    ["edge", True, 0],
    ["edge", 0, 1.0],
    ["edge", [0], 1],
]


@pytest.mark.parametrize("wrong", WRONG_LINES, ids=[str(number) for number in range(len(WRONG_LINES))])
def test_a_line_that_says_what_it_may_not_is_a_gap(tmp_path: Path, wrong: list[Any]) -> None:
    path = write_small_bundle(tmp_path, is_closed=False)
    before = path.read_bytes()
    whole = content(read_bundle(path))
    path.write_bytes(before + seal(wrong) + seal(["end", before.count(b"\n") + 1]))
    bundle = read_bundle(path)
    assert [gap for gap, _ in bundle.gaps] == [Gap.TORN_LINE]
    assert content(bundle) == whole


@pytest.mark.parametrize("end", [True, 1.0, None, "12", -1, 10**30, [], {}])
def test_an_end_mark_of_another_number_is_a_gap(tmp_path: Path, end: Any) -> None:
    path = write_small_bundle(tmp_path, is_closed=False)
    path.write_bytes(path.read_bytes() + seal(["end", end]))
    assert Gap.TORN_LINE in dict(read_bundle(path).gaps)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (b"", "first line is b''"),
        (b"\x00" * 100, "expected a begin mark"),
        (b"SQLite format 3\x00", "expected a begin mark"),
        (seal(["end", 0]), "expected a begin mark"),
        (seal(["begin", "fastci.bundle/1"]), "expected a begin mark"),
        (seal(["begin", "fastci.bundle/2", {}]), "schema 'fastci.bundle/2', expected 'fastci.bundle/1'"),
        (seal(["begin", ["x"] * 99, {}]), "expected 'fastci.bundle/1'"),
        (seal(["begin", "fastci.bundle/1", []]), "without a usable bundle_id"),
        (seal(["begin", "fastci.bundle/1", {}]), "without a usable bundle_id"),
    ],
)
def test_what_does_not_begin_as_a_bundle_is_refused_by_name(
    tmp_path: Path, first: bytes, message: str
) -> None:
    path = tmp_path / "x.fastci-bundle"
    path.write_bytes(first)
    with pytest.raises(EvidenceError) as refused:
        read_bundle(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bundle_id", "../../x"),
        ("bundle_id", ""),
        ("bundle_id", 7),
        ("started_us", True),
        ("started_us", 1.0),
        ("started_us", -1),
        ("started_us", 1 << 63),
        ("lane", None),
        ("scope", ["trunk"]),
        ("scope", "\udcff"),
    ],
)
def test_a_begin_mark_with_a_wrong_field_is_refused_by_its_name(
    tmp_path: Path, name: str, value: Any
) -> None:
    path = write_small_bundle(tmp_path)
    begin = json.loads(path.read_bytes().split(b"\n")[0][9:])
    begin[2][name] = value
    path.write_bytes(seal(begin))
    with pytest.raises(EvidenceError, match=f"usable {name}"):
        read_bundle(path)


def test_facts_of_a_later_release_are_no_damage(tmp_path: Path) -> None:
    path = write_small_bundle(tmp_path, is_closed=False)
    before = path.read_bytes()
    facts = {"outcome": "passed", "started_us": STARTED_US, "peak_bytes": 5}
    path.write_bytes(before + seal(["ran", 2, facts]) + seal(["end", before.count(b"\n") + 1]))
    bundle = read_bundle(path)
    assert not bundle.gaps
    assert bundle.runs[2] == RunFacts(outcome="passed", started_us=STARTED_US)


def test_bundles_are_found_below_folders_and_by_name(tmp_path: Path) -> None:
    first = write_small_bundle(tmp_path / "b" / "c")
    second = write_small_bundle(tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("no bundle")
    named = tmp_path / "any.name"
    named.write_bytes(first.read_bytes())
    assert find_bundles([tmp_path, named, second]) == sorted([first, second, named])


def test_a_source_comes_back_by_its_blob_id_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "pack"
    sources = [b"def f():\n    return %d\n" % number * 100 for number in range(3)]
    blobs = [blob_id(source) for source in sources]
    writer = SourcePackWriter(path)
    ends = []
    for blob, source in zip(blobs, sources, strict=True):
        writer.put(blob, source)
        writer.put(blob, source)
        ends.append(path.stat().st_size)
    writer.close()
    assert [SourcePack(path).get(blob) for blob in blobs] == sources
    assert SourcePack(path).get(blobs[0], max_bytes=100) is None
    assert SourcePack(path).get(blob_id(b"other")) is None
    whole = path.read_bytes()
    for n_bytes in range(len(whole)):
        path.write_bytes(whole[:n_bytes])
        pack = SourcePack(path)
        for blob, source, end in zip(blobs, sources, ends, strict=True):
            assert pack.get(blob) == (source if end <= n_bytes else None)


def test_a_damaged_source_is_not_at_hand_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "pack"
    writer = SourcePackWriter(path)
    first, second = b"x = 1\n" * 50, b"y = 2\n" * 50
    writer.put(blob_id(first), first)
    end = path.stat().st_size
    writer.put(blob_id(second), second)
    whole = path.read_bytes()
    path.write_bytes(whole[: end - 3] + b"***" + whole[end:])
    assert SourcePack(path).get(blob_id(first)) is None
    assert SourcePack(path).get(blob_id(second)) == second
    # An entry that says it holds another content.
    path.write_bytes(whole.replace(blob_id(first).encode(), b"0" * 40))
    assert SourcePack(path).get("0" * 40) is None


def test_a_pack_is_the_process_s_own_even_in_a_forked_child(tmp_path: Path) -> None:
    writer = SourcePackWriter(tmp_path / "pack")
    child = os.fork()
    if not child:
        try:
            writer.put(blob_id(b"child"), b"child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    writer.put(blob_id(b"parent"), b"parent")
    pack = SourcePack(tmp_path / "pack")
    assert (pack.get(blob_id(b"child")), pack.get(blob_id(b"parent"))) == (None, b"parent")


def test_after_a_torn_source_no_other_is_kept_and_each_says_so(tmp_path: Path) -> None:
    writer = SourcePackWriter(tmp_path / "pack")
    writer.put(blob_id(b"whole"), b"whole")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = (tmp_path / "pack").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        with pytest.raises(OSError, match="large"):
            writer.put(blob_id(b"torn"), b"torn" * 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.raises(OSError, match="an earlier source could not be written whole"):
        writer.put(blob_id(b"late"), b"late")
    assert SourcePack(tmp_path / "pack").get(blob_id(b"whole")) == b"whole"


@pytest.mark.parametrize("blob", ["", "..", "../../x", "a" * 39, "/etc/passwd", "\0" * 40])
def test_a_name_that_is_no_blob_id_leads_nowhere(tmp_path: Path, blob: str) -> None:
    SourcePackWriter(tmp_path / "pack").put("a" * 40, b"x")
    assert SourcePack(tmp_path / "pack").get(blob) is None
