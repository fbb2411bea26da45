"""One rank of the tests, as `pool` starts it: ``rank.py pool SOCKET`` or ``rank.py torchrun FOLDER``."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Client
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from minitrain.mesh import disconnect

if TYPE_CHECKING:
    from pool import Job


def answer(job: Job, rank: int) -> tuple[str, Any]:
    """Run the job and tell what came of it: ("returned", value) or ("raised", traceback)."""
    os.environ["PYTEST_CURRENT_TEST"] = f"{job.test} (call)"
    try:
        return "returned", job.function(*job.arguments)
    except Exception:  # noqa: BLE001  a border: the traceback goes to the test, which fails with it
        return "raised", traceback.format_exc()
    finally:
        del os.environ["PYTEST_CURRENT_TEST"]


def serve(address: str) -> None:
    """Do one job after the other until the tests end."""
    connection = Client(address)
    connection.send_bytes(pickle.dumps(os.getpid()))
    while True:
        try:
            job, rank = pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return
        if job.world > 1:
            store = dist.FileStore(str(job.store), job.world)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=job.world)
        result = answer(job, rank)
        if job.world > 1:
            disconnect()
        connection.send_bytes(
            pickle.dumps(result if rank == 0 or result[0] == "raised" else ("returned", None))
        )


def run_once(folder: Path) -> None:
    """Do the one job of a torchrun."""
    job = pickle.loads((folder / "job").read_bytes())
    rank = int(os.environ["RANK"])
    if job.world > 1:
        dist.init_process_group("gloo")
    result = answer(job, rank)
    (folder / f"answer-{rank:05d}").write_bytes(pickle.dumps(result))
    if job.world > 1 and result[0] == "returned":
        disconnect()
    sys.exit(result[0] == "raised")


if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    torch.set_num_threads(1)
    if sys.argv[1] == "pool":
        serve(sys.argv[2])
    else:
        run_once(Path(sys.argv[2]))
