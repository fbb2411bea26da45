"""What blocks are called, apart from where they stand."""

from __future__ import annotations


def simple_name(name: str) -> str:
    """Last part of a block's name, without the mark of repetition.

    Examples
    --------
    >>> simple_name("A.step"), simple_name("f.<locals>.g#2")
    ('step', 'g')
    """
    return name.rpartition(".")[2].partition("#")[0]


def is_special(name: str) -> bool:
    """Whether the language itself calls a method of this name."""
    return name.startswith("__") and name.endswith("__")
