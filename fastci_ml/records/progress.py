"""How long work tells that it is alive, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

# Called with what is being done, how much is done, and the total (0 when unknown).
ProgressHook = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Tell nobody: the default of every `progress` argument."""
