"""Bundles that wait to be merged, and the evidence store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from fastci_ml.cli.health.finding import Finding, ok, problem, warning
from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.reader import digest_bundle, find_bundles, open_bundle
from fastci_ml.evidence.bundle.unseal import unseal
from fastci_ml.evidence.overview import EvidenceOverview, view_evidence
from fastci_ml.evidence.seal_key import VARIABLE as KEY_VARIABLE
from fastci_ml.evidence.store.store import EvidenceStore
from fastci_ml.records.evidence_kinds import UNTRUSTED_SCOPE
from fastci_ml.settings import Settings

_TOPIC = "evidence"
_N_SHOWN = 3
# The end mark is the last line, and short.
_TAIL_BYTES = 4096
# Younger than this a bundle without an end mark may belong to tests that are running.
_RUNNING_S = 3600.0
_STALE_DAYS = 30.0
_DAY_S = 86_400.0
_HOW_TO_RECORD = "fastci-ml record --merge -- pytest"


def look_at_evidence(settings: Settings) -> Iterable[Finding]:
    """Findings about bundles and store."""
    yield _folder(settings.bundles_dir)
    store = None
    if settings.evidence_db.exists():
        try:
            store = EvidenceStore.open(settings.evidence_db, read_only=True)
        except EvidenceError as error:
            yield problem(_TOPIC, "store", str(error), error.hint or "fastci-ml merge")
    else:
        yield warning(_TOPIC, "store", f"{settings.evidence_db}: no evidence yet", _HOW_TO_RECORD)
    try:
        yield from _bundles(settings.bundles_dir, store)
        if store is not None:
            yield from _store(store)
    finally:
        if store is not None:
            store.close()


def _folder(folder: Path) -> Finding:
    """Whether bundles can be written; nothing is made to find out."""
    if folder.exists() and not folder.is_dir():
        return problem(_TOPIC, "bundles folder", f"{folder}: found no folder", f"mv {folder} {folder}.aside")
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return problem(
            _TOPIC,
            "bundles folder",
            f"{nearest}: cannot be written",
            "fastci-ml record --bundles DIR -- pytest",
        )
    return ok(_TOPIC, "bundles folder", f"{folder}: can be written")


def _bundles(folder: Path, store: EvidenceStore | None) -> Iterable[Finding]:
    found = find_bundles([folder]) if folder.is_dir() else []
    waiting, torn, broken = [], [], []
    for path in found:
        try:
            with open_bundle(path) as stream:
                provenance, digest, _ = digest_bundle(path, stream)
            is_whole = _is_whole(path)
        except (EvidenceError, OSError) as error:
            broken.append(str(error))
            continue
        if store is None or not store.has_bundle(provenance.bundle_id, digest):
            waiting.append(path)
        if not is_whole and time.time() - path.stat().st_mtime > _RUNNING_S:
            torn.append(path.name)
    if broken:
        yield problem(
            _TOPIC, "unreadable bundles", f"{len(broken)}: {_some(broken)}", f"remove them from {folder}"
        )
    if torn:
        yield warning(
            _TOPIC,
            "torn bundles",
            f"{len(torn)} without an end mark: {_some(torn)}; their processes were killed",
            "fastci-ml record --merge -- pytest, where those tests run",
        )
    if waiting:
        yield warning(_TOPIC, "bundles", f"{len(waiting)} of {len(found)} are not merged", "fastci-ml merge")
    else:
        yield ok(_TOPIC, "bundles", f"{len(found)}, all merged" if found else "none")


def _is_whole(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        last = stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
    line = unseal(last + b"\n")
    return line is not None and line[0] == "end"


def _store(store: EvidenceStore) -> Iterable[Finding]:
    faults = store.check()
    if faults:
        yield problem(
            _TOPIC,
            "store",
            f"{store.path}: damaged: {'; '.join(faults[:_N_SHOWN])}",
            f"mv {store.path} {store.path}.aside && fastci-ml merge",
        )
        return
    figures = store.summary()
    size = f"{figures.n_bytes / 1e6:.1f} MB, {figures.n_bundles:,} bundles"
    yield ok(_TOPIC, "store", f"{store.path}: sound, schema {figures.schema}, {size}")
    yield from _coverage(view_evidence(store))


def _coverage(found: EvidenceOverview) -> Iterable[Finding]:
    if not found.n_tests:
        yield warning(_TOPIC, "tests", "no test is recorded", _HOW_TO_RECORD)
        return
    reasons = "; ".join(f"{n:,}: {gap.meaning}" for gap, n in list(found.reasons.items())[:_N_SHOWN])
    text = f"{found.n_tests:,} recorded, {100 * found.complete_ratio:.1f}% of them complete"
    if reasons:
        yield warning(_TOPIC, "tests", f"{text}; {reasons}", "fastci-ml status")
    else:
        yield ok(_TOPIC, "tests", text)
    n_untrusted = sum(one.n_tests for one in found.scopes if one.scope == UNTRUSTED_SCOPE)
    if n_untrusted:
        yield warning(
            _TOPIC,
            "untrusted",
            f"{n_untrusted:,} tests have evidence of bundles without a seal that fits: it can only add tests",
            f"{KEY_VARIABLE}=... fastci-ml merge, where bundles and seals of it lie",
        )
    if found.newest_trunk_us is None:
        yield warning(
            _TOPIC,
            "trunk",
            "nothing was recorded on trunk: plans leave no test out",
            "record in the CI of trunk",
        )
        return
    days = max(0.0, time.time() - found.newest_trunk_us / 1e6) / _DAY_S
    text = f"newest record {days:.1f} days old"
    if days > _STALE_DAYS:
        yield warning(_TOPIC, "trunk", text, "record in the CI of trunk, every night or every week")
    else:
        yield ok(_TOPIC, "trunk", text)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _N_SHOWN} more" if len(names) > _N_SHOWN else ""
    return ", ".join(names[:_N_SHOWN]) + more
