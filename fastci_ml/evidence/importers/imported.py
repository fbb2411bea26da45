"""What an import gives, and what every imported record has in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fastci_ml.evidence.importers.source_files import SourceFiles
from fastci_ml.records.evidence import EvidenceRecord, FileSeen, RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import Gap
from fastci_ml.sources.blocks.block import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEvidence:
    """Records made from one file of another tool.

    Attributes
    ----------
    records : tuple of EvidenceRecord
        In the order of their node ids; each has the gap `Gap.WEAK_SOURCE`, and the tool's name as its scope
        and its back end: so it stands beside what was recorded, and never takes its place.
    file_versions : mapping of (str, str) to tuple of Block
        Blocks of each file that they touched, by path and blob id.
    refused : tuple of str
        What was left out, and why, a line each.
    """

    records: tuple[EvidenceRecord, ...]
    file_versions: Mapping[tuple[str, str], tuple[Block, ...]]
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class Touched:
    """What one test touched, as it is gathered.

    Attributes
    ----------
    units : set of UnitSeen
        Functions executed, and those around them.
    reads : set of FileSeen
        Files that are not Python.
    modules : set of str
        Files of which it ran code that belongs to no function: it may have imported them.
    gaps : dict of (Gap, str)
        In order, beside the one that all of them have.
    """

    units: set[UnitSeen] = field(default_factory=set)
    reads: set[FileSeen] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    gaps: dict[tuple[Gap, str], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The data file that records come from.

    Attributes
    ----------
    backend : str
        Name of the tool.
    lane : str
        Environment that it was recorded in.
    detail : str
        File and version of the tool, for a person.
    modified_us : int
        When it was last written: no test ran later. Neither tool keeps when a test ran.
    """

    backend: str
    lane: str
    detail: str
    modified_us: int


def make_record(
    node_id: str, touched: Touched, source: Source, facts: RunFacts, files: SourceFiles
) -> EvidenceRecord:
    """Record of one test, which is never complete."""
    path = node_id.partition("::")[0]
    return EvidenceRecord(
        node_id=node_id,
        lane=source.lane,
        scope=source.backend,
        # Neither format names one: what is known is which contents the units were found in.
        commit="",
        recorded_us=source.modified_us,
        backend=source.backend,
        units=frozenset(touched.units),
        reads=frozenset(touched.reads),
        listings=frozenset(),
        roots=frozenset({*_own_modules(path, files), *touched.modules}),
        environ=frozenset(),
        native_readers=(),
        gaps=((Gap.WEAK_SOURCE, source.detail), *touched.gaps),
        facts=facts,
    )


def _own_modules(path: str, files: SourceFiles) -> Iterable[str]:
    """Module of a test, and the conftest files that pytest imports for it."""
    if path.endswith(".py"):
        yield path
    for folder in PurePosixPath(path).parents:
        conftest = (folder / "conftest.py").as_posix()
        if files.exists(conftest):
            yield conftest
