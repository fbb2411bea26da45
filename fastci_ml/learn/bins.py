"""Replace the values of a column by bins: one for each way in which the nodes of a model can take them.

What LightGBM does with zero, NaN, infinities and odd categories is here, and nowhere else.
"""

from __future__ import annotations

import numpy as np

from fastci_ml.errors import ModelError
from fastci_ml.learn.model_text import MISSING_NAN, MISSING_ZERO, Forest

# LightGBM's kZeroThreshold is a float32 literal, include/LightGBM/meta.h; values up to it are read as 0.
_ZERO = float(np.float32(1e-35))
# Categories are cast to a C int, so what does not fit is no category.
_INT_END = 2.0**31


class NumberBins:
    """Bins of a numerical column: one between each two thresholds, then one for NaN and one for zero.

    Zero and NaN stand apart because a node may send them elsewhere than their neighbours.
    """

    def __init__(self, forest: Forest, nodes: np.ndarray) -> None:
        # `np.unique` of bare values would load `numpy.ma`, which `rank` does without.
        self._thresholds = np.array(sorted(set(forest.threshold[nodes].tolist())))
        self._nan = len(self._thresholds) + 1
        self._zero = self._nan + 1

    def find(self, column: np.ndarray) -> np.ndarray:
        """Bin of each value, intp."""
        # `left` counts the thresholds below a value, so that "value <= threshold" is "bin <= its index".
        bins = np.searchsorted(self._thresholds, column.astype(np.float64), side="left")
        bins[np.isnan(column)] = self._nan
        bins[np.abs(column) <= _ZERO] = self._zero
        return bins

    def masks(self, forest: Forest, nodes: np.ndarray, row: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """AND of `kept` over the nodes that send a bin right; include/LightGBM/tree.h, NumericalDecision.

        Parameters
        ----------
        nodes, row, kept : ndarray, shape (n,)
            Nodes of this column, the row of the result (the tree) for each, and the leaves that it keeps.

        Returns
        -------
        ndarray of uint64, shape (n_rows, n_bins)
        """
        masks = np.full((row[-1] + 1, self._zero + 1), ~np.uint64(0))
        threshold, missing = forest.threshold[nodes], forest.missing[nodes]
        # Mark the first bin that goes right, and let the mark hold for all bins above.
        np.bitwise_and.at(masks, (row, np.searchsorted(self._thresholds, threshold) + 1), kept)
        np.bitwise_and.accumulate(masks[:, : self._nan], axis=1, out=masks[:, : self._nan])
        missing_right = ~forest.is_default_left[nodes]
        zero_right = np.where(missing == MISSING_ZERO, missing_right, threshold < 0.0)
        # A NaN is a zero for a node that does not know NaN.
        nan_right = np.where(missing == MISSING_NAN, missing_right, zero_right)
        np.bitwise_and.at(masks[:, self._nan], row[nan_right], kept[nan_right])
        np.bitwise_and.at(masks[:, self._zero], row[zero_right], kept[zero_right])
        return masks


class CategoryBins:
    """Bins of a categorical column: one a category that some node names, and one for everything else."""

    def __init__(self, forest: Forest, nodes: np.ndarray) -> None:
        named = {category for node in nodes for category in forest.categories[int(node)]}
        self._categories = np.array(sorted(named), dtype=np.float64)

    def find(self, column: np.ndarray) -> np.ndarray:
        """Bin of each value, intp; NaN, negative and unseen ones share the last."""
        # As a C cast to int: towards zero, so -0.5 is category 0. NaN fails both comparisons.
        is_category = (column > -1.0) & (column < _INT_END)
        values = np.where(is_category, np.trunc(column.astype(np.float64)), np.inf)
        bins = np.searchsorted(self._categories, values)
        is_named = np.append(self._categories, np.nan)[bins] == values
        return np.where(is_named, bins, len(self._categories)).astype(np.intp)

    def masks(self, forest: Forest, nodes: np.ndarray, row: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """AND of `kept` over the nodes that send a bin right, as for numbers; CategoricalDecision."""
        masks = np.full((row[-1] + 1, len(self._categories) + 1), ~np.uint64(0))
        for node, r, leaves in zip(nodes, row, kept, strict=True):
            is_left = np.isin(self._categories, list(forest.categories[int(node)]))
            masks[r, np.append(~is_left, True)] &= leaves
        return masks


Bins = NumberBins | CategoryBins


def make_bins(forest: Forest, nodes: np.ndarray) -> Bins:
    """Bins of the column that these nodes read.

    Raises
    ------
    ModelError
        If some of them take it for a number and others for a category.
    """
    n_categorical = sum(int(node) in forest.categories for node in nodes) if forest.categories else 0
    if n_categorical == 0:
        return NumberBins(forest, nodes)
    if n_categorical < len(nodes):
        name = forest.feature_names[forest.feature[nodes[0]]]
        raise ModelError(f"feature {name!r} is used as a number and as a category", hint="fastci-ml train")
    return CategoryBins(forest, nodes)
