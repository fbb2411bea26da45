"""What children cost: one that does next to nothing, one fork, and a suite that starts five hundred."""

from __future__ import annotations

import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

from record.suites import Suite, make_repository

from fastci_ml.evidence.recorder.family import VARIABLE, Family

_SMALL_CHILDREN = 40
_LIBRARY = "def work():\n    return 1\n"
_ROWS = """
import torch


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return make(index)


def make(index):
    return torch.full((32, 32), float(index)) @ torch.ones(32, 32)


def rank(number):
    model = torch.nn.Linear(64, 64)
    for _ in range(20):
        model(torch.ones(8, 64)).sum().backward()
"""
# 100 x 4 + 20 x 2 + 10 x 4 + 20: what suites of training frameworks start, and each of them loads torch but
# the last twenty.
_TESTS = """
import multiprocessing
import subprocess
import sys

import pytest
import rows
import torch


@pytest.mark.parametrize("number", range(100))
def test_loader(number):
    for batch in torch.utils.data.DataLoader(rows.Rows(), batch_size=8, num_workers=4):
        assert batch.shape == (8, 32, 32)


@pytest.mark.parametrize("number", range(20))
def test_spawned_ranks(number):
    torch.multiprocessing.spawn(rows.rank, nprocs=2)


@pytest.mark.parametrize("number", range(10))
def test_programs(number):
    code = "import rows; rows.rank(0)"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [child.wait() for child in running] == [0] * 4


@pytest.mark.parametrize("number", range(20))
def test_small_program(number):
    subprocess.run([sys.executable, "-c", "import small; small.work()"], check=True)
"""
N_CHILDREN = 100 * 4 + 20 * 2 + 10 * 4 + 20


def suite_of_children(folder: Path) -> Suite:
    """A suite that starts `N_CHILDREN` processes."""
    root = folder / "children"
    root.mkdir()
    (root / "small.py").write_text(_LIBRARY)
    (root / "rows.py").write_text(_ROWS)
    (root / "test_children.py").write_text(_TESTS)
    (root / "fastci.toml").write_text("")
    make_repository(root)
    return Suite(name="children", root=root, options=(), code=".")


def cost_of_child(python: Path) -> float:
    """CPU milliseconds that recording adds to a child which imports one module and calls one function."""
    with tempfile.TemporaryDirectory(prefix="bench-child-") as name:
        root = Path(name).resolve()
        (root / "small.py").write_text(_LIBRARY)
        texts = dict.fromkeys(("project", "session_id", "lane", "scope", "commit", "tree", "job"), "")
        lists = dict.fromkeys(("outside", "environ_prefixes", "skipped", "trusted", "flushed"), ())
        family = Family(top=str(root), bundles=str(root / "bundles"), parent="0", limit=0, **texts, **lists)
        plain = Suite(name="child", root=root, options=(), code=".").environ()
        recorded = {**plain, VARIABLE: family.as_text()}
        command = [str(python), "-c", "import small; small.work()"]
        # The first pair fills the caches of byte code.
        added = [
            _cpu_ms(command, root, recorded) - _cpu_ms(command, root, plain) for _ in range(_SMALL_CHILDREN)
        ]
        n_bundles = len(list((root / "bundles").glob("*.fastci-bundle")))
        if n_bundles != _SMALL_CHILDREN:
            raise SystemExit(
                f"{python}: {n_bundles} of {_SMALL_CHILDREN} children recorded: is the hook installed?"
            )
    return statistics.median(added[1:])


def _cpu_ms(command: list[str], folder: Path, environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environ, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
