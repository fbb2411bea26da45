"""What each line of a bundle adds to it. A line that does not say exactly what it may is damage."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SCHEMA
from fastci_ml.evidence.bundle.unseal import unseal
from fastci_ml.records.evidence import (
    Capture,
    CodeSeen,
    FileSeen,
    ProcessFacts,
    Provenance,
    RunFacts,
)
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

if TYPE_CHECKING:
    from fastci_ml.evidence.bundle.reader import Bundle

_NUMBERED = ("codes", "reads", "listings", "imports", "uses")
_OF_FILES = ("reads", "listings", "imports")
_PARTS = frozenset({*_NUMBERED, "environ", "gaps", "children"})
_ADDED = {spec.name: spec.default for spec in fields(Provenance) if spec.default is not MISSING}
_FACTS = frozenset(spec.name for spec in fields(RunFacts))
_is_blob = re.compile(r"[0-9a-f]{40}").fullmatch
_is_hexadecimal = re.compile(r"[0-9a-f]{1,64}").fullmatch
# Beyond it a number fits no 64-bit column.
_MAX_INT = (1 << 63) - 1


def add_line(bundle: Bundle, line: list[Any]) -> None:
    """Add one line behind the first.

    Raises
    ------
    KeyError, IndexError, TypeError, ValueError
        If it is none that a `BundleWriter` writes; the bundle is as before.
    """
    _READERS[line[0]](bundle, line)


def parse_provenance(path: Path, raw: bytes) -> Provenance:
    """What the first line says; raises EvidenceError where it is not one of ours."""
    line = unseal(raw)
    if line is None or line[0] != "begin" or len(line) != 3:
        raise EvidenceError(f"{path}: no bundle: the first line is {raw[:60]!r}, expected a begin mark")
    schema, given = line[1], line[2]
    if schema != SCHEMA:
        raise EvidenceError(
            f"{path}: schema {repr(schema)[:60]}, expected {SCHEMA!r}",
            hint="merge it with the release of fastci-ml that recorded it",
        )
    if type(given) is dict:
        # Bundles of earlier releases lack what was added since.
        given = {**_ADDED, **given}
    for spec in fields(Provenance):
        value = given.get(spec.name) if type(given) is dict else None
        is_usable = _is_count(value) if spec.name == "started_us" else _is_plain(value)
        if spec.name == "bundle_id":
            is_usable = is_usable and _is_hexadecimal(str(value)) is not None
        if not is_usable:
            raise EvidenceError(f"{path}: begin mark without a usable {spec.name}")
    return Provenance(**{spec.name: given[spec.name] for spec in fields(Provenance)})


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
        children=tuple(dict.fromkeys(first.children + second.children)),
    )


def _is_count(value: object) -> TypeGuard[int]:
    # A truth is no number, though Python counts it as one.
    return type(value) is int and 0 <= value <= _MAX_INT


def _is_plain(value: object) -> bool:
    """Whether a value is text without lone surrogates: paths and ids may hold those, names of ours do not."""
    return type(value) is str and not any("\ud800" <= character <= "\udfff" for character in value)


def _new_number(value: object, known: dict[int, Any]) -> int:
    if not _is_count(value) or value in known:
        raise ValueError
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _texts(values: object) -> tuple[str, ...]:
    if type(values) is not list:
        raise TypeError
    return tuple(map(_text, values))


def _numbers(values: object) -> frozenset[int]:
    if type(values) is not list or not all(map(_is_count, values)):
        raise TypeError
    return frozenset(values)


def _add_file(bundle: Bundle, line: list[Any]) -> None:
    _, number, path, blob = line
    if blob is not None and _is_blob(_text(blob)) is None:
        raise ValueError
    bundle.files[_new_number(number, bundle.files)] = FileSeen(path=_text(path), blob=blob)


def _add_code(bundle: Bundle, line: list[Any]) -> None:
    _, number, file, name, first = line
    # A code object of an unknown file is damage.
    if not _is_count(file) or file not in bundle.files or not _is_count(first):
        raise ValueError
    code = CodeSeen(file=file, name=_text(name), line=first)
    bundle.codes[_new_number(number, bundle.codes)] = code


def _add_capture(bundle: Bundle, line: list[Any]) -> None:
    _, number, kind, label, parts = line
    if not _is_count(number) or type(parts) is not dict or not parts.keys() <= _PARTS:
        raise TypeError
    numbers = {name: _numbers(parts.get(name, [])) for name in _NUMBERED}
    if not numbers["codes"] <= bundle.codes.keys() or not all(
        numbers[name] <= bundle.files.keys() for name in _OF_FILES
    ):
        raise KeyError(number)
    capture = Capture(
        kind=CaptureKind(kind),
        label=_text(label),
        environ=frozenset(_texts(parts.get("environ", []))),
        gaps=tuple((Gap(gap), _text(detail)) for gap, detail in parts.get("gaps", [])),
        children=tuple((_text(name), _text(detail)) for name, detail in parts.get("children", [])),
        **numbers,
    )
    known = bundle.captures.get(number)
    if known is not None and (known.kind, known.label) != (capture.kind, capture.label):
        raise ValueError
    bundle.captures[number] = capture if known is None else join(known, capture)


def _add_run(bundle: Bundle, line: list[Any]) -> None:
    _, number, facts = line
    if type(number) is not int or bundle.captures[number].kind is not CaptureKind.TEST:
        raise ValueError
    if type(facts) is not dict or not _is_count(facts["started_us"]):
        raise TypeError
    # What a later release adds says more of a run, and takes nothing from what is known.
    known: dict[str, Any] = {name: facts[name] for name in facts.keys() & _FACTS}
    for name in ("setup_s", "call_s", "teardown_s", "cpu_s", "gpu_s"):
        known[name] = _seconds(known.get(name))
    for name in ("peak_rss_bytes", "n_gpus", "gpu_peak_bytes"):
        known[name] = _count_or_none(known.get(name))
    for name in ("native_readers", "notes", "processes"):
        known[name] = _texts(known.get(name, []))
    if type(known.get("is_doctest", False)) is not bool:
        raise TypeError
    if not _is_plain(known["outcome"]) or not _is_plain(known.get("gpu_by", "")):
        raise TypeError
    bundle.runs[number] = RunFacts(**known)


def _seconds(value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise TypeError
    if not abs(value) < _MAX_INT:  # type: ignore[arg-type]  # narrowed above, by exact type
        raise ValueError  # also for infinity and what is no number
    return float(value)  # type: ignore[arg-type]


def _count_or_none(value: object) -> int | None:
    if value is not None and not _is_count(value):
        raise TypeError
    return value


def _add_process(bundle: Bundle, line: list[Any]) -> None:
    _, facts = line
    if type(facts) is not dict:
        raise TypeError
    bundle.process = ProcessFacts(
        command=_text(facts["command"]),
        rank=_count_or_none(facts.get("rank")),
        world_size=_count_or_none(facts.get("world_size")),
        cpu_s=_seconds(facts.get("cpu_s")) or 0.0,
        recorder_s=_seconds(facts.get("recorder_s")) or 0.0,
        peak_rss_bytes=_count_or_none(facts.get("peak_rss_bytes")),
        native_readers=_texts(facts.get("native_readers", [])),
        ended_us=_count_or_none(facts.get("ended_us")),
    )


def _add_exec(bundle: Bundle, line: list[Any]) -> None:
    _, detail = line
    bundle.became = _text(detail)


def _stay(_bundle: Bundle, line: list[Any]) -> None:
    if len(line) != 1:
        raise ValueError


def _add_edge(bundle: Bundle, line: list[Any]) -> None:
    _, importer, imported = line
    if not {importer, imported} <= bundle.files.keys() or not _is_count(importer) or not _is_count(imported):
        raise KeyError
    bundle.edges.append((importer, imported))


_READERS: dict[str, Callable[[Bundle, list[Any]], None]] = {
    "file": _add_file,
    "code": _add_code,
    "capture": _add_capture,
    "ran": _add_run,
    "process": _add_process,
    "exec": _add_exec,
    "stay": _stay,
    "edge": _add_edge,
}
