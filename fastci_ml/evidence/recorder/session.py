"""Putting a recorder together for this process."""

from __future__ import annotations

import time
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.writer import BundleWriter
from fastci_ml.evidence.recorder.backend import choose_backend
from fastci_ml.evidence.recorder.collector import Collector
from fastci_ml.evidence.recorder.family import hand_on
from fastci_ml.evidence.recorder.origin import family_of, new_provenance, outside_of
from fastci_ml.evidence.recorder.project_files import ProjectFiles
from fastci_ml.evidence.recorder.watches import make_watches
from fastci_ml.settings import Settings


def start_recording(
    settings: Settings,
    top: Path,
    bundles_dir: Path,
    *,
    project: str = "",
    session_id: str = "",
    worker: str = "",
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
    project : str, optional
        Folder that pytest's ids start at, from the top; empty for the top itself.
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
        provenance = new_provenance(
            settings, top, backend.name, session_id=session_id, worker=worker, started_ns=started_ns
        )
        family = family_of(provenance, settings, top, bundles_dir, project)
        writer = BundleWriter(bundles_dir, provenance, shared=family.shared_sources())
    except OSError as error:
        backend.stop()
        raise EvidenceError(f"{bundles_dir}: no bundle can be written: {error}") from error
    files = ProjectFiles(top, outside_of(settings), started_ns, writer.sources)
    collector = Collector(backend, files, writer)
    collector.watches = make_watches(collector, family, is_worker=bool(worker))
    collector.start()
    # Processes that are started from now on record themselves, until this recording ends.
    hand_on(family.as_text())
    collector.before_end.append(lambda: hand_on(""))
    return collector
