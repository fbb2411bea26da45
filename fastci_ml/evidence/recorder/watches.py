"""The watches of a recording, in the order in which they begin."""

from __future__ import annotations

from fastci_ml.evidence.recorder.caches import CacheWatch
from fastci_ml.evidence.recorder.children import ChildWatch
from fastci_ml.evidence.recorder.compiled import CompileWatch
from fastci_ml.evidence.recorder.environ import EnvironWatch
from fastci_ml.evidence.recorder.exits import ExitWatch
from fastci_ml.evidence.recorder.files import FileWatch
from fastci_ml.evidence.recorder.imports import ImportWatch
from fastci_ml.evidence.recorder.source_text import SourceTextWatch
from fastci_ml.evidence.recorder.tasks import TaskWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.family import Family
    from fastci_ml.evidence.recorder.interfaces import Watch


def make_watches(collector: Collector, family: Family, *, is_worker: bool = False) -> list[Watch]:
    """Everything that books what a back end does not see.

    Parameters
    ----------
    collector : Collector
        Where they book; not started yet.
    family : Family
        What all processes of the session have in common.
    is_worker : bool
        Whether this is a worker of pytest-xdist.

    Returns
    -------
    list of Watch
        Not installed yet.
    """
    imports = ImportWatch(collector)
    caches = CacheWatch(collector)
    compiled = CompileWatch(collector, imports)
    exits = ExitWatch(collector, family)
    return [
        imports,
        FileWatch(collector),
        SourceTextWatch(collector, imports),
        caches,
        exits,
        ChildWatch(
            collector,
            imports,
            family,
            exits,
            lambda: caches.filled() | compiled.filled(),
            is_worker=is_worker,
        ),
        compiled,
        EnvironWatch(collector, family.environ_prefixes),
        TaskWatch(collector, family.project),
    ]
