"""Bundles as a recorder would write them, and what a bundle says, for comparison."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.evidence.bundle.reader import Bundle, read_bundle
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.merge.bundle_evidence import build_records
from fastci_ml.evidence.merge.sources_at_hand import SourcesAtHand
from fastci_ml.evidence.store.batch import MergedBundle
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import Capture, EvidenceRecord, Provenance, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind

STARTED_US = 1_790_000_000_000_000

PROVENANCE = Provenance(
    bundle_id="00ab",
    session_id="5e55",
    lane="py3.11-cpu",
    scope="trunk",
    commit="c" * 40,
    tree="d" * 40,
    python="3.11.7",
    backend="monitoring",
    worker="",
    started_us=STARTED_US,
)


def provenance(bundle_id: str, **changes: Any) -> Provenance:
    """Provenance of a bundle of the usual session."""
    return replace(PROVENANCE, bundle_id=bundle_id, **changes)


def content(bundle: Bundle) -> tuple[object, ...]:
    """Everything that a bundle says of what ran, in a form that compares."""
    return (
        bundle.provenance,
        bundle.files,
        bundle.codes,
        bundle.captures,
        bundle.runs,
        bundle.edges,
    )


def write_small_bundle(directory: Path, *, is_closed: bool = True) -> Path:
    """A bundle with one line of each kind at least, of some 1.4 kB."""
    writer = BundleWriter(directory, PROVENANCE)
    test_file = writer.add_file("tests/test_a.py", "a" * 40)
    module = writer.add_file("pkg/mod.py", "b" * 40)
    data = writer.add_file("data/\udcff.json", None)
    codes = [writer.add_code(test_file, "test_x", 3), writer.add_code(module, "f", 1)]
    session, fixture, test = (writer.new_capture() for _ in range(3))
    writer.add_capture(fixture, Capture(kind=CaptureKind.FIXTURE, label="model", codes=frozenset(codes[1:])))
    writer.add_edge(test_file, module)
    writer.add_capture(
        test,
        Capture(
            kind=CaptureKind.TEST,
            label="tests/test_a.py::test_x[é\n]",
            codes=frozenset(codes[:1]),
            reads=frozenset({data}),
            listings=frozenset({data}),
            imports=frozenset({module}),
            environ=frozenset({"MODEL_SIZE"}),
            uses=frozenset({fixture}),
        ),
    )
    writer.add_run(test, RunFacts(outcome="passed", started_us=STARTED_US + 5, call_s=0.25))
    writer.add_capture(session, Capture(kind=CaptureKind.SESSION, label=""))
    if is_closed:
        writer.close()
    else:
        writer.flush()
    return writer.path


class Recording:
    """A bundle in the making, beside the sources that its process ran; lines of code objects are real."""

    def __init__(self, directory: Path, bundle_id: str = "00ab", **changes: Any) -> None:
        self.directory = directory
        self.writer = BundleWriter(directory, provenance(bundle_id, **changes))
        self.path = self.writer.path
        self._files: dict[tuple[str, str | None], int] = {}
        self._codes: dict[tuple[int, str, int], int] = {}
        self._texts: dict[str, str] = {}
        self._n_tests = 0

    def file(self, path: str, blob: str | None) -> int:
        """Number of a file."""
        key = (path, blob)
        if key not in self._files:
            self._files[key] = self.writer.add_file(path, blob)
        return self._files[key]

    def source(self, path: str, text: str, *, is_kept: bool = True) -> int:
        """Number of a Python file with this content, kept beside the bundle."""
        self._texts[path] = text
        blob = blob_id(text.encode())
        if is_kept:
            self.writer.sources.put(blob, text.encode())
        return self.file(path, blob)

    def code(self, path: str, name: str, line: int | None = None) -> int:
        """Number of a code object of a source: the first of that name, unless a line is given."""
        file = self.file(path, blob_id(self._texts[path].encode()))
        if line is None:
            line = _first_lines(self._texts[path])[name]
        key = (file, name, line)
        if key not in self._codes:
            self._codes[key] = self.writer.add_code(*key)
        return self._codes[key]

    def capture(
        self, kind: CaptureKind, label: str, *codes: int, number: int | None = None, **parts: Any
    ) -> int:
        """Write a capture; parts as in `Capture`, of any iterable."""
        number = self.writer.new_capture() if number is None else number
        made = {name: tuple(part) if name == "gaps" else frozenset(part) for name, part in parts.items()}
        self.writer.add_capture(number, Capture(kind=kind, label=label, codes=frozenset(codes), **made))
        return number

    def test(self, node_id: str, *codes: int, facts: RunFacts | None = None, **parts: Any) -> int:
        """Write a test that passed, or one with these facts."""
        number = self.capture(CaptureKind.TEST, node_id, *codes, **parts)
        self._n_tests += 1
        started_us = self.writer_started_us + 1_000 * self._n_tests
        self.writer.add_run(number, facts or RunFacts(outcome="passed", started_us=started_us, call_s=0.5))
        return number

    @property
    def writer_started_us(self) -> int:
        """Start of the process."""
        return int(self.path.name.partition("-")[0])

    def close(self) -> Bundle:
        """End the bundle, and read it."""
        self.writer.close()
        return read_bundle(self.path)

    def cut(self) -> Bundle:
        """Leave the bundle without its end, and read it."""
        self.writer.flush()
        return read_bundle(self.path)


@lru_cache
def _first_lines(text: str) -> dict[str, int]:
    """By name of a code object of a source, its line; of several the first."""
    found: dict[str, int] = {}
    todo = [compile(text, "", "exec")]
    while todo:
        code = todo.pop()
        found[code.co_qualname] = min(code.co_firstlineno, found.get(code.co_qualname, code.co_firstlineno))
        todo += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return found


def records_of(bundle: Bundle, **options: Any) -> dict[str, EvidenceRecord]:
    """Records of a bundle by node id, from the sources beside it alone."""
    sources = SourcesAtHand(bundle.path, bundle.path.parent / "no working tree")
    return {record.node_id: record for record in build_records(bundle, sources, **options).records()}


def names(record: EvidenceRecord) -> set[str]:
    """Units of a record, in short: ``path::name``."""
    return {f"{unit.path}::{unit.name}" for unit in record.units}


def gap_kinds(record: EvidenceRecord) -> list[str]:
    """Kinds of the gaps of a record, in order."""
    return list(dict.fromkeys(gap.value for gap, _ in record.gaps))


def store_content(path: Path) -> object:
    """Everything that a store answers. How merges were cut into transactions is left out."""
    with EvidenceStore.open(path, read_only=True) as store:
        heads = list(store.records())
        lanes = sorted({head.lane for head in heads})
        scopes = sorted({head.scope for head in heads})
        versions: dict[tuple[str, str], set[str]] = {}
        for lane in lanes:
            for sources in store.sources(lane=lane, scopes=scopes):
                for name, blobs in sources.versions.items():
                    versions.setdefault((sources.commit, name), set()).update(blobs)
        return (
            {node_id: store.records_of(node_id) for node_id in sorted({head.node_id for head in heads})},
            {lane: (store.edges(lane), store.import_units(lane)) for lane in lanes},
            versions,
            {
                (name, blob): store.blocks(name, blob)
                for (_, name), blobs in versions.items()
                for blob in blobs
            },
            {f"{number:04x}": _merged(store.bundle(f"{number:04x}")) for number in range(64)},
        )


def _merged(bundle: MergedBundle | None) -> object:
    # A copy is as good as the file that it was made from.
    return None if bundle is None else replace(bundle, name="")
