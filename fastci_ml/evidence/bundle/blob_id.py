"""Git's name of a content."""

from __future__ import annotations

try:
    # The interpreter's own: `hashlib` loads OpenSSL, which takes longer than what a child does at its start.
    from _sha1 import sha1  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from hashlib import sha1


def blob_id(content: bytes) -> str:
    """Git's id of a blob of this content.

    Examples
    --------
    >>> blob_id(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    # A name of content, not a protection: git's own choice.
    digest: str = sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
    return digest
