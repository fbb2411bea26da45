"""Git LFS without git-lfs: tell whether a file is what its pointer in the repository stands for.

The filter that git would run for it reads settings of the target, which may name programs. A pointer holds
the hash of the content, so no program is needed. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

# Pointers are at most this long, by the specification of Git LFS.
MAX_POINTER_BYTES = 1024

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"(?:ext-[^\n]*\n)*"
    rb"oid sha256:(?P<digest>[0-9a-f]{64})\nsize (?P<size>[0-9]+)\n"
)


def is_content_of(pointer: bytes, file: Path) -> bool:
    """Whether a regular file holds the content that a pointer names; false where `pointer` is none.

    Pointers with extensions name the content after these have run, which are programs: false as well.

    Raises
    ------
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> is_content_of(b"no pointer", Path("any"))
    False
    """
    found = _POINTER.fullmatch(pointer)
    if found is None or b"\next-" in pointer or file.is_symlink() or not file.is_file():
        return False
    if file.stat().st_size != int(found["size"]):
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().encode() == found["digest"]
