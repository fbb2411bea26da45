"""Statements that stand elsewhere than before: fingerprints alone do not tell."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from fastci_ml.records.evidence_kinds import BlockKind
from fastci_ml.sources.blocks.block import Block

_RUN_AT_ONCE = (BlockKind.BINDING, BlockKind.EFFECT)


def moved_blocks(before: Sequence[Block], after: Sequence[Block]) -> frozenset[str]:
    """Statements that were moved over others within one file.

    The order of imports decides where a circle of them breaks, that of other statements what they find
    bound. Functions and classes are not among them: what they do when they are made is in the statements
    around and in their decorators.

    Parameters
    ----------
    before, after : sequence of Block
        Blocks of two versions of a file, in file order.

    Returns
    -------
    frozenset of str
        The fewest names without which the rest, of those in both versions, stands in the same order.

    Examples
    --------
    >>> from fastci_ml.sources.blocks.reader import read_blocks
    >>> sorted(moved_blocks(*(read_blocks(text).blocks for text in (b"import a, b, c", b"import c, a, b"))))
    ['c']
    """
    places = {block.name: place for place, block in enumerate(before) if block.kind in _RUN_AT_ONCE}
    names = [block.name for block in after if block.kind in _RUN_AT_ONCE and block.name in places]
    # Longest rising run of old places, by patience sorting: `last[n]` ends the best one of n + 1 names.
    ends: list[int] = []
    last: list[str] = []
    came_from: dict[str, str | None] = {}
    for name in names:
        place = places[name]
        length = bisect_left(ends, place)
        came_from[name] = last[length - 1] if length else None
        ends[length : length + 1] = [place]
        last[length : length + 1] = [name]
    kept: set[str] = set()
    name_kept = last[-1] if last else None
    while name_kept is not None:
        kept.add(name_kept)
        name_kept = came_from[name_kept]
    return frozenset(names) - kept
