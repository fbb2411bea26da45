"""Removing bundles that were merged long ago, and sources that no bundle left speaks of."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.reader import digest_bundle, find_bundles, open_bundle, read_bundle
from fastci_ml.evidence.bundle.source_store import FOLDER
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
    """Remove bundles that the store has as they are, and sources that nothing needs any more.

    Parameters
    ----------
    paths : sequence of Path
        Bundles, and folders of them; sources are looked for below the folders.
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
    kept = []
    for n_done, path in enumerate(found):
        progress("old bundles", n_done, len(found))
        if _is_merged(path, store, older_than_us):
            _remove(path, removed, is_source=False)
        else:
            kept.append(path)
    for folder in paths:
        if folder.is_dir():
            _remove_sources(folder, kept, older_than_us, removed)
    return removed


def _is_merged(path: Path, store: EvidenceStore, older_than_us: int) -> bool:
    try:
        with open_bundle(path) as stream:
            provenance, digest, _ = digest_bundle(path, stream)
    except EvidenceError:
        return False
    return provenance.started_us < older_than_us and store.has_bundle(provenance.bundle_id, digest)


def _remove_sources(folder: Path, bundles: Sequence[Path], older_than_us: int, removed: Removed) -> None:
    for sources in sorted(folder.rglob(FOLDER)):
        needed: set[str] = set()
        for path in bundles:
            if path.parent != sources.parent:
                continue
            try:
                bundle = read_bundle(path)
            except EvidenceError:
                # What it needs is not known, so all may be needed.
                return
            if bundle.gaps and bundle.provenance.started_us >= older_than_us:
                # It may be going on: then it names its sources when the next test ends.
                return
            needed.update(seen.blob for seen in bundle.files.values() if seen.blob)
        for file in sorted(sources.glob("??/*.z")):
            blob = file.parent.name + file.name.removesuffix(".z")
            with contextlib.suppress(OSError):
                # A process that begins to record just now may have written it.
                if blob not in needed and file.stat().st_mtime_ns // 1000 < older_than_us:
                    _remove(file, removed, is_source=True)


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
