"""Find the functions whose parameter ids change between runs, in the ids of a history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.records.ids import NodeId
from fastci_ml.records.unstable_ids import Instability, has_address, split_params

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Equal ids are numbered too, behind a low line where the id ends in a digit itself: "1.5_0".
_NUMBERED = re.compile(r"(.*\D)(0|[1-9]\d*)", re.DOTALL)
_LAMBDA = "<lambda>"
# A function of whose ids half are new in each run keeps no history by them. Looked at over so many of its
# last runs that ids which somebody has given names since are soon believed.
_MIN_NEW_RATIO = 0.5
_MIN_LATER_RUNS = 3
_MOST_LATER_RUNS = 10
_MOST_NEWEST_RUNS = 3
# Places that may be counted for each row before sorting is cheaper.
_DENSE = 8

# Whether ids are pytest's numbers: yes, no (somebody wrote them), or None where nobody can say. Takes the
# function, the stem before the number, and the ids.
Confirm = Callable[[NodeId, str, tuple[str, ...]], bool | None]


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
    found = dict.fromkeys(addressed, Instability.ADDRESS)
    if not places:
        return found
    is_meant = functions[ids] >= 0
    runs, ids = runs[is_meant], ids[is_meant]
    # Ids as they are now: those of old may have been given names since, and one run may be cut short.
    cell, _, n_runs_left = _cells(runs, functions[ids])
    is_newest = np.zeros(len(node_ids), dtype=bool)
    is_newest[ids[(n_runs_left < _MOST_NEWEST_RUNS)[cell]]] = True
    newest = np.flatnonzero(is_newest).tolist()
    positional = find_positional([node_ids[code] for code in newest], confirm)
    found |= dict.fromkeys(positional, Instability.POSITION)
    is_volatile = find_volatile(runs, ids, functions)
    volatile = [function for function, place in places.items() if is_volatile[place]]
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
        True where, over the last ten runs after the function's first, three at least, on average half of what
        it executed had an id that no earlier run had. A list that is replaced once, or grows, is not meant.

    Examples
    --------
    >>> import numpy as np
    >>> runs = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> find_volatile(runs, np.array([0, 4, 1, 4, 2, 4, 3, 4]), np.array([0, 0, 0, 0, 1])).tolist()
    [True, False]
    """
    n_functions = int(functions.max(initial=-1)) + 1
    is_volatile = np.zeros(n_functions, dtype=bool)
    is_meant = functions[ids] >= 0
    if not is_meant.any():
        return is_volatile
    runs, ids = runs[is_meant], ids[is_meant]
    first_run = np.full(len(functions), runs.max() + 1)
    np.minimum.at(first_run, ids, runs)
    cell, function, n_runs_left = _cells(runs, functions[ids])
    new_ratio = np.bincount(cell, runs == first_run[ids]) / np.bincount(cell)
    is_later = np.append(False, function[1:] == function[:-1]) & (n_runs_left < _MOST_LATER_RUNS)
    n_later = np.bincount(function[is_later], minlength=n_functions)
    total = np.bincount(function[is_later], new_ratio[is_later], minlength=n_functions)
    return (n_later >= _MIN_LATER_RUNS) & (total >= _MIN_NEW_RATIO * n_later)


def _cells(
    runs: NDArray[np.int64], functions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Runs of functions: that of each row; by function and run, the function and its runs that follow."""
    n_runs = int(runs.max(initial=0)) + 1
    places = functions * n_runs + runs
    n_places = (int(functions.max(initial=0)) + 1) * n_runs
    if n_places <= _DENSE * len(places):
        # Most functions run in most runs: counting costs a tenth of sorting.
        is_used = np.bincount(places, minlength=n_places) > 0
        cells, cell = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[places]
    else:
        cells, cell = np.unique(places, return_inverse=True)
    function = cells // n_runs
    ends = np.cumsum(np.bincount(function))[function]
    return cell, function, ends - 1 - np.arange(len(cells))
