import subprocess
import sys
from pathlib import Path

import pytest
import work

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent


def _command(*arguments):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*launcher, *arguments]


def _torchrun(*arguments):
    return subprocess.run(_command(*arguments), cwd=HERE, timeout=120, capture_output=True, text=True)


def check_two_ranks():
    done = _torchrun("ranks.py", "meets")
    assert done.returncode == 0, done.stderr


def check_rank_that_is_killed():
    done = _torchrun("ranks.py", "dies")
    assert done.returncode != 0


def check_hung_ranks_are_ended():
    process = subprocess.Popen(_command("ranks.py", "hangs"), cwd=HERE, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(15)
    # The launcher ends its ranks by SIGTERM, and would wait long for one that does not end.
    process.terminate()
    assert process.wait(60) != 0


def check_data_loader():
    loader = torch.utils.data.DataLoader(work.Rows(), num_workers=2)
    assert [int(item) for item in loader] == [0, 1, 2, 3]


def check_data_loader_that_spawns():
    loader = torch.utils.data.DataLoader(work.Rows(), num_workers=1, multiprocessing_context="spawn")
    assert [int(item) for item in loader] == [0, 1, 2, 3]


def _rank(rank):
    work.by_rank_of(rank)


def check_spawned_ranks():
    torch.multiprocessing.spawn(_rank, nprocs=2)
