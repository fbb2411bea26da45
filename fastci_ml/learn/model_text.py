"""Read LightGBM's text model into flat arrays, and refuse whatever `walk` cannot evaluate to the bit.

The format is that of ``Booster.model_to_string`` (LightGBM 4, ``version=v4``; gbdt_model_text.cpp
and tree.cpp of its sources). The text is trusted in nothing: it may come from a damaged bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fastci_ml.errors import ModelError

_HINT = "fastci-ml train"
_VERSION = "v4"
_T = TypeVar("_T", int, float)

# LightGBM's decision type: bit 0 category, bit 1 missing goes left, bits 2 and 3 what is missing.
MISSING_ZERO = 1
MISSING_NAN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """All trees, end to end: a flat list of inner nodes and a flat list of leaves.

    Attributes
    ----------
    feature_names : tuple of str
        By column.
    n_leaves : ndarray of int64, shape (n_trees,)
        Tree t has ``n_leaves[t] - 1`` inner nodes and as many leaves as it says.
    tree : ndarray of int64, shape (n_nodes,)
        Tree of each inner node, ascending.
    feature : ndarray of int64, shape (n_nodes,)
        Column that a node reads.
    threshold : ndarray of float64, shape (n_nodes,)
        A number goes left when it is at most this; meaningless for a category.
    categories : mapping of int to frozenset of int
        By place of the node, the categories that go left; a node that is not here compares numbers.
    missing : ndarray of int64, shape (n_nodes,)
        0 nothing is missing, `MISSING_ZERO`, `MISSING_NAN`.
    is_default_left : ndarray of bool, shape (n_nodes,)
        Where the missing go.
    left, right : ndarray of int64, shape (n_nodes,)
        Children within the tree: inner nodes from 0, always after their parent; leaves as ``~leaf``.
    value : ndarray of float64, shape (n_nodes,)
        Mean response at a node, to the six digits that LightGBM prints.
    leaf_value : ndarray of float64, shape (n_leaves.sum(),)
        Response of each leaf, exact.
    """

    feature_names: tuple[str, ...]
    n_leaves: np.ndarray
    tree: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    categories: Mapping[int, frozenset[int]]
    missing: np.ndarray
    is_default_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    leaf_value: np.ndarray


def parse_forest(text: str, *, name: str = "model") -> Forest:
    """Read the trees of a model text.

    Parameters
    ----------
    text : str
        What ``Booster.model_to_string`` gives.
    name : str
        What to call it in messages, such as its path.

    Returns
    -------
    Forest
        Trees in the order in which LightGBM sums them.

    Raises
    ------
    ModelError
        If the text is cut short or inconsistent or holds no tree, or the model is of another version, linear,
        averaged (random forest), of several classes or of several trees an iteration.
    """
    body, has_end, _ = text.partition("\nend of trees")
    if not has_end:
        raise ModelError(f"{name}: no line 'end of trees': the text is cut short or no model", hint=_HINT)
    header_text, *tree_texts = body.split("\nTree=")
    header = _fields(header_text)
    _check_header(header, name)
    feature_names = tuple(header.get("feature_names", "").split())
    n_features = _single(header, "max_feature_idx", int, name) + 1
    _expect(len(feature_names), n_features, "feature names", name)
    _expect(len(tree_texts), len(header.get("tree_sizes", "").split()), "trees", name)
    if not tree_texts:
        raise ModelError(f"{name}: 0 trees, expected at least 1: nothing was learned", hint=_HINT)
    return _forest(feature_names, [_fields(part) for part in tree_texts], name)


def _forest(feature_names: tuple[str, ...], trees: list[dict[str, str]], name: str) -> Forest:
    n_leaves: list[int] = []
    columns: dict[str, list[float]] = {key: [] for key in _NODE_COLUMNS}
    leaf_value: list[float] = []
    categories: dict[int, frozenset[int]] = {}
    for t, fields in enumerate(trees):
        what = f"{name}: tree {t}"
        if fields.get("is_linear", "0") != "0":
            raise ModelError(f"{what}: its leaves are linear models, expected constants", hint=_HINT)
        n = _single(fields, "num_leaves", int, what)
        leaves = _numbers(fields, "leaf_value", float, what)
        _expect(len(leaves), max(n, 1), "leaf values", what)
        n_leaves.append(n)
        leaf_value += leaves
        if n == 1:  # a constant: LightGBM writes no nodes
            continue
        start = len(columns["threshold"])
        for key, kind in _NODE_COLUMNS.items():
            values = _numbers(fields, key, kind, what)
            _expect(len(values), n - 1, f"numbers in {key}", what)
            columns[key] += values
        categories |= _categories(fields, columns["decision_type"], columns["threshold"], start, what)
    arrays = {
        key: np.array(values, dtype=np.float64 if _NODE_COLUMNS[key] is float else np.int64)
        for key, values in columns.items()
    }
    sizes = np.array(n_leaves, dtype=np.int64)
    decisions = np.array(columns["decision_type"], dtype=np.int64)
    forest = Forest(
        feature_names=feature_names,
        n_leaves=sizes,
        tree=np.repeat(np.arange(len(sizes)), sizes - 1),
        feature=arrays["split_feature"],
        threshold=arrays["threshold"],
        categories=categories,
        missing=decisions >> 2,
        is_default_left=decisions & 2 > 0,
        left=arrays["left_child"],
        right=arrays["right_child"],
        value=arrays["internal_value"],
        leaf_value=np.array(leaf_value, dtype=np.float64),
    )
    _check_forest(forest, name)
    return forest


_NODE_COLUMNS: dict[str, Callable[[str], int] | Callable[[str], float]] = {
    "split_feature": int,
    "threshold": float,
    "decision_type": int,
    "left_child": int,
    "right_child": int,
    "internal_value": float,
}


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        fields[key] = value
    return fields


def _expect(found: int, expected: int, what: str, name: str) -> None:
    if found != expected:
        raise ModelError(f"{name}: {found} {what}, expected {expected}", hint=_HINT)


def _check_header(header: Mapping[str, str], name: str) -> None:
    if "tree" not in header:
        raise ModelError(f"{name}: no LightGBM tree model", hint=_HINT)
    version = header.get("version", "missing")
    if version != _VERSION:
        raise ModelError(f"{name}: LightGBM text version {version}, expected {_VERSION}", hint=_HINT)
    for key in ("num_class", "num_tree_per_iteration"):
        if header.get(key) != "1":
            raise ModelError(f"{name}: {key} is {header.get(key, 'missing')}, expected 1", hint=_HINT)
    if "average_output" in header:
        raise ModelError(f"{name}: the trees are averaged (random forest), expected a sum", hint=_HINT)


def _numbers(fields: Mapping[str, str], key: str, kind: Callable[[str], _T], name: str) -> list[_T]:
    try:
        return [kind(word) for word in fields[key].split()]
    except KeyError:
        raise ModelError(f"{name}: {key} is missing", hint=_HINT) from None
    except ValueError as error:
        raise ModelError(f"{name}: {key} holds what is no number: {error}", hint=_HINT) from error


def _single(fields: Mapping[str, str], key: str, kind: Callable[[str], _T], name: str) -> _T:
    values = _numbers(fields, key, kind, name)
    _expect(len(values), 1, f"numbers in {key}", name)
    return values[0]


def _categories(
    fields: Mapping[str, str], decisions: list[float], thresholds: list[float], start: int, name: str
) -> dict[int, frozenset[int]]:
    """Categories of one tree's nodes: the threshold is the number of a bitset of 32-bit words, end to end."""
    found: dict[int, frozenset[int]] = {}
    nodes = [i for i in range(start, len(decisions)) if int(decisions[i]) & 1]
    if not nodes:
        return found
    bounds = _numbers(fields, "cat_boundaries", int, name)
    words = _numbers(fields, "cat_threshold", int, name)
    if bounds != sorted(bounds) or bounds[:1] != [0] or bounds[-1] != len(words):
        raise ModelError(f"{name}: cat_boundaries do not fit {len(words)} words of cat_threshold", hint=_HINT)
    for i in nodes:
        if not 0 <= thresholds[i] < len(bounds) - 1:
            raise ModelError(f"{name}: category set {thresholds[i]} of {len(bounds) - 1}", hint=_HINT)
        which = int(thresholds[i])
        own = words[bounds[which] : bounds[which + 1]]
        found[i] = frozenset(
            32 * w + bit for w, word in enumerate(own) for bit in range(32) if word >> bit & 1
        )
    return found


