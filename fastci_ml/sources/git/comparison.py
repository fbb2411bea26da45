"""What a head is compared with: the merge base of it and a base, if it can be told at all.

In a shallow clone git finds a merge base as if the commits at its edge had no parents. That one can be an
older ancestor than the real one, and the difference from it then lacks what a commit between them undid. So
it counts only if nothing lies behind the edge that could be a better one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastci_ml.errors import GitError
from fastci_ml.records.ids import CommitSha
from fastci_ml.sources.git.reader import GitReader

# Histories that were merged back and forth have several; with more than this the difference from each of them
# says little, and each costs a comparison.
MAX_STARTS = 8

_ZERO = re.compile("0{40}|0{64}")
FULL_SHA = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class UnknownChangeError(GitError):
    """Git cannot tell what a change is; whoever asks runs everything.

    Parameters
    ----------
    message, hint : str
        As for every error.
    code : str
        Stable name of the kind: ``no_base``, ``zero_base``, ``unknown_base``, ``shallow``, ``no_merge_base``,
        ``many_merge_bases``, ``missing_objects``.
    """

    def __init__(self, message: str, *, hint: str | None = None, code: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What to compare.

    Attributes
    ----------
    base, head : CommitSha
        The commits that were named.
    starts : tuple of CommitSha
        Their merge bases, git's order; several where histories were merged back and forth.
    notes : tuple of str
        What was done to find them.
    """

    base: CommitSha
    head: CommitSha
    starts: tuple[CommitSha, ...]
    notes: tuple[str, ...] = ()


def compare(reader: GitReader, base: str, head: str) -> Comparison:
    """Find what a head is compared with, in the history as it is here.

    Raises
    ------
    UnknownChangeError
        If it cannot be told, with the code that says why.
    GitError
        If there is no such head.
    """
    if not base.strip():
        raise UnknownChangeError("no base is named", hint="--base origin/main", code="no_base")
    if _ZERO.fullmatch(base):
        raise UnknownChangeError(
            f"the base is {base[:12]}..., which stands for no commit (a new branch or tag)",
            hint="--base origin/main, or the branch that this one will be merged into",
            code="zero_base",
        )
    try:
        head_sha, base_sha = reader.objects([(head, "commit"), (base, "commit")])
    except GitError as error:
        reader.objects([(head, "commit")])  # whose absence is an error of its own
        raise UnknownChangeError(str(error), hint=error.hint, code="unknown_base") from error
    starts = merge_bases(reader, base_sha, head_sha)
    _check(reader, (base, base_sha), (head, head_sha), starts)
    return Comparison(base=CommitSha(base_sha), head=CommitSha(head_sha), starts=starts)


def merge_bases(reader: GitReader, base_sha: str, head_sha: str) -> tuple[CommitSha, ...]:
    """Best common ancestors of two commits, as far as the history is here."""
    output = reader.run("merge-base", "--all", base_sha, head_sha, is_no_allowed=True)
    return tuple(CommitSha(sha) for sha in output.decode("ascii").split())


def _check(
    reader: GitReader, base: tuple[str, str], head: tuple[str, str], starts: tuple[CommitSha, ...]
) -> None:
    """Refuse merge bases that are none, too many, or not known to be the best."""
    (base_name, base_sha), (head_name, head_sha) = base, head
    names = f"{base_name} and {head_name}"
    edge = reader.shallow_commits()
    for start in starts or ("",):
        # A path to an ancestor that is not here leads through one of these commits.
        excluded = f"^{start}\n" if start else ""
        if edge and not edge.isdisjoint(
            reader.run("rev-list", "--stdin", stdin=f"{base_sha}\n{head_sha}\n{excluded}").decode().split()
        ):
            raise UnknownChangeError(
                f"{reader.root}: no common ancestor of {names} is known for certain (the clone is shallow)",
                hint="git fetch --unshallow origin, or check out with fetch-depth: 0",
                code="shallow",
            )
    if not starts:
        raise UnknownChangeError(
            f"{reader.root}: no common ancestor of {names}, their histories are unrelated",
            hint="git fetch origin, then give --base a commit that the head is made from",
            code="no_merge_base",
        )
    if len(starts) > MAX_STARTS:
        raise UnknownChangeError(
            f"{reader.root}: {names} have {len(starts)} merge bases, expected at most {MAX_STARTS}",
            hint=f"git merge {base_name}",
            code="many_merge_bases",
        )
