"""Every table that crosses a package border: columns, dtypes, units and keys, spelled once.

The dtypes are those of pandas 3. The store writes the same columns to Parquet; see `sources.history.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its pandas dtype and what it means, with the unit and what a missing value says."""

    dtype: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Schema of one table.

    Attributes
    ----------
    name : str
        Also the folder of the table in the history store.
    key : tuple of str
        Columns that name a row; one row a key after reading.
    columns : mapping of str to Column
        In order.
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `frame` as it is if it has these columns, in this order and of these dtypes.

        Raises
        ------
        ValueError
            Names each column that is missing, unknown, out of place or of another dtype.
        """
        found = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
        expected = {name: column.dtype for name, column in self.columns.items()}
        if list(found.items()) == list(expected.items()):
            return frame
        problems = [f"{name} is missing" for name in expected if name not in found]
        problems += [f"{name} is unknown" for name in found if name not in expected]
        problems += [
            f"{name} is {found[name]}, expected {dtype}"
            for name, dtype in expected.items()
            if name in found and found[name] != dtype
        ]
        raise ValueError(f"no frame of {self.name.upper()}: {'; '.join(problems) or 'columns out of order'}")


def _frame(name: str, key: tuple[str, ...], columns: dict[str, Column]) -> Frame:
    return Frame(name=name, key=key, columns=MappingProxyType(columns))


_TIME = "datetime64[us, UTC]"

# Numbers of `attempt`: far more than one run of a job ever tries a test.
ATTEMPTS_A_RUN = 1_000_000
NO_ATTEMPT = -1

EXECUTIONS = _frame(
    "executions",
    ("run_id", "job", "shard", "lane", "node_id", "attempt"),
    {
        "run_id": Column("str", "CI run that executed the test"),
        "job": Column("str", "CI job; empty where the CI has none"),
        "shard": Column("str", "shard of the job; empty without shards"),
        "lane": Column("str", "environment: Python, torch, CUDA and driver, GPU kind, image"),
        "node_id": Column("str", "pytest node id, from the repository root"),
        "attempt": Column(
            "int64",
            "0 for the first try in the run; those of the attempt k of the CI start at (k - 1) million. "
            "-1: it was to run and no result has come; once a (run, job, lane, test), and only while there "
            "is no other row",
        ),
        "outcome": Column("str", "an Outcome"),
        "failure_class": Column("str", "a FailureClass; empty unless the outcome is a failure"),
        "started_at": Column(_TIME, "start of set-up; NaT when unknown"),
        "finished_at": Column(_TIME, "end of teardown; NaT when unknown"),
        "duration_s": Column("float64", "set-up + call + teardown; NaN when unknown"),
        "n_gpus": Column("float64", "GPUs held; NaN when unknown"),
        "gpu_s": Column("float64", "GPU-seconds; NaN when unknown"),
        "is_joined": Column("bool", "the id is a collected or reported one, not a guess from a class name"),
        "message": Column("str", "first line of the failure, at most 200 characters"),
        "failure_rule": Column("str", "id of the rule that gave the failure class; empty where none did"),
    },
)

RUNS = _frame(
    "runs",
    ("run_id", "job", "shard"),
    {
        "run_id": Column("str", "CI run"),
        "job": Column("str", "CI job; empty where the CI has none"),
        "shard": Column("str", "shard of the job; empty without shards"),
        "base": Column("str", "commit that the run is compared with; empty when unknown"),
        "head": Column("str", "commit that ran; empty when unknown"),
        "started_at": Column(_TIME, "when the run started: what it could know"),
        "finished_at": Column(_TIME, "when its results were there: what later runs can know"),
        "source": Column("str", "reader and file that the rows came from"),
    },
)

CHANGES = _frame(
    "changes",
    ("run_id", "path"),
    {
        "run_id": Column("str", "CI run whose change touched the file"),
        "path": Column("str", "path at the head, from the repository root"),
        "old_path": Column("str", "path at the base where it differs, else empty"),
        "status": Column("str", "a ChangeStatus"),
        "n_added": Column("float64", "lines added; NaN for a binary file or when not counted"),
        "n_deleted": Column("float64", "lines deleted; NaN for a binary file or when not counted"),
    },
)

HISTORY = (EXECUTIONS, RUNS, CHANGES)
