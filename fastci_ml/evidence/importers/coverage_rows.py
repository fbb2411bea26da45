"""The rows of a data file of coverage.py, each checked before it is believed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.foreign_database import check_tables, open_foreign
from fastci_ml.evidence.importers.source_files import SourceFiles
from fastci_ml.records.progress import ProgressHook

_WHAT = "data of coverage.py"
_SCHEMA = 7
_TABLES = {
    "coverage_schema": ("version",),
    "meta": ("key", "value"),
    "file": ("id", "path"),
    "context": ("id", "context"),
    "line_bits": ("file_id", "context_id", "numbits"),
    "arc": ("file_id", "context_id", "fromno", "tono"),
}
# Longer than any file that is read here.
_MAX_LINE = 1 << 24
# Of a process of its own, not combined yet: host, process id and a random word stand behind the name.
_PARALLEL = re.compile(r"\.[^.].*\.(?:pid)?\d+\.\w+")
_STEP = 10_000

# Lines of each file by context, as bits.
Hits = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRows:
    """What a data file says.

    Attributes
    ----------
    version : str
        Of coverage.py that wrote it.
    hits : dict of str to dict of str to int
        By path from the root and by context, lines that ran, as bits; files outside of the root are left out.
    """

    version: str
    hits: Hits


def read_rows(path: Path, files: SourceFiles, project: str, progress: ProgressHook) -> CoverageRows:
    """Read a data file.

    Parameters
    ----------
    path : Path
        The file.
    files : SourceFiles
        Working tree.
    project : str
        Folder that relative paths start from.
    progress : ProgressHook
        Told how many rows were read.

    Raises
    ------
    EvidenceError
        If it cannot be read, is not combined yet, or speaks of no file of the repository.
    """
    _check_combined(path)
    with open_foreign(path, _WHAT) as connection:
        check_tables(connection, path, _TABLES, _WHAT)
        version = _version(connection, path)
        contexts = _names(connection, path, "SELECT id, context FROM context")
        paths = _names(connection, path, "SELECT id, path FROM file")
        known = {number: found for number, name in paths.items() if (found := files.relative(name, project))}
        if not known:
            raise EvidenceError(
                f"{path}: none of its {len(paths)} files lies in {files.root}, but for example "
                f"{next(iter(paths.values()), 'none at all')}",
                hint="set relative_files = true under [tool.coverage.run], and record again",
            )
        hits: Hits = {name: {} for name in sorted(set(known.values()))}
        for n_done, (file_id, context_id, lines) in enumerate(_rows(connection, path)):
            context = contexts.get(context_id)
            if context is None or file_id not in paths:
                raise _damaged(path, f"a row of file {file_id!r} and context {context_id!r}")
            name = known.get(file_id)
            if name is not None:
                hits[name][context] = hits[name].get(context, 0) | lines
            if n_done % _STEP == 0:
                progress(f"reading {path.name}", n_done, 0)
    return CoverageRows(
        version=version, hits={name: by_context for name, by_context in hits.items() if by_context}
    )


def _check_combined(path: Path) -> None:
    """Refuse one of several files: what children ran would be missing, and nothing would show it."""
    try:
        apart = sorted(
            other.name
            for other in path.absolute().parent.iterdir()
            if other.name.startswith(path.name) and _PARALLEL.fullmatch(other.name[len(path.name) :])
        )
    except OSError:
        return  # the file itself cannot be reached then, and says so
    if apart:
        raise EvidenceError(
            f"{path}: data of {len(apart)} more processes lies beside it, not combined: "
            f"{', '.join(apart[:3])}",
            hint="coverage combine --append",
        )


def _version(connection: sqlite3.Connection, path: Path) -> str:
    found = [row[0] for row in connection.execute("SELECT version FROM coverage_schema LIMIT 2")]
    if found != [_SCHEMA]:
        shown = ", ".join(map(str, found))[:40] or "none"
        raise EvidenceError(
            f"{path}: schema {shown}, expected {_SCHEMA}", hint="pip install --upgrade coverage fastci-ml"
        )
    row = connection.execute("SELECT value FROM meta WHERE key = 'version' LIMIT 1").fetchone()
    return str(row[0])[:40] if row else "unknown"


def _names(connection: sqlite3.Connection, path: Path, query: str) -> Mapping[object, str]:
    found: dict[object, str] = {}
    for number, name in connection.execute(query):
        if not isinstance(number, int) or not isinstance(name, str):
            raise _damaged(path, f"{number!r}, {name!r}"[:80])
        found[number] = name
    return found


def _rows(connection: sqlite3.Connection, path: Path) -> Iterator[tuple[object, object, int]]:
    for file_id, context_id, bits in connection.execute("SELECT file_id, context_id, numbits FROM line_bits"):
        if not isinstance(bits, bytes) or len(bits) * 8 > _MAX_LINE:
            raise _damaged(path, "a set of lines is no blob, or too long")
        yield file_id, context_id, int.from_bytes(bits, "little")
    for file_id, context_id, *ends in connection.execute("SELECT file_id, context_id, fromno, tono FROM arc"):
        lines = 0
        for end in ends:
            if not isinstance(end, int) or abs(end) > _MAX_LINE:
                raise _damaged(path, f"a branch to line {str(end)[:40]}")
            # A negative end is the first line of what was entered or left: no line that ran.
            if end > 0:
                lines |= 1 << end
        yield file_id, context_id, lines


def _damaged(path: Path, detail: str) -> EvidenceError:
    return EvidenceError(f"{path}: damaged: {detail}")
