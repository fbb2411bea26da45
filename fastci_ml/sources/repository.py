"""Ask git what a change does, through GitPython's command layer; its only importer.

Only plumbing commands with ``-z`` are used: their output depends on neither the user's settings nor the
characters of a path. Nothing that the repository configures (external diffs, text filters, hooks, monitors)
is run. See docs/decisions/0002 for why not GitPython's objects.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeSet, ChangeStatus, FileChange, Hunk
from fastci_ml.records.ids import CommitSha
from fastci_ml.sources.git_commands import ENVIRONMENT, SAFE_OPTIONS

try:
    from git.cmd import Git
    from git.exc import GitCommandError, GitCommandNotFound
except ImportError as error:
    # GitPython refuses to be imported where there is no git program; both lacks have the same cure.
    raise GitError(f"cannot use git: {error}", hint="install git, then `pip install gitpython`") from error

# The limit and the likeness of rename detection are spelled out: a setting of the target could change both,
# and with them the plan. 1000 is git's own limit, above which renames show as a deletion and an addition.
_DIFF = ("diff-tree", "-r", "-M50%", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color")
_HUNK_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_SHA = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BATCH = 1000


class Repository:
    """A git repository, read only.

    Parameters
    ----------
    root : Path
        Any folder of a checkout, or a bare repository.

    Raises
    ------
    GitError
        If there is no repository, or git refuses to read it.
    """

    def __init__(self, root: Path) -> None:
        # In a folder that is not there GitPython would quietly ask the repository of the current one.
        if not root.is_dir():
            raise GitError(f"{root}: no such folder, expected a git repository")
        self._root = root
        self._git = Git(root)
        self._run("rev-parse", "--git-dir")

    def __enter__(self) -> Self:
        """Nothing stays open between calls; a ``with`` block says how long the repository is needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._git.clear_cache()

    def resolve(self, revision: str) -> CommitSha:
        """Full sha of the commit that `revision` names; GitError where it names none."""
        return CommitSha(self._objects([(revision, "commit")])[0])

    def tree(self, revision: str) -> str:
        """Full sha of the tree of `revision`; GitError where it names none."""
        return self._objects([(revision, "tree")])[0]

    def paths(self, revision: str) -> frozenset[str]:
        """Path of every file in the tree of `revision`; GitError where it names none."""
        output = self._run("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.tree(revision))
        return frozenset(path.decode("utf-8", "surrogateescape") for path in output.split(b"\0") if path)

    def prefix(self) -> str:
        """Path of `root` from the top of the checkout, ending in ``/``; empty at the top."""
        return _path(self._run("rev-parse", "--show-prefix").removesuffix(b"\n"))

    def merge_base(self, base: str, head: str) -> CommitSha | None:
        """Best common ancestor, git's first where there are several; None where there is none.

        A shallow clone may have cut it off: None does not say that the histories are unrelated.
        """
        base_sha, head_sha = self._objects([(base, "commit"), (head, "commit")])
        return self._merge_base(base_sha, head_sha)

    def changes(self, base: str, head: str, *, with_counts: bool = True) -> ChangeSet:
        """Files that differ between the merge base of two revisions and the head.

        Parameters
        ----------
        base : str
            Revision to compare with; empty for the state before the first commit.
        head : str
            Revision that has the change.
        with_counts : bool
            Whether to count lines; without, `n_added` and `n_deleted` are NaN.

        Returns
        -------
        ChangeSet
            Files by path. A submodule counts as a file with one line.

        Raises
        ------
        GitError
            If a revision is unknown, or there is no merge base. Callers then run everything.
        """
        wanted = [(head, "commit"), (head, "tree")] + ([(base, "commit")] if base else [])
        head_sha, head_tree, *rest = self._objects(wanted)
        start = self._merge_base(rest[0], head_sha) if rest else CommitSha("")
        if start is None:
            raise GitError(
                f"{self._root}: no common ancestor of {base} and {head}{self._shallow_note()}",
                hint="git fetch --unshallow origin, or check out with fetch-depth: 0",
            )
        formats = ("--raw", "--numstat") if with_counts else ("--raw",)
        output = self._run(*_DIFF, "-z", *formats, start or _empty_tree(head_sha), head_sha)
        files = tuple(_read_files(iter(output.split(b"\0")), []))
        return ChangeSet(base=start, head=CommitSha(head_sha), head_tree=head_tree, files=files)

    def commit_changes(
        self, revisions: Iterable[str], *, with_counts: bool = True
    ) -> Iterator[tuple[CommitSha, tuple[FileChange, ...]]]:
        """Tell what each of many commits did, a thousand to one git process.

        Parameters
        ----------
        revisions : iterable of str
            Commits, in any order.
        with_counts : bool
            As in `changes`.

        Yields
        ------
        tuple
            Sha and files, in the order given. A merge is compared with its first parent, a root commit with
            nothing.

        Raises
        ------
        GitError
            If a revision is unknown.
        """
        formats = ("--raw", "--numstat") if with_counts else ("--raw",)
        options = ("-z", "--stdin", "--root", "--always", "--diff-merges=first-parent", *formats)
        pending = iter(revisions)
        while batch := list(islice(pending, _BATCH)):
            shas = self._objects([(revision, "commit") for revision in batch])
            output = self._run(*_DIFF, *options, stdin="\n".join(shas) + "\n")
            tokens = iter(output.split(b"\0"))
            header = [next(tokens)]
            for sha in shas:
                assert header == [sha.encode()], (header, sha)
                header = []
                files = tuple(_read_files(tokens, header))
                yield CommitSha(sha), files

    def hunks(self, change: ChangeSet, file: FileChange) -> tuple[Hunk, ...]:
        """Find the changed line ranges of one file of a change, without context, from top to bottom.

        Empty for a pure rename, a change of mode alone, and a binary file: there the whole file changed, and
        its counts are NaN.
        """
        output = self._run(
            *_DIFF,
            "-p",
            "-U0",
            "--inter-hunk-context=0",
            "--diff-algorithm=myers",
            "--indent-heuristic",
            "--submodule=short",
            change.base or _empty_tree(change.head),
            change.head,
            "--",
            # With both paths git pairs the rename again, and shows its hunks only.
            *file.paths,
        )
        return tuple(
            Hunk(
                old_start=int(match[1]),
                old_length=1 if match[2] is None else int(match[2]),
                new_start=int(match[3]),
                new_length=1 if match[4] is None else int(match[4]),
            )
            # Without context every line of a file's text starts with +, - or \, never with @@.
            for match in _HUNK_HEADER.finditer(output)
        )

    def _merge_base(self, base_sha: str, head_sha: str) -> CommitSha | None:
        found = self._run("merge-base", base_sha, head_sha, is_no_allowed=True).strip()
        return CommitSha(found.decode()) if found else None

    def _objects(self, wanted: Sequence[tuple[str, str]]) -> list[str]:
        """Shas of many (revision, type) pairs by one process.

        Revisions travel by stdin, where one that starts with ``-`` cannot turn into an option.
        """
        for revision, _ in wanted:
            if not revision or revision.startswith("-") or any(c in revision for c in "\n\0"):
                raise GitError(f"{self._root}: {revision!r} is no revision")
        lines = "".join(f"{revision}^{{{kind}}}\n" for revision, kind in wanted)
        output = self._run("cat-file", "--batch-check=%(objectname)", stdin=lines)
        answers = output.split(b"\n")
        for (revision, kind), found in zip(wanted, answers, strict=False):
            if not _SHA.fullmatch(found):
                raise GitError(
                    f"{self._root}: no {kind} is named {revision!r}{self._shallow_note()}",
                    hint=f"git fetch origin {revision}",
                )
        return [found.decode() for found in answers[: len(wanted)]]

    def _shallow_note(self) -> str:
        is_shallow = self._run("rev-parse", "--is-shallow-repository").strip() == b"true"
        return " (the clone is shallow)" if is_shallow else ""

    def _run(self, *arguments: str, stdin: str = "", is_no_allowed: bool = False) -> bytes:
        """Output of one git command; with `is_no_allowed` exit code 1 is an answer."""
        with tempfile.TemporaryFile() as lines:
            lines.write(stdin.encode("utf-8", "surrogateescape"))
            lines.seek(0)
            try:
                status, output, said = self._git.execute(
                    ["git", *SAFE_OPTIONS, *arguments],
                    istream=lines,
                    env=dict(ENVIRONMENT),
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    shell=False,
                )
            except (GitCommandError, GitCommandNotFound, OSError) as error:
                raise GitError(f"{self._root}: cannot run git: {error}", hint="git --version") from error
        if status and not (is_no_allowed and status == 1):
            raise GitError(
                f"{self._root}: git {arguments[0]}: {said.strip() or f'exit code {status}'}",
                hint=f"git -C {self._root} status",
            )
        assert isinstance(output, bytes)
        return output


def _empty_tree(sha: str) -> str:
    """Id of the tree without files, in the hash that `sha` is made with; git knows it without storing it."""
    is_sha1 = len(sha) == hashlib.sha1(usedforsecurity=False).digest_size * 2
    return hashlib.new("sha1" if is_sha1 else "sha256", b"tree 0\0", usedforsecurity=False).hexdigest()


def _read_files(tokens: Iterator[bytes], header: list[bytes]) -> list[FileChange]:
    """Files by path from raw records, then numstat records, both ended by NUL.

    Stops at the end, or at the sha that heads the next commit, which goes into `header`.
    """
    raw: list[tuple[ChangeStatus, str, str]] = []
    counts: dict[str, tuple[float, float]] = {}
    for token in tokens:
        if token.startswith(b":"):
            letter = token.rsplit(b" ", 1)[1][:1].decode()
            status = ChangeStatus(letter)
            is_pair = status in (ChangeStatus.RENAMED, ChangeStatus.COPIED)
            old_path = _path(next(tokens)) if is_pair else ""
            raw.append((status, old_path, _path(next(tokens))))
        elif b"\t" in token:
            added, deleted, path = token.split(b"\t", 2)
            if not path:  # a rename: both paths follow, each on its own
                next(tokens)
                path = next(tokens)
            counts[_path(path)] = (_count(added), _count(deleted))
        elif token:
            header.append(token)
            break
    nan = float("nan")
    return [
        FileChange(path=path, old_path=old_path, status=status, n_added=added, n_deleted=deleted)
        for status, old_path, path in sorted(raw, key=lambda file: file[2])
        for added, deleted in (counts.get(path, (nan, nan)),)
    ]


def _path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _count(word: bytes) -> float:
    """Parse a number of lines; NaN for the "-" of a binary file."""
    return float("nan") if word == b"-" else float(word)
