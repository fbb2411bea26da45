"""What a test was seen to touch: files with the functions it ran, what it read, and why that may not be all.

  fastci-ml explain --evidence "tests/test_a.py::test_x[1]"

A function without its parameters lists the tests that it has. What a test touched says which changes it has
to be run for; where a record is not complete, it is run for every change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastci_ml.evidence.store.reading import RecordHead
    from fastci_ml.evidence.store.store import EvidenceStore
    from fastci_ml.records.evidence import EvidenceRecord, FileSeen, RunFacts
    from fastci_ml.settings import Settings

_N_NEAR = 5
_N_SIBLINGS = 20
_SHORT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--evidence", required=True, metavar="TEST", help="node id of the test")
    parser.add_argument("--lane", metavar="NAME", help="records of this lane alone (default: of all)")
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="the store (default: .fastci/evidence.sqlite)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print the records of a test, or what it may have been called."""
    from fastci_ml.cli import output
    from fastci_ml.evidence.store.store import EvidenceStore
    from fastci_ml.sources.projects import default_project

    with EvidenceStore.open(args.store or settings.evidence_db, read_only=True) as store, store.snapshot():
        heads = list(store.records(args.lane))
        test = _resolve(args.evidence, {head.node_id for head in heads}, default_project(settings.root))
        records = store.records_of(test, lane=args.lane)
        siblings = _siblings(test, heads)
        if not records and not siblings:
            raise _unknown(args.evidence, args.lane, heads, store)
    if args.json:
        output.answer_json(
            {
                "schema": "fastci.explain/1",
                "test": test,
                "records": [_plain(record) for record in records],
                "siblings": [{"test": name, "is_complete": whole} for name, whole in siblings],
            }
        )
    else:
        for line in _for_person(test, records, siblings):
            output.answer(line)
    return 0


def _resolve(typed: str, known: set[str], project: str) -> str:
    """The id as it is stored: what pytest prints starts at the project's folder."""
    from fastci_ml.records.ids import function_id, with_project

    functions = {function_id(node_id) for node_id in known}
    for test in (typed, with_project(typed, project)):
        if test in known or function_id(test) in functions:
            return test
    return typed


def _siblings(test: str, heads: Iterable[RecordHead]) -> list[tuple[str, bool]]:
    """Tests of the same function with other parameters, and whether the newest record of each is complete."""
    from fastci_ml.records.ids import function_id

    function = function_id(test)
    newest: dict[str, RecordHead] = {}
    for head in heads:
        if head.node_id != test and function_id(head.node_id) == function:
            known = newest.get(head.node_id)
            if known is None or head.recorded_us >= known.recorded_us:
                newest[head.node_id] = head
    return [(node_id, not newest[node_id].gaps) for node_id in sorted(newest)]


def _unknown(typed: str, lane: str | None, heads: Sequence[RecordHead], store: EvidenceStore) -> Exception:
    import difflib

    from fastci_ml.errors import UsageError

    known = sorted({head.node_id for head in heads})
    near = difflib.get_close_matches(typed, known, n=_N_NEAR, cutoff=0.5)
    if not near:
        name = typed.rpartition("::")[2].partition("[")[0]
        near = [node_id for node_id in known if name and name in node_id][:_N_NEAR]
    where = f"{store.path}: no record of {typed!r}" + (f" in lane {lane!r}" if lane is not None else "")
    if near:
        return UsageError(where, hint=f"did you mean {', '.join(map(repr, near))}?")
    lanes = sorted({head.lane for head in store.records()})
    hint = (
        f"lanes with records: {', '.join(lanes)}"
        if lanes and lane is not None
        else "fastci-ml record -- pytest"
    )
    return UsageError(where, hint=hint)


def _for_person(
    test: str, records: Sequence[EvidenceRecord], siblings: Sequence[tuple[str, bool]]
) -> Iterable[str]:
    yield test if records else f"{test}: no record of its own"
    for record in records:
        yield ""
        is_paired = any(other is not record and _is_of_same(record, other) for other in records)
        yield from _record(record, is_paired=is_paired)
    if siblings:
        yield ""
        yield f"other parameters ({len(siblings):,})"
        for node_id, is_complete in siblings[:_N_SIBLINGS]:
            yield f"  {node_id}  {'complete' if is_complete else 'not complete'}"
        if len(siblings) > _N_SIBLINGS:
            yield f"  and {len(siblings) - _N_SIBLINGS:,} more"


def _is_of_same(one: EvidenceRecord, other: EvidenceRecord) -> bool:
    """Whether two records say together what a test touches."""
    keys = [(found.lane, found.scope, found.commit, found.is_complete) for found in (one, other)]
    return keys[0] == keys[1]


