"""Ids that change between runs: which they are, and what the history of their tests is kept under.

pytest names a parameter by its value where it can. Where it cannot, the id holds an address, a place in a
list or whatever `ids=` returned, and the next run may give the same test another id, or another test this.
The history of such tests is joined at their function: less sharp, but of the right test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from fastci_ml.records.ids import NodeId

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Code of the reason in a plan that makes an entry stand for every test of its function.
UNSTABLE_REASON = "unstable_ids"

_AT_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}\b")
_HEX = re.compile(r"(?<!\w)0x0*([1-9a-fA-F][0-9a-fA-F]{8,11})(?!\w)")
# Objects are aligned, so their addresses end in one of these; and no digit fills half of one, as it does in
# the round numbers that people write.
_ALIGNED = ("0", "8")
# Equal ids are numbered too, behind a low line where the id ends in a digit itself: "1.5_0".
_NUMBERED = re.compile(r"(.*\D)(0|[1-9]\d*)", re.DOTALL)
_LAMBDA = "<lambda>"
# A function whose ids come anew in half of its runs keeps no history by them.
_MIN_NEW_RATIO = 0.5
_MIN_LATER_RUNS = 3
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


# Whether ids are pytest's numbers: yes, no (somebody wrote them), or None where nobody can say. Takes the
# function, the stem before the number, and the ids.
Confirm = Callable[[NodeId, str, tuple[str, ...]], bool | None]


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


def find_unstable(
    node_ids: Sequence[str],
    runs: NDArray[np.int64],
    ids: NDArray[np.int64],
    confirm: Confirm = lambda _function, _stem, _ids: None,
) -> dict[NodeId, Instability]:
    """Functions of a history whose parameter ids change.

    Parameters
    ----------
    node_ids : sequence of str, shape (n_ids,)
        Distinct ids.
    runs, ids : int64 arrays, shape (n,)
        Run of each execution, in the order of time, and its place in `node_ids`.
    confirm : callable
        As `find_positional` takes it.

    Returns
    -------
    dict of NodeId to Instability
        By function; what decides its key in `HistoryKeys` where several apply.
    """
    import numpy as np  # the plugin imports this module, and must not load it

    places: dict[NodeId, int] = {}
    functions = np.full(len(node_ids), -1, dtype=np.int64)
    addressed: set[NodeId] = set()
    for code, node_id in enumerate(node_ids):
        if "[" in node_id:
            function, params = split_params(node_id)
            if has_address(params):
                addressed.add(function)
            elif params:
                functions[code] = places.setdefault(function, len(places))
    is_volatile = find_volatile(runs, ids, functions)
    volatile = {function for function, place in places.items() if is_volatile[place]}
    found = dict.fromkeys(addressed, Instability.ADDRESS)
    found |= dict.fromkeys(find_positional(node_ids, confirm), Instability.POSITION)
    return found | dict.fromkeys(volatile, Instability.TURNOVER)


def find_positional(node_ids: Iterable[str], confirm: Confirm) -> set[NodeId]:
    """Functions of which ids differ by nothing but a number of pytest's: ``f0``, ``<lambda>1``, ``1.5_0``.

    Parameters
    ----------
    node_ids : iterable of str
        All known tests; how the ids of a function number its values is seen from them together.
    confirm : callable
        Asked where people may have written the ids as well.

    Returns
    -------
    set of NodeId
        Without a word of `confirm`, numbers must start at 0 and lie within the list, so that ``v2``, ``fp16``
        and ``int8`` are names. ``layer0``, ``layer1`` are taken for numbers then.
    """
    by_function: dict[NodeId, list[str]] = {}
    for node_id in node_ids:
        if "[" in node_id:
            function, params = split_params(node_id)
            if params and not has_address(params):
                by_function.setdefault(function, []).append(params[1:].removesuffix("]"))
    return {function for function, params in by_function.items() if _are_numbered(function, params, confirm)}


def _are_numbered(function: NodeId, params: list[str], confirm: Confirm) -> bool:
    """Whether ids of one function differ by nothing but pytest's numbers."""
    by_length: dict[int, list[list[str]]] = {}
    for text in params:
        parts = text.split("-")  # what pytest puts between arguments, and values may hold as well
        by_length.setdefault(len(parts), []).append(parts)
    for rows in by_length.values():
        columns = [set(column) for column in zip(*rows, strict=True)]
        numbered = [_numbered(function, values, confirm) for values in columns]
        if any(numbered):
            named = {
                tuple(stems.get(part, part) for part, stems in zip(row, numbered, strict=True))
                for row in rows
            }
            if len(named) < len(rows):
                return True
    return False


def _numbered(function: NodeId, values: set[str], confirm: Confirm) -> dict[str, str]:
    """Values of one argument that pytest numbered, with what stands before the number."""
    by_stem: dict[str, dict[int, str]] = {}
    for value in values:
        if match := _NUMBERED.fullmatch(value):
            by_stem.setdefault(match[1], {})[int(match[2])] = value
    found: dict[str, str] = {}
    for stem, by_place in sorted(by_stem.items()):
        if max(by_place) >= len(values):
            continue  # no list so short has such a place
        answer = stem.endswith(_LAMBDA) or confirm(function, stem, tuple(sorted(by_place.values())))
        if answer or (answer is None and len(by_place) > 1 and 0 in by_place):
            found |= dict.fromkeys(by_place.values(), stem)
    return found


def find_volatile(
    runs: NDArray[np.int64], ids: NDArray[np.int64], functions: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Functions whose ids hardly ever come back while they keep running.

    Parameters
    ----------
    runs, ids : int64 arrays, shape (n,)
        Run of each execution, in the order of time, and code of its id.
    functions : int64 array, shape (n_ids,)
        Function of each id; negative for ids that are left out.

    Returns
    -------
    bool array, shape (n_functions,)
        True where, over the runs after the function's first, three at least, on average half of its ids had
        never run before. A list of parameters that is replaced once, or grows, is not meant.

    Examples
    --------
    >>> import numpy as np
    >>> runs = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> find_volatile(runs, np.array([0, 4, 1, 4, 2, 4, 3, 4]), np.array([0, 0, 0, 0, 1])).tolist()
    [True, False]
    """
    import numpy as np  # the plugin imports this module, and must not load it

    n_functions = int(functions.max(initial=-1)) + 1
    is_volatile = np.zeros(n_functions, dtype=bool)
    is_meant = functions[ids] >= 0
    if not is_meant.any():
        return is_volatile
    run, code = np.divmod(np.unique(runs[is_meant] * len(functions) + ids[is_meant]), len(functions))
    # Pairs are ordered by run, so the first pair of an id is in its first run.
    is_first = np.zeros(len(code), dtype=bool)
    is_first[np.unique(code, return_index=True)[1]] = True
    cells, cell = np.unique(run * n_functions + functions[code], return_inverse=True)
    new_ratio = np.bincount(cell, is_first) / np.bincount(cell)
    function = cells % n_functions
    is_later = np.ones(len(cells), dtype=bool)
    is_later[np.unique(function, return_index=True)[1]] = False
    n_later = np.bincount(function[is_later], minlength=n_functions)
    total = np.bincount(function[is_later], new_ratio[is_later], minlength=n_functions)
    return (n_later >= _MIN_LATER_RUNS) & (total >= _MIN_NEW_RATIO * n_later)


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
