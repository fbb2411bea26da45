"""Ranks for the tests: kept warm from test to test, or started anew by torchrun for every run.

Both launchers run a function on some ranks, with a process group of its own, and return what rank 0 returned.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WORKER = Path(__file__).with_name("rank.py")
# A rank that failed leaves the others waiting for it: they get this long to fail as well.
GRACE_S = 3.0


class RankError(Exception):
    """A rank raised, died or did not finish; the message holds its traceback and the end of its output."""


@dataclass(frozen=True)
class Job:
    """A function to run on every rank, with the test that asks for it."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    world: int
    test: str
    store: Path  # file through which the ranks find each other


@dataclass
class Rank:
    """One warm process."""

    process: subprocess.Popen[bytes]
    connection: Connection
    output: Path

    def tail(self) -> str:
        """Return the end of what the process wrote."""
        return self.output.read_text(errors="replace")[-4000:]


def rank_environment() -> dict[str, str]:
    """Return the environment of ranks: they share few cores, so a thread each."""
    root = WORKER.parent.parent
    path = os.pathsep.join([str(root), str(WORKER.parent), os.environ.get("PYTHONPATH", "")]).rstrip(
        os.pathsep
    )
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


@dataclass
class Pool:
    """Processes that are started once, and replaced when one of them fails."""

    folder: Path  # for sockets and what ranks print
    ranks: list[Rank] = field(default_factory=list)
    n_started: int = 0  # processes in the life of the pool
    start_s: float = 0.0  # spent in starting them

    def run(self, job: Job, timeout_s: float) -> Any:
        """Run `job` and return what its rank 0 returned.

        Raises
        ------
        RankError
            If any rank failed. When the others could not end by themselves, all ranks are replaced.
        """
        self._start(job.world)
        ranks = self.ranks[: job.world]
        for number, rank in enumerate(ranks):
            rank.connection.send_bytes(pickle.dumps((job, number)))
        results: dict[int, Any] = {}
        errors: dict[int, str] = {}
        waiting = {rank.connection: number for number, rank in enumerate(ranks)}
        deadline = time.monotonic() + timeout_s
        while waiting and (ready := wait(list(waiting), max(0.0, deadline - time.monotonic()))):
            for connection in ready:
                assert isinstance(connection, Connection)
                number = waiting.pop(connection)
                kind, value = self._read(ranks[number])
                if kind == "returned":
                    results[number] = value
                else:
                    errors[number] = f"rank {number} {kind}\n{value}"
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        silent = sorted(set(range(job.world)) - set(results) - set(errors))
        if silent and not errors:
            errors = {number: self._stack(number, timeout_s) for number in silent}
        if silent or any(rank.process.poll() is not None for rank in ranks):
            self._kill()
        if errors:
            raise RankError("\n".join(errors[number] for number in sorted(errors)))
        return results[0]

    def close(self) -> None:
        """Let all processes end; the next run starts new ones."""
        for rank in self.ranks:
            rank.connection.close()
        deadline = time.monotonic() + GRACE_S
        with contextlib.suppress(subprocess.TimeoutExpired):
            for rank in self.ranks:
                rank.process.wait(max(0.0, deadline - time.monotonic()))
        self._kill()

    def _kill(self) -> None:
        """End all processes at once."""
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
            rank.connection.close()
        self.ranks.clear()

    @staticmethod
    def _read(rank: Rank) -> tuple[str, Any]:
        """Return what became of the job on a rank that has answered or died."""
        try:
            answer: tuple[str, Any] = pickle.loads(rank.connection.recv_bytes())
        except (EOFError, ConnectionError):
            return f"died with exit code {rank.process.wait()}", rank.tail()
        return answer

    def _stack(self, number: int, timeout_s: float) -> str:
        """Ask a silent rank where it is."""
        rank = self.ranks[number]
        with contextlib.suppress(ProcessLookupError):
            rank.process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
        return f"rank {number} did not finish in {timeout_s:g} s; it was at\n{rank.tail()}"

    def _start(self, n_ranks: int) -> None:
        n_missing = n_ranks - len(self.ranks)
        if n_missing <= 0:
            return
        started = time.monotonic()
        address = str(self.folder / f"socket-{self.n_started}")
        with Listener(address) as listener:
            processes = {}
            for _ in range(n_missing):
                output = self.folder / f"output-{self.n_started}"
                with output.open("wb") as file:
                    process = subprocess.Popen(
                        [sys.executable, WORKER, "pool", address],
                        env=rank_environment(),
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                    )
                processes[process.pid] = (process, output)
                self.n_started += 1
            for _ in range(n_missing):
                connection = listener.accept()
                process, output = processes[pickle.loads(connection.recv_bytes())]
                self.ranks.append(Rank(process, connection, output))
        self.start_s += time.monotonic() - started


@dataclass
class Torchrun:
    """A torchrun for every run, as users start it."""

    folder: Path  # for jobs and answers
    n_jobs: int = 0
    start_s: float = 0.0  # starting is a part of every test here

    def run(self, job: Job, timeout_s: float) -> Any:
        """Run `job` and return what its rank 0 returned; raises `RankError` as `Pool` does."""
        self.n_jobs += 1
        folder = self.folder / f"job-{self.n_jobs}"
        folder.mkdir()
        (folder / "job").write_bytes(pickle.dumps(job))
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.world}",
            str(WORKER), "torchrun", str(folder),
        ]  # fmt: skip
        # A group of its own, so that the ranks go when the launcher must.
        process = subprocess.Popen(
            command,
            env=rank_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            # Starting takes seconds that are not the test's.
            output, _ = process.communicate(timeout=timeout_s + 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise RankError(
                f"torchrun did not finish in {timeout_s + 60:g} s\n{output.decode()[-4000:]}"
            ) from None
        answers = [pickle.loads(path.read_bytes()) for path in sorted(folder.glob("answer-*"))]
        errors = [answer for kind, answer in answers if kind == "raised"]
        if process.returncode or errors:
            raise RankError("\n".join(errors) or f"torchrun failed\n{output.decode()[-4000:]}")
        return answers[0][1]

    def close(self) -> None:
        """Nothing is kept."""
