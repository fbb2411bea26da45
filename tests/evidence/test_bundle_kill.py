"""A process killed while it writes its bundle: what was flushed is there, and nothing is taken for whole."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from bundle_makers import STARTED_US, provenance

from fastci_ml.evidence.bundle.reader import read_bundle
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.records.evidence import Capture, FileSeen, RunFacts
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

# Long enough that the kernel copies a flush in several steps, and a kill can fall between them.
_LABEL_BYTES = 20_000


def _file(number: int) -> FileSeen:
    return FileSeen(path=f"data/{number}.json", blob=f"{number:040x}")


def _capture(number: int) -> Capture:
    return Capture(
        kind=CaptureKind.TEST, label=f"t::{number}" + "x" * _LABEL_BYTES, reads=frozenset({number})
    )


def _facts(number: int) -> RunFacts:
    return RunFacts(outcome="passed", started_us=STARTED_US + number)


def _write_until_killed(directory: Path, bundle_id: str, acknowledge: int, n_tests: int) -> None:
    writer = BundleWriter(directory, provenance(bundle_id))
    for number in range(n_tests):
        seen = _file(number)
        writer.add_file(seen.path, seen.blob)
        writer.add_capture(writer.new_capture(), _capture(number))
        writer.add_run(number, _facts(number))
        writer.flush()
        os.write(acknowledge, b".")
    writer.close()
    os.write(acknowledge, b"!")


def _start(directory: Path, bundle_id: str, n_tests: int) -> tuple[int, int]:
    """A process that writes, and the pipe on which it acknowledges each flush."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            _write_until_killed(directory, bundle_id, writer, n_tests)
        finally:
            # Neither pytest nor its fixtures go on in here.
            os._exit(1)
    os.close(writer)
    return child, reader


def _check(directory: Path, acknowledged: bytes) -> None:
    paths = list(directory.glob("*.fastci-bundle"))
    if not acknowledged and (not paths or not paths[0].stat().st_size):
        return  # killed before its first line
    bundle = read_bundle(paths[0])
    n_flushed = acknowledged.count(b".")
    assert n_flushed <= len(bundle.runs) <= len(bundle.captures)
    assert bundle.runs == {number: _facts(number) for number in range(len(bundle.runs))}
    assert bundle.captures == {number: _capture(number) for number in range(len(bundle.captures))}
    assert bundle.files == {number: _file(number) for number in range(len(bundle.files))}
    if acknowledged.endswith(b"!"):
        assert not bundle.gaps
    else:
        assert Gap.NO_END_MARK in dict(bundle.gaps)


@pytest.mark.parametrize("n_kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_process_killed_at_any_moment_keeps_what_it_flushed(tmp_path: Path, n_kills: int) -> None:
    rng = random.Random(n_kills)
    for number in range(n_kills):
        directory = tmp_path / str(number)
        child, pipe = _start(directory, f"{number:x}", n_tests=1_000_000)
        with os.fdopen(pipe, "rb", buffering=0) as reader:
            # Some way into the writing, and from there at a moment of no design.
            acknowledged = b"".join(reader.read(1) for _ in range(rng.randrange(60)))
            time.sleep(rng.random() * 0.002)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            acknowledged += reader.readall()
        _check(directory, acknowledged)


def test_a_process_that_is_not_killed_leaves_a_whole_bundle(tmp_path: Path) -> None:
    child, pipe = _start(tmp_path, "1", n_tests=3)
    with os.fdopen(pipe, "rb") as reader:
        assert reader.read() == b"...!"
    os.waitpid(child, 0)
    _check(tmp_path, b"...!")
