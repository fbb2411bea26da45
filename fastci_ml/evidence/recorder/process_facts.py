"""What a child says of itself at its end."""

from __future__ import annotations

import sys
from os import environ, times
from os.path import basename
from time import time_ns

from fastci_ml.evidence.recorder.native import native_readers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastci_ml.evidence.recorder.collector import Collector

_MAX_COMMAND = 120
_open = open


class OwnFacts:
    """What `ProcessFacts` is, for a process that has no time to load dataclasses."""

    __slots__ = (
        "command",
        "cpu_s",
        "ended_us",
        "native_readers",
        "peak_rss_bytes",
        "rank",
        "recorder_s",
        "world_size",
    )

    def __init__(self, recorder_s: float, *, is_fork: bool) -> None:
        self.command = f"fork of {_summary()}" if is_fork else _summary()
        self.ended_us = time_ns() // 1000
        self.rank = _number("RANK")
        self.world_size = _number("WORLD_SIZE")
        self.cpu_s = round(sum(times()[:4]), 3)
        self.recorder_s = round(recorder_s, 4)
        self.peak_rss_bytes = _peak_rss_bytes()
        self.native_readers = native_readers()


def say_process(collector: Collector) -> None:
    """Write what this child is, and what it took."""
    facts = OwnFacts(collector.recorder_s, is_fork=collector.is_fork)
    collector.writer.add_process(facts)  # type: ignore[arg-type]  # what the writer asks for it has


def _summary() -> str:
    words = list(getattr(sys, "orig_argv", sys.argv))
    # Options of the interpreter, but for what says where the program is.
    while len(words) > 2 and words[1].startswith("-") and words[1] not in ("-c", "-m"):
        del words[1]
    shown = words[1:4] if "-c" not in words[1:2] else words[1:2]
    return " ".join(map(basename, [*words[:1], *shown]))[:_MAX_COMMAND]


def _number(name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _peak_rss_bytes() -> int | None:
    """Most memory that was held; None where the system does not tell."""
    try:
        with _open("/proc/self/status", "rb") as stream:
            text = stream.read()
    except OSError:
        return None
    _, mark, rest = text.partition(b"VmHWM:")
    words = rest.split(None, 2)
    return int(words[0]) * 1024 if mark and words else None
