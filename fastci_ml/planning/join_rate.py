"""How well history and tests are joined, and whether that is well enough to leave tests out.

Where the history does not know the tests that are there, or guessed which test a result is of, nothing that
it says of them can be built on. Then the plan is a full run, whatever else is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastci_ml.records.plans import Reason

# As many as `train` asks for. With fewer, most of what a test can do has not been seen.
_MIN_RUNS = 15
_LISTING = "pytest --collect-only -q > collected.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRate:
    """Counts of one plan and of the history behind it.

    Attributes
    ----------
    n_collected, n_known : int
        Tests that pytest collected, and those of them that ran before on the lane: by their ids, or by their
        function where ids change between runs. No collected test means that nobody listed them.
    n_attempts, n_certain : int
        Executions of the history, and those whose test is known for certain.
    n_runs : int
        Runs of the lane.
    """

    n_collected: int
    n_known: int
    n_attempts: int
    n_certain: int
    n_runs: int

    @property
    def known_ratio(self) -> float | None:
        """Share of the collected tests that the history knows; None without a listing."""
        return self.n_known / self.n_collected if self.n_collected else None

    @property
    def join_ratio(self) -> float | None:
        """Share of the executions that are joined for certain; None without any."""
        return self.n_certain / self.n_attempts if self.n_attempts else None

    def to_json(self) -> dict[str, Any]:
        """Keys for the summary of a plan; null is unknown."""
        return {
            "n_collected": self.n_collected,
            "n_collected_known": self.n_known,
            "known_ratio": self.known_ratio,
            "join_ratio": self.join_ratio,
            "n_runs_known": self.n_runs,
        }

    def obstacles(self, min_ratio: float, *, has_model: bool) -> tuple[Reason, ...]:
        """Why no test may be left out; empty where the join allows it.

        Parameters
        ----------
        min_ratio : float
            In [0, 1]; both shares must reach it, and an unknown share does not.
        has_model : bool
            Whether a model ranks the tests: without one there are no risks to weigh.
        """
        reasons = []
        if not self.n_runs:
            hint = "fastci-ml ingest REPORTS"
            reasons.append(Reason(code="no_history", text=f"no run of this lane is known; {hint}"))
        elif self.n_runs < _MIN_RUNS:
            text = f"{self.n_runs} runs of this lane are known, needed {_MIN_RUNS}"
            reasons.append(Reason(code="little_history", text=text, details={"n_runs": self.n_runs}))
        if not has_model:
            reasons.append(Reason(code="no_model", text="no model ranks the tests; fastci-ml train"))
        low = self._low(min_ratio)
        if low:
            details = {**self.to_json(), "min_join_ratio": min_ratio}
            reasons.append(Reason(code="low_join_rate", text="; ".join(low), details=details))
        return tuple(reasons)

    def _low(self, min_ratio: float) -> list[str]:
        low = []
        if self.known_ratio is None:
            text = "nobody listed the tests, so how many of them have a history is unknown"
            low.append(f"{text}: {_LISTING}; fastci-ml rank --collected collected.txt")
        elif self.known_ratio < min_ratio:
            low.append(
                f"{self.n_known:,} of {self.n_collected:,} collected tests have a history on this lane "
                f"({_percent(self.known_ratio)}, needed {_percent(min_ratio)})"
            )
        if self.join_ratio is not None and self.join_ratio < min_ratio:
            low.append(
                f"{self.n_certain:,} of {self.n_attempts:,} results are of a test that is known for certain "
                f"({_percent(self.join_ratio)}, needed {_percent(min_ratio)})"
            )
        elif self.join_ratio is None and self.n_runs:
            low.append(
                "the model does not say how many results are of tests known for certain: fastci-ml train"
            )
        if low and self.known_ratio is not None:
            low.append(f"{_LISTING}; fastci-ml ingest --collected collected.txt REPORTS")
        return low


def describe_join(summary: Mapping[str, Any]) -> str:
    """One line for a person, from the summary of a plan.

    Examples
    --------
    >>> describe_join({"n_collected": 4, "n_collected_known": 3, "known_ratio": 0.75, "join_ratio": 1.0})
    'history: knows 3 of 4 collected tests (75.0%); 100.0% of its results are of tests known for certain'
    """
    if summary.get("known_ratio") is None:
        known = "the collected tests are not known (--collected)"
    else:
        n_known, n_collected = summary["n_collected_known"], summary["n_collected"]
        known = f"knows {n_known:,} of {n_collected:,} collected tests ({_percent(summary['known_ratio'])})"
    share = summary.get("join_ratio")
    certain = "nothing" if share is None else f"{_percent(share)} of its results"
    return f"history: {known}; {certain} {'is' if share is None else 'are'} of tests known for certain"


def _percent(ratio: float) -> str:
    # Rounded down: 89.99% must not read as the floor of 90% that it misses.
    return f"{int(1000 * ratio) / 10:.1f}%"
