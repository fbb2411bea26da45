"""The launchers: a rank that raises, dies or hangs fails its own test, with what it was doing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from pool import Job, Pool, RankError, Torchrun

from minitrain.recipes import recipe
from minitrain.trainer import run as train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minitrain.config import Config


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    made = Pool(tmp_path_factory.mktemp("ranks"))
    yield made
    made.close()


def job(tmp_path: Path, function: Callable[..., object], *arguments: object) -> Job:
    return Job(function, arguments, 2, "tests/x.py::test_x", tmp_path / f"store-{time.monotonic_ns()}")


def tell(value: str) -> dict[str, object]:
    total = torch.ones(1)
    dist.all_reduce(total)
    return {
        "value": value,
        "ranks": float(total),
        "rank": dist.get_rank(),
        "process": os.getpid(),
        "test": os.environ["PYTEST_CURRENT_TEST"],
    }


def fail(failing: list[int], way: str) -> None:
    """Fail on some ranks; the others wait for them."""
    if dist.get_rank() not in failing:
        dist.all_reduce(torch.ones(1))
    elif way == "raise":
        raise ValueError(f"rank {dist.get_rank()} has had enough")
    elif way == "die":
        os._exit(7)
    else:
        time.sleep(60)


def test_ranks_stay_warm_and_know_the_test(pool: Pool, tmp_path: Path) -> None:
    first, second = (pool.run(job(tmp_path, tell, value), 60) for value in ("a", "b"))
    assert (first["value"], second["value"]) == ("a", "b")
    assert first["rank"] == second["rank"] == 0
    assert first["ranks"] == second["ranks"] == 2
    assert first["process"] == second["process"] != os.getpid()
    assert first["test"] == "tests/x.py::test_x (call)"


def threads_after_training(config: Config) -> int:
    train(config)
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads of C++ are counted in /proc")
def test_warm_ranks_keep_no_process_group_of_a_trainer(pool: Pool, tmp_path: Path) -> None:
    """A group has threads of its own, which spin once the other ranks have left it."""
    places = [f"run.dir={tmp_path}/run", f"data.dir={tmp_path}/data"]
    config = recipe("tiny", ["parallel.tp=2", "run.steps=3", "run.eval_every=0", *places])
    counts = {pool.run(job(tmp_path, threads_after_training, config), 60) for _ in range(3)}
    assert len(counts) == 1


def test_error_on_all_ranks_is_told_and_the_ranks_stay(pool: Pool, tmp_path: Path) -> None:
    pool.run(job(tmp_path, tell, "warm"), 60)
    n_started = pool.n_started
    with pytest.raises(
        RankError, match=r"rank 0 raised\n(.|\n)*rank 1 raised\nTraceback(.|\n)*rank 1 has had enough"
    ):
        pool.run(job(tmp_path, fail, [0, 1], "raise"), 60)
    assert pool.run(job(tmp_path, tell, "next"), 60)["ranks"] == 2
    assert pool.n_started == n_started


@pytest.mark.parametrize(
    ("failing", "way", "timeout_s", "message"),
    [
        ([1], "raise", 60, r"rank 1 raised\nTraceback (.|\n)*rank 1 has had enough"),
        ([0], "die", 60, r"rank 0 died with exit code 7"),
        ([0, 1], "hang", 1, r"rank 1 did not finish in 1 s; it was at\n(.|\n)*in fail"),
    ],
)
def test_failure_is_told_and_the_next_test_gets_sound_ranks(
    failing: list[int], way: str, timeout_s: float, message: str, pool: Pool, tmp_path: Path
) -> None:
    before = pool.run(job(tmp_path, tell, "before"), 60)
    started = time.monotonic()
    with pytest.raises(RankError, match=message):
        pool.run(job(tmp_path, fail, failing, way), timeout_s)
    assert time.monotonic() - started < 30
    after = pool.run(job(tmp_path, tell, "after"), 60)
    assert after["ranks"] == 2
    # A rank that raised leaves its group, so the others may soon raise too, and then all can go on.
    assert after["process"] != before["process"] or way == "raise"


def test_torchrun_returns_values_and_tells_errors(tmp_path: Path) -> None:
    launcher = Torchrun(tmp_path)
    found = launcher.run(job(tmp_path, tell, "a"), 60)
    assert (found["value"], found["ranks"], found["rank"]) == ("a", 2, 0)
    with pytest.raises(RankError, match=r"rank \d has had enough"):
        launcher.run(job(tmp_path, fail, [0, 1], "raise"), 60)
