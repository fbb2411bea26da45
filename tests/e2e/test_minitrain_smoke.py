"""The example that everything is tried on still trains: its smoke tests, as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

MINITRAIN = Path(__file__).parents[2] / "examples" / "minitrain"


def test_smoke_tests_of_minitrain_pass() -> None:
    """In a process of its own: its ranks, its markers and its settings are not those of this suite."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "smoke", "-p", "no:cacheprovider"],
        cwd=MINITRAIN,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    passed = re.search(r"^(\d+) passed", found.stdout, re.MULTILINE)
    assert passed, found.stdout
    assert int(passed[1]) >= 10
