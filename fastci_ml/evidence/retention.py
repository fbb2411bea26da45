"""Removing bundles that were merged long ago, and the sources that belong to them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.reader import digest_bundle, find_bundles, open_bundle
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.bundle.source_pack_writer import PACK_SUFFIX
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.progress import ProgressHook, silent


@dataclass(slots=True)
class Removed:
    """What was removed.

    Attributes
    ----------
    n_bundles, n_sources : int
        Files.
    n_bytes : int
        What they took.
    """

    n_bundles: int = 0
    n_sources: int = 0
    n_bytes: int = 0


def remove_merged(
    paths: Sequence[Path], store: EvidenceStore, *, older_than_us: int, progress: ProgressHook = silent
) -> Removed:
    """Remove bundles that the store has as they are, with their sources.

    Parameters
    ----------
    paths : sequence of Path
        Bundles, and folders of them; below the folders also sources whose bundle is gone.
    store : EvidenceStore
        What is not in it stays, whatever its age. Asked before the store itself forgets old bundles.
    older_than_us : int
        Microseconds since the epoch, UTC: only what was begun, or written, before.
    progress : ProgressHook
        Told how many bundles were looked at.

    Returns
    -------
    Removed
        What cannot be removed stays, and is tried again the next time.
    """
    removed = Removed()
    found = find_bundles([path for path in paths if path.exists()])
    for n_done, path in enumerate(found):
        progress("old bundles", n_done, len(found))
        if _is_merged(path, store, older_than_us):
            _remove(path, removed, is_source=False)
            if not path.exists():
                _remove(pack_of(path), removed, is_source=True)
    packs = {pack_of(path) for path in (*found, *paths)}
    packs.update(pack for folder in paths if folder.is_dir() for pack in folder.rglob(f"*{PACK_SUFFIX}"))
    for pack in sorted(packs):
        with contextlib.suppress(OSError):
            # A process that begins to record just now may have made it.
            is_old = pack.stat().st_mtime_ns // 1000 < older_than_us
            if is_old and not _has_bundle(pack):
                _remove(pack, removed, is_source=True)
    return removed


def _has_bundle(pack: Path) -> bool:
    stem = pack.name.removesuffix(PACK_SUFFIX)
    return any(pack.with_name(name).exists() for name in (stem + SUFFIX, stem))


def _is_merged(path: Path, store: EvidenceStore, older_than_us: int) -> bool:
    try:
        with open_bundle(path) as stream:
            provenance, digest, _ = digest_bundle(path, stream)
    except EvidenceError:
        return False
    return provenance.started_us < older_than_us and store.has_bundle(provenance.bundle_id, digest)


def _remove(path: Path, removed: Removed, *, is_source: bool) -> None:
    try:
        n_bytes = path.stat().st_size
        path.unlink()
    except OSError:
        return
    removed.n_bytes += n_bytes
    if is_source:
        removed.n_sources += 1
    else:
        removed.n_bundles += 1
