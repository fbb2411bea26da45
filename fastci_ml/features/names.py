"""The names of tests: tokens, files and folders, and how near they come to the paths of a change.

Tokens are weighed by how rare they are *among the tests of the run*, so that nothing is read from tests
that do not exist yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fastci_ml.features.change import folder_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NO_MEANING = frozenset({"test", "tests", "py", "init"})
# Values that the affinities of one set of tests may keep: 64 MB.
_MAX_KEPT = 16_000_000


@lru_cache(maxsize=65_536)
def name_tokens(text: str) -> frozenset[str]:
    """Words of a path or an identifier, lower case, without those that every test has.

    Examples
    --------
    >>> sorted(name_tokens("tests/optim/test_adamW2.py"))
    ['2', 'adam', 'optim', 'w']
    """
    return frozenset(word.lower() for word in _WORD.findall(text)) - _NO_MEANING


class NameIndex:
    """Index of the tests by token, by path and by folder; grows as tests appear."""

    def __init__(self) -> None:
        self._n_tests = 0
        self._postings: dict[str, list[int]] = {}
        self._paths: dict[str, list[int]] = {}
        self._folders: dict[str, int] = {}
        self._folder_of_test: list[int] = []
        self._near: Nearness | None = None

    def extend(self, node_ids: Sequence[str]) -> None:
        """Index the tests from the first unknown on; `node_ids` is the whole list by code."""
        postings = self._postings
        path = None
        for code in range(self._n_tests, len(node_ids)):
            before, (path, _, names) = path, node_ids[code].partition("::")
            if path != before:  # the tests of a file mostly stand together
                of_path = name_tokens(path)
                holders = [postings.setdefault(token, []) for token in of_path]
                folder = self._folders.setdefault(folder_of(path), len(self._folders))
            for codes in holders:
                codes.append(code)
            # Without the parameters: their values are no names.
            for token in name_tokens(names.partition("[")[0]) - of_path:
                postings.setdefault(token, []).append(code)
            self._paths.setdefault(path, []).append(code)
            self._folder_of_test.append(folder)
        self._n_tests = len(node_ids)

    def near(self, tests: NDArray[np.int64]) -> Nearness:
        """Nearness of one set of tests; that of the last set is kept, as CI runs repeat the same tests."""
        if self._near is None or not np.array_equal(self._near.tests, tests):
            postings = {token: np.array(codes) for token, codes in self._postings.items()}
            folders = np.array(self._folder_of_test, dtype=np.int64)[tests]
            self._near = Nearness(tests, postings, self._paths, list(self._folders), folders)
        return self._near


class Nearness:
    """How near a set of tests comes to paths; each path is looked at once.

    Parameters
    ----------
    tests : int64, shape (k,)
        Ascending codes.
    postings : mapping of str to ndarray of int64
        Token -> codes of the tests whose id has it.
    paths : mapping of str to list of int
        File -> codes of its tests.
    folders : list of str
        Name of each folder code.
    folder_of_test : int64, shape (k,)
        Folder code of each test of the set.
    """

    def __init__(
        self,
        tests: NDArray[np.int64],
        postings: dict[str, NDArray[np.int64]],
        paths: dict[str, list[int]],
        folders: list[str],
        folder_of_test: NDArray[np.int64],
    ) -> None:
        self.tests = tests
        self._postings = postings
        self._paths = paths
        self._place = np.full(int(tests.max()) + 1 if len(tests) else 0, -1, dtype=np.int64)
        self._place[tests] = np.arange(len(tests))
        is_used = np.bincount(folder_of_test, minlength=len(folders)) > 0
        self._folder_parts = [folders[code].split("/")[:-1] for code in np.flatnonzero(is_used).tolist()]
        self._folder_place = (np.cumsum(is_used) - 1)[folder_of_test]
        self._weighed: dict[str, tuple[NDArray[np.int64], float]] = {}
        self._by_name: dict[str, NDArray[np.float32]] = {}
        self._by_folder: dict[str, NDArray[np.float32]] = {}

    def own_file(self, paths: Sequence[str]) -> NDArray[np.float32]:
        """1 for each test whose own file is among `paths`, shape (k,)."""
        own = np.zeros(len(self.tests), dtype=np.float32)
        for path in paths:
            if path in self._paths:
                own[self._inside(np.array(self._paths[path]))] = 1
        return own

    def name_affinity(self, paths: Sequence[str]) -> NDArray[np.float32]:
        """Highest share, by weight, of a path's tokens that the test's id has, shape (k,)."""
        return self._best(paths, self._by_name, self._name_affinity)

    def folder_affinity(self, folders: Sequence[str]) -> NDArray[np.float32]:
        """Highest share of leading or trailing folders in common with one of `folders`, shape (k,)."""
        return self._best(folders, self._by_folder, self._folder_affinity)

    def _best(
        self,
        names: Sequence[str],
        kept: dict[str, NDArray[np.float32]],
        affinity: Callable[[str], NDArray[np.float32]],
    ) -> NDArray[np.float32]:
        best = np.zeros(len(self.tests), dtype=np.float32)
        for name in names:
            if name not in kept:
                if (len(kept) + 1) * len(self.tests) > _MAX_KEPT:
                    kept.clear()
                kept[name] = affinity(name)
            np.maximum(best, kept[name], out=best)
        return best

    def _name_affinity(self, path: str) -> NDArray[np.float32]:
        score = np.zeros(len(self.tests), dtype=np.float32)
        total = 0.0
        for token in sorted(name_tokens(path)):
            holders, weight = self._weigh(token)
            if weight:
                score[holders] += np.float32(weight)
                total += weight
        return score / np.float32(total) if total else score

    def _folder_affinity(self, folder: str) -> NDArray[np.float32]:
        parts = folder.split("/")[:-1]
        shares = [_shared(own, parts) for own in self._folder_parts]
        spread: NDArray[np.float32] = np.array(shares, dtype=np.float32)[self._folder_place]
        return spread

    def _weigh(self, token: str) -> tuple[NDArray[np.int64], float]:
        """Places of the tests that have a token, and its weight: inverse document frequency."""
        if token not in self._weighed:
            inside = self._inside(self._postings.get(token, np.empty(0, dtype=np.int64)))
            self._weighed[token] = inside, math.log(len(self.tests) / len(inside)) if len(inside) else 0.0
        return self._weighed[token]

    def _inside(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places in the set of those tests that are in it."""
        places = self._place[codes[codes < len(self._place)]]
        return places[places >= 0]


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
