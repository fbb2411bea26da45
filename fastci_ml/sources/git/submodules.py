"""What a changed submodule changes: its own files, told by its own repository where that is checked out.

The superproject knows two commits of it and nothing else. Git's ids name contents, so a repository that has
both commits gives the right difference, whatever else is the matter with it. Where there is none, everything
below the submodule counts as changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeStatus, FileChange
from fastci_ml.sources.git.reader import GitReader, decode, empty_tree

GITLINK_MODE = "160000"
# What makes git look at one repository wherever it stands; of a submodule nothing can be asked then.
_BINDINGS = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")

TreeDifference = Callable[[GitReader, str, str], tuple[list[FileChange], list[str]]]


def open_submodule(reader: GitReader, path: str) -> GitReader:
    """Repository of a submodule that is checked out below the top of the checkout of `reader`.

    Raises
    ------
    GitError
        If it is not checked out there, or git refuses to read it.
    """
    if any(name in os.environ for name in _BINDINGS):
        raise GitError(f"{path}: cannot be read while {' or '.join(_BINDINGS)} is set")
    top = Path(decode(reader.run("rev-parse", "--show-toplevel").removesuffix(b"\n")))
    folder = top / path
    # Without one of its own git would take the superproject's for it.
    if not (folder / ".git").exists():
        raise GitError(f"{path}: is not checked out", hint=f"git submodule update --init {path}")
    return GitReader(folder)


def expand_submodules(
    reader: GitReader, files: Iterable[FileChange], compare_trees: TreeDifference
) -> tuple[list[FileChange], list[str]]:
    """Add the files that changed inside of changed submodules.

    Parameters
    ----------
    reader : GitReader
        The superproject.
    files : iterable of FileChange
        Its changes; a submodule is one of them, and stays.
    compare_trees : callable
        Tells the difference of two revisions of a repository and what was odd, nested submodules included.

    Returns
    -------
    tuple of list
        Files by path, and what was odd in words.
    """
    expanded: list[FileChange] = []
    notes: list[str] = []
    for file in files:
        if not file.is_submodule:
            expanded.append(file)
            continue
        try:
            inner, inner_notes = _inside(reader, file, compare_trees)
        except GitError as error:
            expanded.append(replace(file, is_whole_tree=True))
            helps = f"; what helps: {error.hint}" if error.hint else ""
            notes.append(f"submodule {file.path}: everything below it counts as changed: {error}{helps}")
        else:
            expanded += [file, *inner]
            notes += inner_notes
    return sorted(expanded, key=lambda file: file.path), notes


def list_submodule_paths(
    reader: GitReader, commit: str, list_paths: Callable[[GitReader, str], frozenset[str]]
) -> set[str]:
    """Paths of the files of every submodule of a commit, as far as it is checked out."""
    found: set[str] = set()
    for record in reader.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
        if record.startswith(GITLINK_MODE.encode()):
            words, _, raw_path = record.partition(b"\t")
            path, sha = decode(raw_path), words.split(b" ")[2].decode("ascii")
            try:
                inner = list_paths(open_submodule(reader, path), sha)
            except GitError:
                continue  # its tests, should there be any, are unknown to the plan, and run
            found.update(f"{path}/{name}" for name in inner)
    return found


def _inside(
    reader: GitReader, file: FileChange, compare_trees: TreeDifference
) -> tuple[list[FileChange], list[str]]:
    """Changes of one submodule, with paths from the top of the superproject."""
    old = file.old_id if file.old_mode == GITLINK_MODE else ""
    new = file.new_id if file.new_mode == GITLINK_MODE else ""
    # Git keeps the folder of a submodule that was moved where the head has it.
    inner = open_submodule(reader, file.path)
    known = inner.objects([(sha, "commit") for sha in (old, new) if sha])
    nothing = empty_tree(known[0])
    if old == new:
        # Moved as it is: each file of it is a rename.
        listed, notes = compare_trees(inner, nothing, new)
        return [_moved(file, inside) for inside in listed], notes
    listed, notes = compare_trees(inner, old or nothing, new or nothing)
    old_top = file.old_path or file.path
    prefixed = [
        replace(
            inside,
            path=f"{file.path}/{inside.path}",
            old_path=f"{old_top}/{inside.old_path}" if inside.old_path else "",
        )
        for inside in listed
    ]
    return prefixed, [f"submodule {file.path}: {note}" for note in notes]


def _moved(file: FileChange, inside: FileChange) -> FileChange:
    """A file of a submodule that was moved as it is; `inside` has it as added."""
    return FileChange(
        path=f"{file.path}/{inside.path}",
        old_path=f"{file.old_path}/{inside.path}",
        status=ChangeStatus.RENAMED,
        n_added=0.0,
        n_deleted=0.0,
        old_mode=inside.new_mode,
        new_mode=inside.new_mode,
        old_id=inside.new_id,
        new_id=inside.new_id,
        is_binary=inside.is_binary,
        is_whole_tree=inside.is_whole_tree,
    )
