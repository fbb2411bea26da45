"""What a run should have left and did not: absent shards, tests without a result, no report at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fastci_ml.records.ids import NodeId
from fastci_ml.sources.history.tables import storable
from fastci_ml.sources.ingest.known_runs import KnownRuns
from fastci_ml.sources.ingest.run_file import RunInfo
from fastci_ml.sources.ingest.shards import AbsentShards, find_absent, in_order, total_of
from fastci_ml.sources.ingest.unit_reports import UnitReports

_MOST_NAMES = 5


@dataclass(slots=True)
class Shortfall:
    """What is lacking in one run.

    Attributes
    ----------
    warnings : list of str
        One line for each kind of lack in each job.
    n_absent_shards : int
        Shards that should be there and are not.
    n_missing : int
        Tests that were to run and have no result.
    is_incomplete : bool
        Whether anything is lacking.
    """

    warnings: list[str] = field(default_factory=list)
    n_absent_shards: int = 0
    n_missing: int = 0
    is_incomplete: bool = False


def find_shortfall(units: Sequence[UnitReports], known: KnownRuns) -> Shortfall:
    """Compare the units of one run with what they should be; sets the `gaps` of those that miss tests.

    Parameters
    ----------
    units : sequence of UnitReports
        All of the run that came now.
    known : KnownRuns
        What came before.
    """
    found = Shortfall()
    for one in units:
        if not one.is_present and _is_expected(one):
            found.is_incomplete = True
            if not (one.unit.files or one.unit.is_spoiled):
                where = ", ".join(map(str, one.unit.run_files)) or "in the places that were named"
                found.warnings.append(
                    f"{one.unit.info.describe()}: no report ({where}): the process may have died"
                )
    jobs: dict[str, list[UnitReports]] = {}
    for one in units:
        jobs.setdefault(one.unit.info.job, []).append(one)
    for members in jobs.values():
        _find_absent_shards(members, known, found)
        lanes: dict[str, list[UnitReports]] = {}
        for one in members:
            lanes.setdefault(one.unit.info.lane, []).append(one)
        for side in lanes.values():
            _find_missing_tests(side, known, found)
    return found


def is_pruned(one: UnitReports, known: KnownRuns) -> bool:
    """Whether the unit was ingested once and has been dropped from the history since."""
    info = one.unit.info
    return one.is_known and known.run(*map(storable, (info.run_id, info.job, info.shard))) is None


def _is_expected(one: UnitReports) -> bool:
    """Whether a unit should have a report: a file that nothing speaks for was none in the first place."""
    has_name = bool(one.unit.run_files) or one.unit.info.selected is not None
    return has_name and not one.unit.is_described_only


def _find_absent_shards(units: Sequence[UnitReports], known: KnownRuns, found: Shortfall) -> None:
    """Shards of one job that are in no attempt, neither now nor in the history."""
    infos = [one.unit.info for one in units]
    if any(is_pruned(one, known) for one in units):
        return
    before = known.shards(storable(infos[0].run_id), storable(infos[0].job))
    n_shards = _n_shards(infos, found)
    for lane, side in _by_lane(units).items():
        named = {one.unit.info.shard for one in side if one.is_present}.union(before) - {""}
        if n_shards is None:
            # Those that are known by their run.json alone; each has its line already.
            told = {one.unit.info.shard for one in side if _is_expected(one)} - {""}
            found.n_absent_shards += len(told - named)
            continue
        if len(named) > n_shards:
            names = ", ".join(in_order(named)[:_MOST_NAMES])
            found.warnings.append(f"{_job(infos[0], lane)}: more shards than {n_shards:,}: {names} ...")
        # Without names each report stands for a shard: there is nothing else to count.
        n_unnamed = max(sum(len(one.used) for one in side if one.is_present), len(before))
        if named:
            absent = find_absent(named, n_shards)
        elif n_unnamed < n_shards:
            absent = AbsentShards(n_absent=n_shards - n_unnamed, n_shards=n_shards)
        else:
            absent = None
        if absent is not None:
            found.is_incomplete = True
            found.n_absent_shards += absent.n_absent
            found.warnings.append(f"{_job(infos[0], lane)}: {absent.describe()}: what they ran is unknown")


def _n_shards(infos: Sequence[RunInfo], found: Shortfall) -> int | None:
    """How many shards the job has: what is stated, and what the names say."""
    stated = {info.n_shards for info in infos} | {total_of(info.shard) for info in infos}
    totals = sorted(n for n in stated if n is not None)
    if len(totals) > 1:
        words = " and ".join(map(str, totals))
        found.warnings.append(f"{_job(infos[0])}: its shards disagree on how many there are: {words}")
    return totals[-1] if totals else None


def _by_lane(units: Sequence[UnitReports]) -> dict[str, list[UnitReports]]:
    """Units apart by lane where lanes are a dimension of the job: where one shard comes on two of them."""
    lanes: dict[str, list[UnitReports]] = {}
    for one in units:
        lanes.setdefault(one.unit.info.lane, []).append(one)
    places = [(one.unit.info.shard, one.unit.info.lane) for one in units]
    if len(set(places)) == len({shard for shard, _ in places}):
        return {"": list(units)}
    return lanes


def _find_missing_tests(units: Sequence[UnitReports], known: KnownRuns, found: Shortfall) -> None:
    """Tests of one job on one lane that were to run and have no result, neither now nor in the history."""
    expected = list(_union(one.unit.expected() for one in units))
    if not expected or any(is_pruned(one, known) for one in units):
        return
    results = set().union(*(one.tests(with_result=True) for one in units))
    missing = [node_id for node_id in expected if node_id not in results]
    if not missing:
        return
    info = units[0].unit.info
    before = known.tests(*map(storable, (info.run_id, info.job, info.lane)))
    missing = [node_id for node_id in missing if node_id not in before.with_result]
    if not missing:
        return
    found.is_incomplete = True
    found.n_missing += len(missing)
    found.warnings.append(
        f"{_job(info)}: {len(missing):,} of {len(expected):,} selected tests have no result: "
        "the process may have died"
    )
    with_row = before.all.union(*(one.tests(with_result=False) for one in units))
    open_ids = dict.fromkeys(node_id for node_id in missing if node_id not in with_row)
    for one in units:
        if not one.is_known:
            one.gaps = [node_id for node_id in one.unit.expected() or () if node_id in open_ids]
            for node_id in one.gaps:
                del open_ids[node_id]


def _union(lists: Iterable[Sequence[NodeId] | None]) -> dict[NodeId, None]:
    return dict.fromkeys(node_id for one in lists for node_id in one or ())


def _job(info: RunInfo, lane: str = "") -> str:
    words = f"run {info.run_id}" + (f", job {info.job}" if info.job else "")
    return f"{words}, lane {lane}" if lane else words
