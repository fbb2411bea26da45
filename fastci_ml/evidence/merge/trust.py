"""What a merge believes of where a bundle comes from: with a key or a list, what can be shown, and no more.

A bundle says itself whose code ran. Whoever can leave a bundle where it is merged, a pull request among
others, can write anything into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastci_ml.errors import EvidenceError, ReportError
from fastci_ml.evidence.seal_key import SealKey
from fastci_ml.evidence.seals import find_seals, is_digest, read_seal
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence import Provenance
from fastci_ml.records.evidence_kinds import UNTRUSTED_SCOPE, needs_trust
from fastci_ml.sources.regular_files import read_regular

_MAX_LIST_BYTES = 64 << 20
# Each may be of megabytes.
_MAX_SEALS = 20_000


@dataclass(frozen=True, slots=True)
class Trust:
    """Which bundles may say of themselves whose code ran.

    Attributes
    ----------
    digests : frozenset of str or None
        SHA-256 of their files; None for all: where nothing is configured, scopes are believed as declared.
    """

    digests: frozenset[str] | None = None

    def judge(self, declared: Provenance, digest: str, store: EvidenceStore) -> Provenance:
        """Provenance of a bundle with the scope that it is to be stored under.

        Parameters
        ----------
        declared : Provenance
            What the bundle says.
        digest : str
            SHA-256 of the file that said so.
        store : EvidenceStore
            What an earlier merge found stays found: the bundle as it is there, trusted, needs no seal again,
            and one that was not trusted needs more than a merge that looks at none.
        """
        if not needs_trust(declared.scope):
            return declared
        if self.digests is not None and digest in self.digests:
            return declared
        if store.has_bundle(declared.bundle_id, digest, scope=UNTRUSTED_SCOPE):
            return replace(declared, scope=UNTRUSTED_SCOPE)
        if self.digests is None or store.has_bundle(declared.bundle_id, digest):
            return declared
        return replace(declared, scope=UNTRUSTED_SCOPE)


AS_DECLARED = Trust()


def read_trust(
    paths: Sequence[Path], *, key: SealKey | None, lists: Sequence[Path] = ()
) -> tuple[Trust, list[str]]:
    """What a merge of some bundles may believe.

    Parameters
    ----------
    paths : sequence of Path
        Bundles and folders; seals are looked for below and beside them.
    key : SealKey or None
        None: seals are not looked at.
    lists : sequence of Path
        Files of digests: one in a line, or as ``sha256sum`` prints them; ``#`` begins a comment.

    Returns
    -------
    Trust
        `AS_DECLARED` without key and lists.
    list of str
        A line for each seal that is none of ours.

    Raises
    ------
    EvidenceError
        If a list cannot be read, or holds something else.
    """
    if key is None and not lists:
        return AS_DECLARED, []
    digests: set[str] = set()
    for path in lists:
        digests |= _read_list(path)
    problems = []
    found = [] if key is None or key.is_empty else find_seals(paths)
    if len(found) > _MAX_SEALS:
        problems.append(f"{len(found):,} seals, at most {_MAX_SEALS:,} are looked at")
    for path in found[:_MAX_SEALS]:
        try:
            seal = read_seal(path)
        except EvidenceError as error:
            problems.append(str(error))
            continue
        assert key is not None
        if key.fits(seal.digests, seal.signature):
            digests.update(seal.digests)
        else:
            problems.append(f"{path}: a seal that was made with another key, or changed since")
    return Trust(frozenset(digests)), problems


def _read_list(path: Path) -> set[str]:
    try:
        text = read_regular(path, _MAX_LIST_BYTES).decode("utf-8", "backslashreplace")
    except ReportError as error:
        raise EvidenceError(str(error), hint="sha256sum *.fastci-bundle > FILE") from error
    found = set()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        words = line.partition("#")[0].split(maxsplit=1)
        if not words:
            continue
        # sha256sum puts a backslash before a line whose name it had to escape.
        digest = words[0].removeprefix("\\").lower()
        if not is_digest(digest):
            raise EvidenceError(
                f"{path}: line {number} begins with {words[0][:80]!r}, expected a SHA-256 in hexadecimal",
                hint="sha256sum *.fastci-bundle > FILE",
            )
        found.add(digest)
    return found
