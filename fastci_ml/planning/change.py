"""The change that a plan is for, as git tells it, and what forbids to narrow on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeSet
from fastci_ml.records.ids import CommitSha
from fastci_ml.records.plans import Reason

if TYPE_CHECKING:
    from fastci_ml.sources.git.fetch import FetchLimits
    from fastci_ml.sources.git.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change to plan for.

    Attributes
    ----------
    change_set : ChangeSet
        Its `files` mean nothing where `is_known` is false.
    root : str
        Folder of the project from the top of the repository; empty for the top itself.
    paths : frozenset of str
        Every file of the project at the head, from `root`: where the ids of tests start.
    is_known : bool
        Whether the difference from the base could be read.
    notes : tuple of str
        What was odd about it, or why it is unknown.
    full_run : tuple of Reason
        Why the change does not allow to leave out any test; empty where it does.
    """

    change_set: ChangeSet
    paths: frozenset[str]
    root: str = ""
    is_known: bool = True
    notes: tuple[str, ...] = ()
    full_run: tuple[Reason, ...] = ()


def read_change(repository: Repository, base: str, head: str, *, limits: FetchLimits | None = None) -> Change:
    """Read a change; a base that git cannot compare with costs the change's features, never the plan.

    Parameters
    ----------
    repository : Repository
        Where.
    base, head : str
        Revisions; a CI leaves the variable of the base empty, or full of zeros, where it has none.
    limits : FetchLimits, optional
        How much may be fetched where the clone is shallow or partial; by default nothing.

    Returns
    -------
    Change
        The codes of its `full_run` are those of `UnknownChangeError`, and ``base_is_newer`` for a head that
        the base contains: what it lacks of the base is no change of its own, and yet other code than what
        ran there. ``unknown_change`` is any other failure of git.

    Raises
    ------
    GitError
        If there is no such head: a plan is bound to its tree.
    """
    prefix = repository.prefix()
    paths = repository.paths(head, limits=limits)
    if prefix:
        paths = frozenset(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
    root = prefix.removesuffix("/")
    try:
        change_set, notes = _compare(repository, base, head, limits)
    except GitError as error:
        sha, tree = repository.resolve(head), repository.tree(head)
        nothing = ChangeSet(base=CommitSha(""), head=sha, head_tree=tree, files=())
        why = f"{error}{f'; what helps: {error.hint}' if error.hint else ''}"
        return Change(
            change_set=nothing,
            paths=paths,
            root=root,
            is_known=False,
            notes=(f"the change is unknown, and its features with it: {why}",),
            full_run=(
                Reason(code=getattr(error, "code", "unknown_change"), text=f"the change is unknown: {why}"),
            ),
        )
    return Change(change_set=change_set, paths=paths, root=root, notes=notes)


def _compare(
    repository: Repository, base: str, head: str, limits: FetchLimits | None
) -> tuple[ChangeSet, tuple[str, ...]]:
    """Compare, and say what is odd about the answer."""
    from fastci_ml.sources.git.comparison import UnknownChangeError

    if not base.strip():
        raise UnknownChangeError("no base is named", hint="--base origin/main", code="no_base")
    change_set = repository.changes(base, head, limits=limits)
    if change_set.files:
        return change_set, change_set.notes
    # A base that had to be fetched has no name here, and then it is not the head.
    if change_set.base == change_set.head and _resolved(repository, base) != change_set.head:
        raise UnknownChangeError(
            f"the base {base} contains the head {change_set.head[:12]}, which brings nothing of its own",
            hint=f"--base {change_set.head[:12]}~1, or the commit that was tested before",
            code="base_is_newer",
        )
    what = "base and head are the same commit" if change_set.base == change_set.head else "no file differs"
    return change_set, (*change_set.notes, f"the change is empty: {what}")


def _resolved(repository: Repository, revision: str) -> str:
    try:
        return repository.resolve(revision)
    except GitError:
        return ""
