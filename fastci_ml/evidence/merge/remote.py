"""Fetching artifacts by URL. The only door to fsspec, which is loaded for URLs and for nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastci_ml.errors import EvidenceError, UsageError
from fastci_ml.evidence.bundle.lines import SUFFIX
from fastci_ml.evidence.bundle.source_pack import pack_of
from fastci_ml.evidence.merge.archives import unpack
from fastci_ml.evidence.merge.staging import OUR_SUFFIXES, ZIP_SUFFIX, RefusedError, Staging

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIXES = (*OUR_SUFFIXES, ZIP_SUFFIX)
# Of one URL that is a folder.
_MAX_LISTED = 200_000


def is_url(text: str) -> bool:
    """Whether a word names something by URL.

    Examples
    --------
    >>> is_url("s3://bucket/nightly"), is_url("zip://*::file:///a.zip"), is_url("a/b.zip")
    (True, True, False)
    """
    return "://" in text


def without_secrets(text: str) -> str:
    """A text without what URLs in it are opened with: passwords, tokens and signatures.

    Examples
    --------
    >>> without_secrets("403 of https://user:word@ci.example/a.zip?sig=1234 now")
    '403 of https://...@ci.example/a.zip?... now'
    """
    text = re.sub(r"://[^/\s'\"]*@", "://...@", text)
    return re.sub(r"\?[^\s'\"]+", "?...", text)


def fetch(url: str, staging: Staging) -> None:
    """Stage what lies at a URL: a zip, a bundle with its sources, or a folder with any of these.

    Parameters
    ----------
    url : str
        As fsspec takes it; protocols beside those of the standard library need their own package.
    staging : Staging
        Where it goes. What cannot be used is a problem there, and the rest is staged.

    Raises
    ------
    UsageError
        If fsspec is not installed.
    EvidenceError
        If nothing can be staged at all.
    """
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(
            f"{without_secrets(url)}: to fetch it, fsspec has to be installed",
            hint="pip install 'fastci-ml[remote]'",
        ) from error
    shown = without_secrets(url)
    n_before, n_problems = staging.n_files, len(staging.problems)
    with _told(shown, staging):
        system, path = fsspec.core.url_to_fs(url)
        if _is_folder(system, path, url):
            _fetch_folder(system, path, shown, staging)
        else:
            _fetch_file(system, path, shown, staging)
    if (staging.n_files, len(staging.problems)) == (n_before, n_problems):
        staging.add_problem(f"{shown}: no bundle there")


@contextmanager
def _told(label: str, staging: Staging) -> Iterator[None]:
    """Make a problem of whatever goes wrong with one thing."""
    try:
        yield
    except EvidenceError:
        raise
    except RefusedError as error:
        staging.add_problem(f"{label}: {error}")
    except Exception as error:  # noqa: BLE001  a border of its own: each file system raises what its library does
        text = without_secrets(str(error)) or "no more is known"
        staging.add_problem(f"{label}: cannot be fetched: {type(error).__name__}: {text}")


def _is_folder(system: Any, path: str, url: str) -> bool:
    if path.endswith("/"):
        return True
    # To see whether a page lists others, fsspec loads all of it as text, however large.
    is_page = re.match(r"(\w+::)*https?://", url) is not None
    return not is_page and not path.lower().endswith(_SUFFIXES) and bool(system.isdir(path))


def _fetch_folder(system: Any, path: str, shown: str, staging: Staging) -> None:
    folders: dict[str, Path] = {}
    for n_listed, found in enumerate(system.find(path)):
        if n_listed == _MAX_LISTED:
            raise RefusedError(f"more than {_MAX_LISTED:,} files")
        parent, _, name = str(found).rpartition("/")
        if not name.lower().endswith(_SUFFIXES):
            continue
        if parent not in folders:
            folders[parent] = staging.new_folder()
        label = f"{shown}: {without_secrets(str(found))}"
        with _told(label, staging):
            _fetch_one(system, found, name, folders[parent], label, staging)


def _fetch_file(system: Any, path: str, shown: str, staging: Staging) -> None:
    # A URL of a CI system may end in anything, as in `/artifacts/77/zip`, and have a query behind.
    name = path.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not name.lower().endswith(_SUFFIXES):
        name = f"artifact{ZIP_SUFFIX}"
    folder = staging.new_folder()
    _fetch_one(system, path, name, folder, shown, staging)
    if name.endswith(SUFFIX):
        sources = pack_of(folder / name).name
        beside = f"{path.rpartition('/')[0]}/{sources}"
        if system.exists(beside):
            _fetch_one(system, beside, sources, folder, f"{shown}: {sources}", staging)


def _fetch_one(system: Any, path: str, name: str, folder: Path, label: str, staging: Staging) -> None:
    with system.open(path, "rb") as stream:
        staged = staging.put(folder, name, label, stream.read)
    if name.lower().endswith(ZIP_SUFFIX):
        unpack(staged, label, staging)
        staging.drop(staged)
