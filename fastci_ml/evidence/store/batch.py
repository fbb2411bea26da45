"""What `merge` hands to the store, and what the store answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastci_ml.records.evidence import EvidenceRecord, Provenance, UnitSeen
from fastci_ml.records.evidence_kinds import Gap
from fastci_ml.sources.blocks.block import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBundle:
    """A bundle that a batch was made of.

    Attributes
    ----------
    provenance : Provenance
        Its first line.
    name : str
        Name of the file, for a person.
    digest : str
        Hex digest of the file. A bundle whose digest changed was merged before it was whole.
    gaps : tuple of (Gap, str)
        What holds for the whole bundle.
    n_bytes : int
        Size of the file: of two states of one bundle, which only grows, the larger one says more.
    """

    provenance: Provenance
    name: str
    digest: str
    gaps: tuple[tuple[Gap, str], ...] = ()
    n_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBatch:
    """What one merge adds, in one transaction.

    Attributes
    ----------
    bundles : sequence of MergedBundle
        If there are some, and each was merged before with this digest, the batch adds nothing.
    records : iterable of EvidenceRecord
        Gone through once. In order of node id they are stored smallest: tests of one file touch the same.
    merged_us : int
        Time of the merge, microseconds since the epoch, UTC.
    file_versions : mapping of (str, str) to sequence of Block
        Blocks of each file that records of this batch ran or imported, by (path, blob id). Every record of
        the batch is tied to all of them: which version a record stands on is known the better, the fewer
        commits a batch spans.
    edges : iterable of (str, str, str)
        Lane, path of the importing and of the imported file.
    import_units : iterable of (str, str, UnitSeen)
        Lane, path of a module, a unit that was executed while it was imported.
    """

    bundles: Sequence[MergedBundle]
    records: Iterable[EvidenceRecord]
    merged_us: int
    file_versions: Mapping[tuple[str, str], Sequence[Block]] = field(default_factory=dict)
    edges: Iterable[tuple[str, str, str]] = ()
    import_units: Iterable[tuple[str, str, UnitSeen]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSummary:
    """What a write did.

    Attributes
    ----------
    n_bundles : int
        Bundles that were new, or had changed.
    n_records : int
        Records that are in force now.
    n_superseded : int
        Older records that they took the place of.
    n_outdated : int
        Records of the batch that something newer or more complete was there for, and that were left out.
    n_compacted : int
        Segments that were rewritten because they were many, or mostly superseded.
    """

    n_bundles: int = 0
    n_records: int = 0
    n_superseded: int = 0
    n_outdated: int = 0
    n_compacted: int = 0
