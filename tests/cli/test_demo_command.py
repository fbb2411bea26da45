from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastci_ml.cli import app

CHECKOUT = Path(__file__).parents[2]


def test_folder_that_is_in_use_is_refused(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert app.main(["demo", "--root", str(CHECKOUT), "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


def test_elsewhere_than_in_a_checkout_it_says_so(tmp_path, capsys):
    assert app.main(["demo", "--root", str(tmp_path)]) == 3
    assert "expected a checkout of fastci-ml" in capsys.readouterr().err


@pytest.mark.slow
def test_demo_ends_in_a_plan_that_ran_an_outcome_and_the_replay_table(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FASTCI_")}
    done = subprocess.run(
        [sys.executable, "-m", "fastci_ml", "demo", "--keep", str(tmp_path / "kept")],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("$ fastci-ml ")]
    assert [line.split()[2] for line in steps] == [
        "ingest", "status", "train", "rank", "run", "outcome", "models", "replay",
    ]  # fmt: skip
    assert " failed" in done.stdout, "the fault of the demo is one that a test notices"
    assert (tmp_path / "kept" / "repo" / "plan.json").exists()
