"""How runs are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runs import Run

REFERENCES = Path(__file__).with_name("references")
FP64 = 1e-10  # relative; two layouts of a run differ by rounding only, which training enlarges
FP32 = 1e-5


def assert_close(found: Sequence[float], expected: Sequence[float], tolerance: float) -> None:
    """Compare step by step, relative to the expected value."""
    assert found, "nothing to compare"
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance * 1e-3)


def assert_same_training(found: Run, expected: Run, tolerance: float) -> None:
    """Losses and gradient norms of all steps agree, and the loss of the evaluation that ends the run.

    So the gradient of every weight reached its update, in the last step as well.
    """
    assert_close(found.losses, expected.losses, tolerance)
    assert_close(found.steps("grad_norm"), expected.steps("grad_norm"), tolerance)
    assert_close(found.eval_losses, expected.eval_losses, tolerance)


def assert_identical_training(found: Run, expected: Run) -> None:
    """The same, to the bit."""
    assert found.losses, "nothing to compare"
    assert found.losses == expected.losses
    assert found.steps("grad_norm") == expected.steps("grad_norm")
    assert found.eval_losses, "nothing to compare"
    assert found.eval_losses == expected.eval_losses


def reference(name: str) -> dict[str, list[float]]:
    """Read what ``python -m tools.make_reference`` stored."""
    stored: dict[str, list[float]] = json.loads((REFERENCES / f"{name}.json").read_text())
    return stored
