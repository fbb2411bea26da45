"""The frames of history as Arrow tables: schema, checks, one row a key.

Nothing here imports pandas, so that ``rank`` can fold history without it. That shapes the code:
`pyarrow.array` and `Array.to_numpy` both import pandas when it is installed, DLPack and raw buffers do not.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fastci_ml.records.frames import EXECUTIONS, HISTORY, NO_ATTEMPT, Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

# Free text; every other str column repeats a few values and is a dictionary, on disk and in memory.
_FREE_TEXT = frozenset({"message", "source", "base", "head"})
_TYPES = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "datetime64[us, UTC]": pa.timestamp("us", tz="UTC"),
}
# An execution may have no times of its own; a run must have both, or nobody could say what came before it.
_NULLABLE = frozenset({("executions", "started_at"), ("executions", "finished_at")})
# Ranks of several columns are packed into one int64; beyond this they are made dense again first.
_PACK_LIMIT = 2**62


def arrow_schema(frame: Frame) -> pa.Schema:
    """Arrow schema of a frame: dictionaries for names and closed sets, floats with NaN and without nulls."""
    fields = []
    for name, column in frame.columns.items():
        if column.dtype != "str":
            kind = _TYPES[column.dtype]
        elif name in _FREE_TEXT:
            kind = pa.string()
        else:
            kind = pa.dictionary(pa.int32(), pa.string())
        fields.append(pa.field(name, kind, nullable=(frame.name, name) in _NULLABLE))
    return pa.schema(fields)


SCHEMAS = {frame.name: arrow_schema(frame) for frame in HISTORY}


def empty_table(frame: Frame) -> pa.Table:
    """Table of `frame` without rows; `Schema.empty_table` would import pandas."""
    schema = SCHEMAS[frame.name]
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def check_table(frame: Frame, table: pa.Table) -> pa.Table:
    """Return `table` if it has the columns and types of `frame` and no missing value where none may be.

    Raises
    ------
    ValueError
        Names the first column at fault.
    """
    schema = SCHEMAS[frame.name]
    if table.schema.names != schema.names:
        raise ValueError(f"no table of {frame.name.upper()}: columns {table.schema.names}")
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            raise ValueError(f"{frame.name}.{field.name} is {column.type}, expected {field.type}")
        if column.null_count and not field.nullable:
            raise ValueError(f"{frame.name}.{field.name} has {column.null_count} missing values")
    return table.cast(schema) if table.schema != schema else table


def one_row_a_key(frame: Frame, table: pa.Table) -> pa.Table:
    """Keep the last of the rows with equal keys, sorted by key; of gaps only those that nothing filled.

    Parameters
    ----------
    frame : Frame
        Names the key columns, which must all be in `table`.
    table : pyarrow.Table
        Rows in order of ingest.

    Returns
    -------
    pyarrow.Table
        One chunk a column, one dictionary a dictionary column.
    """
    table = table.unify_dictionaries().combine_chunks()
    if table.num_rows == 0:
        return table
    packed = pack([table.column(name) for name in frame.key])
    if not np.all(packed[1:] > packed[:-1]):
        order = np.argsort(packed, kind="stable")
        ordered = packed[order]
        is_last = np.append(ordered[1:] != ordered[:-1], True)
        table = _take(table, order[is_last])
    return _without_filled_gaps(table) if frame is EXECUTIONS else table


def _without_filled_gaps(table: pa.Table) -> pa.Table:
    """Drop the rows that say that a result is lacking where one has come since, from whichever shard.

    Such a row has a key of its own, so that it never takes the place of a result. Of several for one test,
    as two ingests at the same time may write, the first stays.
    """
    is_gap = numbers(table.column("attempt")) == NO_ATTEMPT
    if not is_gap.any():
        return table
    tests = pack([table.column(name) for name in EXECUTIONS.key if name not in ("shard", "attempt")])
    gaps = np.flatnonzero(is_gap)
    _, first = np.unique(tests[gaps], return_index=True)
    is_open = np.zeros(len(tests), bool)
    is_open[gaps[first]] = True
    is_open[gaps] &= ~np.isin(tests[gaps], tests[~is_gap])
    if is_open[gaps].all():
        return table
    return _take(table, np.flatnonzero(~is_gap | is_open))


def _take(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """Rows of a table with one chunk a column, in the given order.

    `Table.take` would load `pyarrow.compute`, a tenth of what `rank` may spend; only free text and columns
    with missing values, which `rank` does not read, need it.
    """
    columns = []
    for column in table.columns:
        chunk = _one_chunk(column)
        if chunk.null_count or pa.types.is_string(chunk.type) or pa.types.is_boolean(chunk.type):
            columns.append(chunk.take(indices(rows)))
        elif pa.types.is_dictionary(chunk.type):
            places, values = codes(column)
            columns.append(pa.DictionaryArray.from_arrays(_array(places[rows], pa.int32()), values))
        else:
            columns.append(_array(numbers(column)[rows], chunk.type))
    return pa.Table.from_arrays(columns, schema=table.schema)


def pack(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """One int64 a row that orders as the tuple of the columns' values does."""
    packed: np.ndarray | None = None
    size = 1
    for column in columns:
        ranks, n_ranks = _ranks(column)
        if packed is None:
            packed, size = ranks, n_ranks
            continue
        if size * n_ranks > _PACK_LIMIT:
            # Both dense: at most as many ranks as rows, so the product of the two fits.
            values, packed = np.unique(packed, return_inverse=True)
            dense, ranks = np.unique(ranks, return_inverse=True)
            size, n_ranks = len(values), len(dense)
        packed, size = packed * n_ranks + ranks, size * n_ranks
    assert packed is not None
    return packed


