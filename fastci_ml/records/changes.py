"""What a change does to the files of a repository."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from fastci_ml.records.ids import CommitSha


class ChangeStatus(StrEnum):
    """Git's letter for what happened to a file."""

    ADDED = "A"
    COPIED = "C"
    DELETED = "D"
    MODIFIED = "M"
    RENAMED = "R"
    TYPE_CHANGED = "T"


class FileKind(StrEnum):
    """What a path is for, by its name alone."""

    TEST = "test"
    SOURCE = "source"
    CONFIG = "config"
    DOCS = "docs"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a change.

    Attributes
    ----------
    path : str
        Path at the head (at the base for a deletion), ``/`` between folders; bytes that are not UTF-8 are
        surrogate escapes.
    old_path : str
        Path at the base where it differs (renames, copies), else empty.
    status : ChangeStatus
        What happened.
    n_added, n_deleted : float
        Lines; NaN for a binary file or when not counted.
    """

    path: str
    old_path: str = ""
    status: ChangeStatus
    n_added: float = float("nan")
    n_deleted: float = float("nan")

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path by which evidence or history may know the file: old and new."""
        return (self.old_path, self.path) if self.old_path else (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """One hunk of a file's diff, without context; lines count from 1, a length of 0 is a pure insertion."""

    old_start: int
    old_length: int
    new_start: int
    new_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """All files that differ between the merge base of two revisions and the head.

    Attributes
    ----------
    base, head : CommitSha
        The merge base and the head; `base` is empty for a root commit.
    head_tree : str
        Tree of the head: what a plan is bound to.
    files : tuple of FileChange
        By path.
    """

    base: CommitSha
    head: CommitSha
    head_tree: str
    files: tuple[FileChange, ...]


_DOCS = frozenset({".md", ".rst", ".txt"})
_CONFIG = frozenset({".cfg", ".ini", ".json", ".lock", ".toml", ".yaml", ".yml"})
_SOURCE = frozenset({".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".rs"})


def file_kind(path: str) -> FileKind:
    """Kind of a file by its name; unknown names are `OTHER`, never harmless.

    Examples
    --------
    >>> file_kind("tests/unit/test_optim.py").value, file_kind("pkg/optim.py").value
    ('test', 'source')
    """
    pure = PurePosixPath(path)
    suffix = pure.suffix.lower()
    if suffix in _SOURCE:
        stem = pure.stem
        is_test = (
            stem.startswith("test_") or stem.endswith(("_test", "Test", "TestCase")) or stem == "conftest"
        )
        return FileKind.TEST if is_test or "tests" in pure.parts[:-1] else FileKind.SOURCE
    if suffix in _DOCS:
        return FileKind.DOCS
    if suffix in _CONFIG:
        return FileKind.CONFIG
    return FileKind.OTHER
