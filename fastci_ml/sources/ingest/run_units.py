"""From reports and run.json files to units: what one shard of one job left in one attempt at one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastci_ml.errors import ReportError
from fastci_ml.records.changes import FileChange
from fastci_ml.records.ids import NodeId, with_project
from fastci_ml.sources.history.tables import storable
from fastci_ml.sources.ingest.fingerprints import Fingerprints
from fastci_ml.sources.ingest.report_files import ReportFile
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.ingest.shards import shard_key

# What makes up the digest of an ingest since the first release: older histories know their files by it.
_FIRST_FIELDS = ("run_id", "job", "shard", "lane", "base", "head", "started_us", "finished_us")
_FIRST_FIELDS_OF_A_FILE = ("path", "old_path", "status", "n_added", "n_deleted")
_LATER_FIELDS = ("attempt", "n_shards", "project", "selected", "change_doubt", "logs")


@dataclass(slots=True)
class Unit:
    """Reports that stand in the history under one (run, job, shard, lane) and one attempt of the CI.

    Attributes
    ----------
    info : RunInfo
        What is said of it, by one run.json or by several together; `lane` and `project` are settled.
    files : list of ReportFile
        Its reports; empty where a run.json speaks for none.
    run_files : list of Path
        Where it is said.
    is_spoiled : bool
        Something in the place of a report cannot be used, and has its line already.
    is_described_only : bool
        Its run.json has no report, but others of the same run that lie below it have: it describes these.
    """

    info: RunInfo
    files: list[ReportFile] = field(default_factory=list)
    run_files: list[Path] = field(default_factory=list)
    is_spoiled: bool = False
    is_described_only: bool = False

    @property
    def group(self) -> tuple[str, str]:
        """Run and job: what shards are counted in."""
        return self.info.run_id, self.info.job

    @property
    def order(self) -> tuple[object, ...]:
        """Attempts after one another, shards in the order of people."""
        info = self.info
        return info.job, info.attempt or 1, shard_key(info.shard), info.lane, info.project or ""

    def expected(self) -> list[NodeId] | None:
        """Tests that were to run, as the history names them; None when that is unknown."""
        if self.info.selected is None:
            return None
        project = self.info.project or ""
        return [NodeId(storable(with_project(node_id, project))) for node_id in self.info.selected]


def gather_units(
    files: Sequence[ReportFile],
    infos: Mapping[Path, RunInfo | None],
    options: RunInfo,
    fingerprints: Fingerprints,
    *,
    spoiled: Collection[Path] = (),
    lane: str,
    project: str,
) -> tuple[list[list[Unit]], list[str]]:
    """Put reports together by run.

    Parameters
    ----------
    files : sequence of ReportFile
        JUnit files and report logs: tables name their runs themselves.
    infos : mapping of Path to RunInfo or None
        What each run.json says; None where it is broken: its reports belong to nobody then.
    options : RunInfo
        For reports without a run.json. Without a `run_id` each of them is a run of its own, named by its
        content.
    fingerprints : Fingerprints
        Of that content.
    spoiled : collection of Path
        Run.json files that also speak for what cannot be used.
    lane, project : str
        Where none is stated.

    Returns
    -------
    runs : list of list of Unit
        One list a run, in the order of `files`. Run.json files that agree on (run, job, shard, lane,
        project, attempt) speak for one unit together: apart, each would overwrite the rows of the other.
    problems : list of str
        One line for each file that could not be read.
    """
    units: dict[tuple[object, ...], Unit] = {}
    problems: list[str] = []
    names: dict[str, str] = {}
    for file in files:
        info = options if file.run_file is None else infos[file.run_file]
        if info is None:
            continue  # under another name the run would be one too many
        if not info.run_id:
            try:
                content = fingerprints.digest(file.path)
            except ReportError as error:
                problems.append(str(error))
                continue
            # A copy under another name is no other run.
            name = names.setdefault(content, f"{file.path.stem}-{content[:12]}")
            info = replace(info, run_id=name)
        _unit_of(units, info, file.run_file, lane, project).files.append(file)
    used = {file.run_file for file in files}
    for path, info in infos.items():
        if info is not None and path not in used:
            unit = _unit_of(units, info, path, lane, project)
            unit.is_described_only = not unit.files and any(
                other is not None and other.run_id == info.run_id and used_path.is_relative_to(path.parent)
                for used_path, other in infos.items()
                if used_path in used
            )
    if options.run_id and options.selected is not None and not files:
        # The run was to leave a report, and there is none: it is told from a run that nobody asked about.
        _unit_of(units, options, None, lane, project)
    runs: dict[str, list[Unit]] = {}
    for unit in units.values():
        unit.is_spoiled = any(path in spoiled for path in unit.run_files)
        runs.setdefault(unit.info.run_id, []).append(unit)
    return [sorted(members, key=lambda unit: unit.order) for members in runs.values()], problems


def unit_text(info: RunInfo) -> str:
    """All that is said of a unit and becomes part of the digest of its ingest."""
    fields = [f"{name}={getattr(info, name)!r}" for name in _FIRST_FIELDS]
    fields.append(f"changes={_changes_text(info.changes)}")
    fields += [f"{name}={value!r}" for name in _LATER_FIELDS if (value := getattr(info, name))]
    return f"RunInfo({', '.join(fields)})"


def _changes_text(changes: Sequence[FileChange] | None) -> str:
    if changes is None:
        return "None"
    files = [
        f"FileChange({', '.join(f'{name}={getattr(file, name)!r}' for name in _FIRST_FIELDS_OF_A_FILE)})"
        for file in changes
    ]
    return f"({', '.join(files)}{',' if len(files) == 1 else ''})"  # a tuple, as Python writes it


def _unit_of(
    units: dict[tuple[object, ...], Unit], info: RunInfo, path: Path | None, lane: str, project: str
) -> Unit:
    info = replace(info, lane=info.lane or lane, project=project if info.project is None else info.project)
    key = (info.run_id, info.job, info.shard, info.lane, info.project, info.attempt or 1)
    unit = units.setdefault(key, Unit(info))
    if path is not None and path not in unit.run_files:
        unit.run_files.append(path)
        unit.info = _merge(unit.info, info)
    return unit


def _merge(one: RunInfo, other: RunInfo) -> RunInfo:
    """What two run.json files say of one unit."""
    if one == other:
        return one
    notes = [*dict.fromkeys((*one.notes, *other.notes))]
    for name in ("base", "head", "n_shards"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine and theirs and mine != theirs:
            notes.append(f"two run.json files disagree on {name}: {mine} and {theirs}")
    return replace(
        one,
        base=one.base or other.base,
        head=one.head or other.head,
        # A time that only one of them states is that of a part.
        started_us=_if_both(min, one.started_us, other.started_us),
        finished_us=_if_both(max, one.finished_us, other.finished_us),
        changes=other.changes if one.changes is None else one.changes,
        change_doubt=other.change_doubt if one.changes is None else one.change_doubt,
        n_shards=max(one.n_shards or 0, other.n_shards or 0) or None,
        selected=_union(one.selected, other.selected),
        notes=tuple(notes),
        logs=tuple(dict.fromkeys((*one.logs, *other.logs))),
    )


def _if_both(bound: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else bound(one, other)


def _union(one: tuple[NodeId, ...] | None, other: tuple[NodeId, ...] | None) -> tuple[NodeId, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(dict.fromkeys((*one, *other)))
