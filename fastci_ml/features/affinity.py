"""How near a test stands to a change: its own file, names, folders, and failing together in the past.

Tokens of names are weighed by how rare they are *among the tests of the run*, so that nothing is read from
tests that do not exist yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.change import ChangeRecords, changed_folders, changed_paths, folder_of
from fastci_ml.features.schema import AFFINITY_FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastci_ml.records.changes import FileChange

N_AFFINITY = len(AFFINITY_FEATURES)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NO_MEANING = frozenset({"test", "tests", "py", "init"})


@lru_cache(maxsize=65_536)
def name_tokens(text: str) -> frozenset[str]:
    """Words of a path or an identifier, lower case, without those that every test has.

    Examples
    --------
    >>> sorted(name_tokens("tests/optim/test_adamW2.py"))
    ['2', 'adam', 'optim', 'w']
    """
    return frozenset(word.lower() for word in _WORD.findall(text)) - _NO_MEANING


class TestNames:
    """Index of the tests by token, by path and by folder; grows as tests appear."""

    __test__ = False  # pytest must not collect it where it is imported

    def __init__(self) -> None:
        self._n_tests = 0
        self._postings: dict[str, list[int]] = {}
        self._arrays: dict[str, NDArray[np.int64]] = {}
        self._paths: dict[str, list[int]] = {}
        self._folders: dict[str, int] = {}
        self._folder_of_test: list[int] = []

    def extend(self, node_ids: Sequence[str]) -> None:
        """Index the tests from the first unknown on; `node_ids` is the whole list by code."""
        postings, folders = self._postings, self._folders
        for code in range(self._n_tests, len(node_ids)):
            path, _, names = node_ids[code].partition("::")
            # Without the parameters: their values are no names.
            for token in name_tokens(path) | name_tokens(names.partition("[")[0]):
                postings.setdefault(token, []).append(code)
            self._paths.setdefault(path, []).append(code)
            self._folder_of_test.append(folders.setdefault(folder_of(path), len(folders)))
        if len(node_ids) > self._n_tests:
            self._arrays.clear()
        self._n_tests = len(node_ids)

    def holders(self, token: str) -> NDArray[np.int64]:
        """Codes of the tests whose id has the token."""
        if token not in self._arrays:
            self._arrays[token] = np.array(self._postings.get(token, ()), dtype=np.int64)
        return self._arrays[token]

    def own_file(self, paths: Sequence[str]) -> NDArray[np.float32]:
        """1 for each test whose own file is among `paths`, shape (n_tests,)."""
        own = np.zeros(self._n_tests, dtype=np.float32)
        for path in paths:
            own[self._paths.get(path, [])] = 1
        return own

    def folder_affinity(self, folders: Sequence[str], tests: NDArray[np.int64]) -> NDArray[np.float32]:
        """Highest share of leading or trailing folders in common with one of `folders`, shape (k,)."""
        codes, inverse = np.unique(np.array(self._folder_of_test)[tests], return_inverse=True)
        names = list(self._folders)
        changed = [folder.split("/")[:-1] for folder in folders]
        best = [
            max((_shared(names[code].split("/")[:-1], other) for other in changed), default=0.0)
            for code in codes.tolist()
        ]
        return np.array(best, dtype=np.float32)[inverse]


def _shared(ours: list[str], theirs: list[str]) -> float:
    """Share of folders in common from the root or from the leaf: ``tests/optim`` mirrors ``pkg/optim``."""
    if ours == theirs:
        return 1.0
    lead = _n_equal(ours, theirs)
    trail = _n_equal(ours[::-1], theirs[::-1])
    return max(lead, trail) / max(len(ours), len(theirs))


def _n_equal(ours: list[str], theirs: list[str]) -> int:
    n = 0
    for a, b in zip(ours, theirs, strict=False):
        if a != b:
            break
        n += 1
    return n


def affinity_features(
    files: tuple[FileChange, ...] | None,
    lane: int,
    tests: NDArray[np.int64],
    names: TestNames,
    records: ChangeRecords,
    out: NDArray[np.float32],
) -> None:
    """Write `AFFINITY_FEATURES` of `tests` for a change.

    Parameters
    ----------
    files : tuple of FileChange or None
        The change; None leaves NaN, an empty change gives 0.
    lane : int
        Lane of the run.
    tests : int64, shape (k,)
        Test codes.
    names, records
        What is known of tests and files when the run starts.
    out : float32, shape (N_AFFINITY, k)
        Filled.
    """
    if files is None:
        out[:] = np.nan
        return
    paths, folders = changed_paths(files), changed_folders(files)
    out[0] = names.own_file(paths)[tests]
    out[1] = _name_affinity(paths, tests, names)
    out[2] = names.folder_affinity(folders, tests)
    n_codes = int(tests.max()) + 1 if len(tests) else 0
    out[3] = _cofail_rate(records, lane, paths, n_codes)[tests]
    out[4] = _cofail_rate(records, lane, folders, n_codes)[tests]


def _name_affinity(paths: Sequence[str], tests: NDArray[np.int64], names: TestNames) -> NDArray[np.float32]:
    n_tests = len(tests)
    best = np.zeros(n_tests, dtype=np.float32)
    place = np.full(int(tests.max()) + 1 if n_tests else 0, -1, dtype=np.int64)
    place[tests] = np.arange(n_tests)
    weighed: dict[str, tuple[NDArray[np.int64], float]] = {}
    for path in paths:
        score = np.zeros(n_tests, dtype=np.float32)
        total = 0.0
        for token in sorted(name_tokens(path)):
            if token not in weighed:
                holders = names.holders(token)
                inside = place[holders[holders < len(place)]]
                inside = inside[inside >= 0]
                weighed[token] = inside, math.log(n_tests / len(inside)) if len(inside) else 0.0
            holders, weight = weighed[token]
            if weight:
                score[holders] += np.float32(weight)
                total += weight
        if total:
            np.maximum(best, score / np.float32(total), out=best)
    return best


def _cofail_rate(
    records: ChangeRecords, lane: int, paths: Sequence[str], n_codes: int
) -> NDArray[np.float32]:
    """Highest (failures with a path + 0) / (changes of it + 1) of each test, shape (n_codes,)."""
    best = np.zeros(n_codes, dtype=np.float32)
    for record in records.known(lane, paths):
        if record.n_failures:
            codes = np.fromiter(record.n_failures.keys(), dtype=np.int64)
            rates = np.fromiter(record.n_failures.values(), dtype=np.float32)
            rates = rates[codes < n_codes] / np.float32(record.n_changes + 1)
            codes = codes[codes < n_codes]
            best[codes] = np.maximum(best[codes], rates)
    return best
