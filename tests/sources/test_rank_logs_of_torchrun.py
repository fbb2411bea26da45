"""Real pytest runs a test that runs real torchrun; ingest asks the logs of its ranks why it failed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fastci_ml.records.frames import EXECUTIONS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.ingest import IngestOptions, ingest_paths

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

TRAIN = """
import os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main(what):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 1:
        if what == "assert":
            assert rank == 0, "rank is not 0"
        elif what == "kill":
            os.kill(os.getpid(), 9)
        elif what == "disk":
            with open("/dev/full", "w") as file:
                file.write("x" * 100_000)
        elif what == "barrier":
            time.sleep(60)
    if what == "barrier":
        dist.monitored_barrier(timeout=timedelta(seconds=2))
    dist.all_reduce(torch.ones(1))

main(sys.argv[1])
"""
TEST = """
import subprocess, sys

def test_train():
    with open("logs/launcher.log", "wb") as log:
        subprocess.run(
            [{torchrun!r}, "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "{port}",
             "--log-dir", "logs", "--redirects", "3", "train.py", "{what}"],
            check=True, stdout=log, stderr=log,
        )
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("what", "failure_class", "rule", "cause"),
    [
        ("assert", "test", "assertion", "(rank 1: AssertionError: rank is not 0)"),
        pytest.param("kill", "crash", "killed", "(rank 1: exit status -9)", marks=pytest.mark.slow),
        pytest.param(
            "disk",
            "infrastructure",
            "disk-full",
            "(rank 1: OSError: [Errno 28] No space left on device)",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(
                    not Path("/dev/full").exists(), reason="needs a device that is always full"
                ),
            ],
        ),
        pytest.param("barrier", "timeout", "collective-timeout", "(rank 0: ", marks=pytest.mark.slow),
    ],
)
def test_the_logs_of_all_ranks_explain_a_child_that_failed(
    tmp_path: Path, what: str, failure_class: str, rule: str, cause: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    (tmp_path / "test_it.py").write_text(TEST.format(torchrun=torchrun, port=free_port(), what=what))
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "PYTHONWARNINGS")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=j.xml",
        "--rootdir=.",
    ]
    subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, timeout=180)
    document = {"schema": "fastci.run/1", "run_id": "r", "logs": {"test_it.py::test_train": "logs"}}

    def ingest(name: str) -> dict[str, str]:
        store = HistoryStore(tmp_path / name)
        options = IngestOptions(lane="cpu", collected=["test_it.py::test_train"])
        report = ingest_paths(store, [tmp_path / "j.xml"], options)
        assert (report.n_executions, report.problems) == (1, [])
        (row,) = store.scan(EXECUTIONS).to_pylist()
        return row

    alone = ingest("alone")
    assert (alone["failure_class"], alone["failure_rule"]) == ("test", "child-failed")
    (tmp_path / "run.json").write_text(json.dumps(document))
    row = ingest("with-logs")
    assert (row["failure_class"], row["failure_rule"]) == (failure_class, rule), row["message"]
    assert row["message"].startswith("subprocess.CalledProcessError: Command")
    assert cause in row["message"]
