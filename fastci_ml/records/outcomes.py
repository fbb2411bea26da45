"""How one attempt at one test ended, and what kind of failure it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fastci_ml.records.ids import NodeId

# Thirty years: nothing that a CI waits for takes longer. What claims to has an unknown duration; it would
# move the clocks of runs, and sums of it would leave the range of a float32.
LONGEST_S = 1e9


class Outcome(StrEnum):
    """What pytest said of one attempt, set-up, call and teardown together."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"  # set-up or teardown failed
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    UNKNOWN = "unknown"  # it was to run, and no report says how it ended

    @property
    def is_failure(self) -> bool:
        """Whether the attempt counts against the run."""
        return self in (Outcome.FAILED, Outcome.ERROR)

    @property
    def has_run(self) -> bool:
        """Whether the test body had its chance, so that the attempt says something about the code."""
        return self not in (Outcome.SKIPPED, Outcome.UNKNOWN)


class FailureClass(StrEnum):
    """Why an attempt failed. Only `TEST` is a positive label (EVALUATION 3)."""

    NONE = ""
    TEST = "test"
    SETUP = "setup"
    TIMEOUT = "timeout"
    CRASH = "crash"
    INFRASTRUCTURE = "infrastructure"
    ENVIRONMENT = "environment"
    FLAKY = "flaky"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One attempt at one test in one run: a row of EXECUTIONS.

    Attributes
    ----------
    run_id, job, shard, lane : str
        Where it ran; `job` and `shard` are empty where the CI has none.
    node_id : NodeId
        From the repository root.
    attempt : int
        0 for the first try in this run.
    outcome : Outcome
        How it ended.
    failure_class : FailureClass
        `NONE` unless the outcome is a failure.
    started_at, finished_at : datetime or None
        UTC; None when unknown.
    duration_s : float
        Set-up, call and teardown; NaN when unknown.
    n_gpus, gpu_s : float
        GPUs held and GPU-seconds; NaN when unknown, never 0 for "unknown".
    is_joined : bool
        Whether the id is one that pytest collected or reported, not one guessed from a class name.
    message : str
        First line of the failure, at most 200 characters.
    failure_rule : str
        Id of the rule that gave `failure_class`; empty where none did.
    """

    run_id: str
    job: str
    shard: str
    lane: str
    node_id: NodeId
    attempt: int = 0
    outcome: Outcome
    failure_class: FailureClass = FailureClass.NONE
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_s: float = float("nan")
    n_gpus: float = float("nan")
    gpu_s: float = float("nan")
    is_joined: bool = True
    message: str = ""
    failure_rule: str = ""
