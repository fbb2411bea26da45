"""Frames of ours that stand between those of a program, and must not be noticed there."""

from __future__ import annotations

from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

# Frames of this name are left out by all who look at a stack for the program's own: `import` takes them out
# of tracebacks, `warnings` does not count them in `stacklevel`, pytest does not show them, coverage does not
# measure them, and torch.compile does not try to compile them.
_INTERPRETERS_OWN = "<frozen importlib._bootstrap_external>"

_renamed: dict[CodeType, CodeType] = {}


def transparent(function: _Function) -> _Function:
    """The same function, with its frames named as those of the interpreter's own import system."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    # Functions that are made again and again share one code object.
    renamed = _renamed.get(code)
    if renamed is None:
        renamed = _renamed[code] = code.replace(co_filename=_INTERPRETERS_OWN)
    function.__code__ = renamed
    return function
