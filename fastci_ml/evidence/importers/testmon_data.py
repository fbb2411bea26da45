"""Databases of pytest-testmon 2 (``.testmondata``).

What they do not hold: all that data of coverage.py does not, for testmon stands on it; and lines. But hashes
of the files are kept, so what is no longer as it was when a test ran is known, and left out.
"""

from __future__ import annotations

import sqlite3
import struct
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.foreign_database import check_tables, open_foreign
from fastci_ml.evidence.importers.imported import ImportedEvidence, Source, Touched, make_record
from fastci_ml.evidence.importers.source_files import SourceFile, SourceFiles
from fastci_ml.evidence.importers.testmon_blocks import file_hashes, read_testmon_blocks
from fastci_ml.records.evidence import RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import TESTMON_SCOPE, Gap
from fastci_ml.records.ids import with_project
from fastci_ml.records.progress import ProgressHook, silent

BACKEND = TESTMON_SCOPE
_WHAT = "data of pytest-testmon"
# Of 2.1 and 2.2, which differ in what is deleted with what.
_SCHEMAS = (13, 14)
_TABLES = {
    "environment": ("id", "environment_name", "python_version"),
    "test_execution": ("id", "environment_id", "test_name", "duration", "failed"),
    "file_fp": ("id", "filename", "method_checksums", "fsha"),
    "test_execution_file_fp": ("test_execution_id", "fingerprint_id"),
}
# What stands in the place of blocks for a test that was collected and never run.
_NOT_RUN = zlib.crc32(b"0match")
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fingerprint:
    """What was touched of one file, by one or more tests."""

    path: str
    hash: str | None
    checksums: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Execution:
    """One test, as testmon last ran it."""

    node_id: str
    duration_s: float | None
    is_failed: bool
    fingerprints: list[int] = field(default_factory=list)


def import_testmon(
    path: Path, *, root: Path, lane: str, project: str = "", progress: ProgressHook = silent
) -> ImportedEvidence:
    """Read a database of pytest-testmon.

    Parameters
    ----------
    path : Path
        Usually ``.testmondata``.
    root : Path
        Top of the working tree. A file whose hash is not that of the data is left out and named, and tests
        that touched it have the gap `Gap.SOURCE_CHANGED`.
    lane : str
        Environment that it was recorded in.
    project : str
        Folder of pytest's root from the top of the repository; empty for the top itself.
    progress : ProgressHook
        Told how far it is.

    Returns
    -------
    ImportedEvidence
        One record for each test that testmon has run with this release of Python.

    Raises
    ------
    EvidenceError
        If it cannot be read, is of another schema, was recorded by another release of Python, or if nothing
        of it can be used.
    """
    with open_foreign(path, _WHAT) as connection:
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema not in _SCHEMAS:
            expected = " or ".join(map(str, _SCHEMAS))
            raise EvidenceError(
                f"{path}: schema {schema}, expected {expected}, of pytest-testmon 2.1 and 2.2",
                hint="pip install --upgrade pytest-testmon",
            )
        check_tables(connection, path, _TABLES, _WHAT)
        environments, refused = _environments(connection, path)
        executions = _executions(connection, path, environments, project)
        fingerprints = _fingerprints(connection, path, project)
        _join(connection, path, executions, fingerprints)
    modified_us = path.stat().st_mtime_ns // 1000
    source = Source(
        backend=BACKEND,
        lane=lane,
        detail=f"{path.name} of pytest-testmon, schema {schema}",
        modified_us=modified_us,
    )
    reader = _Reader(SourceFiles(root))
    records = []
    for n_done, execution in enumerate(sorted(executions.values(), key=lambda found: found.node_id)):
        touched = reader.touched([fingerprints[number] for number in execution.fingerprints])
        if touched is not None:
            if execution.is_failed:
                touched.gaps[Gap.DID_NOT_PASS, "failed"] = None
            facts = RunFacts(
                outcome="failed" if execution.is_failed else "",
                started_us=modified_us,
                call_s=execution.duration_s,
                notes=("its time is that of all phases",) if execution.duration_s is not None else (),
            )
            records.append(make_record(execution.node_id, touched, source, facts, reader.files))
        progress(f"reading {path.name}", n_done + 1, len(executions))
    refused += sorted(reader.refused.values())
    if not records:
        raise EvidenceError(
            f"{path}: nothing of its {len(executions)} tests can be used: "
            f"{'; '.join(refused[:_MAX_NAMES]) or 'none was run'}",
            hint="pytest --testmon-noselect",
        )
    return ImportedEvidence(
        records=tuple(records),
        file_versions={file.version: file.blocks.blocks for file in reader.used.values()},
        refused=tuple(refused),
    )


