"""Cheap CI for LLM training frameworks that lets no failure through.

Importing the package costs nothing: each public name is loaded when it is first used.
"""

from __future__ import annotations

# Each child of a recorded test loads this: even `typing` would take longer than the rest of it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Public name -> module that defines it.
_EXPORTS = {
    "EvidenceStore": "fastci_ml.evidence.store.store",
    "FastCIError": "fastci_ml.errors",
    "HistoryStore": "fastci_ml.sources.history.store",
    "ModelBundle": "fastci_ml.learn.bundle",
    "Plan": "fastci_ml.records.plans",
    "Repository": "fastci_ml.sources.git.repository",
    "Settings": "fastci_ml.settings",
    "SimplePolicy": "fastci_ml.learn.policies",
    "apfd": "fastci_ml.metrics.ordering",
    "apfdc": "fastci_ml.metrics.ordering",
    "build_log": "fastci_ml.features.log",
    "build_matrix": "fastci_ml.features.matrix",
    "load_settings": "fastci_ml.settings",
    "loads_plan": "fastci_ml.records.plan_reader",
    "merge_bundles": "fastci_ml.evidence.merge.merge",
    "napfd": "fastci_ml.metrics.ordering",
    "recall_at_budget": "fastci_ml.metrics.ordering",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
