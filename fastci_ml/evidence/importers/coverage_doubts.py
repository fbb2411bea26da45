"""Data of coverage.py that is known to be wrong, told from what it says itself.

The file does not name the core that measured. But the core on `sys.monitoring` books a line once in a
process, on whichever test came first, so its data has marks that no other core leaves: no line is held by two
contexts, or functions are held by tests that do not hold the first statement of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.importers.coverage_contexts import Context, ContextKind
from fastci_ml.evidence.importers.source_files import Function, SourceFile
from fastci_ml.records.ids import split_node_id

# Of functions that two tests ran. On networkx 0 of 849 with the C tracer; with sysmon 143 of 145, and in 16
# processes 97 of 538.
_MAX_BROKEN_RATIO = 0.05
_MAX_NAMES = 5

# Lines of each file by context, as bits.
Hits = Mapping[str, Mapping[str, int]]


def check_contexts(path: Path, contexts: Mapping[str, Context]) -> None:
    """Refuse data without a context per test."""
    if any(context.kind is not ContextKind.OUTSIDE for context in contexts.values()):
        return
    found = "only the empty context" if set(contexts) <= {""} else f"contexts {_names(contexts)}"
    raise EvidenceError(
        f"{path}: {found}, expected one for each test", hint="pytest --cov --cov-context=test --cov-report="
    )


def check_tests_outside(
    path: Path, files: Iterable[SourceFile], contexts: Mapping[str, Context], hits: Hits
) -> None:
    """Refuse data in which tests ran without a context: of several runs, of which only some had contexts."""
    modules = {
        context.node_id.partition("::")[0]
        for context in contexts.values()
        if context.kind is ContextKind.TEST
    }
    outside = [name for name, context in contexts.items() if context.kind is ContextKind.OUTSIDE]
    found = []
    for file in files:
        if file.path in modules:
            lines = 0
            for name in outside:
                lines |= hits[file.path].get(name, 0)
            found += [
                f"{file.path}::{function.name.replace('.', '::')}"
                for function in file.functions
                if function.sure_lines & lines
                and "<locals>" not in function.name
                and function.name.rpartition(".")[2].startswith("test_")
            ]
    if found:
        raise EvidenceError(
            f"{path}: {len(found)} tests ran without a context: {_names(found)}; so it was combined from "
            "runs with and without contexts",
            hint="coverage erase, then record again with --cov-context=test",
        )


def check_core(path: Path, files: Iterable[SourceFile], contexts: Mapping[str, Context], hits: Hits) -> None:
    """Refuse data of the core on `sys.monitoring` with a context per test."""
    tests = {context.node_id for context in contexts.values() if context.kind is ContextKind.TEST}
    if len(tests) < 2:
        return
    if not any(_has_shared_line(by_context.values()) for by_context in hits.values()):
        raise _sysmon(path, f"no line is held by two contexts, of {len(tests)} tests")
    n_shared, broken = 0, []
    for file in files:
        for function, n_entered, n_held in _entries(file, contexts, hits[file.path]):
            if n_held > 1:
                n_shared += 1
                if n_entered < n_held:
                    broken.append(f"{file.path}::{function.name}")
    if len(broken) > _MAX_BROKEN_RATIO * n_shared:
        raise _sysmon(
            path,
            f"{len(broken)} of {n_shared} functions that several tests ran lack their first line for one "
            f"of them: {_names(broken)}",
        )


def _sysmon(path: Path, seen: str) -> EvidenceError:
    return EvidenceError(
        f"{path}: {seen}; so it was measured by the sysmon core, which books a line on the first test alone",
        hint="COVERAGE_CORE=ctrace pytest --cov --cov-context=test --cov-report=",
    )


def _has_shared_line(sets: Iterable[int]) -> bool:
    seen = 0
    for lines in sets:
        if seen & lines:
            return True
        seen |= lines
    return False


def _entries(
    file: SourceFile, contexts: Mapping[str, Context], by_context: Mapping[str, int]
) -> Iterable[tuple[Function, int, int]]:
    """Each function that runs from its first line: by how many tests that was seen, and how many ran it."""
    lines: dict[str, int] = {}
    called: dict[str, set[str]] = {}
    for name, bits in by_context.items():
        context = contexts[name]
        if context.kind is ContextKind.TEST:
            lines[context.node_id] = lines.get(context.node_id, 0) | bits
    for context in contexts.values():
        if context.is_call and context.node_id.startswith(f"{file.path}::"):
            # A test that was called ran its own function.
            called.setdefault(".".join(split_node_id(context.node_id).names), set()).add(context.node_id)
    for function in file.functions:
        # Hooks run around the moments at which the context changes.
        if not function.is_straight or function.name.rpartition(".")[2].startswith("pytest_"):
            continue
        held = {node_id for node_id, bits in lines.items() if bits & function.sure_lines}
        entered = {node_id for node_id in held if lines[node_id] & function.entry_lines}
        if entered:
            yield function, len(entered), len(held | called.get(function.name, set()))


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(listed[:_MAX_NAMES]) + more
