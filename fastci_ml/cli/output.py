"""The only place that prints: answers to stdout, everything else to stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any


def answer(text: str) -> None:
    """Print the answer of a command for a person."""
    print(text)


def answer_json(document: Mapping[str, Any]) -> None:
    """Print the answer of a command for a machine: one object with a ``schema``; NaN becomes null."""
    # In ASCII, so that it is the same JSON whatever the encoding of stdout.
    print(json.dumps(_plain(document), allow_nan=False))


def tell(text: str) -> None:
    """Print progress, a note or a warning."""
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out text in columns: the first to the left, the others to the right."""
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        first, *others = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]))
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(line.rstrip() for line in lines)


class Progress:
    """A `ProgressHook` that draws on a terminal, and prints a line now and then elsewhere.

    Parameters
    ----------
    interval_s : float
        Least seconds between two lines where stderr is no terminal.
    """

    def __init__(self, interval_s: float = 5.0) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = 0.1 if self._is_terminal else interval_s
        self._last_s = 0.0
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say how far `what` is; a new `what` and the last step are always shown."""
        now_s = time.monotonic()
        is_due = what != self._what or done == total or now_s - self._last_s >= self._interval_s
        if not is_due:
            return
        self._what, self._last_s = what, now_s
        line = f"{what}: {done:,}/{total:,}" if total else f"{what}: {done:,}"
        if self._is_terminal:
            print(f"\r\033[K{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        else:
            tell(line)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar, without importing numpy to ask
        return _plain(value.item())
    return value
