"""Errors that a user can mend. Each says what was found, what was expected, and what to change."""

from __future__ import annotations


class TrainError(Exception):
    """Root of all errors raised on purpose."""


class ConfigError(TrainError):
    """An assignment that cannot be read, or a configuration that cannot run."""


class DataError(TrainError):
    """A corpus too small for what is asked of it."""


class CheckpointError(TrainError):
    """A checkpoint that is missing, incomplete, or of another model."""


class DivergenceError(TrainError):
    """Loss or gradients are no longer finite, and no loss scale can help."""
