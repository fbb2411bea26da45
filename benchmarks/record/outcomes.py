"""pytest plugin of the benchmarks: write the outcome of each test to the file that ``BENCH_OUTCOMES`` names.

Cheaper than a report of pytest's own, so that it takes no part in what is measured.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

_words: dict[str, list[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One phase of one test."""
    word = report.outcome
    if hasattr(report, "wasxfail"):
        word = "xpassed" if report.passed else "xfailed"  # type: ignore[assignment]
    _words.setdefault(report.nodeid, []).append(f"{report.when}:{word}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """One file that could not be collected."""
    if not report.passed:
        _words.setdefault(report.nodeid, []).append(f"collect:{report.outcome}")


def pytest_unconfigure() -> None:
    """Write all, with what the process says of dynamo's graph breaks where torch is loaded."""
    counters = {}
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        counters = {name: dict(dynamo.counters[name]) for name in ("graph_break", "unimplemented", "frames")}
    found = {"outcomes": {name: " ".join(words) for name, words in _words.items()}, "dynamo": counters}
    Path(os.environ["BENCH_OUTCOMES"]).write_text(json.dumps(found))
