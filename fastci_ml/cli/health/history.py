"""Whether a history and a model are there; what they hold is told by `status` and `models`."""

from __future__ import annotations

from collections.abc import Iterable

from fastci_ml.cli.health.finding import Finding, ok
from fastci_ml.settings import Settings

_TOPIC = "history"


def look_at_history(settings: Settings) -> Iterable[Finding]:
    """Findings about history, model and spool."""
    # Neither is needed to record and to run, so that nothing is wrong without them.
    n_parts = _n_files(settings, "history")
    if n_parts:
        yield ok(_TOPIC, "history", f"{settings.history_dir}: {n_parts:,} files; fastci-ml status")
    else:
        yield ok(_TOPIC, "history", f"{settings.history_dir}: none yet; fastci-ml ingest PATH")
    if _n_files(settings, "model"):
        yield ok(_TOPIC, "model", f"{settings.model_dir}: there; fastci-ml models")
    else:
        yield ok(_TOPIC, "model", f"{settings.model_dir}: none yet; fastci-ml train")
    n_waiting = _n_files(settings, "spool")
    if n_waiting:
        yield ok(_TOPIC, "spool", f"{n_waiting:,} outcomes wait for the server; fastci-ml models flush")


def _n_files(settings: Settings, what: str) -> int:
    folder = {"history": settings.history_dir, "model": settings.model_dir, "spool": settings.spool_dir}[what]
    return sum(path.is_file() for path in folder.rglob("*")) if folder.is_dir() else 0
