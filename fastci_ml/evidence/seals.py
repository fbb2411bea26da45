"""Seals: which bundles a run left, as they were when its command had ended, signed with a key.

A seal is a JSON file beside the bundles, ``<start>-<unique>.fastci-seal``: ``schema``, ``digests`` (SHA-256
of each bundle, sorted) and ``hmac`` (HMAC-SHA256 over them). Sources need none: a bundle names each by its
content.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.errors import EvidenceError, ReportError
from fastci_ml.evidence.bundle.reader import digest_bundle, open_bundle
from fastci_ml.sources.regular_files import read_regular

if TYPE_CHECKING:
    from fastci_ml.evidence.seal_key import SealKey

SEAL_SUFFIX = ".fastci-seal"
_SCHEMA = "fastci.seal/1"
_MAX_BYTES = 8 << 20
_MAX_DIGESTS = 100_000
is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """What a seal says; nothing of it holds before `SealKey.fits` was asked.

    Attributes
    ----------
    path : Path
        Its file.
    digests : tuple of str
        SHA-256 of bundles, hexadecimal.
    signature : str
        HMAC-SHA256 over them, hexadecimal.
    """

    path: Path
    digests: tuple[str, ...]
    signature: str


def seal_bundles(bundles: Iterable[Path], folder: Path, key: SealKey) -> Path | None:
    """Write a seal of bundles as they are now; what cannot be read is not in it.

    Parameters
    ----------
    bundles : iterable of Path
        A process that still writes changes its bundle, which then is none of these.
    folder : Path
        Where the seal goes.
    key : SealKey
        Not empty.

    Returns
    -------
    Path or None
        The seal; None where there is no bundle.

    Raises
    ------
    EvidenceError
        If it cannot be written.
    """
    digests = sorted(set(_digests(bundles)))
    if not digests:
        return None
    if len(digests) > _MAX_DIGESTS:
        raise EvidenceError(f"{folder}: {len(digests):,} bundles, a seal holds {_MAX_DIGESTS:,}")
    document = {"schema": _SCHEMA, "digests": digests, "hmac": key.sign(digests)}
    path = folder / f"{time.time_ns() // 1000}-{uuid.uuid4().hex}{SEAL_SUFFIX}"
    try:
        with path.open("xb") as stream:
            stream.write(json.dumps(document, indent=0).encode("ascii") + b"\n")
    except OSError as error:
        raise EvidenceError(f"{path}: no seal can be written: {error}") from error
    return path


def read_seal(path: Path) -> Seal:
    """Read a seal of a stranger.

    Raises
    ------
    EvidenceError
        If it is not exactly what `seal_bundles` writes.
    """
    try:
        document = json.loads(read_regular(path, _MAX_BYTES))
    except ReportError as error:
        raise EvidenceError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise EvidenceError(f"{path}: no seal: not readable as JSON") from error
    if type(document) is not dict or document.get("schema") != _SCHEMA:
        found = repr(document.get("schema") if type(document) is dict else document)[:60]
        raise EvidenceError(f"{path}: no seal: schema {found}, expected {_SCHEMA!r}")
    digests, signature = document.get("digests"), document.get("hmac")
    if type(digests) is not list or not 0 < len(digests) <= _MAX_DIGESTS:
        raise EvidenceError(f"{path}: a seal without a usable list of digests")
    if not all(type(text) is str and is_digest(text) for text in (*digests, signature)):
        raise EvidenceError(f"{path}: a seal whose digests or hmac are no SHA-256 in hexadecimal digits")
    return Seal(path=path, digests=tuple(digests), signature=str(signature))


def find_seals(paths: Sequence[Path]) -> list[Path]:
    """Seals below folders, those that are named, and those beside bundles that are named; sorted."""
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found.update(path.rglob(f"*{SEAL_SUFFIX}"))
        elif path.name.endswith(SEAL_SUFFIX):
            found.add(path)
        else:
            found.update(path.parent.glob(f"*{SEAL_SUFFIX}"))
    return sorted(found)


def _digests(bundles: Iterable[Path]) -> Iterable[str]:
    for path in bundles:
        try:
            with open_bundle(path) as stream:
                yield digest_bundle(path, stream)[1]
        except EvidenceError:
            # Merging will say what is wrong with it, and seals or not will not take it.
            continue
