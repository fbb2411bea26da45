"""Ask one repository by git commands, through GitPython's command layer; its only importer.

Nothing that the repository configures (external diffs, text filters, hooks, monitors, transports) is run, and
nothing is fetched. See docs/decisions/0002 for why not GitPython's objects.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fastci_ml.errors import GitError
from fastci_ml.sources.git.commands import ENVIRONMENT, SAFE_OPTIONS, failure

try:
    from git.cmd import Git
    from git.exc import GitCommandError, GitCommandNotFound
except ImportError as error:
    # GitPython refuses to be imported where there is no git program; both lacks have the same cure.
    raise GitError(f"cannot use git: {error}", hint="install git, then `pip install gitpython`") from error

_SHA = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# What decides about the answer and could be configured: attributes of the user or the machine, and the size
# above which git neither loads nor compares the lines of a file. Git's own 512 MB would need gigabytes.
_FIXED_OPTIONS = ("-c", "core.attributesFile=/dev/null", "-c", "core.bigFileThreshold=16m")
_FIXED_ENVIRONMENT = {**ENVIRONMENT, "GIT_ATTR_NOSYSTEM": "1"}


class GitReader:
    """Runs git in one folder, and gives bytes.

    Parameters
    ----------
    root : Path
        Any folder of a checkout, or a bare repository.

    Attributes
    ----------
    root : Path
        As given.
    git_dir : Path
        Folder that holds the objects, shared by all worktrees of the repository.

    Raises
    ------
    GitError
        If there is no repository, or git refuses to read it.
    """

    def __init__(self, root: Path) -> None:
        # In a folder that is not there GitPython would quietly ask the repository of the current one.
        if not root.is_dir():
            raise GitError(f"{root}: no such folder, expected a git repository")
        self.root = root
        self._git = Git(root)
        said = self.run("rev-parse", "--git-common-dir").removesuffix(b"\n")
        self.git_dir = root / decode(said)

    def close(self) -> None:
        """End what GitPython may have kept running."""
        self._git.clear_cache()

    def run(self, *arguments: str, stdin: str = "", is_no_allowed: bool = False) -> bytes:
        """Output of one git command; with `is_no_allowed` exit code 1 is an answer.

        Raises
        ------
        GitError
            If git cannot be started or fails.
        """
        with tempfile.TemporaryFile() as lines:
            lines.write(stdin.encode("utf-8", "surrogateescape"))
            lines.seek(0)
            try:
                status, output, said = self._git.execute(
                    ["git", *SAFE_OPTIONS, *_FIXED_OPTIONS, *arguments],
                    istream=lines,
                    env=_FIXED_ENVIRONMENT,
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    shell=False,
                )
            except (GitCommandError, GitCommandNotFound, OSError) as error:
                raise GitError(f"{self.root}: cannot run git: {error}", hint="git --version") from error
        if status and not (is_no_allowed and status == 1):
            raise failure(self.root, arguments[0], int(status), said)
        assert isinstance(output, bytes)
        return output

    def objects(self, wanted: Sequence[tuple[str, str]]) -> list[str]:
        """Shas of many (revision, type) pairs by one process; GitError for one that names none.

        Revisions travel by stdin, where one that starts with ``-`` cannot turn into an option.
        """
        for revision, _ in wanted:
            if not revision or revision.startswith("-") or any(c in revision for c in "\n\0"):
                raise GitError(f"{self.root}: {revision!r} is no revision", hint=f"git -C {self.root} log")
        lines = "".join(f"{revision}^{{{kind}}}\n" for revision, kind in wanted)
        output = self.run("cat-file", "--batch-check=%(objectname)", stdin=lines)
        answers = output.split(b"\n")
        for (revision, kind), found in zip(wanted, answers, strict=False):
            if not _SHA.fullmatch(found):
                note = " (the clone is shallow)" if self.shallow_commits() else ""
                raise GitError(
                    f"{self.root}: no {kind} is named {revision!r}{note}",
                    hint=f"git fetch origin {revision}",
                )
        return [found.decode() for found in answers[: len(wanted)]]

    def tree_of(self, commit: str) -> str:
        """Tree of a commit, by the full sha of both: a clone may have the one and not the other."""
        header = self.run("cat-file", "commit", commit).partition(b"\n")[0]
        return header.removeprefix(b"tree ").decode("ascii")

    def shallow_commits(self) -> frozenset[str]:
        """Commits whose parents were cut off by a shallow clone; empty for a whole one."""
        try:
            return frozenset((self.git_dir / "shallow").read_text(encoding="ascii").split())
        except FileNotFoundError:
            return frozenset()
        except (OSError, UnicodeDecodeError) as error:
            raise GitError(
                f"{self.git_dir / 'shallow'}: cannot be read: {error}", hint=f"git -C {self.root} fsck"
            ) from error


def decode(raw: bytes) -> str:
    """Path as text: what is not UTF-8 becomes surrogate escapes."""
    return raw.decode("utf-8", "surrogateescape")


def empty_tree(sha: str) -> str:
    """Id of the tree without files, in the hash that `sha` is made with; git knows it without storing it.

    Examples
    --------
    >>> empty_tree("0" * 40)
    '4b825dc642cb6eb9a060e54bf8d69288fbee4904'
    """
    is_sha1 = len(sha) == hashlib.sha1(usedforsecurity=False).digest_size * 2
    return hashlib.new("sha1" if is_sha1 else "sha256", b"tree 0\0", usedforsecurity=False).hexdigest()
