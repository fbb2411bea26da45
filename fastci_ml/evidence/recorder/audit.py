"""The one audit hook of this process: it cannot be taken out again, only left without work."""

from __future__ import annotations

import sys

from fastci_ml.evidence.recorder.transparent import transparent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Handler = Callable[[tuple[Any, ...]], None]

_PROBE = "fastci_ml.probe"
_held: dict[str, tuple[Handler, ...]] = {}
# One for each event: what is frequent must not cost a loop.
_handlers: dict[str, Handler] = {}
_is_installed = False


def add_handlers(handlers: Mapping[str, Handler]) -> None:
    """Call functions of ours when the interpreter reports events; they must not raise.

    Parameters
    ----------
    handlers : mapping of str to callable
        By the name of the event, as in the audit events table of Python's documentation; called with the
        tuple of its arguments.

    Raises
    ------
    RuntimeError
        If another hook does not let ours in.
    """
    _install()
    for event, handler in handlers.items():
        _hold(event, (*_held.get(event, ()), handler))


def remove_handlers(handlers: Mapping[str, Handler]) -> None:
    """Call them no more; without any, an event costs one look into a dict."""
    for event, handler in handlers.items():
        _hold(event, tuple(held for held in _held.get(event, ()) if held is not handler))


def _hold(event: str, handlers: tuple[Handler, ...]) -> None:
    _held[event] = handlers
    if len(handlers) > 1:
        _handlers[event] = _one_by_one(handlers)
    elif handlers:
        _handlers[event] = handlers[0]
    else:
        _handlers.pop(event, None)


def _one_by_one(handlers: tuple[Handler, ...]) -> Handler:
    def call(arguments: tuple[Any, ...]) -> None:
        for handler in handlers:
            handler(arguments)

    return call


def _install() -> None:
    global _is_installed
    if _is_installed:
        return
    get = _handlers.get

    # A closure, not globals: it is called while the interpreter shuts down and has cleared our module.
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        handler = get(event)
        if handler is not None:
            handler(arguments)

    sys.addaudithook(transparent(hook))
    # A hook that refuses ours does so in silence.
    heard: list[tuple[Any, ...]] = []
    _handlers[_PROBE] = heard.append
    sys.audit(_PROBE)
    del _handlers[_PROBE]
    if not heard:
        raise RuntimeError("another audit hook of this process refuses ours")
    _is_installed = True
