from __future__ import annotations

import pandas as pd
import pytest

from fastci_ml.records.changes import FileChange
from fastci_ml.records.frames import CHANGES, HISTORY, RUNS, Frame


def empty(frame: Frame) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=column.dtype) for name, column in frame.columns.items()})


@pytest.mark.parametrize("frame", HISTORY, ids=lambda frame: frame.name)
def test_check_gives_back_a_frame_of_its_schema(frame):
    table = empty(frame)
    assert frame.check(table) is table


@pytest.mark.parametrize("frame", HISTORY, ids=lambda frame: frame.name)
def test_key_names_columns_of_the_frame(frame):
    assert set(frame.key) <= set(frame.columns)


@pytest.mark.parametrize("frame", HISTORY, ids=lambda frame: frame.name)
def test_every_column_says_what_it_means(frame):
    assert all(column.meaning for column in frame.columns.values())


def test_check_names_each_problem():
    table = empty(CHANGES).drop(columns="status").assign(extra=1, n_added=pd.Series(dtype="int64"))
    with pytest.raises(ValueError, match="no frame of CHANGES") as caught:
        CHANGES.check(table)
    message = str(caught.value)
    assert "status is missing" in message
    assert "extra is unknown" in message
    assert "n_added is int64, expected float64" in message


def test_check_refuses_columns_out_of_order():
    table = empty(RUNS)
    with pytest.raises(ValueError, match="columns out of order"):
        RUNS.check(table[list(reversed(table.columns))])


def test_check_refuses_times_without_a_zone():
    table = empty(RUNS)
    table["started_at"] = table["started_at"].dt.tz_localize(None)
    with pytest.raises(ValueError, match="started_at is datetime64"):
        RUNS.check(table)


def test_changes_have_attributes_of_a_file_change():
    # Modes, blobs and what follows from them are asked of git when they are needed.
    assert set(CHANGES.columns) - {"run_id"} <= set(FileChange.__slots__)


def test_schemas_cannot_be_edited():
    with pytest.raises(TypeError):
        RUNS.columns["extra"] = RUNS.columns["head"]
