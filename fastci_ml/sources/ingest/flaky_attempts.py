"""A test that failed in one attempt of the CI at a job and passed in another is flaky; the commit is one.

Attempts may come in one ingest or in several, in any order. So the failures that come now are compared with
what passed before, and those of before with what passes now; their rows are written again with the new class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from fastci_ml.records.outcomes import FailureClass, Outcome
from fastci_ml.sources.history.tables import storable
from fastci_ml.sources.ingest.known_runs import KnownRuns
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.ingest.unit_reports import UnitReports
from fastci_ml.sources.reports import CLASS_CODE, OUTCOME_CODE, OUTCOMES, Report, constant

_IS_FAILURE = np.array([outcome.is_failure for outcome in OUTCOMES])
_FAILURES = [outcome for outcome in OUTCOMES if outcome.is_failure]
_FLAKY = np.int8(CLASS_CODE[FailureClass.FLAKY])


def settle_attempts(units: Sequence[UnitReports], known: KnownRuns) -> None:
    """Set the failures of units to flaky whose tests passed in another attempt, and find those of before.

    Parameters
    ----------
    units : sequence of UnitReports
        Of one run. Reports get new classes; `old_failures` the tests that failed before and pass now.
    known : KnownRuns
        What the history holds.
    """
    places: dict[tuple[str, str, str, str], list[UnitReports]] = {}
    for one in units:
        if one.report is not None:
            places.setdefault(_place(one.unit.info), []).append(one)
    for place, members in places.items():
        has_others = len(members) > 1 or known.run(*place[:3]) is not None
        # Where no attempt is named, what comes again takes the place of what was there.
        if not has_others or all(one.unit.info.attempt is None for one in members):
            continue
        passed = [_ids_with(one, [Outcome.PASSED]) for one in members]
        failed = [_ids_with(one, _FAILURES) for one in members]
        for mine, one in enumerate(members):
            attempt = one.unit.info.attempt or 1
            elsewhere = known.ids(*place, [Outcome.PASSED], not_in=attempt).union(
                *(ids for other, ids in enumerate(passed) if other != mine)
            )
            _set_flaky(one, failed[mine] & elsewhere)
            one.old_failures = known.ids(*place, _FAILURES, not_in=attempt) & passed[mine]


def old_failures(one: UnitReports, known: KnownRuns) -> pa.Table | None:
    """Rows of the failures in other attempts of tests that pass in this one, as flaky; None without any."""
    if not one.old_failures:
        return None
    info = one.unit.info
    table = known.failures(*_place(info), one.old_failures, not_in=info.attempt or 1)
    column = table.schema.get_field_index("failure_class")
    flaky = constant(FailureClass.FLAKY.value, table.num_rows)
    return table.set_column(column, table.schema.field(column), flaky)


def _place(info: RunInfo) -> tuple[str, str, str, str]:
    return storable(info.run_id), storable(info.job), storable(info.shard), storable(info.lane)


def _ids_with(one: UnitReports, outcomes: Sequence[Outcome]) -> frozenset[str]:
    report = _report(one)
    rows = np.isin(report.outcomes, [OUTCOME_CODE[outcome] for outcome in outcomes])
    names = report.node_ids.dictionary.to_pylist()
    return frozenset(
        names[code] for code in np.unique(np.from_dlpack(report.node_ids.indices)[rows]).tolist()
    )


def _set_flaky(one: UnitReports, node_ids: frozenset[str]) -> None:
    if not node_ids:
        return
    report = _report(one)
    names = report.node_ids.dictionary.to_pylist()
    is_flaky = np.array([name in node_ids for name in names], bool)[np.from_dlpack(report.node_ids.indices)]
    is_flaky &= _IS_FAILURE[report.outcomes]
    one.report = replace(report, classes=np.where(is_flaky, _FLAKY, report.classes))


def _report(one: UnitReports) -> Report:
    assert one.report is not None
    return one.report
