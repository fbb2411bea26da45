"""Putting a recorder together for this process."""

from __future__ import annotations

import logging
import os
import platform
import time
import uuid
from pathlib import Path

import fastci_ml
from fastci_ml.errors import EvidenceError, GitError
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.recorder.backend import choose_backend
from fastci_ml.evidence.recorder.collector import Collector
from fastci_ml.evidence.recorder.family import Family, hand_on
from fastci_ml.evidence.recorder.project_files import ProjectFiles
from fastci_ml.evidence.recorder.watches import make_watches
from fastci_ml.records.evidence import Provenance
from fastci_ml.settings import Settings
from fastci_ml.sources.environment import detect_lane
from fastci_ml.sources.git.worktree import read_worktree
from fastci_ml.sources.job import detect_job
from fastci_ml.sources.scope import detect_scope

_log = logging.getLogger(__name__)


def start_recording(
    settings: Settings, top: Path, bundles_dir: Path, *, session_id: str = "", worker: str = ""
) -> Collector:
    """Begin to record this process.

    Parameters
    ----------
    settings : Settings
        Of the target.
    top : Path
        Top of its repository, where paths and node ids start.
    bundles_dir : Path
        Where the bundle and the sources go.
    session_id : str, optional
        The same for all processes of one session; made up by default.
    worker : str, optional
        Name of the pytest-xdist worker.

    Returns
    -------
    Collector
        Started; `finish` ends it.

    Raises
    ------
    EvidenceError
        If every hook of the interpreter is taken, or the folder cannot be written. Nothing is recorded then.
    """
    started_ns = time.time_ns()
    backend = choose_backend()
    try:
        backend.start()
    except RuntimeError as error:
        raise EvidenceError(f"nothing is recorded: {error}", hint="fastci-ml doctor") from error
    try:
        commit, tree, is_dirty = _checkout(top)
        provenance = Provenance(
            bundle_id=uuid.uuid4().hex,
            session_id=session_id or uuid.uuid4().hex,
            lane=settings.lane or detect_lane(),
            scope=detect_scope(os.environ, is_dirty=is_dirty),
            commit=commit,
            tree=tree,
            python=platform.python_version(),
            backend=backend.name,
            worker=worker,
            started_us=started_ns // 1000,
            job=detect_job(os.environ),
        )
        family = _family(provenance, settings, top, bundles_dir)
        writer = BundleWriter(bundles_dir, provenance, shared=family.shared_sources())
    except OSError as error:
        backend.stop()
        raise EvidenceError(f"{bundles_dir}: no bundle can be written: {error}") from error
    files = ProjectFiles(top, _outside(settings), started_ns, writer.sources)
    collector = Collector(backend, files, writer)
    collector.watches = make_watches(collector, family)
    collector.start()
    announce(collector, family)
    return collector


def announce(collector: Collector, family: Family) -> None:
    """Let processes that are started from now on record themselves, until this recording ends."""
    hand_on(family.as_text())
    collector.before_end.append(lambda: hand_on(""))


def _family(provenance: Provenance, settings: Settings, top: Path, bundles_dir: Path) -> Family:
    return Family(
        top=str(top),
        bundles=str(bundles_dir.absolute()),
        session_id=provenance.session_id,
        lane=provenance.lane,
        scope=provenance.scope,
        commit=provenance.commit,
        tree=provenance.tree,
        job=provenance.job,
        parent=provenance.bundle_id,
        outside=tuple(map(str, _outside(settings))),
        environ_prefixes=settings.environ_prefixes,
        skipped=settings.children_skipped,
        trusted=settings.children_trusted,
        limit=settings.children_limit,
    )


def _outside(settings: Settings) -> list[Path]:
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
