"""Which tree a checkout holds, and whether its tracked files still are that tree.

Standard library only: the pytest plugin asks this inside pinned images that have no GitPython. No program
that the target configures is run: neither monitors nor hooks nor content filters, in submodules as well.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.sources.git.commands import failure, run_git
from fastci_ml.sources.git.lfs import MAX_POINTER_BYTES, is_content_of
from fastci_ml.sources.git.programs import read_programs

_GITLINK = "160000"
_EXECUTABLE = "100755"
# In `git status --porcelain`: the index is as committed, the file differs from it.
_ONLY_FILE_DIFFERS = " M"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """What is checked out.

    Attributes
    ----------
    top : Path
        Folder at the top of the checkout.
    head : str
        Full sha of the commit.
    tree : str
        Full sha of its tree.
    is_dirty : bool
        Whether a tracked file, or the index, differs from `tree`, in submodules that are checked out as well.
        Untracked files do not count: caches and build outputs lie in every checkout.
    """

    top: Path
    head: str
    tree: str
    is_dirty: bool


def read_worktree(root: Path) -> Worktree:
    """Read what is checked out at `root`, without writing to the repository.

    Parameters
    ----------
    root : Path
        Any folder of the checkout.

    Returns
    -------
    Worktree
        Files that the user told git to overlook (``--assume-unchanged``) are not seen as dirty. Content
        filters are not run: a file that they changed is dirty where git has to look at its content, unless it
        is what a Git LFS pointer stands for.

    Raises
    ------
    GitError
        If git is missing or fails, `root` is in no checkout, or nothing is committed yet.
    """
    asked = _git(root, "rev-parse", "--show-toplevel", "HEAD^{commit}", "HEAD^{tree}")
    # The path comes first and may have line ends of its own.
    *top, head, tree = asked.removesuffix("\n").split("\n")
    folder = Path("\n".join(top))
    return Worktree(top=folder, head=head, tree=tree, is_dirty=_is_dirty(folder))


def _is_dirty(top: Path, *, is_submodule: bool = False) -> bool:
    changed = _git(
        top,
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=no",
        "--no-renames",
        # Settings of the target may hide a submodule at another commit; for us it is another tree. Git would
        # look inside by a process of its own that runs the filters of the submodule: we look ourselves.
        "--ignore-submodules=dirty",
        options=read_programs(top, is_other_repository=is_submodule).filter_options(),
        is_submodule=is_submodule,
    )
    entries = [entry for entry in changed.split("\0") if entry]
    if any(entry[:2] != _ONLY_FILE_DIFFERS for entry in entries):
        return True
    index = _read_index(top, is_submodule=is_submodule)
    differing = {entry[3:]: index.get(entry[3:]) for entry in entries}
    if not _are_lfs_contents(top, differing, is_submodule=is_submodule):
        return True
    return any(
        _is_dirty(top / path, is_submodule=True)
        for path, (mode, _) in index.items()
        # What is not checked out cannot differ. In a submodule `.git` is a file, or a folder.
        if mode == _GITLINK and (top / path / ".git").exists()
    )


def _read_index(top: Path, *, is_submodule: bool) -> dict[str, tuple[str, str]]:
    """Mode and object of every path."""
    listed = _git(top, "ls-files", "--stage", "-z", "--full-name", is_submodule=is_submodule)
    index = {}
    for entry in listed.split("\0"):
        if entry:
            words, _, path = entry.partition("\t")
            mode, sha, _ = words.split(" ")
            index[path] = mode, sha
    return index


def _are_lfs_contents(top: Path, files: Mapping[str, tuple[str, str] | None], *, is_submodule: bool) -> bool:
    """Whether every one of the files is what the Git LFS pointer in the index stands for."""
    if not files:
        return True
    if None in files.values():
        return False
    entries = {path: entry for path, entry in files.items() if entry is not None}
    pointers = _read_small_blobs(top, sorted({sha for _, sha in entries.values()}), is_submodule=is_submodule)
    try:
        return all(
            sha in pointers
            and _is_executable(top / path) == (mode == _EXECUTABLE)
            and is_content_of(pointers[sha], top / path)
            for path, (mode, sha) in entries.items()
        )
    except OSError:
        return False  # it went away or cannot be read: other than committed in any case


def _is_executable(file: Path) -> bool:
    return bool(file.lstat().st_mode & stat.S_IXUSR)


def _read_small_blobs(top: Path, shas: list[str], *, is_submodule: bool) -> dict[str, bytes]:
    """Content of those blobs that are short enough for a pointer, by two processes for all of them."""
    sizes = _ask(
        top, "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=shas, is_submodule=is_submodule
    )
    small = [
        words[0].decode()
        for words in (line.split(b" ") for line in sizes.splitlines())
        if words[1].isdigit() and int(words[1]) <= MAX_POINTER_BYTES
    ]
    answers = io.BytesIO(
        _ask(top, "cat-file", "--batch=%(objectsize)", stdin=small, is_submodule=is_submodule)
    )
    contents = {}
    for sha in small:
        contents[sha] = answers.read(int(answers.readline()))
        answers.read(1)  # the newline behind the content
    return contents


def _git(root: Path, *arguments: str, options: tuple[str, ...] = (), is_submodule: bool = False) -> str:
    return os.fsdecode(_ask(root, *arguments, options=options, is_submodule=is_submodule))


def _ask(
    root: Path,
    *arguments: str,
    options: tuple[str, ...] = (),
    stdin: list[str] | None = None,
    is_submodule: bool = False,
) -> bytes:
    lines = "".join(f"{line}\n" for line in stdin or ()).encode()
    done = run_git(root, arguments, options=options, stdin=lines, is_other_repository=is_submodule)
    if done.status:
        raise failure(root, arguments[0], done.status, done.said)
    return done.output
