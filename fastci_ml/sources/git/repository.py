"""What a change does, as git tells it: the files between a merge base and a head, and their changed lines.

Only plumbing commands with ``-z`` are used: their output depends on neither the user's settings nor the
characters of a path. Nothing that the repository configures is run, and nothing is fetched unless the caller
says how much may be. See docs/decisions/0002 and 0009.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from fastci_ml.errors import GitError
from fastci_ml.records.changes import ChangeSet, FileChange, Hunk
from fastci_ml.records.ids import CommitSha
from fastci_ml.sources.git.comparison import UnknownChangeError, merge_bases
from fastci_ml.sources.git.deepen import compare_deepening
from fastci_ml.sources.git.diff_records import (
    DIFF,
    DIFF_BY_ID,
    HUNKS,
    is_rename_detection_cut,
    may_be_eol_only,
    read_counts,
    read_files,
    read_hunks,
    with_eol_only,
)
from fastci_ml.sources.git.fetch import Fetcher, FetchLimits
from fastci_ml.sources.git.reader import GitReader, decode, empty_tree
from fastci_ml.sources.git.submodules import expand_submodules, list_submodule_paths, open_submodule

_BATCH = 1000
_LIST = ("ls-tree", "-r", "-z", "--name-only", "--full-tree")
_RENAMES_CUT = (
    "too many files were added and deleted to look for renames with edits: those show as a deletion and an "
    "addition"
)


class Repository:
    """A git repository; nothing in it is changed, but for what `FetchLimits` allow to fetch.

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
        self._root = root
        self._reader = GitReader(root)

    def __enter__(self) -> Self:
        """Nothing stays open between calls; a ``with`` block says how long the repository is needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def resolve(self, revision: str) -> CommitSha:
        """Full sha of the commit that `revision` names; GitError where it names none."""
        return CommitSha(self._reader.objects([(revision, "commit")])[0])

    def tree(self, revision: str) -> str:
        """Full sha of the tree of the commit that `revision` names; GitError where it names none."""
        return self._reader.tree_of(self.resolve(revision))

    def paths(self, revision: str, *, limits: FetchLimits | None = None) -> frozenset[str]:
        """Path of every file in the tree of `revision`, and in its submodules where they are checked out.

        Parameters
        ----------
        revision : str
            A commit.
        limits : FetchLimits, optional
            Whether trees may be fetched that a partial clone left out; without it nothing is.

        Raises
        ------
        GitError
            If there is no such revision.
        """
        commit = self.resolve(revision)
        try:
            return _list_paths(self._reader, commit)
        except GitError:
            fetcher = self._fetcher(limits)
            if fetcher is None or not fetcher.is_partial:
                raise
            fetcher.read(*_LIST, commit)
        return _list_paths(self._reader, commit)

    def prefix(self) -> str:
        """Path of `root` from the top of the checkout, ending in ``/``; empty at the top."""
        return decode(self._reader.run("rev-parse", "--show-prefix").removesuffix(b"\n"))

    def merge_base(self, base: str, head: str) -> CommitSha | None:
        """Best common ancestor, git's first where there are several; None where there is none.

        A shallow clone may have cut it off: None does not say that the histories are unrelated, and what is
        found may not be the best. `changes` looks at that.
        """
        base_sha, head_sha = self._reader.objects([(base, "commit"), (head, "commit")])
        return next(iter(merge_bases(self._reader, base_sha, head_sha)), None)

    def changes(
        self, base: str, head: str, *, with_counts: bool = True, limits: FetchLimits | None = None
    ) -> ChangeSet:
        """Files that differ between the merge base of two revisions and the head.

        Parameters
        ----------
        base : str
            Revision to compare with; empty for the state before the first commit.
        head : str
            Revision that has the change.
        with_counts : bool
            Whether to count lines; without, `n_added` and `n_deleted` are NaN, and nothing is known to be a
            change of line ends alone.
        limits : FetchLimits, optional
            How much may be fetched where the clone lacks the base, the history up to it, or contents; without
            it nothing.

        Returns
        -------
        ChangeSet
            Files by path. A submodule is a file with one line, and its own files follow where it is checked
            out. Where there are several merge bases, a file that differs from any of them is in it.

        Raises
        ------
        UnknownChangeError
            If it cannot be told what the change is: callers then run everything.
        GitError
            If there is no such head.
        """
        fetcher = self._fetcher(limits)
        if base:
            found = compare_deepening(self._reader, base, head, fetcher)
            starts, notes, head_sha = found.starts, list(found.notes), found.head
        else:
            starts, notes, head_sha = (CommitSha(""),), [], self.resolve(head)
        difference = _TreeDifference(with_counts=with_counts, fetcher=fetcher)
        files, odd = difference(self._reader, starts[0] or empty_tree(head_sha), head_sha)
        for start in starts[1:]:
            others, _ = _TreeDifference(with_counts=False, fetcher=fetcher)(self._reader, start, head_sha)
            known = {path for file in files for path in file.paths}
            files += [file for file in others if known.isdisjoint(file.paths)]
        if len(starts) > 1:
            files.sort(key=lambda file: file.path)
            notes.append(
                f"there are {len(starts)} merge bases: what differs from any of them counts as changed"
            )
        return ChangeSet(
            base=starts[0],
            head=CommitSha(head_sha),
            head_tree=self._reader.tree_of(head_sha),
            files=tuple(files),
            notes=(*notes, *odd),
        )

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
            nothing. A submodule is a file with one line.

        Raises
        ------
        GitError
            If a revision is unknown.
        """
        formats = ("--raw", "--numstat") if with_counts else ("--raw",)
        options = ("-z", "--stdin", "--root", "--always", "--diff-merges=first-parent", *formats)
        pending = iter(revisions)
        while batch := list(islice(pending, _BATCH)):
            shas = self._reader.objects([(revision, "commit") for revision in batch])
            output = self._reader.run(*DIFF, *options, stdin="\n".join(shas) + "\n")
            tokens = iter(output.split(b"\0"))
            header = [next(tokens)]
            for sha in shas:
                assert header == [sha.encode()], (header, sha)
                header = []
                files = tuple(read_files(tokens, header))
                yield CommitSha(sha), files

    def hunks(self, change: ChangeSet, file: FileChange) -> tuple[Hunk, ...]:
        """Find the changed line ranges of one file of a change, without context, from top to bottom.

        Empty for a pure rename, a change of mode alone, and a binary file: there the whole file changed, and
        its counts are NaN.
        """
        reader, start, end = self._reader, change.base or empty_tree(change.head), str(change.head)
        paths = list(file.paths)
        for outer in change.files:
            # What is below a submodule is known to its own repository only.
            if outer.is_submodule and file.path.startswith(f"{outer.path}/"):
                if not (outer.old_id and outer.new_id):
                    return ()
                reader, start, end = open_submodule(reader, outer.path), outer.old_id, outer.new_id
                paths = [path.removeprefix(f"{outer.path}/") for path in paths]
                break
        # With both paths git pairs the rename again, and shows its hunks only.
        return read_hunks(reader.run(*DIFF, *HUNKS, start, end, "--", *paths))

    def _fetcher(self, limits: FetchLimits | None) -> Fetcher | None:
        return None if limits is None or limits.n_commits <= 0 else Fetcher(self._reader, limits)


