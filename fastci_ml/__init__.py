"""Cheap CI for LLM training frameworks that lets no failure through.

Importing the package costs nothing: each public name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name -> module that defines it.
_EXPORTS = {
    "FastCIError": "fastci_ml.errors",
    "Settings": "fastci_ml.settings",
    "load_settings": "fastci_ml.settings",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
