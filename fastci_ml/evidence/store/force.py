"""Which records of one test, lane and scope are in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """A record, as far as it decides what is in force."""

    recorded_us: int
    is_complete: bool
    id: int


def in_force(claims: Sequence[Claim]) -> list[Claim]:
    """Records in force, of all that are there.

    Parameters
    ----------
    claims : sequence of Claim
        In the order in which they were written; of two of one time the later written counts as the newer.

    Returns
    -------
    list of Claim
        The newest complete one, and the newest incomplete one if it is newer than that: a run that was killed
        says that its test is incomplete, but not that what was known before is wrong. Because times decide,
        the order of merges does not.

    Examples
    --------
    >>> [claim.id for claim in in_force([Claim(5, True, 1), Claim(9, False, 2), Claim(7, False, 3)])]
    [1, 2]
    >>> [claim.id for claim in in_force([Claim(5, True, 1), Claim(9, False, 2), Claim(9, True, 3)])]
    [3]
    """
    best: dict[bool, Claim] = {}
    for claim in claims:
        known = best.get(claim.is_complete)
        if known is None or claim.recorded_us >= known.recorded_us:
            best[claim.is_complete] = claim
    complete, incomplete = best.get(True), best.get(False)
    found = [] if complete is None else [complete]
    if incomplete is not None and (complete is None or incomplete.recorded_us > complete.recorded_us):
        found.append(incomplete)
    return found
