"""Bundles of strangers: merging them ends, in time and memory that grow with their size, and says why."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import PROVENANCE, Recording, gap_kinds, records_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.lines import seal
from fastci_ml.evidence.bundle.reader import read_bundle
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.merge import capture_sums
from fastci_ml.evidence.merge.merge import merge_bundles
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import Capture, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TEST = "tests/test_a.py"
TEXT = "def test_a():\n    pass\n\n\ndef helper():\n    pass\n"

# Merges in a process whose address space is limited, and says what it found.
_MERGE_IN_LITTLE = """
import resource, sys
from pathlib import Path
from fastci_ml.evidence.merge.merge import merge_bundles
limit = 700 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
summary = merge_bundles([Path(sys.argv[1])], Path(sys.argv[2]), root=Path(sys.argv[1]))
print(summary.n_merged, summary.n_records, summary.n_complete, [gap.value for gap in sorted(summary.gaps)])
"""


def _merge_in_little(bundles: Path) -> str:
    command = [sys.executable, "-c", _MERGE_IN_LITTLE, str(bundles), str(bundles / "evidence.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def _recording(directory: Path) -> Recording:
    recording = Recording(directory)
    recording.source(TEST, TEXT)
    return recording


@pytest.mark.slow
def test_many_tests_on_a_long_chain_of_fixtures_are_cut_off_with_a_gap(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    n_captures = 10_000
    own, helper = recording.code(TEST, "test_a"), recording.code(TEST, "helper")
    fixtures = [recording.writer.new_capture() for _ in range(n_captures)]
    for place, number in enumerate(fixtures):
        recording.capture(
            CaptureKind.FIXTURE, "f", helper, number=number, uses=[fixtures[place - 1]] if place else []
        )
    for place in range(n_captures):
        recording.test(f"{TEST}::test_a[{place:06}]", own, uses=[fixtures[place]])
    recording.writer.close()
    n_merged, n_records, n_complete, gaps = _merge_in_little(tmp_path).split(" ", 3)
    assert (n_merged, n_records, gaps) == ("1", "10000", "['recorder_failed']")
    assert 0 < int(n_complete) < 10_000


def test_what_is_cut_off_is_incomplete_and_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_sums, "MAX_STEPS", 20)
    monkeypatch.setattr("fastci_ml.evidence.merge.bundle_parts.MAX_STEPS", 20)
    recording = _recording(tmp_path)
    helper = recording.capture(CaptureKind.FIXTURE, "f", recording.code(TEST, "helper"))
    for place in range(9):
        recording.test(f"{TEST}::test_a[{place}]", recording.code(TEST, "test_a"), uses=[helper])
    records = records_of(recording.close())
    assert gap_kinds(records[f"{TEST}::test_a[0]"]) == []
    assert {unit.name for unit in records[f"{TEST}::test_a[0]"].units} == {"test_a", "helper"}
    assert gap_kinds(records[f"{TEST}::test_a[8]"]) == ["recorder_failed"]
    assert {unit.name for unit in records[f"{TEST}::test_a[8]"].units} == {"test_a"}


def test_thirty_thousand_captures_that_all_use_each_other_are_merged(tmp_path: Path) -> None:
    writer = BundleWriter(tmp_path, PROVENANCE)
    numbers = [writer.new_capture() for _ in range(30_000)]
    for place, number in enumerate(numbers):
        uses = frozenset({numbers[place - 1], numbers[place // 2], number})
        writer.add_capture(number, Capture(kind=CaptureKind.FIXTURE, label="f", uses=uses))
    test = writer.new_capture()
    writer.add_capture(test, Capture(kind=CaptureKind.TEST, label="a.txt::t", uses=frozenset(numbers)))
    writer.add_run(test, RunFacts(outcome="passed", started_us=1))
    writer.close()
    assert _merge_in_little(tmp_path) == "1 1 1 []"


def test_a_gap_that_everything_repeats_is_not_stored_at_length(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    gaps = [(Gap.THREAD_UNSEEN, f"{number}" + "x" * 20_000) for number in range(100)]
    recording.capture(CaptureKind.SESSION, "", gaps=gaps)
    for place in range(2_000):
        recording.test(f"{TEST}::test_a[{place}]", recording.code(TEST, "test_a"))
    recording.writer.close()
    assert _merge_in_little(tmp_path) == "1 2000 0 ['thread_unseen']"
    assert (tmp_path / "evidence.sqlite").stat().st_size < 10e6


def test_sources_that_are_bombs_are_gaps(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    store = recording.writer.sources
    codes = []
    for name, content in (("zeros", b"#" * (64 << 20)), ("noise", b"x = 1\n" * (1 << 20))):
        blob = blob_id(content)
        store.put(blob, content)
        codes.append(recording.writer.add_code(recording.file(f"pkg/{name}.py", blob), "f", 1))
    recording.test(f"{TEST}::test_a", recording.code(TEST, "test_a"), *codes)
    recording.writer.close()
    assert _merge_in_little(tmp_path) == "1 1 0 ['source_missing']"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "-" * 50_000 + "1",
        "x = " + "+".join("1" for _ in range(20_000)) + "\n",
        "a" + ".a" * 20_000 + "\n",
        "\0",
        "# -*- coding: nonsense -*-\n",
        "if x:\n" + "".join(" " * depth + "if x:\n" for depth in range(1, 99)) + " " * 99 + "y\n",
    ],
    ids=["brackets", "signs", "sum", "attributes", "zero", "coding", "indents"],
)
def test_sources_that_break_parsers_are_compared_as_they_are(tmp_path: Path, text: str) -> None:
    recording = _recording(tmp_path)
    blob = blob_id(text.encode())
    recording.writer.sources.put(blob, text.encode())
    file = recording.file("pkg/odd.py", blob)
    recording.test(f"{TEST}::test_a", recording.code(TEST, "test_a"), imports=[file])
    recording.writer.close()
    assert _merge_in_little(tmp_path) == "1 1 1 []"


def test_a_packed_source_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    blob = blob_id(b"x")
    os.mkfifo(tmp_path / f"one{PACK_SUFFIX}")
    assert SourcesAtHand(tmp_path / "one", tmp_path)("pipe", blob) is None


TEXTS = st.text(st.characters(), max_size=5)
LABELS = st.sampled_from(
    ["", "::", "a.py", "a.py::", "a.py::t", "a.py::t[::", "b.txt::x", "\udcff.py::t", "a\0.py::t"]
)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_a_bundle_says_is_stored_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("any")
    writer = BundleWriter(directory, PROVENANCE)
    source = TEXT.encode()
    writer.sources.put(blob_id(source), source)
    blobs = st.sampled_from([None, "a" * 40, blob_id(source)])
    paths = (
        st.sampled_from(["a.py", "b.txt", "", "/", "../x.py", "\udcff.py", "conftest.py", "a/\0.py"]) | TEXTS
    )
    for path, blob in data.draw(st.lists(st.tuples(paths, blobs), max_size=5)):
        writer.add_file(path, blob)
    n_files = writer._n_files
    places = st.integers(0, max(n_files - 1, 0))
    names = st.sampled_from(["test_a", "<module>", "<lambda>", "helper.<locals>.<listcomp>", "", "."]) | TEXTS
    n_codes = 0
    if n_files:
        for code in data.draw(st.lists(st.tuples(places, names, st.integers(0, 6)), max_size=5)):
            writer.add_code(*code)
            n_codes += 1
        for edge in data.draw(st.lists(st.tuples(places, places), max_size=3)):
            writer.add_edge(*edge)
    files = st.frozensets(places, max_size=3) if n_files else st.just(frozenset())
    codes = st.frozensets(st.integers(0, n_codes - 1), max_size=3) if n_codes else st.just(frozenset())
    labels = set()
    for _ in range(data.draw(st.integers(0, 5))):
        kind = data.draw(st.sampled_from(CaptureKind))
        capture = Capture(
            kind=kind,
            label=data.draw(LABELS),
            codes=data.draw(codes),
            reads=data.draw(files),
            listings=data.draw(files),
            imports=data.draw(files),
            environ=data.draw(st.frozensets(TEXTS, max_size=2)),
            uses=data.draw(st.frozensets(st.integers(0, 6), max_size=3)),
            gaps=tuple(data.draw(st.lists(st.tuples(st.sampled_from(Gap), TEXTS), max_size=2))),
        )
        number = writer.new_capture()
        writer.add_capture(number, capture)
        if kind is CaptureKind.TEST:
            labels.add(capture.label)
            if data.draw(st.booleans()):
                facts = RunFacts(outcome=data.draw(st.sampled_from(["passed", "x"])), started_us=2**63 - 1)
                writer.add_run(number, facts)
    writer.close()

    summary = merge_bundles([directory], directory / "evidence.sqlite", root=directory)

    assert (summary.n_merged, summary.n_records, summary.problems) == (1, len(labels), [])
    records = records_of(read_bundle(writer.path), exists=lambda path: False)
    with EvidenceStore.open(directory / "evidence.sqlite") as opened:
        assert opened.check() == []
        for label in labels:
            assert opened.record(label, lane=PROVENANCE.lane, scope=PROVENANCE.scope) == records[label]


@settings(max_examples=40)
@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(["file", "code", "capture", "ran", "edge"]),
            st.lists(st.integers(-1, 3) | st.sampled_from(["test", "a.py::t"]) | st.just({}), max_size=4),
        ),
        max_size=4,
    )
)
def test_sealed_nonsense_is_merged_with_gaps(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, list[Any]]]
) -> None:
    directory = tmp_path_factory.mktemp("nonsense")
    recording = _recording(directory)
    recording.test(f"{TEST}::test_a", recording.code(TEST, "test_a"))
    recording.writer.flush()
    with recording.path.open("ab") as stream:
        stream.writelines(seal([word, *rest]) for word, rest in lines)
    summary = merge_bundles([directory], directory / "evidence.sqlite", root=directory)
    assert (summary.n_merged, summary.n_complete, summary.problems) == (1, 0, [])


def test_a_bundle_of_one_line_too_long_is_merged_with_a_gap(tmp_path: Path) -> None:
    recording = _recording(tmp_path)
    recording.test(f"{TEST}::test_a", recording.code(TEST, "test_a"))
    recording.writer.flush()
    body = b'["capture",7,"fixture","' + b"x" * (17 << 20) + b'",{}]'
    with recording.path.open("ab") as stream:
        stream.write(b"%08x %s\n" % (zlib.crc32(body), body))
    assert _merge_in_little(tmp_path) == "1 1 0 ['no_end_mark', 'torn_line']"
