"""Bundles as a recorder would write them, and what a bundle says, for comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.records.evidence import Capture, CaptureKind, Provenance, RunFacts

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
