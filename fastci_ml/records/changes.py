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


_GITLINK_MODE = "160000"
_SYMLINK_MODE = "120000"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file of a change.

    Modes and ids are empty where nobody told them: in a run's own list of changes, and on the side where the
    file does not exist.

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
    old_mode, new_mode : str
        Git's mode: ``100644`` a file, ``100755`` an executable one, ``120000`` a symbolic link, ``160000`` a
        submodule.
    old_id, new_id : str
        Git's id of the content: equal ids are equal bytes. For a submodule the commit.
    is_binary : bool
        Whether git tells no lines of it: binary, declared so, or too large.
    is_eol_only : bool
        Whether nothing but line ends differs: CR LF for LF, or the newline at the end of the file. The code
        of a Python file is the same; the bytes that a test reads are not.
    is_whole_tree : bool
        Whether every path below counts as changed: a submodule whose own changes could not be told.
    """

    path: str
    old_path: str = ""
    status: ChangeStatus
    n_added: float = float("nan")
    n_deleted: float = float("nan")
    old_mode: str = ""
    new_mode: str = ""
    old_id: str = ""
    new_id: str = ""
    is_binary: bool = False
    is_eol_only: bool = False
    is_whole_tree: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path by which evidence or history may know the file: old and new."""
        return (self.old_path, self.path) if self.old_path else (self.path,)

    @property
    def is_content_same(self) -> bool:
        """Whether the bytes are known to be the same: a pure rename, or a change of mode alone."""
        return bool(self.old_id) and self.old_id == self.new_id

    @property
    def is_mode_only(self) -> bool:
        """Whether the file became executable, or no longer is, and nothing else happened to it."""
        is_same_file = self.is_content_same and not self.old_path
        return is_same_file and self.status is ChangeStatus.MODIFIED and self.old_mode != self.new_mode

    @property
    def is_submodule(self) -> bool:
        """Whether it is a submodule on either side."""
        return _GITLINK_MODE in (self.old_mode, self.new_mode)

    @property
    def is_symlink(self) -> bool:
        """Whether it is a symbolic link on either side: its content is a path."""
        return _SYMLINK_MODE in (self.old_mode, self.new_mode)


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
        By path. The files of a submodule follow it, as far as they could be told.
    notes : tuple of str
        What was odd, in words: renames not looked for, lines not counted, submodules not there.
    """

    base: CommitSha
    head: CommitSha
    head_tree: str
    files: tuple[FileChange, ...]
    notes: tuple[str, ...] = ()

    def touches(self, path: str) -> bool:
        """Whether a path, old or new, is among the files or below one that counts as a whole.

        Each call looks at all files; who asks often makes a set of the paths.

        Examples
        --------
        >>> lib = FileChange(path="lib", status=ChangeStatus.MODIFIED, is_whole_tree=True)
        >>> change = ChangeSet(base=CommitSha(""), head=CommitSha(""), head_tree="", files=(lib,))
        >>> change.touches("lib/a.py"), change.touches("library.py")
        (True, False)
        """
        return any(
            path == known or (file.is_whole_tree and path.startswith(f"{known}/"))
            for file in self.files
            for known in file.paths
        )


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
