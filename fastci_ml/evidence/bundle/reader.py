"""Reading bundles: whatever was done to the file, what comes back is what its process wrote, or is a gap."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fastci_ml.errors import EvidenceError, ReportError
from fastci_ml.evidence.bundle.entries import add_line, parse_provenance
from fastci_ml.evidence.bundle.lines import MAX_LINE_BYTES, SUFFIX
from fastci_ml.evidence.bundle.unseal import unseal
from fastci_ml.records.evidence import Capture, CodeSeen, FileSeen, ProcessFacts, Provenance, RunFacts
from fastci_ml.records.evidence_kinds import Gap
from fastci_ml.sources.regular_files import open_regular

# Bytes of an end mark, of any number of lines.
_LONGEST_END = 64


@dataclass(slots=True)
class Bundle:
    """What one process saw.

    Attributes
    ----------
    path : Path
        The file that was read.
    provenance : Provenance
        Its first line.
    files, codes, captures : dict
        By their numbers. A capture that was added to is one here.
    runs : dict of int to RunFacts
        By the number of the test's capture. A test that was run again has several captures of one label. A
        test capture without an entry never came to its end.
    edges : list of (int, int)
        Importing and imported file.
    gaps : list of (Gap, str)
        What holds for the whole bundle: no end mark, torn lines.
    process : ProcessFacts or None
        What a child said of itself at its end.
    became : str or None
        Where another program took the place of this one: what it is if it may run Python, else empty.
    digest : str
        SHA-256 of the bytes that were read, hexadecimal.
    n_bytes : int
        How many they were.
    """

    path: Path
    provenance: Provenance
    files: dict[int, FileSeen] = field(default_factory=dict)
    codes: dict[int, CodeSeen] = field(default_factory=dict)
    captures: dict[int, Capture] = field(default_factory=dict)
    runs: dict[int, RunFacts] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[Gap, str]] = field(default_factory=list)
    process: ProcessFacts | None = None
    became: str | None = None
    digest: str = ""
    n_bytes: int = 0


def find_bundles(paths: list[Path]) -> list[Path]:
    """What should be bundles, sorted: each path that is no folder, and what has their suffix below folders.

    Also what is no regular file: reading it says so, where leaving it out would not.
    """
    found: set[Path] = set()
    for path in paths:
        is_folder = path.is_dir()
        if is_folder:
            found.update(path.rglob(f"*{SUFFIX}"))
        if not is_folder or path.name.endswith(SUFFIX):
            found.add(path)
    return sorted(found)


def read_bundle(path: Path) -> Bundle:
    """Read one bundle.

    Parameters
    ----------
    path : Path
        A file that a `BundleWriter` wrote, or what is left of it. One that is being written gives what was
        there at the beginning.

    Returns
    -------
    Bundle
        Damage behind the first line is a gap of the bundle, not an error.

    Raises
    ------
    EvidenceError
        If the file cannot be read, does not begin as a bundle does, or is of an unknown version.
    """
    with open_bundle(path) as stream:
        return read_open_bundle(path, stream)


def open_bundle(path: Path) -> BinaryIO:
    """Open a bundle; what is no regular file is refused, and never waited for.

    Raises
    ------
    EvidenceError
        If it cannot be opened.
    """
    try:
        return open_regular(path)
    except ReportError as error:
        raise EvidenceError(str(error)) from error


def read_provenance(path: Path, stream: BinaryIO) -> Provenance:
    """Provenance of an open bundle; raises EvidenceError as `read_bundle`."""
    stream.seek(0)
    return parse_provenance(path, stream.readline(MAX_LINE_BYTES))


def has_end_mark(stream: BinaryIO) -> bool:
    """Whether the last line of an open bundle is its end mark; all before it may be damaged."""
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - _LONGEST_END))
    line = unseal(stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2] + b"\n")
    return line is not None and line[0] == "end"


def digest_bundle(path: Path, stream: BinaryIO) -> tuple[Provenance, str, int]:
    """Provenance, digest and size of an open bundle, without taking it apart; it is left at its start.

    Raises
    ------
    EvidenceError
        As `read_bundle`.
    """
    try:
        lines = _Lines(stream)
        provenance = parse_provenance(path, next(lines, b""))
        while lines.skip():
            pass
        stream.seek(0)
    except OSError as error:
        raise EvidenceError(f"{path}: cannot be read: {error}") from error
    return provenance, lines.digest.hexdigest(), lines.n_bytes


def read_open_bundle(path: Path, stream: BinaryIO) -> Bundle:
    """`read_bundle` for an open file, from its start."""
    try:
        return _read(path, _Lines(stream))
    except OSError as error:
        raise EvidenceError(f"{path}: cannot be read: {error}") from error


def _read(path: Path, lines: _Lines) -> Bundle:
    bundle = Bundle(path, parse_provenance(path, next(lines, b"")))
    n_lines = 1
    n_torn = 0
    end: int | None = None
    for raw in lines:
        line = unseal(raw)
        if line is None or end is not None:
            n_torn += 1
            continue
        if line[0] == "end":
            end = line[1] if len(line) == 2 and type(line[1]) is int else -1
            continue
        n_lines += 1
        # It failed to become another program if it went on writing.
        bundle.became = None
        try:
            add_line(bundle, line)
        except (KeyError, IndexError, TypeError, ValueError):
            n_torn += 1
    # The name of the bundle, not of the file: a copy says the same.
    name = f"bundle {bundle.provenance.bundle_id}"
    if n_torn or (end is not None and end != n_lines):
        bundle.gaps.append((Gap.TORN_LINE, f"{name}: {n_torn or 'some'} lines damaged or missing"))
    if end is None and bundle.became is None:
        bundle.gaps.append((Gap.NO_END_MARK, name))
    bundle.digest = lines.digest.hexdigest()
    bundle.n_bytes = lines.n_bytes
    return bundle


class _Lines:
    """Lines of a stream up to the size that it has now, with the digest of what was given."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        self.n_bytes = 0
        self.digest = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        raw = self._stream.readline(min(MAX_LINE_BYTES, self._size - self.n_bytes))
        if not raw:
            raise StopIteration
        self._count(raw)
        return raw

    def skip(self) -> bool:
        """Give a piece to the digest alone; False at the end."""
        raw = self._stream.read(min(1 << 20, self._size - self.n_bytes))
        self._count(raw)
        return bool(raw)

    def _count(self, raw: bytes) -> None:
        self.n_bytes += len(raw)
        self.digest.update(raw)
