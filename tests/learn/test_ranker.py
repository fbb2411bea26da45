from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fastci_ml.features.log import RunLog
from fastci_ml.features.schema import FEATURE_NAMES
from fastci_ml.learn.labels import labels
from fastci_ml.learn.ranker import RiskRanker
from fastci_ml.learn.walk import TreeWalk


def test_equal_seeds_give_equal_models_byte_for_byte(log: RunLog, X: np.ndarray) -> None:
    y = labels(log)
    first = RiskRanker(seed=1, n_trees=20).fit(X, y)
    second = RiskRanker(seed=1, n_trees=20).fit(np.ascontiguousarray(X), y)
    assert first.model_text_ == second.model_text_
    assert RiskRanker(seed=2, n_trees=20).fit(X, y).model_text_ != first.model_text_


def test_the_walk_scores_as_the_ranker_does(log: RunLog, X: np.ndarray) -> None:
    ranker = RiskRanker().fit(X, labels(log))
    walk = TreeWalk.parse(ranker.model_text_)
    assert walk.feature_names == FEATURE_NAMES
    np.testing.assert_array_equal(walk.raw_scores(X), ranker.decision_function(X))


def test_failures_score_higher_than_passes(log: RunLog, X: np.ndarray) -> None:
    y = labels(log)
    half = log.n_rows // 2
    scores = RiskRanker().fit(X[:half], y[:half]).decision_function(X[half:])
    assert scores[y[half:] == 1].mean() > scores[y[half:] == 0].mean() + 0.5


def test_scikit_learn_can_clone_it_and_tell_whether_it_is_fitted(log: RunLog, X: np.ndarray) -> None:
    ranker = RiskRanker(n_trees=3, seed=9).fit(X, labels(log))
    check_is_fitted(ranker)
    copy = clone(ranker.set_params(l2=1.0))
    assert copy.get_params() == ranker.get_params()
    assert copy.n_trees == 3
    assert not hasattr(copy, "model_text_")
    with pytest.raises(ValueError, match="not fitted"):
        copy.decision_function(X)


def test_balanced_runs_make_a_huge_run_weigh_as_much_as_a_small_one(log: RunLog, X: np.ndarray) -> None:
    y = labels(log)
    runs = log.run_of_row
    # The same rows thrice as a run of their own weight: without balance they pull the model.
    last = runs == runs.max()
    many_X, many_y = np.concatenate([X, X[last], X[last]]), np.concatenate([y, y[last], y[last]])
    many_runs = np.concatenate([runs, runs[last], runs[last]])
    balanced = RiskRanker(balance_runs=True, n_trees=5, row_share=1.0)
    with pytest.raises(ValueError, match="runs=runs"):
        balanced.fit(X, y)
    plain = balanced.fit(X, y, runs=runs).decision_function(X)
    repeated = balanced.fit(many_X, many_y, runs=many_runs).decision_function(X)
    unbalanced = RiskRanker(n_trees=5, row_share=1.0).fit(many_X, many_y).decision_function(X)
    assert np.abs(repeated - plain).mean() < np.abs(unbalanced - plain).mean()


def test_one_class_or_a_wrong_shape_is_refused(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="both classes"):
        RiskRanker().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="expected"):
        RiskRanker().fit(X[:, :3], np.zeros(len(X)))
