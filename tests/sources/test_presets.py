"""The published histories are ingested with the counts that their description states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fastci_ml.records.frames import EXECUTIONS, RUNS
from fastci_ml.sources.history.tables import check_table
from fastci_ml.sources.presets import PRESETS
from fastci_ml.sources.tables import read_table

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "ci_logs"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no published histories beside the checkout: {DATA}"
)


def read(preset: str, file: str) -> tuple[pa.Table, pa.Table]:
    executions, runs = read_table(DATA / file, PRESETS[preset], job="", shard="", lane="any")
    times = np.asarray(check_table(RUNS, runs).column("finished_at").cast(pa.int64()))
    assert (np.diff(times) > 0).all()
    assert runs.column("started_at").equals(runs.column("finished_at"))
    return check_table(EXECUTIONS, executions), runs


def figures(executions: pa.Table) -> tuple[int, int, int]:
    """Executions, tests, runs with a failure."""
    failed = executions.filter(pc.equal(executions.column("failure_class").cast(pa.string()), "test"))
    return (
        executions.num_rows,
        len(executions.column("node_id").unique()),
        len(failed.column("run_id").unique()),
    )


def test_iofrol() -> None:
    executions, runs = read("iofrol", "iofrol/iofrol.csv")
    assert figures(executions) == (32_260, 1_941, 271)  # 85% of 320
    assert runs.num_rows == 320
    assert pc.sum(pc.greater(executions.column("attempt"), 0)).as_py() == 4_596
    assert set(executions.column("failure_class").cast(pa.string()).unique().to_pylist()) == {"", "test"}
    assert pc.max(executions.column("duration_s")).as_py() < 86_400


def test_druid() -> None:
    executions, runs = read("druid", "druid/features-engineered.parquet")
    assert figures(executions) == (308_998, 2_391, 71)
    assert runs.num_rows == 168
    zeros = pc.sum(pc.equal(executions.column("duration_s"), 0)).as_py()
    assert round(zeros / 308_998, 2) == 0.12


def test_dune() -> None:
    executions, runs = read("dune", "dune/dune_first70.parquet")
    assert figures(executions) == (172_616, 214, 628)
    assert runs.num_rows == int(0.7 * 2_951) == 2_065
    assert pc.max(executions.column("attempt")).as_py() == 0


def test_commons() -> None:
    n_runs = n_failing = 0
    for path in sorted((DATA / "commons").glob("*.csv")):
        executions, runs = read("commons", f"commons/{path.name}")
        n_runs += runs.num_rows
        n_failing += figures(executions)[2]
        assert runs.column("head").to_pylist() == runs.column("run_id").to_pylist()
    assert (n_runs, n_failing) == (2_643, 49)
