"""Which records of one test, lane and scope are in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fastci_ml.records.evidence_kinds import may_narrow


class Claim(NamedTuple):
    """A record, as far as it decides what is in force.

    Attributes
    ----------
    recorded_us : int
        When, microseconds since the epoch, UTC.
    is_complete : bool
        Whether nothing is missing from it.
    id : int
        Its own.
    commit : str
        What ran; empty where that is no commit of trunk.
    """

    recorded_us: int
    is_complete: bool
    id: int
    commit: str = ""


def claim_of(recorded_us: int, is_complete: bool, id_: int, commit: str, scope: str) -> Claim:
    """A claim of a record of some scope."""
    return Claim(recorded_us, bool(is_complete), id_, commit if may_narrow(scope) else "")


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
        says that its test is incomplete, but not that what was known before is wrong. Between them, the
        newest other complete one of the same commit: what a test touches may depend on the tests before it,
        so that a run in another order adds to the usual one. Because times decide, the order of merges does
        not; only such an addition may be missing where another commit was merged in between.

    Examples
    --------
    >>> [claim.id for claim in in_force([Claim(5, True, 1), Claim(9, False, 2), Claim(7, False, 3)])]
    [1, 2]
    >>> [claim.id for claim in in_force([Claim(5, True, 1), Claim(9, False, 2), Claim(9, True, 3)])]
    [3]
    >>> [claim.id for claim in in_force([Claim(time, True, time, "c0ffee") for time in (5, 6, 7)])]
    [7, 6]
    """
    complete = incomplete = beside = None
    for claim in claims:
        if not claim.is_complete:
            if incomplete is None or claim.recorded_us >= incomplete.recorded_us:
                incomplete = claim
        elif complete is None or claim.recorded_us >= complete.recorded_us:
            complete = claim
    if complete is None:
        return [] if incomplete is None else [incomplete]
    for claim in claims:
        is_beside = claim.is_complete and claim.commit == complete.commit != "" and claim is not complete
        if is_beside and (beside is None or claim.recorded_us >= beside.recorded_us):
            beside = claim
    found = [complete] if beside is None else [complete, beside]
    if incomplete is not None and incomplete.recorded_us > complete.recorded_us:
        found.append(incomplete)
    return found
