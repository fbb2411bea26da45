"""Ids that change between runs: which they are, and what the history of their tests is kept under.

pytest names a parameter by its value where it can. Where it cannot, the id holds an address, a place in a
list or whatever `ids=` returned, and the next run may give the same test another id, or another test this.
The history of such tests is joined at their function: less sharp, but of the right test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from fastci_ml.records.ids import NodeId

# Code of the reason in a plan that makes an entry stand for every test of its function.
UNSTABLE_REASON = "unstable_ids"

_AT_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}\b")
_HEX = re.compile(r"(?<!\w)0x0*([1-9a-fA-F][0-9a-fA-F]{8,11})(?!\w)")
# Objects are aligned, so their addresses end in one of these; and no digit fills half of one, as it does in
# the round numbers that people write.
_ALIGNED = ("0", "8")
_N_SHOWN = 3


class Instability(StrEnum):
    """What makes the parameter ids of a function change."""

    ADDRESS = "address"  # where an object lay in memory
    POSITION = "position"  # a number that pytest gave by the place in the list
    TURNOVER = "turnover"  # hashes, times, paths, ...: ids that hardly ever come back

    @property
    def is_volatile(self) -> bool:
        """Whether the next collection gives other ids: then no plan can name the tests one by one."""
        return self is not Instability.POSITION


def split_params(node_id: str) -> tuple[NodeId, str]:
    """Function and parameters of an id; parameters are empty without a bracket behind the first ``::``.

    Examples
    --------
    >>> split_params("t/a[1].py::A::f[x[1]]")
    ('t/a[1].py::A::f', '[x[1]]')
    """
    bracket = node_id.find("[", node_id.find("::") + 1 or len(node_id))
    return (NodeId(node_id), "") if bracket < 0 else (NodeId(node_id[:bracket]), node_id[bracket:])


def has_address(params: str) -> bool:
    """Whether parameters name a place in memory, as the repr of an object does.

    Examples
    --------
    >>> has_address("[<lib.Config object at 0x7f3a5c0d2e10>]"), has_address("[0x7f3a5c0d2e10-x]")
    (True, True)
    >>> has_address("[0xdeadbeef]"), has_address("[0x100000000]"), has_address("[look at 0x10]")
    (False, False, False)
    """
    if "0x" not in params:
        return False
    if _AT_ADDRESS.search(params):
        return True
    numbers = (match[1].lower() for match in _HEX.finditer(params))
    return any(n.endswith(_ALIGNED) and max(map(n.count, n)) * 2 < len(n) for n in numbers)


class HistoryKeys:
    """What the history of a test is kept under: its id, or its function where the id is unstable.

    Parameters
    ----------
    unstable : mapping of NodeId to Instability
        Functions whose ids are, by node id without parameters. An address is seen in any id, so that these
        need not stand in it; ids without one keep theirs.
    """

    def __init__(self, unstable: Mapping[NodeId, Instability]) -> None:
        self._unstable = unstable

    def kind(self, node_id: str) -> Instability | None:
        """What makes an id unstable; None for an id that comes back."""
        if "[" not in node_id:
            return None
        function, params = split_params(node_id)
        if not params:
            return None
        if has_address(params):
            return Instability.ADDRESS
        kind = self._unstable.get(function)
        return None if kind is Instability.ADDRESS else kind

    def key(self, node_id: str) -> NodeId:
        """Id or function.

        Examples
        --------
        >>> keys = HistoryKeys({"t.py::f": Instability.POSITION})
        >>> [keys.key(f"t.py::{name}") for name in ("f[a0]", "g[a0]", "g[<C object at 0x7f00c0ffee10>]")]
        ['t.py::f', 't.py::g[a0]', 't.py::g']
        """
        return NodeId(node_id) if self.kind(node_id) is None else split_params(node_id)[0]


def describe_unstable(unstable: Mapping[NodeId, Instability]) -> str:
    """One line for a person: how many functions, which, why, and what to do; empty without any.

    Examples
    --------
    >>> print(describe_unstable({NodeId("t.py::f"): Instability.ADDRESS}))
    1 test function has parameter ids that change between runs (1 address): t.py::f. Its history is joined at the function; name the parameters: parametrize(..., ids=[...])
    """  # noqa: E501  the line is one line
    if not unstable:
        return ""
    counts = ", ".join(
        f"{n} {kind}" for kind in Instability if (n := sum(found is kind for found in unstable.values()))
    )
    names = sorted(unstable)
    shown = ", ".join(names[:_N_SHOWN]) + (", ..." if len(names) > _N_SHOWN else "")
    subject, its = (
        ("1 test function has", "Its") if len(names) == 1 else (f"{len(names)} test functions have", "Their")
    )
    return (
        f"{subject} parameter ids that change between runs ({counts}): {shown}. {its} history is joined at "
        f"the function; name the parameters: parametrize(..., ids=[...])"
    )
