"""The text that `fastci-ml replay` prints, as it is read in review.

When a change of it is meant, put what the failing assertion shows into replay_table.txt.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from fastci_ml.cli.app import main
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS, Frame
from fastci_ml.sources.history.store import HistoryStore

GOLDEN = Path(__file__).with_name("replay_table.txt")
# Seconds of each test, and the runs (of ten, one a letter) in which it failed.
TESTS = {
    "tests/test_optim.py::test_step": (2.0, "..FFF..F.F"),
    "tests/test_optim.py::test_state": (0.5, ".........."),
    "tests/test_data.py::test_order": (1.0, "F........."),
    "tests/test_train.py::test_resume": (30.0, "...FF..F.F"),
    "tests/test_train.py::test_loss": (12.0, "........F."),
}
START = datetime(2026, 1, 1, tzinfo=UTC)


def frame_of(frame: Frame, rows: list[dict[str, object]]) -> pd.DataFrame:
    """Frame of `frame`; text is empty, numbers NaN and times NaT where a row says nothing."""
    blank = {"str": "", "float64": float("nan"), "int64": 0, "bool": True}
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name, blank.get(column.dtype)) for row in rows], dtype=column.dtype)
            for name, column in frame.columns.items()
        }
    )


@pytest.fixture
def history(tmp_path: Path) -> Path:
    executions: list[dict[str, object]] = []
    runs: list[dict[str, object]] = []
    for i in range(10):
        started = START + timedelta(hours=i)
        runs.append({"run_id": f"r{i}", "started_at": started, "finished_at": started + timedelta(minutes=1)})
        for node_id, (duration_s, letters) in TESTS.items():
            has_failed = letters[i] == "F"
            row = {"run_id": f"r{i}", "lane": "cpu", "node_id": node_id, "duration_s": duration_s}
            row |= {"outcome": "failed" if has_failed else "passed"}
            executions.append(row | {"failure_class": "test" if has_failed else ""})
    HistoryStore(tmp_path / "history").append(
        executions=frame_of(EXECUTIONS, executions),
        runs=frame_of(RUNS, runs),
        changes=frame_of(CHANGES, []),
        digest="ab" * 32,
    )
    return tmp_path / "history"


def test_replay_prints_the_table_that_was_reviewed(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--prediction", "--history", str(history), "--no-model", "--root", str(tmp_path)]
    assert main(["replay", *words]) == 0
    assert capsys.readouterr().out == GOLDEN.read_text(encoding="utf-8")


def test_history_too_small_for_a_model_still_gives_a_table(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--prediction", "--history", str(history), "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "no row lightgbm: training 1 of 7: " in out
    assert "\nlightgbm " not in out
    assert "\noptimal " in out
