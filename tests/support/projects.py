"""A small project with a history: frames of runs whose failures follow the changed file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS, Frame
from fastci_ml.sources.history.store import HistoryStore

LANE = "lane"
SOURCES = ("pkg/adam.py", "pkg/loader.py", "pkg/model.py")
NODE_IDS = tuple(f"tests/test_{name}.py::test_{i}" for name in ("adam", "loader", "model") for i in range(6))
FIRST = pd.Timestamp("2026-01-01", tz="UTC")


def to_frame(schema: Frame, rows: pd.DataFrame) -> pd.DataFrame:
    """Columns of a schema, in its order and dtypes."""
    return rows[list(schema.columns)].astype({name: column.dtype for name, column in schema.columns.items()})


def add_runs(store: HistoryStore, start: int, n_runs: int, node_ids: Sequence[str] = NODE_IDS) -> None:
    """Append runs of one change each: every second fails half of the tests of the changed file."""
    for run in range(start, start + n_runs):
        rng = np.random.default_rng(run)
        changed = SOURCES[run % len(SOURCES)]
        name = changed.removeprefix("pkg/").removesuffix(".py")
        failed = [
            f"test_{name}.py" in node and bool(rng.random() < 0.5) and run % 2 == 0 for node in node_ids
        ]
        time = FIRST + pd.Timedelta(hours=run)
        run_id = f"run-{run:03d}"
        executions = pd.DataFrame({"node_id": list(node_ids)}).assign(
            run_id=run_id,
            job="",
            shard="",
            lane=LANE,
            attempt=0,
            outcome=["failed" if f else "passed" for f in failed],
            failure_class=["test" if f else "" for f in failed],
            started_at=time,
            finished_at=time,
            duration_s=[1.0 + i % 6 for i in range(len(node_ids))],
            n_gpus=np.nan,
            gpu_s=np.nan,
            is_joined=True,
            message="",
            failure_rule="",
        )
        runs = pd.DataFrame({"run_id": [run_id]}).assign(
            job="", shard="", base="", head="", started_at=time, finished_at=time, source="test"
        )
        changes = pd.DataFrame({"path": [changed]}).assign(
            run_id=run_id, old_path="", status="M", n_added=1.0, n_deleted=1.0
        )
        store.append(
            executions=to_frame(EXECUTIONS, executions),
            runs=to_frame(RUNS, runs),
            changes=to_frame(CHANGES, changes),
            digest=f"{run:08x}",
        )


def write_files(root: Path) -> None:
    """The files that the ids and changes name."""
    for path in (*SOURCES, *{node.partition("::")[0] for node in NODE_IDS}):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("VALUE = 0\n")
