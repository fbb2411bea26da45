"""Parts of the history store: how a file is named, written and read.

A part is one Parquet file, ``<newest finish of its runs, us>-<sequence>-<digest>.parquet``. The name alone
says whether a reader needs it, which row wins, and what was ingested. The digest of a compacted part is
``merged-<hash>``; what it stands for is in the metadata of the runs part.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from base64 import b85decode, b85encode
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from fastci_ml.errors import HistoryError
from fastci_ml.sources.history.tables import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from fastci_ml.records.frames import Frame

SCHEMA = "fastci.history/1"
_SCHEMA_KEY, _DIGESTS_KEY = b"fastci.schema", b"fastci.digests"
_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8,64}|merged-[0-9a-f]{8,64})\.parquet")
# Text columns that parts of earlier releases do not have; they read as empty text.
_ADDED = frozenset({("executions", "failure_rule")})
_LARGE_ROWS = 500_000
_DIGEST = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One file of the store, in order of ingest.

    Attributes
    ----------
    sequence : int
        Place in the order of ingest; of a compacted part, that of the newest part in it.
    digest : str
        Of what was ingested, or ``merged-<hash>``.
    newest_us : int
        Newest finish of its runs, microseconds since 1970; 0 in a part without rows.
    path : Path
        The file.
    """

    sequence: int
    digest: str
    newest_us: int
    path: Path

    @property
    def is_merged(self) -> bool:
        """Whether the part comes from a compaction."""
        return self.digest.startswith("merged-")


def check_digest(digest: str) -> str:
    """Return `digest` if it is 8 to 64 lower-case hex digits, so that it can be part of a file's name."""
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"digest {digest!r}, expected 8 to 64 lower-case hex digits")
    return digest


def list_parts(folder: Path) -> list[Part]:
    """Parts of one table, in order of ingest.

    Raises
    ------
    HistoryError
        If the folder holds a file that is no part: history with a hole in it would lie.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208  one call, no Path for each of thousands of names
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HistoryError(f"{folder}: the folder of a history table cannot be read: {error}") from error
    parts = []
    for name in names:
        if name.startswith("."):
            continue  # a part that is being written, or that its writer did not live to finish
        match = _NAME.fullmatch(name)
        if match is None:
            raise HistoryError(
                f"{folder / name}: not a part of a history store", hint=f"mv {folder / name} /tmp/"
            )
        newest_us, sequence, digest = match.groups()
        parts.append(Part(int(sequence), digest, int(newest_us), folder / name))
    return sorted(parts)


def write_part(
    folder: Path,
    table: pa.Table,
    *,
    newest_us: int,
    sequence: int,
    digest: str,
    digests: Collection[str] = (),
) -> Part:
    """Write a part so that it is there as a whole or not at all, even when the machine stops.

    Parameters
    ----------
    folder : Path
        Of the table; made when absent.
    table : pyarrow.Table
        Rows, already checked.
    newest_us, sequence, digest
        As in `Part`.
    digests : collection of str
        What a compacted part of runs stands for.

    Raises
    ------
    HistoryError
        If the folder cannot be made or written.
    """
    path = folder / f"{max(newest_us, 0):020d}-{sequence:020d}-{digest}.parquet"
    metadata = {_SCHEMA_KEY: SCHEMA.encode()}
    if digests:
        text = json.dumps(sorted(digests)).encode()
        metadata[_DIGESTS_KEY] = b85encode(zlib.compress(text))
    temporary = folder / f".{uuid4().hex}.tmp"
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                pq.write_table(table.replace_schema_metadata(metadata), file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(folder)
    return Part(sequence, digest, max(newest_us, 0), path)


def read_part(frame: Frame, part: Part, columns: Sequence[str]) -> pa.Table:
    """Read columns of one part.

    Raises
    ------
    HistoryError
        If the file is torn, foreign or of another version.
    FileNotFoundError
        If a compaction took it away since it was listed: list again.
    """
    file = _open(part)
    try:
        schema = file.schema_arrow
        absent = [name for name in columns if name not in schema.names and (frame.name, name) in _ADDED]
        present = [name for name in columns if name not in absent]
        for name in present:
            expected = SCHEMAS[frame.name].field(name).type
            found = schema.field(name).type if name in schema.names else "absent"
            if found != expected:
                raise HistoryError(f"{part.path}: column {name} is {found}, expected {expected}")
        # Threads win time on a large part, and cost a small one more than its reading.
        is_large = file.metadata.num_rows >= _LARGE_ROWS
        table = file.read(columns=present, use_threads=is_large).replace_schema_metadata(None)
        for name in absent:
            # With the field of the schema: a part that says "not null" and one that does not are never one.
            table = table.append_column(SCHEMAS[frame.name].field(name), _blank(file.metadata.num_rows))
        return table.select(list(columns)) if absent else table
    except (pa.ArrowException, OSError) as error:
        raise _torn(part, error) from error
    finally:
        file.close()


def check_rewritable(frame: Frame, part: Part) -> None:
    """Refuse to rewrite a part with columns of a later release: readers may pass them over, not drop them.

    Raises
    ------
    HistoryError
        Names them; also if the file is torn, foreign or of another version.
    FileNotFoundError
        If a compaction took it away since it was listed: list again.
    """
    file = _open(part)
    try:
        unknown = [name for name in file.schema_arrow.names if name not in SCHEMAS[frame.name].names]
    finally:
        file.close()
    if unknown:
        raise HistoryError(
            f"{part.path}: columns {', '.join(unknown)} of a later fastci-ml would be lost",
            hint="pip install --upgrade fastci-ml",
        )


def read_digests(part: Part) -> frozenset[str]:
    """Digests that a compacted part of runs stands for; for another part, its own."""
    if not part.is_merged:
        return frozenset((part.digest,))
    file = _open(part)
    try:
        packed = (file.schema_arrow.metadata or {}).get(_DIGESTS_KEY)
        return frozenset(json.loads(zlib.decompress(b85decode(packed)))) if packed else frozenset()
    except (ValueError, zlib.error) as error:
        raise _torn(part, error) from error
    finally:
        file.close()


def remove_parts(parts: Sequence[Part]) -> None:
    """Delete parts; one that another compaction has deleted already is no error.

    Raises
    ------
    HistoryError
        If a folder cannot be written.
    """
    for part in parts:
        with _writing(part.path.parent):
            part.path.unlink(missing_ok=True)
    for folder in {part.path.parent for part in parts}:
        with _writing(folder):
            _sync_folder(folder)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HistoryError(
            f"{folder}: the folder of a history table cannot be written: {error}", hint="--history DIR"
        ) from error


def _blank(n_rows: int) -> pa.Array:
    places = pa.Array.from_buffers(pa.int32(), n_rows, [None, pa.py_buffer(bytes(4 * n_rows))])
    return pa.DictionaryArray.from_arrays(places, pa.array([""], pa.string()))


def _open(part: Part) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(part.path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _torn(part, error) from error
    found = (file.schema_arrow.metadata or {}).get(_SCHEMA_KEY, b"no schema").decode(errors="replace")
    if found != SCHEMA:
        file.close()
        raise HistoryError(
            f"{part.path}: schema {found}, expected {SCHEMA}", hint="pip install --upgrade fastci-ml"
        )
    return file


def _torn(part: Part, error: Exception) -> HistoryError:
    return HistoryError(
        f"{part.path}: torn or no Parquet: {error}",
        hint=f"mv {part.path} /tmp/  # and ingest its reports again",
    )


def _sync_folder(folder: Path) -> None:
    # Without it a rename may be lost with the power. Windows cannot open folders, and orders renames itself.
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