class _TreeDifference:
    """Difference of two revisions of a repository, and of its submodules."""

    def __init__(self, *, with_counts: bool, fetcher: Fetcher | None) -> None:
        self._formats = ("--raw", "--numstat") if with_counts else ("--raw",)
        self._fetcher = fetcher

    def __call__(self, reader: GitReader, start: str, end: str) -> tuple[list[FileChange], list[str]]:
        """Files by path, and what was odd."""
        notes: list[str] = []
        files = read_files(iter(self._ask(reader, start, end, notes).split(b"\0")), [])
        if is_rename_detection_cut(files):
            notes.append(_RENAMES_CUT)
        if any(may_be_eol_only(file) for file in files):
            options = ("-z", "--numstat", "--ignore-cr-at-eol")
            files = with_eol_only(files, read_counts(reader.run(*DIFF, *options, start, end)))
        if any(file.is_submodule for file in files):
            files, inner = expand_submodules(reader, files, self)
            notes += inner
        return files, notes

    def _ask(self, reader: GitReader, start: str, end: str, notes: list[str]) -> bytes:
        try:
            return reader.run(*DIFF, "-z", *self._formats, start, end)
        except GitError as error:
            why = str(error)
        # Contents are missing: a partial clone, or a damaged one.
        fetcher = self._fetcher
        if fetcher is not None and fetcher.reader is reader and fetcher.is_partial:
            try:
                return fetcher.read(*DIFF, "-z", *self._formats, start, end)
            except GitError as error:
                why = str(error)
        try:
            output = reader.run(*DIFF_BY_ID, "-z", "--raw", start, end)
        except GitError as error:
            raise UnknownChangeError(why, hint=error.hint, code="missing_objects") from error
        notes.append(f"contents are missing, so lines are not counted and edited renames not found: {why}")
        return output


def _list_paths(reader: GitReader, commit: str) -> frozenset[str]:
    output = reader.run(*_LIST, commit)
    paths = {decode(path) for path in output.split(b"\0") if path}
    if ".gitmodules" in paths:
        paths |= list_submodule_paths(reader, commit, _list_paths)
    return frozenset(paths)
