"""Folders as a CI leaves them: reports, run.json files, and their ingest into a history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.ingest import IngestOptions, IngestReport, ingest_paths

FAILURE = "<failure message='assert 0'/>"


def write_junit(path: Path, names: Sequence[str], *, inner: str = "", second: int = 0) -> Path:
    """Write a report of tests `t/test_a.py::NAME`; `second` makes its bytes its own."""
    cases = "".join(
        f"<testcase classname='t.test_a' file='t/test_a.py' name='{name}' time='1'>{inner}</testcase>"
        for name in names
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    told = f"timestamp='2026-01-01T00:00:{second:02d}' tests='{len(names)}' time='4'"
    path.write_text(f"<testsuite {told}>{cases}</testsuite>")
    return path


def write_run(folder: Path, **document: object) -> Path:
    """Write a run.json; the run is named like its folder unless it is told."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    told = {
        "schema": "fastci.run/1",
        "run_id": folder.name,
        "started_at": "2026-01-01T00:00:00+00:00",
        "finished_at": "2026-01-01T01:00:00+00:00",
        **document,
    }
    path.write_text(json.dumps(told))
    return path


def ingest(history: Path, *paths: Path, **options: object) -> IngestReport:
    """Ingest into the history in a folder."""
    return ingest_paths(
        HistoryStore(history),
        list(paths),
        IngestOptions(**{"lane": "cpu", **options}),  # type: ignore[arg-type]
    )


def outcomes(history: Path) -> dict[tuple[str, int], str]:
    """Outcome by (name of the test, attempt), of a history with one job."""
    frame = HistoryStore(history).read(EXECUTIONS)
    names = [node_id.rpartition("::")[2] for node_id in frame.node_id]
    return dict(zip(zip(names, frame.attempt.tolist(), strict=True), frame.outcome, strict=True))


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the real pytest there, with the plugins that are named: loading all would cost a second."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def ids(*names: str) -> list[str]:
    """Node ids of the tests of `write_junit`."""
    return [f"t/test_a.py::{name}" for name in names]
