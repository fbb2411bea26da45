"""Reading bundles: whatever was done to the file, what comes back is what its process wrote, or is a gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SCHEMA, SUFFIX, unseal
from fastci_ml.records.evidence import Capture, CaptureKind, CodeSeen, FileSeen, Gap, Provenance, RunFacts

_MAX_LINE_BYTES = 256 << 20
_NUMBERED = ("codes", "reads", "listings", "imports", "uses")


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
    """

    path: Path
    provenance: Provenance
    files: dict[int, FileSeen] = field(default_factory=dict)
    codes: dict[int, CodeSeen] = field(default_factory=dict)
    captures: dict[int, Capture] = field(default_factory=dict)
    runs: dict[int, RunFacts] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[Gap, str]] = field(default_factory=list)


def find_bundles(paths: list[Path]) -> list[Path]:
    """Bundle files, sorted: each path that is a file, and those below each that is a folder."""
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found.update(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
        else:
            found.add(path)
    return sorted(found)


def read_bundle(path: Path) -> Bundle:
    """Read one bundle.

    Parameters
    ----------
    path : Path
        A file that a `BundleWriter` wrote, or what is left of it.

    Returns
    -------
    Bundle
        Damage behind the first line is a gap of the bundle, not an error.

    Raises
    ------
    EvidenceError
        If the file cannot be read, does not begin as a bundle does, or is of an unknown version.
    """
    try:
        with path.open("rb") as stream:
            lines = iter(lambda: stream.readline(_MAX_LINE_BYTES), b"")
            return _read(path, lines)
    except OSError as error:
        raise EvidenceError(f"{path}: cannot be read: {error}") from error


def _read(path: Path, lines: Iterator[bytes]) -> Bundle:
    bundle = Bundle(path, _provenance(path, next(lines, b"")))
    n_lines = 1
    n_torn = 0
    end: object = None
    for raw in lines:
        line = unseal(raw)
        if line is None or end is not None:
            n_torn += 1
            continue
        if line[0] == "end":
            end = line[1] if len(line) > 1 else -1
            continue
        n_lines += 1
        try:
            _READERS[line[0]](bundle, line)
        except (KeyError, IndexError, TypeError, ValueError):
            n_torn += 1
    if n_torn or (end is not None and end != n_lines):
        bundle.gaps.append((Gap.TORN_LINE, f"{path.name}: {n_torn or 'some'} lines damaged or missing"))
    if end is None:
        bundle.gaps.append((Gap.NO_END_MARK, path.name))
    return bundle


def _provenance(path: Path, raw: bytes) -> Provenance:
    line = unseal(raw)
    if line is None or line[0] != "begin" or len(line) != 3:
        raise EvidenceError(f"{path}: no bundle: the first line is {raw[:60]!r}, expected a begin mark")
    if line[1] != SCHEMA:
        raise EvidenceError(
            f"{path}: schema {line[1]!r}, expected {SCHEMA!r}",
            hint="merge it with the release of fastci-ml that recorded it",
        )
    given = line[2]
    kinds = {"started_us": int}
    for spec in fields(Provenance):
        kind = kinds.get(spec.name, str)
        if not isinstance(given, dict) or not isinstance(given.get(spec.name), kind):
            raise EvidenceError(f"{path}: begin mark without a usable {spec.name}")
    return Provenance(**{spec.name: given[spec.name] for spec in fields(Provenance)})


def _read_file(bundle: Bundle, line: list[Any]) -> None:
    _, number, path, blob = line
    if not isinstance(number, int) or not isinstance(path, str) or not isinstance(blob, str | None):
        raise TypeError
    bundle.files[number] = FileSeen(path=path, blob=blob)


def _read_code(bundle: Bundle, line: list[Any]) -> None:
    _, number, file, name, first = line
    if not isinstance(number, int) or not isinstance(name, str) or not isinstance(first, int):
        raise TypeError
    bundle.files[file]  # a code object of an unknown file is damage
    bundle.codes[number] = CodeSeen(file=file, name=name, line=first)


def _read_capture(bundle: Bundle, line: list[Any]) -> None:
    _, number, kind, label, parts = line
    if not isinstance(number, int) or not isinstance(label, str):
        raise TypeError
    numbers = {
        name: _numbers(parts.get(name, ())) for name in ("codes", "reads", "listings", "imports", "uses")
    }
    if not numbers["codes"] <= bundle.codes.keys() or not all(
        numbers[name] <= bundle.files.keys() for name in ("reads", "listings", "imports")
    ):
        raise KeyError(number)
    capture = Capture(
        kind=CaptureKind(kind),
        label=label,
        environ=frozenset(str(name) for name in parts.get("environ", ())),
        gaps=tuple((Gap(gap), str(detail)) for gap, detail in parts.get("gaps", ())),
        **numbers,
    )
    known = bundle.captures.get(number)
    bundle.captures[number] = capture if known is None else join(known, capture)


def join(first: Capture, second: Capture) -> Capture:
    """Both captures in one, with kind and label of the first."""
    return replace(
        first,
        codes=first.codes | second.codes,
        reads=first.reads | second.reads,
        listings=first.listings | second.listings,
        imports=first.imports | second.imports,
        environ=first.environ | second.environ,
        uses=first.uses | second.uses,
        gaps=tuple(dict.fromkeys(first.gaps + second.gaps)),
    )


def _read_run(bundle: Bundle, line: list[Any]) -> None:
    _, number, facts = line
    bundle.captures[number]
    known = {spec.name: facts[spec.name] for spec in fields(RunFacts) if spec.name in facts}
    for name in ("native_readers", "notes"):
        known[name] = tuple(map(str, known.get(name, ())))
    if not isinstance(known["outcome"], str) or not isinstance(known["started_us"], int):
        raise TypeError
    bundle.runs[number] = RunFacts(**known)


def _read_edge(bundle: Bundle, line: list[Any]) -> None:
    _, importer, imported = line
    bundle.files[importer], bundle.files[imported]
    bundle.edges.append((importer, imported))


def _numbers(values: object) -> frozenset[int]:
    if not isinstance(values, list | tuple) or not all(type(value) is int for value in values):
        raise TypeError
    return frozenset(values)


_READERS = {
    "file": _read_file,
    "code": _read_code,
    "capture": _read_capture,
    "ran": _read_run,
    "edge": _read_edge,
}
