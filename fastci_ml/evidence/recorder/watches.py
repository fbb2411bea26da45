"""The watches of a recording, in the order in which they begin."""

from __future__ import annotations

from fastci_ml.evidence.recorder.caches import CacheWatch
from fastci_ml.evidence.recorder.children import ChildWatch
from fastci_ml.evidence.recorder.collector import Collector, Watch
from fastci_ml.evidence.recorder.compiled import CompileWatch
from fastci_ml.evidence.recorder.environ import EnvironWatch
from fastci_ml.evidence.recorder.files import FileWatch
from fastci_ml.evidence.recorder.imports import ImportWatch
from fastci_ml.evidence.recorder.source_text import SourceTextWatch


def make_watches(collector: Collector, *, environ_prefixes: tuple[str, ...] = ()) -> list[Watch]:
    """Everything that books what a back end does not see.

    Parameters
    ----------
    collector : Collector
        Where they book; not started yet.
    environ_prefixes : tuple of str
        How the names of variables begin whose reading is of interest.

    Returns
    -------
    list of Watch
        Not installed yet.
    """
    imports = ImportWatch(collector)
    return [
        imports,
        FileWatch(collector),
        SourceTextWatch(collector),
        CacheWatch(collector),
        ChildWatch(collector, imports),
        CompileWatch(collector, imports),
        EnvironWatch(collector, environ_prefixes),
    ]
