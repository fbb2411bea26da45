"""Number formats: the type of weights, autocast for the rest, and the loss scale that fp16 needs."""

from __future__ import annotations

import torch

from minitrain.config import PrecisionConfig
from minitrain.errors import DivergenceError


def parameter_dtype(precision: PrecisionConfig) -> torch.dtype:
    """Return the type of weights, gradients, optimizer state and the residual stream."""
    return torch.float64 if precision.dtype == "fp64" else torch.float32


def autocast(precision: PrecisionConfig) -> torch.autocast:
    """Return the context of a forward pass: matrix products in bf16 or fp16 where that is asked for."""
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision.dtype)
    return torch.autocast("cpu", dtype=half or torch.bfloat16, enabled=half is not None)


class LossScaler:
    """Scale of the loss that keeps small fp16 gradients above zero; 1 and constant in other formats.

    Whether a step overflowed is read from the global gradient norm, which is the same on all ranks.
    """

    def __init__(self, precision: PrecisionConfig) -> None:
        self.is_dynamic = precision.dtype == "fp16"
        self.growth_interval = precision.growth_interval
        self.scale = precision.loss_scale if self.is_dynamic else 1.0
        self.n_good_steps = 0  # since the scale last changed

    def update(self, *, is_finite: bool) -> None:
        """Halve the scale after an overflow, double it after `growth_interval` good steps in a row.

        Raises
        ------
        DivergenceError
            If gradients are not finite and no smaller scale can mend that.
        """
        if not is_finite:
            if self.scale <= 1.0:
                raise DivergenceError(f"gradients are not finite at loss scale {self.scale:g}")
            self.scale, self.n_good_steps = self.scale / 2, 0
        elif self.is_dynamic:
            self.n_good_steps += 1
            if self.n_good_steps == self.growth_interval:
                self.scale, self.n_good_steps = self.scale * 2, 0

    def state(self) -> dict[str, float]:
        """Return what a checkpoint must hold."""
        return {"scale": self.scale, "n_good_steps": self.n_good_steps}

    def restore(self, state: dict[str, float]) -> None:
        """Go on from a checkpoint; formats without a scale keep none."""
        if self.is_dynamic:
            self.scale, self.n_good_steps = state["scale"], int(state["n_good_steps"])
