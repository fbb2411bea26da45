"""Evidence records for tests of the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastci_ml.evidence.store.batch import MergeBatch, MergedBundle, WriteSummary
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, Provenance, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import BlockKind, Gap
from fastci_ml.sources.blocks.block import Block

LANE = "py3.11-cpu"
KILLED = ((Gap.NO_END_MARK, "a.fastci-bundle"),)


def unit(name: str, version: int = 1, *, path: str = "pkg/mod.py", kind: str = "function") -> UnitSeen:
    return UnitSeen(path=path, name=name, kind=BlockKind(kind), fingerprint=f"{version:016x}")


def block(name: str, version: int = 1, **changes: Any) -> Block:
    given = {"kind": BlockKind.FUNCTION, "first_line": 1, "last_line": 2, "fingerprint": f"{version:016x}"}
    return Block(name=name, **{**given, **changes})


def seen(path: str, content: int | None = 1) -> FileSeen:
    return FileSeen(path=path, blob=None if content is None else f"{content:040x}")


def record(
    node_id: str,
    units: Iterable[UnitSeen] = (),
    *,
    at: int = 1,
    gaps: tuple[tuple[Gap, str], ...] = (),
    **changes: Any,
) -> EvidenceRecord:
    # Unless it is given, each time has a commit of its own: those of one commit stand beside each other.
    given: dict[str, Any] = {
        "lane": LANE,
        "scope": "trunk",
        "commit": f"{at:040x}",
        "recorded_us": at,
        "backend": "monitoring",
        "units": frozenset(units),
        "reads": frozenset(),
        "listings": frozenset(),
        "roots": frozenset(),
        "environ": frozenset(),
        "native_readers": (),
        "gaps": gaps,
        "facts": RunFacts(outcome="passed", started_us=at),
    }
    return EvidenceRecord(node_id=node_id, **{**given, **changes})


def bundle(bundle_id: str, digest: str = "d0", *, started_us: int = 1, **changes: Any) -> MergedBundle:
    given = {
        "session_id": "5e55",
        "lane": LANE,
        "scope": "trunk",
        "commit": "c" * 40,
        "tree": "d" * 40,
        "python": "3.11.7",
        "backend": "monitoring",
        "worker": "",
    }
    whence = Provenance(bundle_id=bundle_id, started_us=started_us, **{**given, **changes})
    return MergedBundle(provenance=whence, name=f"{started_us}-{bundle_id}.fastci-bundle", digest=digest)


def write(
    store: EvidenceStore,
    *records: EvidenceRecord,
    bundles: Sequence[MergedBundle] = (),
    merged_us: int = 1,
    **changes: Any,
) -> WriteSummary:
    return store.write(MergeBatch(bundles=bundles, records=records, merged_us=merged_us, **changes))
