"""What a regular expression can cost at worst, and text without which it cannot match, read from its parts.

A pattern that takes at most so many steps at each place of a text takes time in proportion to the text,
whatever the text is. Python's matcher makes no such promise: ``(a+)+$`` on 40 letters takes years.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

# Steps at one place of the text that a pattern of a rule may take.
MOST_STEPS = 2_000
_BOUND = 10**9  # more than this is all the same
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "CATEGORY", "RANGE"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_LEAST_TEXT = 3


class _Cost(NamedTuple):
    """Of a part at one place: ways in which it can match, and steps to try them all."""

    ways: int
    steps: int


def most_steps(pattern: str) -> int:
    """Steps that `pattern` takes at most at one place of any text.

    Parameters
    ----------
    pattern : str
        A regular expression, as it would be compiled with ``re.MULTILINE``.

    Raises
    ------
    ValueError
        If there is no such bound: a repetition without an upper limit, or a reference back to a group. The
        message says which, and what to write instead.
    re.error
        If it is no regular expression.

    Examples
    --------
    >>> most_steps("No space left"), most_steps("host .{0,80} is down")
    (13, 734)
    >>> most_steps("(a+)+$")
    Traceback (most recent call last):
    ValueError: a repetition without an upper limit (* or + or {n,}): write .{0,200} for .*, ...
    """
    return min(_sequence(_parse(pattern)).steps, _BOUND)


def required_texts(pattern: str) -> frozenset[str]:
    r"""Texts of which every match holds at least one; empty where none can be told.

    Examples
    --------
    >>> sorted(required_texts(r"^(?:OSError|IOError): \[Errno 28\]"))
    [': [Errno 28]']
    >>> sorted(required_texts(r"DUE TO (?:PREEMPTION|NODE FAILURE)"))
    ['NODE FAILURE', 'PREEMPTION']
    >>> required_texts("(?i)disk full"), required_texts("[ab]+")
    (frozenset(), frozenset())
    """
    tree = _parse(pattern)
    if tree.state.flags & re.IGNORECASE:
        return frozenset()
    found = _required(tree)
    return found if found and _shortest(found) >= _LEAST_TEXT else frozenset()


def _parse(pattern: str) -> Any:
    # No public parser exists, and only the matcher's own is sure to agree with it.
    return import_module("re._parser").parse(pattern, re.MULTILINE)


def _sequence(parts: Sequence[Any]) -> _Cost:
    ways, steps = 1, 0
    for part in parts:
        cost = _part(part)
        steps = min(steps + ways * cost.steps, _BOUND)
        ways = min(ways * cost.ways, _BOUND)
    return _Cost(ways, steps)


def _part(part: Any) -> _Cost:
    kind, value = str(part[0]), part[1]
    if kind in _REPEATS:
        return _repeat(kind, *value)
    if kind in _SINGLE or kind == "AT":
        return _Cost(1, 1)
    if kind == "BRANCH":
        costs = [_sequence(branch) for branch in value[1]]
        return _Cost(sum(cost.ways for cost in costs), sum(max(cost.steps, 1) for cost in costs))
    if kind == "SUBPATTERN":
        return _sequence(value[-1])
    if kind == "ATOMIC_GROUP":
        return _Cost(1, _sequence(value).steps)
    if kind in ("ASSERT", "ASSERT_NOT"):
        return _Cost(1, max(_sequence(value[1]).steps, 1))
    raise ValueError("a reference back to a group, whose cost has no bound: write the text out")


def _repeat(kind: str, least: int, most: Any, item: Sequence[Any]) -> _Cost:
    if most is import_module("re._constants").MAXREPEAT:
        raise ValueError(
            "a repetition without an upper limit (* or + or {n,}): write .{0,200} for .*, "
            "[0-9]{1,9} for [0-9]+"
        )
    one = _sequence(item)
    ways, steps, reached = 0, 1, 1
    for times in range(most + 1):
        ways += reached if times >= least else 0
        if times < most:
            steps += reached * max(one.steps, 1)
            reached *= one.ways
        if steps >= _BOUND or ways >= _BOUND:
            break
    return _Cost(1 if kind == "POSSESSIVE_REPEAT" else min(ways, _BOUND), min(steps, _BOUND))


def _required(parts: Sequence[Any]) -> frozenset[str]:
    """The best choice among the parts of a sequence, each of which every match must go through."""
    choices: list[frozenset[str]] = []
    run: list[str] = []
    for part in [*parts, (None, None)]:
        if str(part[0]) == "LITERAL":
            run.append(chr(part[1]))
            continue
        if run:
            choices.append(frozenset({"".join(run)}))
            run = []
        choices.append(_required_of(part))
    return max((choice for choice in choices if choice), key=_shortest, default=frozenset())


def _required_of(part: Any) -> frozenset[str]:
    kind, value = str(part[0]), part[1]
    if kind == "SUBPATTERN":
        return frozenset() if value[1] & re.IGNORECASE else _required(value[-1])
    if kind == "ATOMIC_GROUP":
        return _required(value)
    if kind in _REPEATS and value[0] >= 1:
        return _required(value[2])
    if kind == "BRANCH":
        branches = [_required(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    return frozenset()


def _shortest(texts: frozenset[str]) -> int:
    return min(map(len, texts))