def _record(record: EvidenceRecord, *, is_paired: bool) -> Iterable[str]:
    from fastci_ml.records.evidence_kinds import IMPORTED_SCOPES

    when = datetime.fromtimestamp(record.recorded_us / 1e6, UTC)
    commit = f"commit {record.commit[:_SHORT]}" if record.commit else "no commit"
    by = "imported from" if record.scope in IMPORTED_SCOPES else "recorded by"
    yield f"lane {record.lane}"
    yield f"  {by} {record.backend}, scope {record.scope}, {commit}, {when:%Y-%m-%d %H:%M:%S} UTC"
    times = [
        f"{name} {value:.3g} s"
        for name, value in (
            ("set-up", record.facts.setup_s),
            ("call", record.facts.call_s),
            ("teardown", record.facts.teardown_s),
        )
        if value is not None
    ]
    yield "  " + ", ".join([record.facts.outcome or "outcome unknown", *times])
    took = list(_took(record.facts))
    if took:
        yield "  took " + ", ".join(took)
    if record.facts.processes:
        yield "  with processes of its own: " + "; ".join(record.facts.processes)
    yield from (f"  note: {note}" for note in record.facts.notes)
    if record.is_complete:
        also = " and in the other record of this commit" if is_paired else ""
        yield f"  complete: what it does not name here{also}, it did not touch"
    else:
        yield "  not complete, so the test is run for every change:"
        yield from (f"    {gap.meaning}" + (f": {detail}" if detail else "") for gap, detail in record.gaps)
    yield from _units(record)
    yield from _section("read", (_file(seen) for seen in record.reads))
    yield from _section("listed", (_file(seen) for seen in record.listings))
    yield from _section("imports start at", record.roots)
    yield from _section("environment variables", record.environ)
    yield from _section("libraries that read files unseen", record.native_readers)


def _took(facts: RunFacts) -> Iterable[str]:
    """What is known of what it took."""
    if facts.cpu_s is not None:
        yield f"{facts.cpu_s:.3g} s of CPU"
    if facts.peak_rss_bytes is not None:
        yield f"{_size(facts.peak_rss_bytes)} of memory"
    gpu = []
    if facts.n_gpus is not None:
        gpu.append(f"{facts.n_gpus} GPU{'' if facts.n_gpus == 1 else 's'}")
    if facts.gpu_s is not None:
        gpu.append(f"{facts.gpu_s:.3g} GPU-seconds")
    if facts.gpu_peak_bytes is not None:
        gpu.append(f"{_size(facts.gpu_peak_bytes)} of GPU memory")
    if gpu:
        yield ", ".join(gpu) + (f" (by {facts.gpu_by})" if facts.gpu_by in ("process", "device") else "")


def _size(n_bytes: int) -> str:
    gib = n_bytes / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{n_bytes / 2**20:.0f} MiB"


def _units(record: EvidenceRecord) -> Iterable[str]:
    by_path: dict[str, list[str]] = {}
    for unit in record.units:
        by_path.setdefault(unit.path, []).append(unit.name)
    n_files = f"{len(by_path):,} file" + ("" if len(by_path) == 1 else "s")
    yield f"  ran {len(record.units):,} units of {n_files}"
    for path in sorted(by_path):
        yield f"    {path}"
        yield f"      {', '.join(sorted(by_path[path]))}"


def _section(name: str, items: Iterable[str]) -> Iterable[str]:
    found = sorted(items)
    if found:
        yield f"  {name} ({len(found):,})"
        yield from (f"    {item}" for item in found)


def _file(seen: FileSeen) -> str:
    return f"{seen.path}  {seen.blob[:_SHORT]}" if seen.blob else f"{seen.path}  content not known"


def _plain(record: EvidenceRecord) -> dict[str, Any]:
    from dataclasses import asdict

    files: dict[str, list[dict[str, str]]] = {}
    for unit in sorted(record.units, key=lambda unit: (unit.path, unit.name, unit.fingerprint)):
        files.setdefault(unit.path, []).append(
            {"name": unit.name, "kind": unit.kind.value, "fingerprint": unit.fingerprint}
        )
    return {
        "lane": record.lane,
        "scope": record.scope,
        "commit": record.commit,
        "backend": record.backend,
        "recorded_us": record.recorded_us,
        "is_complete": record.is_complete,
        "gaps": [
            {"reason": gap.value, "meaning": gap.meaning, "detail": detail} for gap, detail in record.gaps
        ],
        "units": dict(sorted(files.items())),
        "reads": [
            asdict(seen) for seen in sorted(record.reads, key=lambda seen: (seen.path, seen.blob or ""))
        ],
        "listings": [
            asdict(seen) for seen in sorted(record.listings, key=lambda seen: (seen.path, seen.blob or ""))
        ],
        "roots": sorted(record.roots),
        "environ": sorted(record.environ),
        "native_readers": list(record.native_readers),
        "facts": asdict(record.facts),
    }
