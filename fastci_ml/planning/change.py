"""The change that a plan is for, as git tells it, and what forbids to narrow on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeSet
from fastci_ml.records.ids import CommitSha
from fastci_ml.records.plans import Reason

if TYPE_CHECKING:
    from fastci_ml.sources.repository import Repository


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
        Why not.
    full_run : tuple of Reason
        Why the change does not allow to leave out any test; empty where it does.
    """

    change_set: ChangeSet
    paths: frozenset[str]
    root: str = ""
    is_known: bool = True
    notes: tuple[str, ...] = ()
    full_run: tuple[Reason, ...] = ()


def read_change(repository: Repository, base: str, head: str) -> Change:
    """Read a change; a base that git cannot compare with costs the change's features, never the plan.

    Raises
    ------
    GitError
        If there is no such head: a plan is bound to its tree.
    """
    prefix = repository.prefix()
    paths = repository.paths(head)
    if prefix:
        paths = frozenset(path.removeprefix(prefix) for path in paths if path.startswith(prefix))
    root = prefix.removesuffix("/")
    why = "no base is named"  # a CI leaves the variable of the base empty where it has none
    if base:
        try:
            return Change(change_set=repository.changes(base, head), paths=paths, root=root)
        except GitError as error:
            why = str(error)
    sha, tree = repository.resolve(head), repository.tree(head)
    nothing = ChangeSet(base=CommitSha(""), head=sha, head_tree=tree, files=())
    note = f"the change is unknown, and its features with it: {why}"
    reason = Reason(code="unknown_change", text=f"the change is unknown: {why}")
    return Change(
        change_set=nothing, paths=paths, root=root, is_known=False, notes=(note,), full_run=(reason,)
    )
