"""Columns of the cases of a JUnit file, from lists of their attributes, a block of cases at a time.

Arrow and numpy do the work, so that a case costs no Python call here unless there is something odd about it.
"""

from __future__ import annotations

import hashlib
from itertools import chain

import numpy as np
import pyarrow as pa

from fastci_ml.sources.junit.durations import parse_durations, single_comma
from fastci_ml.sources.junit.ids import JunitIds
from fastci_ml.sources.junit.results import CaseResult, result_of_status

# No less than a block of the file, which all names of a block together do not reach: one look is enough.
_NAME_LIMIT = 1 << 17
_EXAMPLE_LIMIT = 40
_NAMES = ("classname", "name", "time", "file", "status", "result")


class CaseColumns:
    """Columns that grow by blocks.

    Parameters
    ----------
    ids : JunitIds
        Turns names into node ids.

    Attributes
    ----------
    n_cases : int
        In all blocks so far.
    results : dict of int to CaseResult
        By case, those that an attribute tells; the parser adds those of child elements.
    commas : dict of int to str
        By case, times that only the total of the suite can explain.
    nameless : list of int
        Cases that name no test.
    n_bad_times, n_cut_names : int
        Times that cannot be read; names that were too long to be any.
    bad_time : str
        The first of those times.
    """

    def __init__(self, ids: JunitIds) -> None:
        self._ids = ids
        self._node_ids: list[pa.Array] = []
        self._is_joined: list[np.ndarray] = []
        self._durations_s: list[np.ndarray] = []
        self.n_cases = 0
        self.results: dict[int, CaseResult] = {}
        self.commas: dict[int, str] = {}
        self.nameless: list[int] = []
        self.n_bad_times = 0
        self.n_cut_names = 0
        self.bad_time = ""

    def add(self, cases: list[list[str]]) -> None:
        """Take one block, as names and values in turn for each case."""
        blank = [""] * len(cases)
        columns = _columns(cases)
        classnames, names, times, files = (column or blank for column in columns[:4])
        cut = self._cut_long(classnames, names, files)
        node_ids, is_joined = self._ids.map(classnames, names, files)
        if cut:
            is_joined = is_joined & ~np.isin(np.arange(len(cases)), cut)
        self._node_ids.append(node_ids)
        self._is_joined.append(is_joined)
        durations_s, odd = parse_durations(times)
        self._durations_s.append(durations_s)
        for place, text in odd.items():
            if np.isnan(single_comma(text)):
                self.n_bad_times += 1
                self.bad_time = self.bad_time or text[:_EXAMPLE_LIMIT]
            else:
                self.commas[self.n_cases + place] = text
        if "" in names:
            rows = enumerate(zip(classnames, names, strict=True), self.n_cases)
            self.nameless += [row for row, (classname, name) in rows if not classname and not name]
        for statuses in columns[4:]:
            self._add_statuses(statuses)
        self.n_cases += len(cases)

    def joined(self) -> tuple[pa.Array, np.ndarray, np.ndarray]:
        """Node ids as a dictionary array, whether each is joined, and durations, of all blocks."""
        return (
            pa.chunked_array(self._node_ids, pa.string()).dictionary_encode().combine_chunks(),
            np.concatenate([np.empty(0, bool), *self._is_joined]),
            np.concatenate([np.empty(0), *self._durations_s]),
        )

    def _add_statuses(self, statuses: list[str]) -> None:
        """Results of cases that have no child that tells one, by an attribute."""
        by_word = {word: result_of_status(word) for word in set(statuses)}
        if any(by_word.values()):
            for row, word in enumerate(statuses, self.n_cases):
                found = by_word[word]
                if found is not None:
                    self.results.setdefault(row, found)

    def _cut_long(self, *columns: list[str]) -> list[int]:
        """Cut what is no name any more, in place; returns the rows where that was so."""
        rows: set[int] = set()
        for column in columns:
            if len("".join(column)) > _NAME_LIMIT:
                for row, text in enumerate(column):
                    if len(text) > _NAME_LIMIT:
                        rows.add(row)
                        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                        column[row] = f"{text[:_NAME_LIMIT]}...{digest}"
        self.n_cut_names += len(rows)
        return sorted(rows)


def _columns(cases: list[list[str]]) -> list[list[str]]:
    """Columns of a block by `_NAMES`; empty where no case has that attribute."""
    n_cases, keys = len(cases), cases[0][::2]
    flat = list(chain.from_iterable(cases))
    width = 2 * len(keys)
    # Nearly always all cases have the same attributes in the same order: then slices are the columns. No case
    # has an attribute twice, so equal counts leave no room for anything else.
    is_regular = len(flat) == width * n_cases and all(
        flat[2 * place :: width].count(key) == n_cases for place, key in enumerate(keys)
    )
    if is_regular:
        return [flat[2 * keys.index(key) + 1 :: width] if key in keys else [] for key in _NAMES]
    rows = [_dictionary(case) for case in cases]
    return [[row.get(key, "") for row in rows] for key in _NAMES]


def _dictionary(attributes: list[str]) -> dict[str, str]:
    return dict(zip(attributes[::2], attributes[1::2], strict=True))
