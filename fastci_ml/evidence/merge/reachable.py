"""What can be reached in a graph with cycles, as bits: in time linear in nodes and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def settle(
    start: str,
    successors: Callable[[str], Iterable[str]],
    mask_of: Callable[[str], int],
    settled: dict[str, int],
) -> None:
    """For a node and all that can be reached from it, the bits of what can be reached.

    Parameters
    ----------
    start : str
        Not settled yet.
    successors, mask_of : callable
        Nodes one step on; bits of a node itself.
    settled : dict of str to int
        Filled; nodes that are in it are not gone into again.

    Notes
    -----
    Tarjan, SIAM J. Comput. 1(2), 1972, with a stack of our own: each node and each step once, however deep.
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    gathered: dict[str, int] = {}
    component: list[str] = []
    path = [(start, iter(successors(start)))]
    order[start] = lowest[start] = 0
    gathered[start] = mask_of(start)
    component.append(start)
    while path:
        node, following = path[-1]
        for other in following:
            if other in settled:
                gathered[node] |= settled[other]
            elif other in order:
                # Not settled, so it stands on the stack: part of a cycle.
                lowest[node] = min(lowest[node], order[other])
            else:
                order[other] = lowest[other] = len(order)
                gathered[other] = mask_of(other)
                component.append(other)
                path.append((other, iter(successors(other))))
                break
        else:
            path.pop()
            if lowest[node] == order[node]:
                _close(node, component, gathered, settled)
            if path:
                above = path[-1][0]
                lowest[above] = min(lowest[above], lowest[node])
                gathered[above] |= gathered[node]


def _close(node: str, component: list[str], gathered: dict[str, int], settled: dict[str, int]) -> None:
    """Settle a node and what was found since it that is in a cycle with it: all reach the same."""
    members = [component.pop()]
    while members[-1] != node:
        members.append(component.pop())
    for member in members:
        settled[member] = gathered[node]
