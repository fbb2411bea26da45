"""Whether a process id that NVML lists is one of ours: of a process tree, in this pid namespace."""

from __future__ import annotations

from pathlib import Path

_MPS_SERVER = "nvidia-cuda-mps"  # the kernel keeps 15 characters of a name
# A parent may end or change while the chain is read; no real chain is this long.
_LONGEST_CHAIN = 64


class Lineage:
    """Descent of processes from one root, asked for one id at a time.

    Reading a handful of ``/proc/<pid>/stat`` costs microseconds; listing the whole tree would cost
    milliseconds on a machine with many processes.

    Parameters
    ----------
    root_pid : int
        Top of the tree.
    proc : Path
        The proc file system.
    """

    def __init__(self, root_pid: int, proc: Path = Path("/proc")) -> None:
        self.root_pid = root_pid
        self._proc = proc
        # A child keeps its place when its parent ends and init adopts it: pid -> start time.
        self._ours: dict[int, str] = {}

    def belongs(self, pid: int) -> bool | None:
        """Tell whether `pid` is the root or descends from it; None if no such process is to be seen here."""
        first = self._stat(pid)
        if first is None:
            return None
        if self._ours.get(pid) == first[1]:
            return True
        current = pid
        stat: tuple[int, str] | None = first
        for _ in range(_LONGEST_CHAIN):
            if current == self.root_pid:
                self._ours[pid] = first[1]
                return True
            if stat is None or current <= 1:
                return False
            current = stat[0]
            stat = self._stat(current)
        return False

    def is_mps_server(self, pid: int) -> bool:
        """Tell whether `pid` computes for other processes: CUDA's multi-process service."""
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").startswith(_MPS_SERVER)
        except OSError:
            return False

    def _stat(self, pid: int) -> tuple[int, str] | None:
        """Parent and start time of a process."""
        try:
            text = (self._proc / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The name stands in brackets and may hold blanks and brackets itself.
        fields = text.rpartition(")")[2].split()
        try:
            return int(fields[1]), fields[19]
        except (IndexError, ValueError):
            return None
