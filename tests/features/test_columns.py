"""Cases 47 and 48: columns are taken by name or refused; never is anything scored in another order."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.features.columns import DIGEST_KEY, in_schema_order, to_frame
from fastci_ml.features.schema import (
    FEATURE_NAMES,
    FEATURES,
    FEATURES_DIGEST,
    N_FEATURES,
    SCHEMA_DIGEST,
    schema_digest,
)


def make_matrix(n: int = 7, seed: int = 0) -> np.ndarray:
    """Features as a fold gives them: column-major float32 with holes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_FEATURES, n)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X.T


def structured(frame: pd.DataFrame) -> np.ndarray:
    return np.array(
        [tuple(row) for row in frame.to_numpy()], dtype=[(name, np.float32) for name in frame.columns]
    )


# Ways to hold named columns, from a pandas frame.
HOLDERS: dict[str, Callable[[pd.DataFrame], object]] = {
    "pandas": lambda frame: frame,
    "pandas float64": lambda frame: frame.astype("float64"),
    "pandas nullable": lambda frame: frame.astype("Float64"),
    "pandas of Arrow": lambda frame: frame.astype("double[pyarrow]"),
    "Arrow": lambda frame: pa.Table.from_pandas(frame),
    "Arrow in chunks": lambda frame: pa.concat_tables(
        [pa.Table.from_pandas(frame.iloc[:3]), pa.Table.from_pandas(frame.iloc[3:])]
    ),
    "structured": structured,
    "mapping": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "mapping of lists": lambda frame: {name: frame[name].tolist() for name in frame},
}


def test_the_schema_is_fixed_ascii_that_lightgbm_takes_as_it_is() -> None:
    # case 47: LightGBM refuses what JSON takes for syntax, and makes `a b` of `a_b`.
    import lightgbm

    assert len(set(FEATURE_NAMES)) == N_FEATURES == len(FEATURES)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in FEATURE_NAMES)
    X = np.nan_to_num(make_matrix(200))
    data = lightgbm.Dataset(X, (X[:, 0] > 0).astype(float), feature_name=list(FEATURE_NAMES))
    booster = lightgbm.train({"objective": "binary", "verbosity": -1, "num_threads": 1}, data, 2)
    assert tuple(booster.feature_name()) == FEATURE_NAMES


def test_the_digests_follow_names_and_order() -> None:
    assert schema_digest(FEATURE_NAMES) == SCHEMA_DIGEST
    assert schema_digest(FEATURE_NAMES[::-1]) != SCHEMA_DIGEST
    assert schema_digest(FEATURE_NAMES[:-1]) != SCHEMA_DIGEST
    assert len({SCHEMA_DIGEST, FEATURES_DIGEST}) == 2


@pytest.mark.parametrize("holder", HOLDERS)
@settings(max_examples=8)
@given(order=st.permutations(FEATURE_NAMES))
def test_columns_in_any_order_are_put_into_that_of_the_schema(holder: str, order: list[str]) -> None:
    # case 48
    X = make_matrix()
    frame = pd.DataFrame(X, columns=list(FEATURE_NAMES))[list(order)]
    found = in_schema_order(HOLDERS[holder](frame))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X)


def test_a_plain_float32_array_is_given_back_as_it_is() -> None:
    X = make_matrix()
    assert in_schema_order(X) is X
    assert in_schema_order(X[:0]).shape == (0, N_FEATURES)
    np.testing.assert_array_equal(in_schema_order(X.astype(np.float64)), X)
    whole = np.arange(2 * N_FEATURES).reshape(2, N_FEATURES)
    np.testing.assert_array_equal(in_schema_order(whole), whole.astype(np.float32))
    np.testing.assert_array_equal(in_schema_order(whole > 5), (whole > 5).astype(np.float32))
    masked = np.ma.masked_array(X, mask=X > 0)
    assert np.isnan(in_schema_order(masked)[X > 0]).all()


def frame_with(**changed: object) -> pd.DataFrame:
    return pd.DataFrame(make_matrix(), columns=list(FEATURE_NAMES)).assign(**changed)


N_RUNS = pd.Series(range(7))
GOOD_COLUMNS: dict[str, object] = {
    "integers": N_RUNS.astype("int64"),
    "small integers": N_RUNS.astype("uint8"),
    "integers with holes": pd.Series([1, None, 3, 4, 5, 6, 7], dtype="Int64"),
    "truths": N_RUNS > 2,
    "truths with holes": pd.Series([True, None] + [False] * 5, dtype="boolean"),
    "half floats": N_RUNS.astype("float16"),
    "floats that float32 rounds": N_RUNS + 1e-12,
    "floats below those of float32": pd.Series([1e-300] * 7),
}


@pytest.mark.parametrize("what", GOOD_COLUMNS)
def test_numbers_of_other_types_become_float32_with_nan_for_holes(what: str) -> None:
    column = pd.Series(GOOD_COLUMNS[what])
    found = in_schema_order(frame_with(n_runs=column))[:, 0]
    expected = column.to_numpy(dtype=np.float64, na_value=np.nan).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


