"""Writing a bundle, from one process and one thread at a time."""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict
from os import fstat, fsync, getpid, write
from pathlib import Path
from typing import Any

from fastci_ml.evidence.bundle.lines import SCHEMA, SUFFIX, seal
from fastci_ml.records.evidence import Capture, Provenance, RunFacts

# Fields of `Capture` that hold numbers or names, by their names on the line.
PARTS = ("codes", "reads", "listings", "imports", "environ", "uses")
# The lowest number of our descriptor: those below it are closed and taken again by whoever redirects output.
_MIN_HANDLE = 64
# Members of one part on one line: a longer line than `MAX_LINE_BYTES` would be read as damage.
_MAX_MEMBERS = 50_000


class BundleWriter:
    """The bundle of this process.

    Lines are kept until `flush`, which hands them to the system in one write: after it, no kill of the
    process can lose them. Numbers are given in order from 0.

    Parameters
    ----------
    directory : Path
        Folder of bundles; made where missing.
    provenance : Provenance
        What the first line says.

    Attributes
    ----------
    path : Path
        File of the bundle.

    Raises
    ------
    OSError
        If the folder or the file cannot be written; also from `flush` and `close`.
    """

    def __init__(self, directory: Path, provenance: Provenance) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{provenance.started_us}-{provenance.bundle_id}{SUFFIX}"
        # Closed on exec, so that no child program can hold it open.
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._handle = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _MIN_HANDLE)
        os.close(handle)
        found = fstat(self._handle)
        self._file = (found.st_dev, found.st_ino)
        self._pid = getpid()
        self._lines: list[bytes] = []
        self._n_lines = 0
        self._n_files = 0
        self._n_codes = 0
        self._n_captures = 0
        self._add(["begin", SCHEMA, asdict(provenance)])
        self.flush()

    def add_file(self, path: str, blob: str | None) -> int:
        """Number of a file that is new to this bundle."""
        self._add(["file", self._n_files, path, blob])
        self._n_files += 1
        return self._n_files - 1

    def add_code(self, file: int, name: str, line: int) -> int:
        """Number of a code object that is new to this bundle."""
        self._add(["code", self._n_codes, file, name, line])
        self._n_codes += 1
        return self._n_codes - 1

    def new_capture(self) -> int:
        """Number for a capture; nothing is written yet."""
        self._n_captures += 1
        return self._n_captures - 1

    def add_capture(self, number: int, capture: Capture) -> None:
        """Write a capture, or add to the one of that number."""
        parts: dict[str, list[Any]] = {}
        for name in PARTS:
            values = getattr(capture, name)
            if values:
                parts[name] = sorted(values)
        if capture.gaps:
            parts["gaps"] = [[gap.value, detail] for gap, detail in capture.gaps]
        n_members = max(map(len, parts.values()), default=0)
        for start in range(0, n_members or 1, _MAX_MEMBERS):
            piece = parts
            if n_members > _MAX_MEMBERS:
                piece = {name: values[start : start + _MAX_MEMBERS] for name, values in parts.items()}
            self._add(["capture", number, capture.kind.value, capture.label, piece])

    def add_run(self, number: int, facts: RunFacts) -> None:
        """Say that the test of a capture has ended."""
        self._add(["ran", number, asdict(facts)])

    def add_edge(self, importer: int, imported: int) -> None:
        """Say that a module of the repository imported another, by their files."""
        self._add(["edge", importer, imported])

    def flush(self) -> None:
        """Hand over all lines so far."""
        # In a forked child the lines are the parent's to write.
        if self._lines and getpid() == self._pid:
            data = b"".join(self._lines)
            self._lines.clear()
            self._check_handle()
            # A write to a file may be cut short by a full disk; what follows then fails.
            written = write(self._handle, data)
            while written < len(data):
                written += write(self._handle, data[written:])

    def close(self) -> None:
        """Write the end mark; the bundle is complete."""
        self._add(["end", self._n_lines])
        self.flush()
        fsync(self._handle)
        os.close(self._handle)

    def _check_handle(self) -> None:
        """Refuse to write into another file: a test may have closed ours and been given its number."""
        found = fstat(self._handle)
        if (found.st_dev, found.st_ino) != self._file:
            raise OSError(f"{self.path}: its descriptor was closed, and is another file's by now")

    def _add(self, line: list[Any]) -> None:
        self._lines.append(seal(line))
        self._n_lines += 1
