"""Every error that a user can see: what went wrong, its exit code, and what to type.

The tree, with the exit codes of the command line::

    FastCIError                 70  (never raised itself)
    +-- UsageError               2  a command or an option is wrong
    |   +-- SettingsError        2  [tool.fastci] is wrong
    +-- DataError                3  a file or a store cannot be used
    |   +-- ReportError          3  a test report or a table
    |   +-- HistoryError         3  the history store
    |   +-- PlanError            3  plan.json
    |   +-- ModelError           3  a model bundle
    |   +-- EvidenceError        3  a bundle or the store of runtime evidence
    |   +-- TooLittleDataError   3  a floor of data is not reached
    +-- ExternalError            4  something outside of us failed
        +-- GitError             4  git
        +-- RegistryError        4  MLflow

``ValueError`` and ``TypeError`` stay for callers of the Python API.
"""

from __future__ import annotations

from typing import ClassVar


class FastCIError(Exception):
    """Base of every error meant for a user.

    Parameters
    ----------
    message : str
        Names the thing, what was found and what was expected.
    hint : str, optional
        A command to type, or a setting to change.

    Attributes
    ----------
    slug : str
        Stable short name of the kind, for scripts and for ``--json``.
    exit_code : int
        What the command line exits with.
    hint : str or None
        As given.
    """

    slug: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(FastCIError):
    """A command or an option makes no sense as typed."""

    slug = "usage"
    exit_code = 2


class SettingsError(UsageError):
    """A value in ``[tool.fastci]`` or ``fastci.toml`` is unknown or of the wrong kind."""

    slug = "settings"


class DataError(FastCIError):
    """A file or a store holds something that cannot be used."""

    slug = "data"
    exit_code = 3


class ReportError(DataError):
    """A test report or a table of test results cannot be read."""

    slug = "report"


class HistoryError(DataError):
    """The history store is damaged, foreign or of another version."""

    slug = "history"


class PlanError(DataError):
    """A plan cannot be read, or is of a version that we do not know."""

    slug = "plan"


class ModelError(DataError):
    """A model bundle is damaged, of another schema, or holds what we cannot evaluate."""

    slug = "model"


class EvidenceError(DataError):
    """A bundle or the store of runtime evidence is damaged, foreign or of another version."""

    slug = "evidence"


class TooLittleDataError(DataError):
    """There is too little history to do what was asked; the message gives the figures."""

    slug = "too-little-data"


class ExternalError(FastCIError):
    """A program or a service that we depend on failed."""

    slug = "external"
    exit_code = 4


class GitError(ExternalError):
    """Git failed, or the revision asked for is not there."""

    slug = "git"


class RegistryError(ExternalError):
    """The MLflow store or server failed."""

    slug = "registry"