def _check_forest(forest: Forest, name: str) -> None:
    """Refuse what is no forest: each node but a root has one parent, and that stands before it."""
    n_leaves = forest.n_leaves[forest.tree]
    first_node = (np.cumsum(forest.n_leaves - 1) - (forest.n_leaves - 1))[forest.tree]
    place = np.arange(len(forest.tree)) - first_node
    wrong = (forest.feature < 0) | (forest.feature >= len(forest.feature_names))
    wrong |= (forest.missing < 0) | (forest.missing > MISSING_NAN)
    # An infinite threshold is LightGBM's way to part NaN from all numbers.
    wrong |= np.isnan(forest.threshold) | ~np.isfinite(forest.value)
    for child in (forest.left, forest.right):
        wrong |= ~((child > place) & (child < n_leaves - 1) | (child < 0) & (child >= -n_leaves))
    # Children of all trees on one number line: a tree with n leaves takes 2n - 1 places from 2 * its first.
    base = 2 * first_node + forest.tree + n_leaves
    children = np.concatenate([base + forest.left, base + forest.right])
    _, firsts, counts = np.unique(children, return_index=True, return_counts=True)
    wrong[firsts[counts > 1] % max(len(wrong), 1)] = True
    if wrong.any():
        node = int(np.flatnonzero(wrong)[0])
        raise ModelError(
            f"{name}: tree {forest.tree[node]}, node {place[node]}: its feature, threshold, missing type or "
            "children are none of this model",
            hint=_HINT,
        )
    if not np.isfinite(forest.leaf_value).all() or (forest.n_leaves < 1).any():
        raise ModelError(f"{name}: a leaf is not a finite number, or a tree has none", hint=_HINT)
