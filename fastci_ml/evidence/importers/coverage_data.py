"""Data files of coverage.py, releases 5 and later, with a context for each test.

What they do not hold: files that were opened, environment variables, native code, functions whose body is a
docstring, and which children a test started. What a child ran that did not know its test stands under no
context at all: those functions are counted for every test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.coverage_contexts import Context, ContextKind, ContextReader
from fastci_ml.evidence.importers.coverage_doubts import check_contexts, check_core, check_tests_outside
from fastci_ml.evidence.importers.coverage_rows import Hits, read_rows
from fastci_ml.evidence.importers.imported import ImportedEvidence, Source, Touched, make_record
from fastci_ml.evidence.importers.source_files import SourceFile, SourceFiles
from fastci_ml.records.evidence import RunFacts, UnitSeen
from fastci_ml.records.evidence_kinds import COVERAGE_SCOPE, Gap
from fastci_ml.records.progress import ProgressHook, silent

BACKEND = COVERAGE_SCOPE
_HOW_TO_RECORD = "pytest --cov --cov-context=test --cov-report="
_MAX_NAMES = 3


def import_coverage(
    path: Path, *, root: Path, lane: str, project: str = "", progress: ProgressHook = silent
) -> ImportedEvidence:
    """Read a data file of coverage.py.

    Parameters
    ----------
    path : Path
        Usually ``.coverage``, recorded by ``pytest --cov --cov-context=test``, or with the setting
        ``dynamic_context = test_function``: then parameters of tests are not told apart.
    root : Path
        Top of the working tree, which must hold what was measured: the format keeps no hashes, so a file that
        was changed after `path` was written is left out and named, and so is one that the lines do not fit;
        tests that touched it have the gap `Gap.SOURCE_CHANGED`.
    lane : str
        Environment that it was measured in.
    project : str
        Folder of pytest's root from the top of the repository; empty for the top itself.
    progress : ProgressHook
        Told how far it is.

    Returns
    -------
    ImportedEvidence
        One record a test.

    Raises
    ------
    EvidenceError
        If it cannot be read, or is known to be wrong: measured by the sysmon core, without contexts, combined
        from runs with and without them, or not combined yet; also if nothing of it can be used.
    """
    files = SourceFiles(root)
    rows = read_rows(path, files, project, progress)
    reader = ContextReader(files, project)
    names = sorted({name for by_context in rows.hits.values() for name in by_context})
    contexts = {name: reader.read(name) for name in names}
    check_contexts(path, contexts)
    modified_ns = path.stat().st_mtime_ns
    usable, refused = _usable(files, rows.hits, modified_ns)
    if not usable:
        raise EvidenceError(
            f"{path}: no file that it speaks of can be used: {'; '.join(refused[:_MAX_NAMES])}",
            hint=_HOW_TO_RECORD,
        )
    check_tests_outside(path, usable.values(), contexts, rows.hits)
    check_core(path, usable.values(), contexts, rows.hits)
    source = Source(
        backend=BACKEND,
        lane=lane,
        detail=f"{path.name} of coverage.py {rows.version}",
        modified_us=modified_ns // 1000,
    )
    # Neither outcomes nor times are kept.
    facts = RunFacts(outcome="", started_us=source.modified_us)
    touched = _gather(usable, contexts, rows.hits)
    problems = sorted({found.problem for found in contexts.values() if found.kind is ContextKind.UNKNOWN})
    if not touched:
        raise EvidenceError(f"{path}: none of its contexts is a test: {'; '.join(problems[:_MAX_NAMES])}")
    return ImportedEvidence(
        records=tuple(make_record(test, touched[test], source, facts, files) for test in sorted(touched)),
        file_versions={file.version: file.blocks.blocks for file in usable.values()},
        refused=(*refused, *problems),
    )


def _usable(files: SourceFiles, hits: Hits, modified_ns: int) -> tuple[dict[str, SourceFile], list[str]]:
    """Files that are what was measured, and why each of the others is not."""
    usable, refused = {}, []
    for name, by_context in hits.items():
        file = files.get(name)
        lines = 0
        for bits in by_context.values():
            lines |= bits
        if isinstance(file, str):
            refused.append(f"{name}: {file}")
        elif file.modified_ns > modified_ns:
            refused.append(f"{name}: changed after it was measured")
        # An empty module runs on a line 0, or on its first.
        elif lines >> 2 << 2 & ~file.code_lines:
            refused.append(f"{name}: lines were measured that hold no code, so it is another version")
        else:
            usable[name] = file
    return usable, refused


def _gather(
    usable: Mapping[str, SourceFile], contexts: Mapping[str, Context], hits: Hits
) -> dict[str, Touched]:
    tests: dict[str, Touched] = {}
    for context in contexts.values():
        if context.kind is ContextKind.TEST:
            touched = tests.setdefault(context.node_id, Touched())
            if context.is_function:
                touched.gaps[Gap.WEAK_SOURCE, "its parameters were not told apart"] = None
    outside: set[UnitSeen] = set()
    for name, by_context in hits.items():
        by_test = {
            context_name: lines
            for context_name, lines in by_context.items()
            if contexts[context_name].kind is ContextKind.TEST
        }
        file = usable.get(name)
        if file is None:
            for context_name in by_test:
                tests[contexts[context_name].node_id].gaps[Gap.SOURCE_CHANGED, name] = None
            continue
        _add_file(file, by_test, contexts, tests)
        for context_name, lines in by_context.items():
            if contexts[context_name].kind is ContextKind.OUTSIDE:
                outside.update(_units(file, lines, only_sure=True))
    if outside:
        some = ", ".join(sorted(f"{unit.path}::{unit.name}" for unit in outside)[:_MAX_NAMES])
        detail = f"{len(outside)} functions ran outside of any test and are counted for all: {some}"
        for touched in tests.values():
            touched.units |= outside
            touched.gaps[Gap.WEAK_SOURCE, detail] = None
    return tests


def _add_file(
    file: SourceFile,
    by_test: Mapping[str, int],
    contexts: Mapping[str, Context],
    tests: Mapping[str, Touched],
) -> None:
    # Many tests hold the same lines of a file: what they mean is looked up once.
    units_of: dict[int, frozenset[UnitSeen]] = {}
    for context_name, lines in by_test.items():
        units = units_of.get(lines)
        if units is None:
            units = units_of[lines] = frozenset(_units(file, lines, only_sure=False))
        touched = tests[contexts[context_name].node_id]
        touched.units |= units
        if lines & file.module_lines:
            touched.modules.add(file.path)


def _units(file: SourceFile, lines: int, *, only_sure: bool) -> Iterable[UnitSeen]:
    """Units of functions that hold one of the lines; all that may have run, or only what must have."""
    for function in file.functions:
        if lines & (function.sure_lines if only_sure else function.own_lines):
            yield from function.units
