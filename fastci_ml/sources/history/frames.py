"""Between pandas frames and the Arrow tables of the store: its only module that touches pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fastci_ml.sources.history.tables import SCHEMAS

if TYPE_CHECKING:
    import pandas as pd

    from fastci_ml.records.frames import Frame


def from_pandas(frame: Frame, rows: pd.DataFrame) -> pa.Table:
    """Arrow table of a checked frame; NaN stays NaN, NaT becomes null."""
    frame.check(rows)
    arrays = []
    for field in SCHEMAS[frame.name]:
        column = rows[field.name]
        if pa.types.is_floating(field.type):
            arrays.append(pa.array(column.to_numpy(), type=field.type, from_pandas=False))
        elif pa.types.is_timestamp(field.type):
            naive = pa.array(column.dt.tz_convert(None).to_numpy(), type=pa.timestamp("us"))
            arrays.append(naive.cast(field.type))
        elif pa.types.is_dictionary(field.type):
            arrays.append(_encode(pa.array(column, type=pa.string())))
        else:
            arrays.append(pa.array(column, type=field.type))
    fields = [field.with_nullable(True) for field in SCHEMAS[frame.name]]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _encode(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.dictionary_encode()


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Frame with the dtypes of `records.frames`."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(place).cast(pa.string())
            table = table.set_column(place, pa.field(field.name, pa.string()), column)
    frame: pd.DataFrame = table.to_pandas()
    return frame
