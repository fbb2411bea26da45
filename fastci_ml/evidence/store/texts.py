"""How what a record holds is written in a column, and read back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any, TypeAlias, TypeVar

from fastci_ml.errors import EvidenceError
from fastci_ml.records.evidence import Provenance, RunFacts
from fastci_ml.records.evidence_kinds import BlockKind, Gap
from fastci_ml.sources.blocks.block import Block

Text: TypeAlias = str | bytes
_K = TypeVar("_K")
_V = TypeVar("_V")

_encode = json.JSONEncoder(separators=(",", ":")).encode
# Stable: they are in files.
_KIND_CODES = {
    BlockKind.FUNCTION: 1,
    BlockKind.CLASS: 2,
    BlockKind.BINDING: 3,
    BlockKind.EFFECT: 4,
    BlockKind.FILE: 5,
}
_KINDS = {code: kind for kind, code in _KIND_CODES.items()}
_FLAGS = ("is_dynamic", "reads_doc", "is_memo", "is_implicit")


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
    if isinstance(value, str):
        return value
    with _undamaged("a path or node id"):
        return value.decode("utf-8", "surrogatepass")


@contextmanager
def _undamaged(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise EvidenceError(
            f"the evidence store is damaged: {what} cannot be read: {error}", hint="fastci-ml doctor"
        ) from error


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
    with _undamaged("a list of gaps"):
        given = [(str(gap), str(detail)) for gap, detail in json.loads(value)]
    return tuple((_known(Gap, gap), detail) for gap, detail in given)


def names_from_json(value: str) -> tuple[str, ...]:
    """Names, of which `to_json` wrote a list."""
    with _undamaged("a list of names"):
        return tuple(map(str, json.loads(value)))


def provenance_from_json(value: str) -> Provenance:
    """Provenance, of which `to_json` wrote the fields; what a later release added is passed over."""
    with _undamaged("where a bundle comes from"):
        given: Mapping[str, Any] = json.loads(value)
        known = {spec.name: given[spec.name] for spec in fields(Provenance) if spec.name in given}
        return Provenance(**known)


def kind_to_code(kind: BlockKind) -> int:
    """Column value of a kind."""
    return _KIND_CODES[kind]


def kind_from_code(code: int) -> BlockKind:
    """Inverse of `kind_to_code`."""
    return _known(_KINDS.__getitem__, code)


def _known(known: Callable[[_K], _V], value: _K) -> _V:
    try:
        return known(value)
    except (ValueError, KeyError) as error:
        raise EvidenceError(
            f"the evidence store holds {value!r}: written by a later fastci-ml, or damaged",
            hint="pip install --upgrade fastci-ml; fastci-ml doctor",
        ) from error


def split_node_id(node_id: str) -> tuple[str, str]:
    """File of a test, and the rest of its node id: together they are the node id again.

    Examples
    --------
    >>> split_node_id("tests/test_a.py::A::test_b[x::y]")
    ('tests/test_a.py', '::A::test_b[x::y]')
    """
    file, mark, rest = node_id.partition("::")
    return file, mark + rest


def facts_to_json(facts: RunFacts, recorded_us: int) -> str:
    """Facts of a run but for its outcome, which has a column.

    What is as by default is left out, and so is a start at the time of the record.
    """
    given: dict[str, Any] = {}
    for spec in fields(facts):
        value = getattr(facts, spec.name)
        default = spec.default_factory() if spec.default_factory is not MISSING else spec.default
        if spec.name != "outcome" and value != default:
            given[spec.name] = value
    if given.get("started_us") == recorded_us:
        del given["started_us"]
    return _encode(given)


def facts_from_json(outcome: str, recorded_us: int, value: str) -> RunFacts:
    """Inverse of `facts_to_json`; what a later release added is passed over."""
    with _undamaged("what is known of a run"):
        given: Mapping[str, Any] = json.loads(value)
        known = {spec.name: given[spec.name] for spec in fields(RunFacts) if spec.name in given}
        known = {name: tuple(item) if isinstance(item, list) else item for name, item in known.items()}
        return RunFacts(**{"outcome": outcome, "started_us": recorded_us, **known})


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
    with _undamaged("the blocks of a file"):
        return tuple(
            Block(
                name=name,
                kind=_known(BlockKind, kind),
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
