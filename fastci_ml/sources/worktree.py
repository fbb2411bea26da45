"""Which tree a checkout holds, and whether its tracked files still are that tree.

Standard library only: the pytest plugin asks this inside pinned images that have no GitPython.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import GitError
from fastci_ml.sources.git_commands import ENVIRONMENT, SAFE_OPTIONS

# Longer than any status of a large checkout on a cold disk; a hung network mount must not hang the tests.
_TIMEOUT_S = 300.0


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
        Whether a tracked file, or the index, differs from `tree`. Untracked files do not count: caches and
        build outputs lie in every checkout.
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
        Files that the user told git to overlook (``--assume-unchanged``) are not seen as dirty.

    Raises
    ------
    GitError
        If git is missing or fails, `root` is in no checkout, or nothing is committed yet.
    """
    # The path comes first and may have line ends of its own.
    *top, head, tree = _git(root, "rev-parse", "--show-toplevel", "HEAD^{commit}", "HEAD^{tree}").split("\n")
    changed = _git(
        root,
        "status",
        "--porcelain",
        "-z",
        "--untracked-files=no",
        "--no-renames",
        # Settings of the target may hide a submodule at another commit; for us it is another tree.
        "--ignore-submodules=untracked",
    )
    return Worktree(top=Path("\n".join(top)), head=head, tree=tree, is_dirty=bool(changed))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *SAFE_OPTIONS, *arguments],
            cwd=root,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise GitError(f"{root}: cannot run git there: {error}", hint="git --version") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"{root}: git {arguments[0]} failed: {error}", hint="git status") from error
    if done.returncode:
        said = os.fsdecode(done.stderr).strip() or f"exit code {done.returncode}"
        raise GitError(f"{root}: git {arguments[0]}: {said}", hint=f"git -C {root} status")
    return os.fsdecode(done.stdout).strip()
