from __future__ import annotations

import re

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import ModelError
from fastci_ml.learn.walk import TreeWalk

SPECIAL = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-36,
        -1e-36,
        1e-35,
        2e-35,
        1e300,
        -1e300,
        -0.5,
        -1.0,
        2.0**31,
        77.0,
    ]
)


def make_data(seed: int, n: int = 400, n_columns: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Columns of every kind: numbers, small integers with zeros, mostly zero, categories; with NaN."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_columns))
    X[:, 1] = rng.integers(-3, 4, n)
    X[rng.random(n) < 0.7, 2] = 0.0
    X[:, 3] = rng.integers(0, 70, n)
    X[rng.random(n) < 0.5, 0] *= 1e-35
    X[rng.random(X.shape) < 0.15] = np.nan
    lift = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) + 3.0 * np.isnan(X[:, 2]) + (X[:, 3] % 3 == 0)
    y = (rng.random(n) < 1 / (1 + np.exp(-lift))).astype(float)
    return X, y


def odd_rows(X: np.ndarray, seed: int) -> np.ndarray:
    """Rows with values that training never saw."""
    rng = np.random.default_rng(seed + 1)
    rows = X[rng.integers(0, len(X), 300)].copy()
    mask = rng.random(rows.shape) < 0.4
    rows[mask] = rng.choice(SPECIAL, mask.sum())
    return np.concatenate([X, rows])


def train(X: np.ndarray, y: np.ndarray, n_trees: int = 12, **params: object) -> lightgbm.Booster:
    defaults = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3, "seed": 1}
    data = lightgbm.Dataset(X, y, categorical_feature=params.pop("categories", []))
    return lightgbm.train(defaults | params, data, n_trees)


def assert_same(booster: lightgbm.Booster, X: np.ndarray) -> TreeWalk:
    walk = TreeWalk.parse(booster.model_to_string())
    expected = booster.predict(X, raw_score=True)
    np.testing.assert_array_equal(walk.raw_scores(X).view(np.int64), expected.view(np.int64))
    scores, contributions = walk.explain(X)
    np.testing.assert_array_equal(scores, expected)
    total = contributions.sum(axis=1, dtype=np.float64) + walk.bias
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-4 * max(1.0, np.abs(expected).max()))
    return walk


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_leaves=st.sampled_from([2, 7, 31, 32, 33, 64, 65, 150]),
    params=st.fixed_dictionaries(
        {},
        optional={
            "use_missing": st.booleans(),
            "zero_as_missing": st.booleans(),
            "learning_rate": st.sampled_from([0.05, 1.0]),
            "max_depth": st.sampled_from([2, 30]),
            "max_bin": st.sampled_from([3, 255]),
            "boosting": st.sampled_from(["gbdt", "dart"]),
            "extra_trees": st.booleans(),
            "path_smooth": st.just(5.0),
            "categories": st.sampled_from([[3], [1, 3]]),
            "max_cat_to_onehot": st.sampled_from([1, 100]),
            "cat_smooth": st.just(0.1),
            "min_data_per_group": st.just(1),
        },
    ),
)
def test_raw_scores_equal_lightgbm_bit_for_bit(seed: int, n_leaves: int, params: dict[str, object]) -> None:
    X, y = make_data(seed)
    if 1 in params.get("categories", []):
        X[:, 1] = np.abs(X[:, 1])
    assert_same(train(X, y, num_leaves=n_leaves, **params), odd_rows(X, seed))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_float32_rows_score_as_lightgbm_scores_them(seed: int) -> None:
    X, y = make_data(seed)
    X = X.astype(np.float32)
    with np.errstate(over="ignore"):
        rows = odd_rows(X, seed).astype(np.float32)
    assert_same(train(X, y, num_leaves=15, categories=[3]), rows)


def test_constant_trees_score_as_lightgbm_scores_them() -> None:
    X, y = make_data(3)
    booster = train(X, np.zeros(len(y)), n_trees=3)
    assert "num_leaves=1\n" in booster.model_to_string()
    walk = assert_same(booster, X)
    assert not walk.contributions(X).any()
    # A constant tree among others.
    mixed = train(X, y, n_trees=20, num_leaves=4, min_gain_to_split=8.0)
    assert_same(mixed, X)


def test_scores_do_not_depend_on_the_block_that_a_row_falls_into() -> None:
    X, y = make_data(5)
    booster = train(X, y, n_trees=3)
    many = np.tile(X, (45, 1))[:17_001]
    assert_same(booster, many)
    assert_same(booster, many[:1])


def test_no_rows_give_no_scores() -> None:
    X, y = make_data(5)
    walk = TreeWalk.parse(train(X, y, n_trees=3).model_to_string())
    assert walk.raw_scores(X[:0]).shape == (0,)
    assert walk.contributions(X[:0]).shape == (0, X.shape[1])


def test_contributions_follow_the_path() -> None:
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 50)
    y = X[:, 0]
    walk = TreeWalk.parse(train(X, y, n_trees=1, num_leaves=2).model_to_string())
    contributions = walk.contributions(X[:4])
    assert not contributions[:, 1].any()
    assert (contributions[:2, 0] < 0).all()
    assert (contributions[2:, 0] > 0).all()


def test_a_wrong_number_of_columns_is_refused() -> None:
    X, y = make_data(5)
    walk = TreeWalk.parse(train(X, y, n_trees=1).model_to_string())
    with pytest.raises(ValueError, match="expected \\(n, 5\\)"):
        walk.raw_scores(X[:, :4])


