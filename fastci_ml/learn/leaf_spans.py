"""Put the leaves of each tree from left to right, and say which of them lie below each node.

With leaves in that order, "everything below a node" is one interval, which `walk` turns into bit masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastci_ml.learn.model_text import Forest


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSpans:
    """Leaves below each node, as places from left to right, and values in that order.

    Attributes
    ----------
    start, middle, end : ndarray of int64, shape (n_nodes,)
        Within the tree, the leaves on the left are ``start..middle-1``, those on the right ``middle..end-1``.
    left_value, right_value : ndarray of float64, shape (n_nodes,)
        Values of the two children.
    leaf_values : list of ndarray of float64, each of shape (n_leaves,)
        By tree.
    root_values : ndarray of float64, shape (n_trees,)
        Value of each root; of the only leaf in a constant tree.
    """

    start: np.ndarray
    middle: np.ndarray
    end: np.ndarray
    left_value: np.ndarray
    right_value: np.ndarray
    leaf_values: list[np.ndarray]
    root_values: np.ndarray


def find_spans(forest: Forest) -> LeafSpans:
    """Order the leaves of each tree; in each, children must stand after their parent.

    Parameters
    ----------
    forest : Forest
        As checked by `parse_forest`.
    """
    first_leaf = np.cumsum(forest.n_leaves) - forest.n_leaves
    first_node = first_leaf - np.arange(len(first_leaf))
    # One numbering for all trees: inner nodes from 0, leaves as ~leaf, both over the whole forest.
    left, right = (
        np.where(child >= 0, child + first_node[forest.tree], child - first_leaf[forest.tree])
        for child in (forest.left, forest.right)
    )
    has_nodes = forest.n_leaves > 1
    starts = np.zeros(len(forest.tree), dtype=np.int64)
    starts[first_node[has_nodes]] = first_leaf[has_nodes]
    start, middle, end, order = _descend(
        left.tolist(), right.tolist(), starts.tolist(), list(range(len(forest.leaf_value)))
    )
    # Leaves reversed behind the nodes, so that the index ~leaf, which counts from the end, finds them.
    values = np.concatenate([forest.value, forest.leaf_value[::-1]])
    offset = first_leaf[forest.tree]
    return LeafSpans(
        start=start - offset,
        middle=middle - offset,
        end=end - offset,
        left_value=values[left],
        right_value=values[right],
        leaf_values=np.split(forest.leaf_value[order], first_leaf[1:]),
        root_values=values[np.where(has_nodes, first_node, ~first_leaf)],
    )


def _descend(
    left: list[int], right: list[int], starts: list[int], order: list[int]
) -> tuple[np.ndarray, ...]:
    """Spans over the whole forest from the roots' starts; plain lists, as each step needs the last."""
    sizes = [0] * len(left)
    for i in range(len(left) - 1, -1, -1):
        sizes[i] = (sizes[left[i]] if left[i] >= 0 else 1) + (sizes[right[i]] if right[i] >= 0 else 1)
    middles = [0] * len(left)
    for i, (low, high) in enumerate(zip(left, right, strict=True)):
        start = starts[i]
        middle = middles[i] = start + (sizes[low] if low >= 0 else 1)
        for child, place in ((low, start), (high, middle)):
            if child >= 0:
                starts[child] = place
            else:
                order[place] = ~child
    start_places = np.array(starts, dtype=np.int64)
    ends = start_places + np.array(sizes, dtype=np.int64)
    return start_places, np.array(middles, dtype=np.int64), ends, np.array(order, dtype=np.int64)
