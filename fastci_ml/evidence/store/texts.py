"""How what a record holds is written in a column, and read back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

from fastci_ml.errors import EvidenceError
from fastci_ml.records.evidence import BlockKind, Gap, RunFacts
from fastci_ml.sources.blocks.block import Block

Text: TypeAlias = str | bytes

_encode = json.JSONEncoder(separators=(",", ":")).encode
_FLAGS = ("is_dynamic", "reads_doc", "is_memo")


def to_text(text: str) -> Text:
    r"""Column value of a path or node id.

    Examples
    --------
    >>> to_text("a.py"), to_text("bad\udcff.py")
    ('a.py', b'bad\xed\xb3\xbf.py')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_text(value: Text) -> str:
    """Inverse of `to_text`."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def to_digits(digits: str) -> bytes:
    """Column value of a fingerprint or a blob id, of hexadecimal digits; raises ValueError for others."""
    value = bytes.fromhex(digits)
    if value.hex() != digits:
        raise ValueError(f"{digits!r}: expected lower-case hexadecimal digits")
    return value


def to_json(value: Any) -> str:
    """JSON in ASCII: lone surrogates survive as escapes."""
    return _encode(value)


def gaps_to_json(gaps: Sequence[tuple[Gap, str]]) -> str | None:
    """Column value of gaps; None for none."""
    return _encode([[gap.value, detail] for gap, detail in gaps]) if gaps else None


def gaps_from_json(value: str | None) -> tuple[tuple[Gap, str], ...]:
    """Inverse of `gaps_to_json`."""
    if value is None:
        return ()
    try:
        return tuple((Gap(gap), detail) for gap, detail in json.loads(value))
    except ValueError as error:
        raise _of_later_release(error) from error


def kind_from_text(value: str) -> BlockKind:
    """Kind of a block."""
    try:
        return BlockKind(value)
    except ValueError as error:
        raise _of_later_release(error) from error


def _of_later_release(error: ValueError) -> EvidenceError:
    return EvidenceError(
        f"the evidence was written by a later fastci-ml: {error}", hint="pip install --upgrade fastci-ml"
    )


def facts_to_json(facts: RunFacts) -> str:
    """Facts of a run but for its outcome, which has a column; what is as by default is left out."""
    given = {}
    for spec in fields(facts):
        value = getattr(facts, spec.name)
        default = spec.default_factory() if spec.default_factory is not MISSING else spec.default
        if spec.name != "outcome" and value != default:
            given[spec.name] = value
    return _encode(given)


def facts_from_json(outcome: str, value: str) -> RunFacts:
    """Inverse of `facts_to_json`; what a later release added is passed over."""
    given: Mapping[str, Any] = json.loads(value)
    known = {spec.name: given[spec.name] for spec in fields(RunFacts) if spec.name in given}
    known = {name: tuple(item) if isinstance(item, list) else item for name, item in known.items()}
    return RunFacts(outcome=outcome, **known)


def blocks_to_blob(blocks: Iterable[Block]) -> bytes:
    """Blocks of one file version, compressed."""
    rows = [
        [
            block.name,
            block.kind.value,
            block.first_line,
            block.last_line,
            block.fingerprint,
            block.doc_fingerprint,
            block.owner,
            list(block.binds),
            sorted(block.reads),
            [flag for flag in _FLAGS if getattr(block, flag)],
        ]
        for block in blocks
    ]
    return zlib.compress(_encode(rows).encode(), 6)


def blocks_from_blob(value: bytes) -> tuple[Block, ...]:
    """Inverse of `blocks_to_blob`."""
    return tuple(
        Block(
            name=name,
            kind=kind_from_text(kind),
            first_line=first,
            last_line=last,
            fingerprint=fingerprint,
            doc_fingerprint=doc,
            owner=owner,
            binds=tuple(binds),
            reads=frozenset(reads),
            **{flag: flag in flags for flag in _FLAGS},
        )
        for name, kind, first, last, fingerprint, doc, owner, binds, reads, flags in json.loads(
            zlib.decompress(value)
        )
    )
