"""The one fixed list of features: name, meaning, and how a reason puts it in words.

Names are ASCII and never derived from a test or a file. A model remembers the digest of this list and refuses
another. All features are float32; NaN means unknown or never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the matrix.

    Attributes
    ----------
    name : str
        ASCII identifier.
    meaning : str
        What it says, with its unit.
    words : str
        Template for a reason; ``{value}`` is put in.
    absent : str
        The words when the value is NaN.
    """

    name: str
    meaning: str
    words: str
    absent: str = ""


_UNKNOWN = "the change is unknown"

# The order of the first fifteen is that of the fold's state: they are copied or subtracted as one block.
HISTORY_FEATURES = (
    Feature("n_runs", "past runs of the test", "ran {value:.0f} times before"),
    Feature("pass_streak", "its runs since the last failure", "passed {value:.0f} times in a row"),
    Feature(
        "n_new_fails", "past failures right after a pass", "went from passing to failing {value:.0f} times"
    ),
    Feature("fail_streak", "its runs since the last pass", "failed {value:.0f} times in a row"),
    Feature("last_verdict", "1 failed, 0 passed in its last run", "last verdict is {value:.0f}", "never ran"),
    Feature("n_fails", "past failures of the test", "failed {value:.0f} times before"),
    Feature("fail_decay_50", "failures, decayed by .5 a run", "fails lately (decay .5) at {value:.2f}"),
    Feature("fail_decay_80", "failures, decayed by .8 a run", "fails lately (decay .8) at {value:.2f}"),
    Feature("fail_decay_95", "failures, decayed by .95 a run", "fails lately (decay .95) at {value:.2f}"),
    Feature(
        "repeat_fail_share",
        "failures that repeat one / (failures + 1)",
        "repeats its failures at {value:.2f}",
    ),
    Feature("duration_mean_s", "mean seconds of its runs", "takes {value:.2f} s", "has no known duration"),
    Feature(
        "duration_trend",
        "seconds of its last run / mean",
        "last took {value:.2f} times its mean",
        "has no known duration",
    ),
    Feature(
        "runs_since_fail",
        "CI runs since its last failure",
        "last failed {value:.0f} CI runs ago",
        "never failed",
    ),
    Feature("runs_since_run", "CI runs since it last ran", "last ran {value:.0f} CI runs ago", "never ran"),
    Feature("runs_since_first", "CI runs since it first ran", "first ran {value:.0f} CI runs ago", "is new"),
    Feature("fail_rate", "(failures + .01) / (runs + .5)", "fails at a rate of {value:.3f}"),
    Feature(
        "new_fail_rate", "failures after a pass / (passes + 1)", "starts to fail at a rate of {value:.3f}"
    ),
    Feature(
        "module_fail_decay_80",
        "failing share of its module, decayed by .8 a run of the module",
        "its module fails lately at {value:.3f}",
        "its module never ran",
    ),
    Feature("run_n_tests", "tests in this run", "the run has {value:.0f} tests"),
    Feature(
        "lane_fail_decay_80",
        "failing share of the lane's runs, decayed by .8 a run",
        "the lane fails lately at {value:.3f}",
        "no run came before",
    ),
)

CHANGE_FEATURES = (
    Feature("change_n_files", "files in the change", "the change has {value:.0f} files", _UNKNOWN),
    Feature("change_n_lines", "lines added and deleted", "the change has {value:.0f} lines", _UNKNOWN),
    Feature("change_n_folders", "folders in the change", "the change has {value:.0f} folders", _UNKNOWN),
    Feature("change_test_share", "share of test files", "the change is {value:.2f} test files", _UNKNOWN),
    Feature("change_source_share", "share of source files", "the change is {value:.2f} source", _UNKNOWN),
    Feature("change_config_share", "share of configuration", "the change is {value:.2f} settings", _UNKNOWN),
    Feature(
        "change_churn",
        "most earlier changes to one of its files",
        "one changed file was changed {value:.0f} times before",
        _UNKNOWN,
    ),
    Feature(
        "change_fail_share",
        "highest share of a changed file's earlier changes that failed a test",
        "changes to one of these files fail at {value:.2f}",
        "no changed file has a history",
    ),
)

AFFINITY_FEATURES = (
    Feature("is_test_changed", "1 if its own file is changed", "own file changed: {value:.0f}", _UNKNOWN),
    Feature(
        "name_affinity",
        "highest share of a changed path's name tokens in the test's id, rare tokens weighing more",
        "its id matches a changed path by {value:.2f}",
        _UNKNOWN,
    ),
    Feature(
        "folder_affinity",
        "highest share of leading or trailing folders in common with a changed file",
        "shares {value:.2f} of its folders with a changed file",
        _UNKNOWN,
    ),
    Feature(
        "file_cofail_rate",
        "highest (its failures with a changed file) / (changes of the file + 1)",
        "failed with one of these files at {value:.2f}",
        _UNKNOWN,
    ),
    Feature(
        "folder_cofail_rate",
        "the same over the changed files' folders",
        "failed with one of these folders at {value:.2f}",
        _UNKNOWN,
    ),
)

FEATURES: tuple[Feature, ...] = HISTORY_FEATURES + CHANGE_FEATURES + AFFINITY_FEATURES
N_FEATURES = len(FEATURES)
FEATURE_NAMES = tuple(feature.name for feature in FEATURES)
_INDEX = {name: i for i, name in enumerate(FEATURE_NAMES)}

# Raised when a feature of the same name changes its definition.
_DEFINITIONS = 1


def schema_digest(names: Sequence[str]) -> str:
    """Fingerprint of columns in this order, by today's definitions, hexadecimal."""
    return hashlib.sha256(f"{_DEFINITIONS}:{','.join(names)}".encode()).hexdigest()


SCHEMA_DIGEST = schema_digest(FEATURE_NAMES)
# The same for columns in any order: what a frame remembers, whose columns have names.
FEATURES_DIGEST = schema_digest(sorted(FEATURE_NAMES))


def feature_index(name: str) -> int:
    """Column of a feature.

    Raises
    ------
    ValueError
        If there is no such feature.
    """
    if name not in _INDEX:
        raise ValueError(f"no feature {name!r}; there are {', '.join(FEATURE_NAMES)}")
    return _INDEX[name]
