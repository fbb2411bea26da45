"""Writing a bundle, from one process and one thread at a time."""

from __future__ import annotations

from os import makedirs
from os.path import join

from fastci_ml.evidence.bundle.append_file import AppendFile
from fastci_ml.evidence.bundle.lines import SCHEMA, SUFFIX, seal
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX, SharedSources, SourcePackWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fastci_ml.evidence.recorder.captures import ClosedCapture
    from fastci_ml.records.evidence import Capture, ProcessFacts, Provenance, RunFacts

# Fields of `Capture` that hold numbers or names, by their names on the line.
PARTS = ("codes", "reads", "listings", "imports", "environ", "uses")
# Members of one part on one line: a longer line than `MAX_LINE_BYTES` would be read as damage.
_MAX_MEMBERS = 50_000


class BundleWriter:
    """The bundle of this process.

    Lines are kept until `flush`, which hands them to the system in one write: after it, no kill of the
    process can lose them. Numbers are given in order from 0.

    Parameters
    ----------
    directory : Path or str
        Folder of bundles; made where missing.
    provenance : Provenance
        What the first line says. Anything with these slots will do, here and below: a child does not load
        the module of nouns.
    shared : SharedSources, optional
        Sources that lie beside other bundles of the session.

    Attributes
    ----------
    file : str
        Name of the file of the bundle, with its folder.
    sources : SourcePackWriter
        What its files held, for those that ran.

    Raises
    ------
    OSError
        If the folder or the file cannot be written; also from `flush` and `close`.
    """

    def __init__(
        self, directory: Path | str, provenance: Provenance, *, shared: SharedSources | None = None
    ) -> None:
        makedirs(directory, exist_ok=True)
        stem = join(directory, f"{provenance.started_us}-{provenance.bundle_id}")
        self.file = stem + SUFFIX
        self._file = AppendFile(self.file)
        self.sources = SourcePackWriter(stem + PACK_SUFFIX, shared)
        self._lines: list[bytes] = []
        self._n_lines = 0
        self._n_files = 0
        self._n_codes = 0
        self._n_captures = 0
        self._add(["begin", SCHEMA, _fields(provenance)])
        self.flush()

    @property
    def path(self) -> Path:
        """File of the bundle."""
        from pathlib import Path

        return Path(self.file)

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

    def add_capture(self, number: int, capture: Capture | ClosedCapture) -> None:
        """Write a capture, or add to the one of that number."""
        parts: dict[str, list[Any]] = {}
        for name in PARTS:
            values = getattr(capture, name)
            if values:
                parts[name] = sorted(values)
        if capture.gaps:
            parts["gaps"] = [[gap.value, detail] for gap, detail in capture.gaps]
        if capture.children:
            parts["children"] = [[name, detail] for name, detail in capture.children]
        n_members = max(map(len, parts.values()), default=0)
        for start in range(0, n_members or 1, _MAX_MEMBERS):
            piece = parts
            if n_members > _MAX_MEMBERS:
                piece = {name: values[start : start + _MAX_MEMBERS] for name, values in parts.items()}
            self._add(["capture", number, capture.kind.value, capture.label, piece])

    def add_run(self, number: int, facts: RunFacts) -> None:
        """Say that the test of a capture has ended."""
        self._add(["ran", number, _fields(facts)])

    def add_edge(self, importer: int, imported: int) -> None:
        """Say that a module of the repository imported another, by their files."""
        self._add(["edge", importer, imported])

    def add_process(self, facts: ProcessFacts) -> None:
        """Say what kind of child this is."""
        self._add(["process", _fields(facts)])

    def add_exec(self, detail: str) -> None:
        """Say that another program is about to take the place of this one; unless lines follow, it did.

        Parameters
        ----------
        detail : str
            What it is if it may run Python, and so leave a bundle of its own; else empty.
        """
        self._add(["exec", detail])

    def add_stay(self) -> None:
        """Say that no other program took the place of this one."""
        self._add(["stay"])

    def flush(self) -> None:
        """Hand over all lines so far."""
        # In a forked child the lines are the parent's to write.
        if self._lines and self._file.is_ours:
            data = b"".join(self._lines)
            self._lines.clear()
            self._file.append(data)

    def close(self, *, wait: bool = True) -> None:
        """Write the end mark: the bundle is complete; with `wait`, once all is on the disk."""
        self.sources.close(wait=wait)
        self._add(["end", self._n_lines])
        self.flush()
        self._file.close(wait=wait)

    def _add(self, line: list[Any]) -> None:
        self._lines.append(seal(line))
        self._n_lines += 1


def _fields(noun: Any) -> dict[str, Any]:
    # Not `asdict`, which copies: this is done at the end of every test.
    return {name: getattr(noun, name) for name in noun.__slots__}
