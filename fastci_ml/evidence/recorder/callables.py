"""Where a callable comes from, through the layers of decorators around it."""

from __future__ import annotations

import functools
import sys
from types import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from fastci_ml.evidence.recorder.project_files import ProjectFiles


# The type of every cache of `functools`.
CacheType: Any = functools._lru_cache_wrapper  # noqa: SLF001  it has no public name
_FUNCTOOLS = functools.cache.__code__.co_filename
_MAX_LAYERS = 16


def label_of(function: Any, frame: FrameType | None, files: ProjectFiles) -> str | None:
    """Path and name of a callable, if it or who decorates it is in the repository.

    Parameters
    ----------
    function : callable
        Looked at, never called.
    frame : frame, optional
        Where it is being decorated.
    files : ProjectFiles
        What belongs to the repository.
    """
    for file, name in _layers(function):
        path = files.relative(file)
        if path is not None:
            return f"{path}::{name}"
    while frame is not None and frame.f_code.co_filename == _FUNCTOOLS:
        frame = frame.f_back
    path = None if frame is None else files.relative(frame.f_code.co_filename)
    if frame is None or path is None:
        return None
    return f"{path}::{frame.f_code.co_qualname}:{frame.f_lineno}"


def _layers(function: Any) -> list[tuple[str, str]]:
    """File and name of a callable, and of those inside it."""
    found: list[tuple[str, str]] = []
    for _ in range(_MAX_LAYERS):
        if isinstance(function, FunctionType):
            found.append((function.__code__.co_filename, function.__code__.co_qualname))
            function = vars(function).get("__wrapped__")
        elif isinstance(function, MethodType | staticmethod | classmethod):
            function = function.__func__
        elif isinstance(function, functools.partial):
            function = function.func
        elif type(function) is CacheType:
            function = vars(function).get("__wrapped__")
        else:
            break
    if function is not None:
        made_by = function if isinstance(function, type) else type(function)
        module = sys.modules.get(str(vars(made_by).get("__module__")))
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str):
            found.append((file, made_by.__qualname__))
    return found
