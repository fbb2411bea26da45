"""The repository: settings, git, and under which names evidence is recorded here."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path

from fastci_ml.cli.health.finding import Finding, ok, warning
from fastci_ml.errors import GitError
from fastci_ml.settings import Settings
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree
from fastci_ml.sources.projects import default_project, repository_top
from fastci_ml.sources.scope import detect_scope

_TOPIC = "repository"
_SHORT = 10


def look_at_repository(settings: Settings) -> Iterable[Finding]:
    """Findings about the target repository."""
    yield ok(_TOPIC, "root", str(settings.root))
    yield ok(_TOPIC, "settings", _origin(settings.root))
    project = default_project(settings.root)
    if project:
        yield ok(_TOPIC, "project", f"{project}, below {repository_top(settings.root)}")
    yield ok(_TOPIC, "lane", settings.lane or detect_lane())
    yield from _git(settings)


def _origin(root: Path) -> str:
    """Where the settings come from; that they can be read is known by now."""
    own, shared = root / "fastci.toml", root / "pyproject.toml"
    if own.exists():
        return str(own)
    if shared.exists():
        tools = tomllib.loads(shared.read_text(encoding="utf-8")).get("tool", {})
        if "fastci" in tools:
            return f"[tool.fastci] of {shared}"
    return "none: defaults"


def _git(settings: Settings) -> Iterable[Finding]:
    try:
        worktree = read_worktree(repository_top(settings.root))
    except GitError as error:
        scope = detect_scope(os.environ, is_dirty=True)
        yield warning(
            _TOPIC,
            "git",
            f"{error}: evidence is recorded without a commit, in scope {scope}",
            error.hint or "git status",
        )
        return
    scope = detect_scope(os.environ, is_dirty=worktree.is_dirty)
    if worktree.is_dirty:
        yield warning(
            _TOPIC,
            "git",
            f"commit {worktree.head[:_SHORT]}, and files that differ from it: evidence goes to scope {scope}",
            "git status",
        )
    else:
        yield ok(
            _TOPIC, "git", f"commit {worktree.head[:_SHORT]}, nothing changed; evidence goes to scope {scope}"
        )