BAD_COLUMNS: dict[str, tuple[object, str]] = {
    "text": (pd.Series(["1"] * 7), "column n_runs is"),
    "objects": (pd.Series([1.0] * 7, dtype=object), "column n_runs is object"),
    "a category": (pd.Series([1, 2, 3, 1, 2, 3, 1], dtype="category"), "column n_runs is category"),
    "times": (pd.Series([datetime.datetime(2026, 1, 1)] * 7), "column n_runs is datetime64"),
    "spans": (pd.Series([datetime.timedelta(1)] * 7), "column n_runs is timedelta64"),
    "complex numbers": (pd.Series([1j] * 7), "column n_runs is complex128"),
    "an infinity": (pd.Series([1.0] * 6 + [np.inf]), "column n_runs, row 6: inf"),
    "a negative infinity": (pd.Series([-np.inf] * 7, dtype="float32"), "column n_runs, row 0: -inf"),
    "what float32 cannot hold": (pd.Series([0, 1e39, 0, 0, 0, 0, 0]), r"column n_runs, row 1: 1e\+39"),
}


@pytest.mark.parametrize("what", BAD_COLUMNS)
def test_a_column_that_holds_no_usable_numbers_is_named(what: str) -> None:
    column, match = BAD_COLUMNS[what]
    with pytest.raises((TypeError, ValueError), match=match):
        in_schema_order(frame_with(n_runs=column))


def renamed(**names: str) -> pd.DataFrame:
    return frame_with().rename(columns=names)


BAD_NAMES: dict[str, tuple[object, str]] = {
    "missing": (frame_with().drop(columns="n_fails"), "n_fails is missing"),
    "unknown": (frame_with(run_id=1.0), "'run_id' is unknown"),
    "a test id": (frame_with(**{"t.py::x[a,b]": 1.0}), r"'t.py::x\[a,b\]' is unknown"),
    "a blank for an underscore": (
        renamed(n_fails="n fails"),
        r"n_fails is missing; 'n fails' is unknown \(near n_fails\)",
    ),
    "beside the one it collides with": (frame_with(**{"n fails": 1.0}), "'n fails' is unknown"),
    "capitals": (renamed(n_fails="N_FAILS"), r"'N_FAILS' is unknown \(near n_fails\)"),
    "a blank at the end": (renamed(n_fails="n_fails "), "'n_fails ' is unknown"),
    "other letters that look alike": (renamed(n_fails="n_fаils"), "n_fails is missing"),
    "twice": (pd.concat([frame_with(), frame_with()[["n_fails"]]], axis=1), "'n_fails' is there 2 times"),
    "no names": (pd.DataFrame(make_matrix()), "column 0 has no name"),
    "pairs for names": (frame_with().set_axis([(name, 1) for name in FEATURE_NAMES], axis=1), "has no name"),
    "LightGBM's own": (
        frame_with().set_axis([f"Column_{i}" for i in range(N_FEATURES)], axis=1),
        "n_runs is missing",
    ),
    "nothing": (pd.DataFrame(), "and 28 more"),
    "an Arrow table with a column twice": (
        pa.Table.from_arrays([pa.array([1.0])] * (N_FEATURES + 1), names=[*FEATURE_NAMES, "n_runs"]),
        "'n_runs' is there 2 times",
    ),
}


@pytest.mark.parametrize("what", BAD_NAMES)
def test_columns_that_are_not_those_of_the_schema_are_named(what: str) -> None:
    # cases 47 and 48
    frame, match = BAD_NAMES[what]
    with pytest.raises(ValueError, match=match):
        in_schema_order(frame)


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        (make_matrix()[:, :-1], ValueError, r"shape \(7, 32\), expected \(n, 33\)"),
        (make_matrix()[0], ValueError, r"shape \(33,\)"),
        (make_matrix()[None], ValueError, "shape"),
        (make_matrix().astype(object), TypeError, "object"),
        (make_matrix().astype(str), TypeError, "<U"),
        (np.full((2, N_FEATURES), 1e39), ValueError, r"column n_runs, row 0: 1e\+39"),
        ([[1.0] * N_FEATURES], TypeError, "list"),
        ("n_runs", TypeError, "str"),
        (None, TypeError, "NoneType"),
        ({name: [1.0] * (2 if name == "n_fails" else 1) for name in FEATURE_NAMES}, ValueError, r"\[1, 2\]"),
        ({name: np.ones((2, 2)) for name in FEATURE_NAMES}, ValueError, r"shape \(2, 2\)"),
        ({name: ["1"] for name in FEATURE_NAMES}, TypeError, "column n_runs"),
        (
            pa.table({name: pa.array(["1"]).dictionary_encode() for name in FEATURE_NAMES}),
            TypeError,
            "column n_runs is dictionary",
        ),
    ],
)
def test_what_is_no_table_of_features_is_refused(X: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        in_schema_order(X)


@pytest.mark.parametrize("suffix", ["parquet", "parquet by Arrow", "pickle", "arrow"])
def test_a_frame_remembers_how_its_features_were_defined(tmp_path: Path, suffix: str) -> None:
    # case 48: the hash goes with the frame, through a file and another order of the columns.
    X = make_matrix()
    frame = to_frame(X)[list(FEATURE_NAMES[::-1])]

    def through_a_file(frame: pd.DataFrame) -> object:
        path = tmp_path / f"X.{suffix}"
        if suffix == "parquet":
            frame.to_parquet(path)
            return pd.read_parquet(path)
        if suffix == "parquet by Arrow":
            frame.to_parquet(path)
            return pq.read_table(path)
        if suffix == "pickle":
            frame.to_pickle(path)
            return pd.read_pickle(path)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return table.replace_schema_metadata({DIGEST_KEY: frame.attrs[DIGEST_KEY]})

    np.testing.assert_array_equal(in_schema_order(through_a_file(frame)), X)
    frame.attrs[DIGEST_KEY] = "0" * 64
    with pytest.raises(ValueError, match="of the definitions 000000000000, expected"):
        in_schema_order(through_a_file(frame))
