"""Look at an SQLite file of MLflow without changing a byte of it, or of the folder that it lies in.

MLflow brings a database of an earlier release up to date when it opens it, unasked and without a backup, as
soon as a table is absent; and it makes its tables in any SQLite file. So nothing of MLflow opens a file
before this module has said what it is.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from fastci_ml.errors import RegistryError

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_WAL_FORMAT = 2
# Tables that every release of MLflow has had; alembic's own is in the databases of other programs too.
_OURS = frozenset({"experiments", "runs", "metrics", "params"})
_REVISIONS = "alembic_version"
BUSY_S = 5.0
# A copy that another process wrote into meanwhile is no database; it gets as many more.
_N_COPIES = 5
_COPY_PAUSE_S = 0.2


def read_revision(path: Path) -> str | None:
    """Schema revision of an MLflow database.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    str or None
        Alembic's revision; None where there is no file yet.

    Raises
    ------
    RegistryError
        If it is no MLflow database, is torn, or another process keeps it locked for five seconds.
    """
    if not _is_there(path):
        return None
    path = path.resolve()  # SQLite keeps its files beside the one that a link leads to
    try:
        header = _read_header(path)
        with _reading(path, header) as connection:
            return _revision(path, connection)
    except OSError as error:
        raise _unreadable(path, error) from error
    except sqlite3.Error as error:
        raise database_error(path, error) from error


def check_open(path: Path) -> None:
    """Open a database as MLflow will: the first to do so takes back what a killed process left half-written.

    Raises
    ------
    RegistryError
        If another process keeps it locked for five seconds, or it cannot be opened.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.Error as error:
        raise database_error(path, error) from error


def database_error(path: Path, error: sqlite3.Error) -> RegistryError:
    """Our error for what SQLite says of a file."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return RegistryError(
            f"{path}: locked by another process for {BUSY_S:.0f} s",
            hint=f"wait until it is done, or see who it is: fuser -v {path}",
        )
    if "readonly" in text:
        return RegistryError(f"{path}: it or its folder is read-only", hint=f"ls -ld {path.parent} {path}")
    if "malformed" in text or "disk image" in text or "not a database" in text:
        return _unusable(path, f"torn: {text}")
    return RegistryError(f"{path}: SQLite says: {text}", hint=f"ls -ld {path.parent} {path}")


def check_integrity(path: Path, connection: sqlite3.Connection) -> None:
    """Let SQLite read every page of a database.

    Raises
    ------
    RegistryError
        If something in it is damaged.
    """
    found = connection.execute("pragma integrity_check(1)").fetchone()
    if found != ("ok",):
        raise _unusable(path, f"torn: {found[0]}")


def _is_there(path: Path) -> bool:
    """Whether there is a plain file; a folder, a pipe or a name that cannot be followed is an error."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise _unusable(path, f"a link to {path.readlink()}, which is not there") from None
        for side in _sides(path):
            if side.exists():  # a new database would be mixed with what is left of the old one
                raise RegistryError(
                    f"{path}: gone, but its {side.name} is there",
                    hint=f"put the database back, or start anew: mv {side} {side}.old",
                ) from None
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(kind):
        raise _unusable(path, "unable to open: a folder, expected an SQLite database")
    if not stat.S_ISREG(kind):
        raise _unusable(path, "unable to open: no plain file, expected an SQLite database")
    return True


def _read_header(path: Path) -> bytes:
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        raise _unusable(path, "empty (0 bytes), expected an SQLite database")
    if not header.startswith(_MAGIC):
        raise _unusable(path, f"file is not a database: it starts with {header[:16]!r}, expected {_MAGIC!r}")
    if len(header) < _HEADER_BYTES:
        raise _unusable(path, f"torn: {len(header)} bytes, expected a header of {_HEADER_BYTES}")
    is_alone = not any(side.exists() for side in _sides(path))
    # The number of pages in the header holds if the file was changed last by what wrote the number.
    if is_alone and header[24:28] == header[92:96]:
        n_bytes, page = path.stat().st_size, int.from_bytes(header[16:18], "big")
        expected = (65_536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
        if n_bytes < expected:
            raise _unusable(path, f"torn: {n_bytes} bytes, its header says {expected}")
    return header


def _sides(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{suffix}") for suffix in ("-journal", "-wal")]


@contextlib.contextmanager
def _reading(path: Path, header: bytes) -> Iterator[sqlite3.Connection]:
    """Connection that reads, and neither makes, recovers nor removes anything beside the file."""
    journal, log = _sides(path)
    if _WAL_FORMAT in header[18:20]:
        # A reader of such a database makes files beside it, unless it may take it for one that never changes.
        found = _recovered(path, log) if _has_content(log) else _opened(path, "mode=ro&immutable=1")
    elif _has_content(journal) and not _is_readable(path):
        # What a killed process left half-written; the next writer takes it back, and we look at a copy.
        found = _recovered(path, journal)
    else:
        found = _opened(path, "mode=ro")
    with found as connection:
        yield connection


@contextlib.contextmanager
def _opened(path: Path, how: str) -> Iterator[sqlite3.Connection]:
    uri = f"file:{quote(str(path.resolve()))}?{how}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        yield connection


@contextlib.contextmanager
def _recovered(path: Path, side: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy, elsewhere, in which SQLite finishes or takes back what was under way."""
    with tempfile.TemporaryDirectory(prefix="fastci-") as folder:
        copy = Path(folder, path.name)
        for attempt in range(_N_COPIES):
            for name in (side, path):
                if name.exists():
                    shutil.copyfile(name, copy.with_name(name.name))
            with contextlib.closing(sqlite3.connect(copy, timeout=BUSY_S)) as connection:
                try:
                    connection.execute("select count(*) from sqlite_master").fetchone()
                except sqlite3.DatabaseError:
                    if attempt + 1 == _N_COPIES:
                        raise
                    time.sleep(_COPY_PAUSE_S)
                    continue
                yield connection
                return


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _is_readable(path: Path) -> bool:
    """Whether no half-written change stands in the way; that of a living process does not."""
    with _opened(path, "mode=ro") as connection:
        try:
            connection.execute("select count(*) from sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if "readonly" in str(error):
                return False
            raise
    return True


def _revision(path: Path, connection: sqlite3.Connection) -> str:
    rows = connection.execute("select name from sqlite_master where type = 'table' order by name")
    tables = [str(name) for (name,) in rows]
    if not tables:
        raise _unusable(path, "a database without tables, expected those of MLflow")
    if not _OURS.issubset(tables):
        shown = ", ".join(tables[:5]) + (", ..." if len(tables) > 5 else "")
        raise _unusable(path, f"a database of something else (tables {shown}), expected one of MLflow")
    if _REVISIONS not in tables:
        raise _unusable(path, f"tables of MLflow without {_REVISIONS}: half-made, or older than MLflow 1.0")
    found = [row[0] for row in connection.execute("select version_num from alembic_version")]
    if len(found) != 1 or not isinstance(found[0], str):
        raise _unusable(path, f"{_REVISIONS} holds {len(found)} revisions, expected 1")
    return str(found[0])


def _unreadable(path: Path, error: OSError) -> RegistryError:
    return RegistryError(
        f"{path}: not readable: {error.strerror or error}", hint=f"ls -ld {path.parent} {path}"
    )


def _unusable(path: Path, what: str) -> RegistryError:
    # Moving aside loses nothing: who has a backup puts it there, who has none gets a new database.
    hint = f"put a backup in its place, or start anew: mv {path} {path}.old"
    return RegistryError(f"{path}: {what}", hint=hint)
