"""Order tests by a plan without tearing apart what shares a costly fixture.

Each set-up of a fixture in the usual order is a span of tests. Spans that lie inside one another, or apart,
make a tree: its branches may change places and every span stays in one piece. Where two spans cross (a
parametrised session fixture and a module fixture, say), their parts keep the usual sequence, and the order is
free within each part. So the new order never needs more set-ups than the usual one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import pytest

from fastci_ml.execution.lifetimes import Span, find_spans

Key = tuple[int, str]
ItemT = TypeVar("ItemT", bound=pytest.Item)


def order_items(items: Sequence[ItemT], keys: Sequence[Key]) -> list[ItemT]:
    """Order tests by their keys, in groups that respect the scope of costly fixtures.

    Parameters
    ----------
    items : sequence of pytest.Item
        In the usual order.
    keys : sequence of (int, str)
        For each test its place in the plan and its node id, which breaks ties. Lower goes first; a group
        stands where its lowest key stands.

    Returns
    -------
    list of pytest.Item
        The same tests; the same input always gives the same order.
    """
    bound, spans = find_spans(items)
    # Tests without a costly fixture go to the end, outside of every span: there they are free.
    tied = set(bound)
    sequence = [*bound, *(place for place in range(len(items)) if place not in tied)]
    order = arrange(len(items), spans, [keys[place] for place in sequence])
    return [items[sequence[place]] for place in order]


def arrange(n: int, spans: Sequence[Span], keys: Sequence[Key]) -> list[int]:
    """Order the places 0..n-1 by their keys and keep every span contiguous.

    Parameters
    ----------
    n : int
        Number of places.
    spans : sequence of (int, int)
        Half-open ranges of places.
    keys : sequence, shape (n,)
        Lower goes first.

    Returns
    -------
    list of int
        A permutation of ``range(n)`` in which the members of each span stand side by side.

    Examples
    --------
    >>> arrange(5, [(1, 4)], [(3, "a"), (9, "b"), (5, "c"), (1, "d"), (2, "e")])
    [3, 2, 1, 4, 0]
    """
    return _by_best(_blocks(0, n, spans, keys), keys)


def _by_best(blocks: Iterable[list[int]], keys: Sequence[Key]) -> list[int]:
    ranked = sorted(blocks, key=lambda block: min(keys[place] for place in block))
    return [place for block in ranked for place in block]


def _blocks(start: int, stop: int, spans: Sequence[Span], keys: Sequence[Key]) -> Iterator[list[int]]:
    """Pieces of ``start..stop-1`` that may change places, each in its own order."""
    inner = [span for span in spans if span != (start, stop)]
    free = start
    for low, high, members in _components(inner):
        yield from ([place] for place in range(free, low))
        yield _ordered(low, high, members, keys)
        free = high
    yield from ([place] for place in range(free, stop))


def _ordered(start: int, stop: int, spans: Sequence[Span], keys: Sequence[Key]) -> list[int]:
    """Order of one connected piece."""
    if (start, stop) in spans:
        return _by_best(_blocks(start, stop, spans, keys), keys)
    # Nothing covers the piece, so spans cross in it: the parts between the cuts keep their sequence.
    order: list[int] = []
    for low, high in pairwise(_cuts(spans)):
        within = [span for span in spans if low <= span[0] and span[1] <= high]
        order += _ordered(low, high, [*within, (low, high)], keys)
    return order


def _components(spans: Sequence[Span]) -> list[tuple[int, int, list[Span]]]:
    """Spans that hang together by common places, with the range that they cover, ascending."""
    found: list[tuple[int, int, list[Span]]] = []
    for span in sorted(set(spans)):
        if found and span[0] < found[-1][1]:
            low, high, members = found[-1]
            members.append(span)
            found[-1] = (low, max(high, span[1]), members)
        else:
            found.append((*span, [span]))
    return found


def _cuts(spans: Sequence[Span]) -> list[int]:
    """Where to cut a piece so that each span is a sequence of whole parts, or lies inside one part."""
    cuts: set[int] = set()
    reach = -1
    for low, high in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if high > reach:  # no other span holds this one
            cuts |= {low, high}
            reach = high
    ordered = sorted(cuts)
    while torn := [span for span in spans if not cuts.issuperset(span) and _is_cut(span, ordered)]:
        cuts.update(*torn)
        ordered = sorted(cuts)
    return ordered


def _is_cut(span: Span, cuts: Sequence[int]) -> bool:
    return bisect_right(cuts, span[0]) < bisect_left(cuts, span[1])