def _environments(connection: sqlite3.Connection, path: Path) -> tuple[dict[int, str], list[str]]:
    """Environments of this release of Python, the checksums of others mean nothing to it."""
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    usable, refused = {}, []
    for number, name, version in connection.execute(
        "SELECT id, environment_name, python_version FROM environment ORDER BY id"
    ):
        if not isinstance(number, int) or not isinstance(version, str):
            raise _damaged(path, "environment")
        if version.rpartition(".")[0] == release:
            usable[number] = version
        else:
            refused.append(f"environment {name!r}: recorded by Python {version}, read by {release}")
    if not usable:
        raise EvidenceError(
            f"{path}: {'; '.join(refused[:_MAX_NAMES]) or 'no environment'}; checksums of one release mean "
            "nothing to another",
            hint=f"pythonX.Y -m fastci_ml merge --testmon {path}, with the release that recorded it",
        )
    return usable, refused


def _executions(
    connection: sqlite3.Connection, path: Path, environments: Mapping[int, str], project: str
) -> dict[int, _Execution]:
    found: dict[int, _Execution] = {}
    latest: dict[str, int] = {}
    # In this order a later environment of the same release takes the place of an earlier one.
    for number, environment, name, duration, failed in connection.execute(
        "SELECT id, environment_id, test_name, duration, failed FROM test_execution "
        "ORDER BY environment_id, id"
    ):
        if not isinstance(number, int) or not isinstance(name, str):
            raise _damaged(path, "test_execution")
        if environment in environments:
            found.pop(latest.get(name, -1), None)
            latest[name] = number
            found[number] = _Execution(
                node_id=with_project(name, project),
                duration_s=float(duration) if isinstance(duration, int | float) else None,
                is_failed=failed != 0,
            )
    return found


def _fingerprints(connection: sqlite3.Connection, path: Path, project: str) -> dict[int, _Fingerprint]:
    found = {}
    for number, name, checksums, file_hash in connection.execute(
        "SELECT id, filename, method_checksums, fsha FROM file_fp"
    ):
        if (
            not isinstance(number, int)
            or not isinstance(name, str)
            or not isinstance(checksums, bytes)
            or len(checksums) % 4
        ):
            raise _damaged(path, "file_fp")
        found[number] = _Fingerprint(
            path=with_project(name, project),
            hash=file_hash if isinstance(file_hash, str) else None,
            checksums=frozenset(struct.unpack(f"<{len(checksums) // 4}I", checksums)),
        )
    return found


def _join(
    connection: sqlite3.Connection,
    path: Path,
    executions: Mapping[int, _Execution],
    fingerprints: Mapping[int, _Fingerprint],
) -> None:
    for execution, fingerprint in connection.execute(
        "SELECT test_execution_id, fingerprint_id FROM test_execution_file_fp"
    ):
        if execution in executions:
            if fingerprint not in fingerprints:
                raise _damaged(path, f"test_execution_file_fp: no fingerprint {fingerprint!r}")
            executions[execution].fingerprints.append(fingerprint)


def _damaged(path: Path, table: str) -> EvidenceError:
    return EvidenceError(f"{path}: damaged: a row of {table} is not as testmon writes it")


class _Reader:
    """Tells fingerprints back into units of the working tree."""

    def __init__(self, files: SourceFiles) -> None:
        self.files = files
        self.refused: dict[str, str] = {}
        self.used: dict[str, SourceFile] = {}
        self._units: dict[str, dict[int, tuple[UnitSeen, ...]]] = {}
        self._hashes: dict[str, frozenset[str]] = {}

    def touched(self, fingerprints: list[_Fingerprint]) -> Touched | None:
        """What one test touched; None if it was never run, or if nothing of it is known any more."""
        touched = Touched()
        for found in fingerprints:
            if found.hash is None and found.checksums == {_NOT_RUN}:
                return None
            problem = self._add(touched, found)
            if problem:
                self.refused[found.path] = f"{found.path}: {problem}"
                touched.gaps[Gap.SOURCE_CHANGED, found.path] = None
        return touched if touched.units or touched.modules or touched.reads else None

    def _add(self, touched: Touched, found: _Fingerprint) -> str:
        path = self.files.relative(found.path)
        if path is None:
            return "lies outside of the repository"
        if not path.endswith(".py"):
            seen = self.files.data(path)
            if seen.blob != found.hash:
                return "is another version than the one that was recorded"
            touched.reads.add(seen)
            return ""
        file = self.files.get(path)
        if isinstance(file, str):
            return file
        if path not in self._hashes:
            self._hashes[path] = file_hashes(file.content)
        if found.hash not in self._hashes[path]:
            return "is another version than the one that was recorded"
        if path not in self._units:
            self._units[path] = _units_by_checksum(file)
        units = self._units[path]
        if not found.checksums <= units.keys():
            return "has blocks that this release of Python does not make of it"
        for checksum in found.checksums:
            touched.units.update(units[checksum])
        self.used[path] = file
        # The block of the module reaches from its first line to its last, so it always counts as touched.
        touched.modules.add(path)
        return ""


def _units_by_checksum(file: SourceFile) -> dict[int, tuple[UnitSeen, ...]]:
    by_place = {(function.name, function.first_line): function.units for function in file.functions}
    found: dict[int, tuple[UnitSeen, ...]] = {}
    try:
        blocks = read_testmon_blocks(file.content)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    for block in blocks:
        # Two blocks of one checksum: either may have run.
        found[block.checksum] = found.get(block.checksum, ()) + by_place.get(
            (block.name, block.first_line), ()
        )
    return found
