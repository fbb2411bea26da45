"""Removing bundles that were merged long ago, and the sources and seals that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.reader import digest_bundle, find_bundles, open_bundle
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.bundle.source_pack_writer import (
    COUNT_SUFFIX,
    PACK_SUFFIX,
    PROCESSES_SUFFIX,
    SHARED_SUFFIX,
)
from fastci_ml.evidence.seals import find_seals, read_seal
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.progress import ProgressHook, silent


@dataclass(slots=True)
class Removed:
    """What was removed.

    Attributes
    ----------
    n_bundles, n_sources, n_seals : int
        Files.
    n_bytes : int
        What they took.
    """

    n_bundles: int = 0
    n_sources: int = 0
    n_seals: int = 0
    n_bytes: int = 0


def remove_merged(
    paths: Sequence[Path], store: EvidenceStore, *, older_than_us: int, progress: ProgressHook = silent
) -> Removed:
    """Remove bundles that the store has as they are, with their sources.

    Parameters
    ----------
    paths : sequence of Path
        Bundles, and folders of them; below the folders also sources whose bundle is gone, and
        seals whose bundles all are.
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
    kept: set[str] = set()
    is_all_read = True
    for n_done, path in enumerate(found):
        progress("old bundles", n_done, len(found))
        try:
            with open_bundle(path) as stream:
                provenance, digest, _ = digest_bundle(path, stream)
        except EvidenceError:
            is_all_read = False
            continue
        is_merged = provenance.started_us < older_than_us and store.has_bundle(provenance.bundle_id, digest)
        removed.n_bundles += is_merged and _remove(path, removed)
        if path.exists():
            kept.add(digest)
        else:
            removed.n_sources += _remove(pack_of(path), removed)
    packs = {pack_of(path) for path in (*found, *paths)}
    packs.update(pack for folder in paths if folder.is_dir() for pack in folder.rglob(f"*{PACK_SUFFIX}"))
    for pack in sorted(packs):
        # A process that begins to record just now may have made it.
        if _is_old(pack, older_than_us) and not _has_bundle(pack):
            removed.n_sources += _remove(pack, removed)
    for path in sorted(_working_files(paths)):
        # Of use only while their session goes on.
        if _is_old(path, older_than_us):
            _remove(path, removed)
    # What cannot be read may be a sealed bundle all the same.
    for path in find_seals([folder for folder in paths if folder.is_dir()]) if is_all_read else ():
        if _is_old(path, older_than_us) and _is_done(path, kept):
            removed.n_seals += _remove(path, removed)
    return removed


def _working_files(paths: Sequence[Path]) -> Iterator[Path]:
    for folder in paths:
        if folder.is_dir():
            for suffix in (SHARED_SUFFIX, COUNT_SUFFIX, PROCESSES_SUFFIX):
                yield from folder.rglob(f"*{suffix}")


def _is_old(path: Path, older_than_us: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1000 < older_than_us
    except OSError:
        return False


def _is_done(seal: Path, kept: Set[str]) -> bool:
    """Whether no bundle is left that a seal speaks for. One that cannot be read stays."""
    try:
        return kept.isdisjoint(read_seal(seal).digests)
    except EvidenceError:
        return False


def _has_bundle(pack: Path) -> bool:
    stem = pack.name.removesuffix(PACK_SUFFIX)
    return any(pack.with_name(name).exists() for name in (stem + SUFFIX, stem))


def _remove(path: Path, removed: Removed) -> bool:
    try:
        n_bytes = path.stat().st_size
        path.unlink()
    except OSError:
        return False
    removed.n_bytes += n_bytes
    return True
