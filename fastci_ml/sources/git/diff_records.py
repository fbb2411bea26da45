"""Read what ``git diff-tree`` prints (raw records, counted lines, hunks), and fix what it depends on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fastci_ml.records.changes import ChangeStatus, FileChange, Hunk
from fastci_ml.sources.git.reader import decode

RENAME_LIMIT = 1000
# Likeness and limit of rename detection are spelled out, and what an attribute or a submodule's settings
# could hide is shown: each of them could change the plan. 1000 is git's own limit, above which an edited
# rename shows as a deletion and an addition.
DIFF = (
    "diff-tree",
    "-r",
    "-M50%",
    f"-l{RENAME_LIMIT}",
    "--no-abbrev",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=none",
    "--diff-algorithm=myers",
    "--indent-heuristic",
)
# Renames of the same content only: told by ids, without looking into a file.
DIFF_BY_ID = (*DIFF[:2], "-M100%", *DIFF[3:])
HUNKS = ("-p", "-U0", "--inter-hunk-context=0", "--submodule=short")

Counts = Mapping[str, tuple[float, float]]

_HUNK_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_NO_ID = re.compile("0+")
_NAN = float("nan")


def read_files(tokens: Iterator[bytes], header: list[bytes]) -> list[FileChange]:
    """Files by path from raw records, then numstat records, both ended by NUL.

    Stops at the end, or at the sha that heads the next commit, which goes into `header`.
    """
    raw: list[tuple[bytes, str, str]] = []
    counts: dict[str, tuple[float, float]] = {}
    for token in tokens:
        if token.startswith(b":"):
            old_path = decode(next(tokens)) if token.rsplit(b" ", 1)[1][:1] in b"RC" else ""
            raw.append((token, old_path, decode(next(tokens))))
        elif b"\t" in token:
            path, both = _read_count(token, tokens)
            counts[path] = both
        elif token:
            header.append(token)
            break
    raw.sort(key=lambda record: record[2])
    return [_file(token, old_path, path, counts.get(path)) for token, old_path, path in raw]


def read_counts(output: bytes) -> dict[str, tuple[float, float]]:
    """Added and deleted lines by new path from numstat records alone; NaN for a binary file."""
    tokens = iter(output.split(b"\0"))
    return dict(_read_count(token, tokens) for token in tokens if token)


def read_hunks(output: bytes) -> tuple[Hunk, ...]:
    """Changed ranges of one file from a patch without context."""
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


def may_be_eol_only(file: FileChange) -> bool:
    """Whether its counts allow that only line ends differ: each line that does was taken out and put in."""
    return 0 < file.n_added == file.n_deleted and not file.is_submodule


def with_eol_only(files: Sequence[FileChange], counts: Counts) -> list[FileChange]:
    """Mark the files that have no changed line once line ends are not looked at; `counts` are such ones."""
    return [
        replace(file, is_eol_only=True)
        # Git leaves out what is the same then, unless it was renamed or changed its mode.
        if may_be_eol_only(file) and counts.get(file.path, (0.0, 0.0)) == (0.0, 0.0)
        else file
        for file in files
    ]


def is_rename_detection_cut(files: Sequence[FileChange]) -> bool:
    """Whether more pairs were left than git looks at, so that it looked for equal content only."""
    n_added = sum(file.status is ChangeStatus.ADDED for file in files)
    n_deleted = sum(file.status is ChangeStatus.DELETED for file in files)
    return n_added * n_deleted > RENAME_LIMIT**2


def _file(token: bytes, old_path: str, path: str, both: tuple[float, float] | None) -> FileChange:
    """One file of a record ``:<mode> <mode> <id> <id> <status><score>``."""
    old_mode, new_mode, old_id, new_id, letter = token[1:].decode("ascii").split(" ")
    is_new, is_gone = _NO_ID.fullmatch(old_id), _NO_ID.fullmatch(new_id)
    n_added, n_deleted = (_NAN, _NAN) if both is None else both
    return FileChange(
        path=path,
        old_path=old_path,
        status=ChangeStatus(letter[:1]),
        n_added=n_added,
        n_deleted=n_deleted,
        old_mode="" if is_new else old_mode,
        new_mode="" if is_gone else new_mode,
        old_id="" if is_new else old_id,
        new_id="" if is_gone else new_id,
        is_binary=both is not None and math.isnan(n_added),
    )


def _read_count(token: bytes, tokens: Iterator[bytes]) -> tuple[str, tuple[float, float]]:
    added, deleted, path = token.split(b"\t", 2)
    if not path:  # a rename: both paths follow, each on its own
        next(tokens)
        path = next(tokens)
    return decode(path), (_count(added), _count(deleted))


def _count(word: bytes) -> float:
    """Parse a number of lines; NaN for the "-" of a binary file."""
    return _NAN if word == b"-" else float(word)
