"""Writing a bundle, from one process and one thread at a time."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fastci_ml.evidence.bundle.append_file import AppendFile
from fastci_ml.evidence.bundle.lines import SCHEMA, SUFFIX, seal
from fastci_ml.evidence.bundle.source_pack import SourcePackWriter, pack_of
from fastci_ml.records.evidence import Capture, Provenance, RunFacts

# Fields of `Capture` that hold numbers or names, by their names on the line.
PARTS = ("codes", "reads", "listings", "imports", "environ", "uses")
_FACTS = tuple(field.name for field in fields(RunFacts))
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
    sources : SourcePackWriter
        What its files held, for those that ran.

    Raises
    ------
    OSError
        If the folder or the file cannot be written; also from `flush` and `close`.
    """

    def __init__(self, directory: Path, provenance: Provenance) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{provenance.started_us}-{provenance.bundle_id}{SUFFIX}"
        self._file = AppendFile(self.path)
        self.sources = SourcePackWriter(pack_of(self.path))
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
        # Not `asdict`, which copies: this is done at the end of every test.
        self._add(["ran", number, {name: getattr(facts, name) for name in _FACTS}])

    def add_edge(self, importer: int, imported: int) -> None:
        """Say that a module of the repository imported another, by their files."""
        self._add(["edge", importer, imported])

    def flush(self) -> None:
        """Hand over all lines so far."""
        # In a forked child the lines are the parent's to write.
        if self._lines and self._file.is_ours:
            data = b"".join(self._lines)
            self._lines.clear()
            self._file.append(data)

    def close(self) -> None:
        """Write the end mark; the bundle is complete."""
        self.sources.close()
        self._add(["end", self._n_lines])
        self.flush()
        self._file.close()

    def _add(self, line: list[Any]) -> None:
        self._lines.append(seal(line))
        self._n_lines += 1
