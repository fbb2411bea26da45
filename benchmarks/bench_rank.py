"""CPU seconds of a whole `fastci-ml rank` process, from its start to plan.json, git included.

The project: 10,000 tests in 500 files, a model trained on 60 runs, and 3 runs newer than the model that have
to be folded in. `cold_s_10k` plans a change of 4 files, `cold_s_10k_300_files` one of 300. Each figure is the
median of several processes. The ceiling printed beside them is a process that only imports what `rank` needs
(numpy, pyarrow, GitPython). The growth rows plan 2,500 to 10,000 tests; their slope is over what lies above
that ceiling.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from fastci_ml.features.log import build_log
from fastci_ml.features.matrix import build_matrix
from fastci_ml.learn.training import train
from fastci_ml.records.frames import CHANGES, EXECUTIONS, RUNS
from fastci_ml.sources.history.store import HistoryStore

LANE = "bench"
N_RUNS, N_NEWER, TESTS_PER_FILE, N_REPEATS = 60, 3, 20, 9
SIZES = (2500, 5000, 10_000)
IMPORTS = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, pyarrow.parquet, git.cmd"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        imports_s = cpu_seconds([sys.executable, "-c", IMPORTS], Path(name))
        print(json.dumps({"case": "imports", "cpu_s": imports_s}), flush=True)
        figures, above_s = {}, []
        for n_tests in SIZES:
            root = make_project(Path(name) / str(n_tests), n_tests)
            cpu_s = cpu_seconds(rank_command("few"), root)
            above_s.append(max(cpu_s - imports_s, 1e-3))
            print(json.dumps({"case": "growth", "n_tests": n_tests, "cpu_s": cpu_s}), flush=True)
        figures["cold_s_10k"] = cpu_s  # the largest is the last
        figures["cold_s_10k_300_files"] = cpu_seconds(rank_command("many"), root)
        slope = float(np.polyfit([math.log(n) for n in SIZES], [math.log(s) for s in above_s], 1)[0])
        print(json.dumps({"benchmark": "rank", **figures, "imports_s": imports_s, "slope": slope}))


def rank_command(base: str) -> list[str]:
    return [sys.executable, "-m", "fastci_ml", "rank", "--base", base, "--head", "main", "--lane", LANE]


def cpu_seconds(command: Sequence[str], cwd: Path) -> float:
    """Median user and system seconds of a process and its children; one run before them fills the caches.

    Python may cache bytecode, as it finds it cached where a package was installed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent = []
    for _ in range(N_REPEATS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(spent[1:])


def make_project(root: Path, n_tests: int) -> Path:
    """Make a repository with branches `few` and `many` behind `main`, its history and its model."""
    n_files = n_tests // TESTS_PER_FILE
    tests = [f"tests/part_{i // 50}/test_module_{i}.py" for i in range(n_files)]
    sources = [f"pkg/part_{i // 50}/module_{i}.py" for i in range(max(n_files, 400))]
    git(root.parent, "init", "--quiet", "--initial-branch=main", str(root))
    for path in (*tests, *sources):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("VALUE = 0\n")
    commit(root, "start")
    git(root, "branch", "many")
    for path in sources[4:300]:
        (root / path).write_text("VALUE = 1\n")
    commit(root, "many files")
    git(root, "branch", "few")
    for path in sources[:4]:
        (root / path).write_text("VALUE = 2\n")
    commit(root, "few files")
    store = HistoryStore(root / ".fastci" / "history")
    node_ids = [f"{path}::test_{i}" for path in tests for i in range(TESTS_PER_FILE)]
    add_runs(store, node_ids, sources, 0, N_RUNS)
    log = build_log(store)
    bundle = train(log, build_matrix(log), seed=0, created_at=datetime(2026, 2, 1, tzinfo=UTC))
    bundle.save(root / ".fastci" / "model")
    add_runs(store, node_ids, sources, N_RUNS, N_NEWER)
    return root


def add_runs(store: HistoryStore, node_ids: list[str], sources: list[str], start: int, n_runs: int) -> None:
    """Append runs in which a change to a source file fails some tests of the file of the same number."""
    rng = np.random.default_rng(start)
    usual_s = np.random.default_rng(1).lognormal(0, 1, len(node_ids))
    for run in range(start, start + n_runs):
        changed = rng.choice(len(sources), 4, replace=False)
        hit = np.isin(np.arange(len(node_ids)) // TESTS_PER_FILE, changed) & (rng.random(len(node_ids)) < 0.3)
        time = pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(hours=run)
        executions = pd.DataFrame({"node_id": node_ids}).assign(
            run_id=f"run-{run:04d}",
            job="",
            shard="",
            lane=LANE,
            attempt=0,
            outcome=np.where(hit, "failed", "passed"),
            failure_class=np.where(hit, "test", ""),
            started_at=time,
            finished_at=time,
            duration_s=usual_s * rng.uniform(0.9, 1.1, len(node_ids)),
            n_gpus=np.nan,
            gpu_s=np.nan,
            is_joined=True,
            message="",
            failure_rule="",
        )
        runs = pd.DataFrame({"run_id": [f"run-{run:04d}"]}).assign(
            job="", shard="", base="", head="", started_at=time, finished_at=time, source="benchmark"
        )
        changes = pd.DataFrame({"path": [sources[i] for i in sorted(changed)]}).assign(
            run_id=f"run-{run:04d}", old_path="", status="M", n_added=1.0, n_deleted=1.0
        )
        frames = [
            frame[list(schema.columns)].astype(
                {name: column.dtype for name, column in schema.columns.items()}
            )
            for frame, schema in ((executions, EXECUTIONS), (runs, RUNS), (changes, CHANGES))
        ]
        store.append(executions=frames[0], runs=frames[1], changes=frames[2], digest=f"{run:08x}")
    # One part, as a store looks after `fastci-ml history compact`; the newer runs stay apart.
    if start == 0:
        store.compact()


def git(cwd: Path, *arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "A U Thor", f"GIT_{role}_EMAIL": "author@example.org"}
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, env=environment)


def commit(root: Path, message: str) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)


if __name__ == "__main__":
    main()
