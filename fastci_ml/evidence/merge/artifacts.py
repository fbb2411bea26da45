"""Merging artifacts as CI systems give them out: zips, folders of zips, URLs, and bundles as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastci_ml.evidence.bundle.reader import find_bundles
from fastci_ml.evidence.merge.archives import find_archives, is_archive, unpack
from fastci_ml.evidence.merge.merge import MergeSummary, merge_bundles
from fastci_ml.evidence.merge.problems import as_line
from fastci_ml.evidence.merge.remote import fetch, is_url
from fastci_ml.evidence.merge.staging import Staging
from fastci_ml.evidence.merge.trust import read_trust
from fastci_ml.evidence.seal_key import SealKey
from fastci_ml.evidence.seals import SEAL_SUFFIX
from fastci_ml.records.progress import ProgressHook, silent


def merge_artifacts(
    given: Sequence[str],
    store_path: Path,
    *,
    root: Path,
    staging_dir: Path,
    key: SealKey | None = None,
    trusted_digests: Sequence[Path] = (),
    now_us: int | None = None,
    progress: ProgressHook = silent,
) -> MergeSummary:
    """Merge bundles wherever they lie.

    Parameters
    ----------
    given : sequence of str
        Bundles, zips, and folders of both, by path; with ``://`` by URL.
    store_path, root, now_us, progress
        As in `merge_bundles`.
    staging_dir : Path
        Folder for what is unpacked and fetched; emptied again.
    key : SealKey, optional
        What the seals are made with that show where bundles come from.
    trusted_digests : sequence of Path
        Lists of bundles that need no seal. Without these and without a key bundles are believed.

    Returns
    -------
    MergeSummary
        Its `problems` name zips, members and URLs as they were given.

    Raises
    ------
    UsageError
        If there is a URL, and fsspec is not installed.
    EvidenceError
        If the store, the folder for staging or a list cannot be used.
    """
    with Staging(staging_dir) as staging:
        bundles = _stage(given, staging, progress)
        places = [*bundles, *(Path(text) for text in given if not is_url(text))]
        trust, problems = read_trust(places, key=key, lists=trusted_digests)
        if bundles:
            summary = merge_bundles(
                bundles, store_path, root=root, now_us=now_us, trust=trust, progress=progress
            )
        else:
            summary = MergeSummary()
            if not staging.problems:
                summary.problems.append(as_line(f"{', '.join(given)}: no bundle found"))
        found = [*staging.problems, *problems, *summary.problems]
        summary.problems = [staging.relabel(line) for line in found]
    return summary


def has_artifacts(folder: Path, staging_dir: Path) -> bool:
    """Whether a folder holds anything to merge."""
    return folder.is_dir() and bool(find_bundles([folder]) or find_archives(folder, Staging(staging_dir)))


def _stage(given: Sequence[str], staging: Staging, progress: ProgressHook) -> list[Path]:
    """Where bundles lie: what needs no staging, and the folder of what was staged."""
    paths: list[Path] = []
    archives: dict[Path, None] = {}
    urls = []
    for text in given:
        path = Path(text)
        if is_url(text):
            urls.append(text)
        elif path.is_dir():
            inside = find_archives(path, staging)
            archives.update(dict.fromkeys(inside))
            # A folder of zips alone holds no bundle to look for.
            if not inside or find_bundles([path]):
                paths.append(path)
        elif is_archive(path):
            archives[path] = None
        elif not path.name.endswith(SEAL_SUFFIX):
            paths.append(path)
    n_all = len(urls) + len(archives)
    for n_done, url in enumerate(urls):
        progress("fetch", n_done, n_all)
        fetch(url, staging)
    for n_done, path in enumerate(archives, len(urls)):
        progress("unpack", n_done, n_all)
        unpack(path, str(path), staging)
    if n_all:
        progress("unpack", n_all, n_all)
    if staging.folder is not None:
        paths.append(staging.folder)
    return paths
