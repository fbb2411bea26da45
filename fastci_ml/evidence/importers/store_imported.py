"""Writing imported evidence to the store."""

from __future__ import annotations

from pathlib import Path

from fastci_ml.evidence.importers.imported import ImportedEvidence
from fastci_ml.evidence.store.batch import MergeBatch, WriteSummary
from fastci_ml.evidence.store.store import EvidenceStore


def store_imported(found: ImportedEvidence, store_path: Path, *, now_us: int) -> WriteSummary:
    """Add imported records, in one transaction.

    Parameters
    ----------
    found : ImportedEvidence
        What an importer gave.
    store_path : Path
        File of the store; made where missing.
    now_us : int
        Time of the import, microseconds since the epoch, UTC.

    Returns
    -------
    WriteSummary
        What that did. They take the place of earlier ones of the same tool and lane only.

    Raises
    ------
    EvidenceError
        If the store cannot be written.
    """
    with EvidenceStore.open(store_path, create=True) as store:
        return store.write(
            MergeBatch(bundles=(), records=found.records, merged_us=now_us, file_versions=found.file_versions)
        )
