"""The learning rate as a function of the number of updates made."""

from __future__ import annotations

import math

from minitrain.config import Config


def learning_rate(config: Config, n_updates: int) -> float:
    """Return the rate of the update that follows `n_updates` others.

    It rises linearly over the first ``optim.warmup_steps`` updates, the last of which has ``optim.lr``, and
    falls to ``optim.min_lr_ratio`` of that in update number ``optim.decay_steps``. Skipped steps are no
    updates.

    >>> from minitrain.config import Config, assign
    >>> config = assign(Config(), ["optim.lr=1", "optim.warmup_steps=2", "optim.decay=linear", "run.steps=6"])
    >>> [round(learning_rate(config, n), 3) for n in range(7)]
    [0.5, 1.0, 0.775, 0.55, 0.325, 0.1, 0.1]
    """
    optim = config.optim
    number = n_updates + 1
    if number < optim.warmup_steps:
        return optim.lr * number / optim.warmup_steps
    if optim.decay == "constant":
        return optim.lr
    highest = max(optim.warmup_steps, 1)
    lowest = optim.decay_steps or config.run.steps
    progress = min((number - highest) / max(lowest - highest, 1), 1.0)
    fall = progress if optim.decay == "linear" else (1 - math.cos(math.pi * progress)) / 2
    return optim.lr * (1 - (1 - optim.min_lr_ratio) * fall)