def codes(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes (int32, one a row) and values of a dictionary column of one chunk."""
    chunk = _one_chunk(column)
    return np.from_dlpack(chunk.indices), chunk.dictionary


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Values of a numeric column; times are int64 microseconds since 1970, the least int64 when unknown."""
    chunk = _one_chunk(column)
    if pa.types.is_timestamp(chunk.type):
        return _microseconds(chunk)
    if pa.types.is_boolean(chunk.type):
        return np.from_dlpack(chunk.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(chunk)


def moment(us: int) -> datetime:
    """Time of microseconds since 1970, UTC; one beyond the calendar is its first or last moment.

    A column of times holds 290,000 years to both sides, `datetime` those from 1 to 9999.
    """
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(us))
    except OverflowError:
        return (datetime.min if us < 0 else datetime.max).replace(tzinfo=UTC)


def storable(text: str) -> str:
    r"""Text as the store can hold it: what is no UTF-8 is spelled out.

    Parameters
    ----------
    text : str
        With surrogate escapes for the bytes of names that are not UTF-8, which become ``\xff``. Other halves
        of characters, which only JSON can spell, become ``\ud800``.

    Examples
    --------
    >>> storable("bad\udcff.py")
    'bad\\xff.py'
    """
    try:
        content = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        content = text.encode("utf-8", "backslashreplace")
    return content.decode("utf-8", "backslashreplace")


def indices(places: np.ndarray) -> pa.Array:
    """Row numbers as Arrow takes them."""
    return _array(np.ascontiguousarray(places, dtype=np.int64), pa.int64())


def _array(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Arrow array over the memory of `values`, which has the width of `kind`."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _microseconds(times: pa.Array) -> np.ndarray:
    buffer = times.buffers()[1]
    if buffer is None:  # no rows, or nothing but nulls made without memory behind them
        return np.full(len(times), np.iinfo(np.int64).min)
    values = np.frombuffer(buffer, np.int64)[times.offset : times.offset + len(times)]
    if not times.null_count:
        return values
    is_unknown = np.from_dlpack(times.is_null().cast(pa.uint8())).astype(bool)
    return np.where(is_unknown, np.iinfo(np.int64).min, values)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def _ranks(column: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    """Rank of each row's value among the column's values, and how many ranks there are."""
    if pa.types.is_integer(column.type):
        values = numbers(column)
        low, high = int(values.min()), int(values.max())
        if high - low < _PACK_LIMIT:
            return values - low, high - low + 1
        dense, ranks = np.unique(values, return_inverse=True)
        return ranks.astype(np.int64), len(dense)
    places, values = codes(column)
    rank_of = np.empty(len(values), np.int64)
    # Python's order of text is Arrow's (by code point); Arrow's own sort would load `pyarrow.compute`, whose
    # import alone takes a tenth of what `rank` may spend.
    texts = values.to_pylist()
    rank_of[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return rank_of[places], len(values)
