"""The door for features that come from outside: columns are taken by name, and what does not fit is refused.

LightGBM takes columns by place. A frame whose columns stand in another order gets other scores from it, and
not a word; so nothing that has names is ever read by place here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fastci_ml.features.schema import FEATURE_NAMES, FEATURES_DIGEST, N_FEATURES

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# Where a frame says which definitions its features have: `attrs` of pandas, metadata of Arrow.
DIGEST_KEY = "fastci.features"
_NUMBERS = "fiub"  # numpy's kinds: floats, integers of both kinds, truths
_N_NAMED = 5


def in_schema_order(X: Any) -> NDArray[np.float32]:
    """Features in the order of the schema.

    Parameters
    ----------
    X : array, frame or mapping
        A plain array of shape (n, N_FEATURES) has no names, so its columns are those of the schema, in its
        order. Columns of a pandas frame, an Arrow table, a structured array or a mapping are taken by name.

    Returns
    -------
    float32, shape (n, N_FEATURES)
        A plain float32 array is given back as it is. Missing values are NaN.

    Raises
    ------
    TypeError
        If it is nothing of these, or a column holds no numbers.
    ValueError
        If the shape is another, a column is missing, unknown or there twice, a value is infinite or does not
        fit into float32, or the frame says that its features are defined otherwise.

    Examples
    --------
    >>> X = np.arange(N_FEATURES, dtype=np.float32)[None]
    >>> frame = {name: X[:, i] for i, name in enumerate(FEATURE_NAMES)}
    >>> turned = dict(reversed(frame.items()))
    >>> bool((in_schema_order(turned) == X).all())
    True
    """
    if isinstance(X, np.ndarray) and X.dtype.names is None:
        return _plain(X)
    names = _names(X)
    _check_names(names)
    _check_definitions(X)
    columns = [_floats(_column(X, name), name) for name in FEATURE_NAMES]
    lengths = {name: len(column) for name, column in zip(FEATURE_NAMES, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of {sorted(set(lengths.values()))} rows, expected one length")
    matrix = np.empty((N_FEATURES, len(columns[0])), dtype=np.float32)
    for place, column in enumerate(columns):
        matrix[place] = column
    return matrix.T


def to_frame(X: NDArray[np.float32]) -> pd.DataFrame:
    """Features as a pandas frame with named columns, which says how they are defined.

    Parameters
    ----------
    X : float32, shape (n, N_FEATURES)
        As `build_matrix` gives them.
    """
    import pandas as pd

    frame = pd.DataFrame(in_schema_order(X), columns=list(FEATURE_NAMES))
    frame.attrs[DIGEST_KEY] = FEATURES_DIGEST
    return frame


def _plain(X: NDArray[Any]) -> NDArray[np.float32]:
    if X.ndim != 2 or X.shape[1] != N_FEATURES:
        raise ValueError(f"X has shape {X.shape}, expected (n, {N_FEATURES})")
    if X.dtype == np.float32 and type(X) is np.ndarray:
        return X
    return _floats(X, "X")


def _names(X: Any) -> list[Hashable]:
    if isinstance(X, np.ndarray):
        if X.ndim != 1:
            raise ValueError(f"X has shape {X.shape} with named fields, expected (n,)")
        return list(X.dtype.names or ())
    if isinstance(X, Mapping):
        return list(X)
    for attribute in ("column_names", "columns"):  # Arrow first: its `columns` are the columns themselves
        names = getattr(X, attribute, None)
        if names is not None and not callable(names):
            return list(names)
    raise TypeError(f"X is {type(X).__name__}, expected an array, a frame or a mapping of columns")


def _check_names(names: Sequence[Hashable]) -> None:
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ValueError(
            f"column {odd[0]!r} has no name: take the array behind the frame, or name its columns"
        )
    texts = [str(name) for name in names]
    known = set(FEATURE_NAMES)
    problems = [f"{name} is missing" for name in FEATURE_NAMES if name not in texts]
    problems += [f"{name!r} is unknown{_near(name)}" for name in dict.fromkeys(texts) if name not in known]
    problems += [
        f"{name!r} is there {n} times" for name in dict.fromkeys(texts) if (n := texts.count(name)) > 1
    ]
    if problems:
        shown = "; ".join(problems[:_N_NAMED])
        more = f"; and {len(problems) - _N_NAMED} more" if len(problems) > _N_NAMED else ""
        raise ValueError(f"no frame of features: {shown}{more}")


def _near(name: str) -> str:
    near = difflib.get_close_matches(name.strip().lower().replace(" ", "_"), FEATURE_NAMES, n=1)
    return f" (near {near[0]})" if near else ""


def _check_definitions(X: Any) -> None:
    found = _stated_digest(X)
    if found is not None and found != FEATURES_DIGEST:
        raise ValueError(
            f"features of the definitions {str(found)[:12]}, expected {FEATURES_DIGEST[:12]}: another "
            "release made them; build_matrix makes them anew from the history"
        )


def _stated_digest(X: Any) -> object:
    """Which definitions a frame says that its features have; None where it says nothing."""
    attributes = getattr(X, "attrs", None)
    if isinstance(attributes, Mapping) and DIGEST_KEY in attributes:
        return attributes[DIGEST_KEY]
    metadata = getattr(getattr(X, "schema", None), "metadata", None)
    if not isinstance(metadata, Mapping):
        return None
    if DIGEST_KEY.encode() in metadata:
        return metadata[DIGEST_KEY.encode()].decode("ascii", "replace")
    # Where pandas keeps `attrs` in a Parquet file that Arrow reads.
    stored = json.loads(metadata.get(b"PANDAS_ATTRS", b"{}"))
    return stored.get(DIGEST_KEY) if isinstance(stored, dict) else None


def _column(X: Any, name: str) -> Any:
    column = X[name]
    if hasattr(column, "combine_chunks"):  # Arrow
        return _from_arrow(column, name)
    kind = getattr(getattr(column, "dtype", None), "kind", None)
    if kind is not None and kind not in _NUMBERS:
        raise TypeError(f"column {name} is {column.dtype}, expected numbers")
    if kind is not None and hasattr(column, "to_numpy"):  # pandas, whose own types have a missing value too
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return column


def _from_arrow(column: Any, name: str) -> NDArray[Any]:
    import pyarrow as pa

    if not (
        pa.types.is_floating(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_boolean(column.type)
    ):
        raise TypeError(f"column {name} is {column.type}, expected numbers")
    values = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    found: NDArray[Any] = values.cast(pa.float64()).to_numpy()
    return found


def _floats(column: Any, name: str) -> NDArray[np.float32]:
    """Numbers as float32; what does not fit is named with the place of the first such row."""
    values, mask = np.asarray(column), getattr(column, "mask", None)
    if values.dtype.kind not in _NUMBERS:
        raise TypeError(f"column {name} is {values.dtype}, expected numbers")
    if name != "X" and values.ndim != 1:
        raise ValueError(f"column {name} has shape {values.shape}, expected (n,)")
    with np.errstate(over="ignore"):
        floats = values.astype(np.float32)
    if isinstance(mask, np.ndarray):  # what numpy masks is missing
        floats[mask] = np.nan
    wrong = np.isinf(floats)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = f"column {FEATURE_NAMES[place[1]]}" if len(place) == 2 else f"column {name}"
        raise ValueError(
            f"{where}, row {place[0]}: {values[place]!s}, expected a number that fits float32, or NaN"
        )
    return floats
