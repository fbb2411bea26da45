"""What a person reads about a plan in the output of pytest. Standard library only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from fastci_ml.execution.gate import Admission
from fastci_ml.execution.selection import Tally
from fastci_ml.records.ids import NodeId

# Names beyond these are counted: a plan of another suite would fill the log with thousands.
_N_NAMES = 20


def header(admission: Admission, *, is_shadow: bool) -> Iterator[str]:
    """Lines for the top of the output: whether the plan is followed."""
    yield admission.message
    if not admission.holds:
        yield "running EVERYTHING, in the usual order"
        if admission.hint:
            yield f"hint: {admission.hint}"
    elif is_shadow:
        yield "shadow mode: running everything, in the usual order"


def summary(
    admission: Admission,
    tally: Tally | None,
    *,
    ran: Collection[NodeId],
    failed: Collection[NodeId],
    is_shadow: bool,
) -> Iterator[str]:
    """Lines for the end of the output: what ran, what did not, and why.

    Parameters
    ----------
    admission : Admission
        Whether the plan is followed.
    tally : Tally or None
        What it meant for the collected tests; None when nothing was collected or it is not followed.
    ran, failed : collection of NodeId
        Tests that were reported, and those that failed, by their ids in plans.
    is_shadow : bool
        Whether everything ran on purpose.
    """
    if not admission.holds:
        yield from header(admission, is_shadow=is_shadow)
        return
    if tally is None:
        yield f"{admission.message}; no tests were collected"
        return
    if is_shadow:
        yield from _shadow(admission, tally, ran, failed)
    else:
        yield from _followed(tally, len(ran))
    if tally.unknown:
        word = "run all the same" if is_shadow or tally.kept_order else "run first"
        yield f"unknown to the plan, {word}: {_count(len(tally.unknown))}"
        yield from _names(tally.unknown)
    if tally.missing:
        yield f"missing: {_count(len(tally.missing))} that the plan runs, not collected here"
        yield from _names(tally.missing)
    if tally.n_deselected:
        where = "deselected by the command line or a plugin"
        yield f"missing: {_count(tally.n_deselected)} that the plan runs, {where}"


def _followed(tally: Tally, n_ran: int) -> Iterator[str]:
    if tally.n_left_out and not tally.n_kept:
        yield f"nothing to run: the plan leaves out all {_count(tally.n_collected)} collected, on purpose"
    else:
        order = f"the usual order, for {tally.kept_order}" if tally.kept_order else "the order of the plan"
        yield f"ran {n_ran} of {_count(tally.n_collected)} collected, in {order}"
    if tally.n_left_out:
        by_decision = ", ".join(f"{number} {word}" for word, number in tally.left_out.items())
        yield f"left out by decision: {tally.n_left_out} ({by_decision}), expected {tally.saved_s:.1f} s"
    if tally.n_kept:
        untimed = f", {tally.n_untimed} of unknown duration" if tally.n_untimed else ""
        yield f"expected duration of what runs: {tally.expected_s:.1f} s{untimed}"


def _shadow(
    admission: Admission, tally: Tally, ran: Collection[NodeId], failed: Collection[NodeId]
) -> Iterator[str]:
    missed = sorted(
        node_id
        for node_id in failed
        if (entry := admission.entries.get(admission.entry_id(node_id))) and not entry.decision.is_run
    )
    yield f"shadow mode: ran {len(ran)} of {_count(tally.n_collected)} collected, in the usual order"
    yield (
        f"the plan would have left out {_count(tally.n_left_out)}, expected {tally.saved_s:.1f} s, "
        f"of which {len(missed)} failed"
    )
    yield from _names(missed)


def printable(line: str) -> str:
    r"""Escape what a terminal cannot print: a plan is a foreign file, and may hold anything.

    Examples
    --------
    >>> printable("test_x[\x1b[0m]")
    'test_x[\\x1b[0m]'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def _count(n: int) -> str:
    return f"{n} test" if n == 1 else f"{n} tests"


def _names(node_ids: Sequence[NodeId]) -> Iterator[str]:
    yield from (f"  {node_id}" for node_id in node_ids[:_N_NAMES])
    if len(node_ids) > _N_NAMES:
        yield f"  and {len(node_ids) - _N_NAMES} more"