def test_what_cannot_be_walked_is_refused() -> None:
    X, y = make_data(7)
    numbers = np.nan_to_num(X)
    linear = lightgbm.train(
        {"verbose": -1, "linear_tree": True}, lightgbm.Dataset(numbers, y, params={"linear_tree": True}), 2
    )
    forest = train(X, y, n_trees=2, boosting="rf", bagging_freq=1, bagging_fraction=0.5)
    classes = train(X, np.arange(len(y)) % 3, n_trees=2, objective="multiclass", num_class=3)
    for booster, what in ((linear, "linear"), (forest, "averaged"), (classes, "num_class is 3")):
        with pytest.raises(ModelError, match=what):
            TreeWalk.parse(booster.model_to_string())
    text = train(X, y, n_trees=2).model_to_string()
    with pytest.raises(ModelError, match="version v9"):
        TreeWalk.parse(text.replace("version=v4", "version=v9"))
    with pytest.raises(ModelError, match="num_tree_per_iteration is 2"):
        TreeWalk.parse(text.replace("num_tree_per_iteration=1", "num_tree_per_iteration=2"))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_text_is_refused_or_walks_and_never_hangs_or_crashes(data: st.DataObject) -> None:
    text = DAMAGE_SUBJECT
    start = data.draw(st.integers(0, text.index("end of trees")))
    length = data.draw(st.integers(1, 40))
    filling = data.draw(st.sampled_from(["", "-1 ", "999 ", "nan ", "x", "1e999 ", "\n", "0"]))
    damaged = text[:start] + filling + text[start + length :]
    try:
        walk = TreeWalk.parse(damaged, name="trees.txt")
    except ModelError:
        return
    walk.raw_scores(np.zeros((2, len(walk.feature_names))))


X_DAMAGE, Y_DAMAGE = make_data(11)
DAMAGE_SUBJECT = train(X_DAMAGE, Y_DAMAGE, n_trees=3, num_leaves=6, categories=[3]).model_to_string()


def test_a_cycle_among_the_nodes_is_refused() -> None:
    text = re.sub(r"left_child=\S+", "left_child=0", DAMAGE_SUBJECT, count=1)
    with pytest.raises(ModelError, match="children"):
        TreeWalk.parse(text)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), order=st.permutations([0, 1, 2]))
def test_trees_that_disagree_on_what_is_missing_score_as_lightgbm_scores_them(
    seed: int, order: list[int]
) -> None:
    # Grown on one another: nodes that know no missing value, NaN, and zero, of the same columns.
    X, y = make_data(seed)
    kinds = [{"use_missing": False}, {"use_missing": True}, {"zero_as_missing": True}]
    booster = None
    params = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 3, "num_leaves": 9}
    for kind in (kinds[i] for i in order):
        data = lightgbm.Dataset(X, y, params=kind, free_raw_data=False)
        booster = lightgbm.train(params | kind, data, 3, init_model=booster)
    assert booster is not None
    assert_same(booster, odd_rows(X, seed))
    lines = [line for line in booster.model_to_string().split("\n") if line.startswith("decision_type=")]
    decisions = [int(word) for line in lines for word in line.removeprefix("decision_type=").split()]
    assert len({decision >> 2 for decision in decisions}) >= 2


ODD_MODELS: dict[str, dict[str, object]] = {
    "one split": {"num_leaves": 2, "n_trees": 1},
    "no split for any column": {"min_gain_to_split": 1e9, "n_trees": 4},
    "constants after splits": {"min_gain_to_split": 6.0, "num_leaves": 3, "n_trees": 60},
    "no average to begin with": {"boost_from_average": False, "n_trees": 3},
    "weights of the rare class": {"scale_pos_weight": 50.0, "n_trees": 3},
    "leaves that can be nothing": {"lambda_l1": 1e6, "n_trees": 3},
    "huge steps": {"learning_rate": 1e6, "n_trees": 3},
    "tiny steps": {"learning_rate": 1e-12, "n_trees": 3},
    "numbers, not chances": {"objective": "regression", "n_trees": 3},
    "ranks": {"objective": "cross_entropy", "n_trees": 3},
    "one bin": {"max_bin": 2, "n_trees": 3},
    "monotone": {"monotone_constraints": [1, -1, 0, 0, 0], "n_trees": 5},
    "quantized": {"use_quantized_grad": True, "n_trees": 5},
}


@pytest.mark.parametrize("what", ODD_MODELS)
def test_odd_models_score_as_lightgbm_scores_them(what: str) -> None:
    X, y = make_data(21)
    assert_same(train(X, y, **ODD_MODELS[what]), odd_rows(X, 21))


@pytest.mark.parametrize("column", [0.0, -0.0, np.nan, 1e-36, 7.5])
def test_models_of_columns_that_never_change_score_as_lightgbm_scores_them(column: float) -> None:
    X, y = make_data(4)
    X[:, 1:] = column
    assert_same(train(X, y, n_trees=4), odd_rows(X, 4))
    X[:, 0] = column  # nothing to split at all: one constant a tree
    walk = assert_same(train(X, y, n_trees=2), odd_rows(X, 4))
    assert not walk.contributions(odd_rows(X, 4)).any()


def test_a_model_without_trees_is_refused() -> None:
    X, y = make_data(4)
    empty = lightgbm.Booster({"objective": "binary", "verbose": -1}, lightgbm.Dataset(X, y))
    with pytest.raises(ModelError, match="0 trees"):
        TreeWalk.parse(empty.model_to_string())
