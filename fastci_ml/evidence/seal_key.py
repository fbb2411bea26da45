"""The key that seals are made and checked with. It is in no settings, in no log and in no error.

Standard library only: `record` runs in pinned images.
"""

from __future__ import annotations

import contextlib
import hmac
import os
from collections.abc import Iterable, MutableMapping

from fastci_ml.errors import UsageError

VARIABLE = "FASTCI_EVIDENCE_KEY"
# A seal lies in the open: whoever has one may try keys as long as they like.
_MIN_BYTES = 16
# So that a signature of ours never fits anything else that the same key signs.
_DOMAIN = b"fastci.seal/1\n"
# Of <linux/prctl.h>.
_PR_SET_DUMPABLE = 4


class SealKey:
    """A secret that those share who may say what trunk does.

    Parameters
    ----------
    secret : bytes
        At least 16 bytes; or none at all, as CI systems give a secret to whom it is kept from: then no seal
        can be made, and none fits.

    Raises
    ------
    UsageError
        If it is shorter than that.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if 0 < len(secret) < _MIN_BYTES:
            raise UsageError(
                f"{VARIABLE}: a key of {len(secret)} bytes, expected {_MIN_BYTES} or more",
                hint="openssl rand -hex 32",
            )
        self._secret = secret

    def __repr__(self) -> str:
        return "SealKey(<hidden>)"

    @property
    def is_empty(self) -> bool:
        """Whether it was kept from us."""
        return not self._secret

    def sign(self, digests: Iterable[str]) -> str:
        """HMAC-SHA256 over a set of digests, hexadecimal."""
        if self.is_empty:
            raise ValueError("an empty key signs nothing")
        body = "".join(f"{digest}\n" for digest in sorted(set(digests)))
        return hmac.new(self._secret, _DOMAIN + body.encode("ascii"), "sha256").hexdigest()

    def fits(self, digests: Iterable[str], signature: str) -> bool:
        """Whether a signature is ours; takes as long for one as for another."""
        return not self.is_empty and hmac.compare_digest(self.sign(digests).encode(), signature.encode())


def take_key(environ: MutableMapping[str, str], *, is_hidden: bool = False) -> SealKey | None:
    """Take the key out of an environment, so that no child gets it; None where there is none.

    Parameters
    ----------
    environ : mutable mapping
        With ``FASTCI_EVIDENCE_KEY``, or without; this process's own.
    is_hidden : bool
        Take care, too, of what the system shows of this process to those that it starts.
    """
    value = environ.get(VARIABLE)
    if value is None:
        return None
    if is_hidden:
        _hide(value)
    del environ[VARIABLE]
    return SealKey(os.fsencode(value.strip()))


def _hide(value: str) -> None:
    """Keep the key from `/proc`, where a process of the same user sees environment and memory of another.

    As far as the system can: whoever may trace any process sees this one too, and those above it.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        # Some builds of Python lack it.
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        library.getenv.restype = ctypes.c_void_p
        address = library.getenv(VARIABLE.encode("ascii"))
        if address:
            ctypes.memset(address, ord("*"), len(os.fsencode(value)))
        library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
