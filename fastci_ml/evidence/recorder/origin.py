"""Where a recorded session comes from: commit, lane, scope and job, and what its processes have in common."""

from __future__ import annotations

import logging
import os
import platform
import time
import uuid
from pathlib import Path

import fastci_ml
from fastci_ml.errors import GitError
from fastci_ml.evidence.recorder.family import Family
from fastci_ml.records.evidence import Provenance
from fastci_ml.settings import Settings
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree
from fastci_ml.sources.job import detect_job
from fastci_ml.sources.scope import detect_scope

_log = logging.getLogger(__name__)


def new_provenance(
    settings: Settings,
    top: Path,
    backend: str,
    *,
    session_id: str = "",
    worker: str = "",
    lane: str | None = None,
    started_ns: int | None = None,
) -> Provenance:
    """Provenance of a session that begins now.

    Parameters
    ----------
    settings : Settings
        Of the target.
    top : Path
        Top of its repository.
    backend : str
        What records.
    session_id, worker : str
        As in `Provenance`; a new session by default.
    lane : str, optional
        In place of that of the settings, or the detected one.
    started_ns : int, optional
        Nanoseconds since the epoch, UTC; now by default.
    """
    commit, tree, is_dirty = _checkout(top)
    return Provenance(
        bundle_id=uuid.uuid4().hex,
        session_id=session_id or uuid.uuid4().hex,
        lane=lane or settings.lane or detect_lane(),
        scope=detect_scope(os.environ, is_dirty=is_dirty),
        commit=commit,
        tree=tree,
        python=platform.python_version(),
        backend=backend,
        worker=worker,
        started_us=(time.time_ns() if started_ns is None else started_ns) // 1000,
        job=detect_job(os.environ),
    )


def family_of(
    provenance: Provenance, settings: Settings, top: Path, bundles_dir: Path, project: str = ""
) -> Family:
    """What the processes of a session have in common; `project` is the folder that pytest's ids start at."""
    return Family(
        top=str(top),
        project=project,
        bundles=str(bundles_dir.absolute()),
        session_id=provenance.session_id,
        lane=provenance.lane,
        scope=provenance.scope,
        commit=provenance.commit,
        tree=provenance.tree,
        job=provenance.job,
        parent=provenance.bundle_id,
        outside=tuple(map(str, outside_of(settings))),
        environ_prefixes=settings.environ_prefixes,
        skipped=settings.children_skipped,
        trusted=settings.children_trusted,
        flushed=settings.children_flushed,
        limit=settings.children_limit,
    )


def outside_of(settings: Settings) -> list[Path]:
    """Folders whose files no test is about: our state, and ourselves where another project is recorded."""
    package = Path(fastci_ml.__file__).resolve().parent
    own = [] if package.is_relative_to(settings.root.resolve()) else [package]
    return [settings.state_dir, *own]


def _checkout(top: Path) -> tuple[str, str, bool]:
    """Commit, tree and whether files differ from it; no commit is as good as a checkout that differs."""
    try:
        worktree = read_worktree(top)
    except GitError as error:
        _log.info("%s: recorded without a commit: %s", top, error)
        return "", "", True
    return worktree.head, worktree.tree, worktree.is_dirty
