"""How the plain files of a bundle are written and read."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastci_ml.errors import ModelError

HINT = "fastci-ml train"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def dumps(document: Mapping[str, Any]) -> str:
    """JSON as bundles hold it: the same text for the same document; NaN and infinities become null."""
    return json.dumps(_plain(document), allow_nan=False, indent=1) + "\n"


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document, and wait until the disk has it."""
    write_text(path, dumps(document))


def write_text(path: Path, text: str) -> None:
    """Write text with Unix line ends, and wait until the disk has it."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def digest_of(content: bytes) -> str:
    """Give the sha256 of a file's content, hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes:
    """Content of a file.

    Raises
    ------
    ModelError
        If it is not there or not readable.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: not readable: {error.strerror}", hint=HINT) from error


def read_json(path: Path, content: bytes) -> dict[str, Any]:
    """Object in the content of a file.

    Raises
    ------
    ModelError
        If it is no JSON, or something else than an object.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: no JSON: {error}", hint=HINT) from error
    if not isinstance(document, dict):
        raise ModelError(f"{path}: {type(document).__name__} at the top, expected an object", hint=HINT)
    return document
