"""Processes of a recorded session that have not come to their end when the session has."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.reader import has_end_mark, open_bundle, read_provenance
from fastci_ml.evidence.recorder.process_names import is_running

_LOOK_S = 0.05


def wait_for_stragglers(bundles: Iterable[Path], *, timeout_s: float = 10.0) -> list[Path]:
    """Wait for processes of this machine to complete their bundles.

    A fork server, say, ends when it sees that the process which started it has ended: a moment later.

    Parameters
    ----------
    bundles : iterable of Path
        Of a session that is over.
    timeout_s : float
        How long they may take together.

    Returns
    -------
    list of Path
        Bundles of processes that live on.
    """
    deadline_s = time.monotonic() + timeout_s
    living = [path for path in bundles if _is_alive(path)]
    while living and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
        living = [path for path in living if _is_alive(path)]
    return living


def _is_alive(path: Path) -> bool:
    try:
        with open_bundle(path) as stream:
            if has_end_mark(stream):
                return False
            return is_running(read_provenance(path, stream).process)
    except (EvidenceError, OSError):
        return False
