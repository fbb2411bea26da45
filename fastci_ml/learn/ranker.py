"""The risk model: LightGBM in scikit-learn's grammar. The only importer of lightgbm.

Training alone needs this module; what `rank` loads is `bundle` and `walk`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from fastci_ml.features.columns import in_schema_order
from fastci_ml.features.schema import FEATURE_NAMES

if TYPE_CHECKING:
    import lightgbm

logger = logging.getLogger(__name__)

# LightGBM draws its seeds for bagging, columns and bins from `seed` alone when the others are left out.
_FIXED: dict[str, Any] = {
    "objective": "binary",
    "verbosity": -1,
    # Bit-equal models for equal seeds on one machine; costs a little time.
    "deterministic": True,
    "force_row_wise": True,
}


class RiskRanker(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Predict the failure of a test in a run; higher raw scores run first.

    Parameters
    ----------
    n_trees : int
        Trees to grow. A fixed number: stopping early on later runs, with their few failures, stopped anywhere
        between 9 and 111 and gained nothing steady (docs/decisions/0004).
    n_leaves : int
        Most leaves of a tree.
    learning_rate : float
        Shrinkage of each tree.
    min_rows_in_leaf : int
        Fewest rows in a leaf. Failures are rare, so a leaf must not need many of them, yet hold enough rows
        for its rate to be more than chance.
    column_share : float
        Share of the columns that each tree may use.
    row_share : float
        Share of the rows that each tree sees.
    l2 : float
        Penalty on leaf values.
    balance_runs : bool
        Whether every run weighs the same in total; `fit` then needs `runs`. Off: on real histories it gained
        nothing (docs/decisions/0004).
    seed : int
        Seed of everything random.
    n_jobs : int
        Threads.

    Attributes
    ----------
    feature_names : tuple of str
        Columns of X, those of the schema.
    model_text_ : str
        LightGBM's text; what `walk` reads.
    n_trees_ : int
        Trees grown.
    gain_ : ndarray of float64, shape (n_features,)
        Total gain of the splits on each column.
    """

    feature_names: tuple[str, ...] = FEATURE_NAMES

    def __init__(
        self,
        *,
        n_trees: int = 150,
        n_leaves: int = 15,
        learning_rate: float = 0.05,
        min_rows_in_leaf: int = 30,
        column_share: float = 0.5,
        row_share: float = 0.8,
        l2: float = 5.0,
        balance_runs: bool = False,
        seed: int = 0,
        n_jobs: int = 1,
    ) -> None:
        self.n_trees = n_trees
        self.n_leaves = n_leaves
        self.learning_rate = learning_rate
        self.min_rows_in_leaf = min_rows_in_leaf
        self.column_share = column_share
        self.row_share = row_share
        self.l2 = l2
        self.balance_runs = balance_runs
        self.seed = seed
        self.n_jobs = n_jobs

    def fit(
        self,
        X: NDArray[np.float32],
        y: NDArray[np.float64],
        *,
        runs: NDArray[np.int64] | None = None,
    ) -> RiskRanker:
        """Grow the trees.

        Parameters
        ----------
        X : array or frame of float32, shape (n, n_features)
            NaN is unknown. Columns of a plain array as in `feature_names`; a frame's are taken by name.
        y : ndarray of float64, shape (n,)
            1 failed, 0 passed.
        runs : ndarray of int64, shape (n,), optional
            Run of each row; read with `balance_runs` only.

        Raises
        ------
        ValueError
            If shapes do not fit, `y` holds one class only or something else than 0 and 1, or `runs` is
            needed and not given.
        """
        X = in_schema_order(X)
        self._check(X, y)
        if self.balance_runs and runs is None:
            raise ValueError("balance_runs needs the run of each row: call fit(X, y, runs=runs)")
        import lightgbm

        data = lightgbm.Dataset(
            X,
            y,
            weight=_run_weights(runs) if self.balance_runs and runs is not None else None,
            feature_name=list(self.feature_names),
            params=_FIXED,
        )
        params = _FIXED | {
            "num_leaves": self.n_leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_rows_in_leaf,
            "feature_fraction": self.column_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "lambda_l2": self.l2,
            "seed": self.seed,
            "num_threads": self.n_jobs,
        }
        booster = lightgbm.train(params, data, num_boost_round=self.n_trees)
        self.model_text_ = booster.model_to_string()
        self.n_trees_ = booster.current_iteration()
        self.gain_ = booster.feature_importance("gain")
        self._booster = booster
        logger.debug("grew %d trees on %d rows with %d failures", self.n_trees_, len(y), int(y.sum()))
        return self

    def decision_function(self, X: NDArray[np.float32]) -> NDArray[np.float64]:
        """Raw scores (log-odds), shape (n,), by LightGBM itself; higher is riskier."""
        booster = self.booster_
        return np.asarray(
            booster.predict(in_schema_order(X), raw_score=True, num_threads=self.n_jobs), dtype=np.float64
        )

    @property
    def booster_(self) -> lightgbm.Booster:
        """LightGBM's own object.

        Raises
        ------
        ValueError
            Before `fit`.
        """
        if not hasattr(self, "_booster"):
            raise ValueError("this RiskRanker is not fitted yet: call fit(X, y)")
        return self._booster

    def _check(self, X: NDArray[np.float32], y: NDArray[np.float64]) -> None:
        if X.ndim != 2 or X.shape[1] != len(self.feature_names) or y.shape != (len(X),):
            n = len(self.feature_names)
            raise ValueError(f"X has shape {X.shape} and y {y.shape}, expected (n, {n}) and (n,)")
        if not np.isin(y, (0, 1)).all():
            raise ValueError("y holds something else than 0 (passed) and 1 (failed)")
        if not 0 < np.sum(y == 1) < len(y):
            raise ValueError(
                f"y holds {int(np.sum(y == 1))} failures in {len(y)} rows, expected both classes"
            )


def booster_from_text(model_text: str) -> lightgbm.Booster:
    """LightGBM's own object for a model text, for tools that want one."""
    import lightgbm

    return lightgbm.Booster(model_str=model_text)


def _run_weights(runs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Weights by which every run counts the same; their mean is 1, so other parameters keep their meaning."""
    _, place, sizes = np.unique(runs, return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = len(runs) / len(sizes) / sizes[place]
    return weights
