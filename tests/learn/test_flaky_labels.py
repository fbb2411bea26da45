"""A failure that another run of the same commit does not repeat teaches nothing."""

from __future__ import annotations

import dataclasses

from random_runs import Run, to_log

from fastci_ml.learn.labels import labels, training_rows


def test_a_failure_that_passed_on_the_same_commit_and_lane_is_left_out() -> None:
    results = {"fail": (("a.py::t", 1, 1.0),), "pass": (("a.py::t", 0, 1.0),)}
    rows = (  # commit, lane, verdict, whether the row trains
        ("c1", "cpu", "fail", False),
        ("c1", "cpu", "pass", True),
        ("c1", "gpu", "fail", True),  # another lane
        ("c2", "cpu", "fail", True),  # another commit
        ("", "cpu", "fail", True),  # unknown commits are not one commit
        ("", "cpu", "pass", True),
    )
    log = to_log(
        [Run(lane, 10 * i, 10 * i + 1, results[name], None) for i, (_, lane, name, _) in enumerate(rows)]
    )
    log = dataclasses.replace(log, heads=[head for head, *_ in rows])
    assert training_rows(log).tolist() == [trains for *_, trains in rows]
    assert labels(log).tolist() == [float(name == "fail") for _, _, name, _ in rows]
