"""The history store: nothing lost, nothing twice, whatever dies or runs beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import HistoryError
from fastci_ml.records.frames import CHANGES, EXECUTIONS, HISTORY, NO_ATTEMPT, RUNS, Frame
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.history.summary import summarize
from fastci_ml.sources.history.tables import codes, numbers, storable

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_frame(frame: Frame, rows: list[dict[str, object]]) -> pd.DataFrame:
    """Frame of `frame` from partial rows: text is empty, numbers NaN, times NaT where a row says nothing."""
    blank = {"str": "", "float64": np.nan, "int64": 0, "bool": True, "datetime64[us, UTC]": pd.NaT}
    columns = {
        name: pd.Series([row.get(name, blank[column.dtype]) for row in rows], dtype=column.dtype)
        for name, column in frame.columns.items()
    }
    return frame.check(pd.DataFrame(columns))


def run_frames(
    run: int, tests: tuple[str, ...] = ("t.py::a", "t.py::b"), **changed: object
) -> dict[str, pd.DataFrame]:
    """Frames of one run that lasted a minute and started `run` hours after START."""
    started = START + timedelta(hours=run)
    row = {"run_id": f"r{run}", "lane": "cpu", "outcome": "passed", "duration_s": 1.5, **changed}
    return {
        "executions": make_frame(EXECUTIONS, [{**row, "node_id": name} for name in tests]),
        "runs": make_frame(
            RUNS,
            [
                {
                    "run_id": f"r{run}",
                    "head": f"{run:040x}",
                    "started_at": started,
                    "finished_at": started + timedelta(minutes=1),
                }
            ],
        ),
        "changes": make_frame(CHANGES, [{"run_id": f"r{run}", "path": f"src/{run}.py", "status": "M"}]),
    }


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def fill(store: HistoryStore, n_runs: int, first: int = 0) -> None:
    for run in range(first, first + n_runs):
        assert store.append(**run_frames(run), digest=digest_of(f"run {run}"))


def content(store: HistoryStore) -> list[pd.DataFrame]:
    return [store.read(frame) for frame in HISTORY]


def assert_same(left: list[pd.DataFrame], right: list[pd.DataFrame]) -> None:
    for one, other in zip(left, right, strict=True):
        pd.testing.assert_frame_equal(one, other)


def test_an_absent_folder_is_an_empty_history(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path / "none")
    for frame in HISTORY:
        assert len(frame.check(store.read(frame))) == 0
    assert store.latest_us() is None
    assert store.compact() == 0


def test_what_was_appended_is_read_sorted_by_key_with_the_dtypes_of_the_frames(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 3)
    for frame in HISTORY:
        found = frame.check(store.read(frame))
        keys = list(found[list(frame.key)].itertuples(index=False))
        assert keys == sorted(keys)
    executions = store.read(EXECUTIONS)
    assert len(executions) == 6
    assert executions.duration_s.tolist() == [1.5] * 6
    assert executions.n_gpus.isna().all()
    assert executions.started_at.isna().all()
    assert store.latest_us() == int((START + timedelta(hours=2, minutes=1)).timestamp() * 1e6)


def test_the_same_digest_is_ingested_once_also_after_compaction(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 2)
    before = content(store)
    assert not store.append(**run_frames(0), digest=digest_of("run 0"))
    store.compact()
    assert not store.append(**run_frames(1), digest=digest_of("run 1"))
    assert not HistoryStore(tmp_path).append(**run_frames(1), digest=digest_of("run 1"))
    assert_same(content(store), before)


@pytest.mark.parametrize("compacts", [False, True])
def test_the_last_ingested_row_wins(tmp_path: Path, compacts: bool) -> None:
    store = HistoryStore(tmp_path)
    store.append(**run_frames(0, outcome="failed"), digest=digest_of("first"))
    if compacts:
        fill(store, 1, first=1)
        store.compact()
    store.append(**run_frames(0, outcome="passed", tests=("t.py::b",)), digest=digest_of("second"))
    if compacts:
        store.compact()
    found = store.read(EXECUTIONS)
    assert found[found.run_id == "r0"].outcome.tolist() == ["failed", "passed"]


def test_scan_leaves_old_parts_unopened(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 3)
    watermark = int((START + timedelta(hours=1, minutes=1)).timestamp() * 1e6)
    for part in (tmp_path / "executions").iterdir():
        if int(part.name[:20]) <= watermark:
            part.write_bytes(b"torn")
    found = store.scan(EXECUTIONS, columns=["node_id", "run_id"], newer_than_us=watermark)
    assert found.column_names == ["node_id", "run_id"]
    assert found.column("run_id").to_pylist() == ["r2", "r2"]
    with pytest.raises(HistoryError, match="torn or no Parquet"):
        store.scan(EXECUTIONS)


def test_scan_gives_one_chunk_and_one_dictionary_a_column(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 3)
    table = store.scan(EXECUTIONS)
    places, values = codes(table.column("run_id"))
    assert [values.to_pylist()[place] for place in places] == ["r0", "r0", "r1", "r1", "r2", "r2"]
    assert numbers(table.column("started_at")).tolist() == [np.iinfo(np.int64).min] * 6
    assert numbers(table.column("is_joined")).tolist() == [True] * 6


def test_scan_does_not_import_pandas(tmp_path: Path) -> None:
    fill(HistoryStore(tmp_path), 3)
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from fastci_ml.records.frames import EXECUTIONS, RUNS
        from fastci_ml.sources.history.store import HistoryStore
        from fastci_ml.sources.history.tables import codes, numbers
        store = HistoryStore(Path(sys.argv[1]))
        table = store.scan(EXECUTIONS)
        assert table.num_rows == 6
        codes(table.column("node_id")), numbers(table.column("duration_s"))
        numbers(table.column("started_at"))
        store.scan(RUNS, newer_than_us=0)
        store.latest_us()
        print(*[name for name in ("pandas", "lightgbm", "sklearn", "mlflow") if name in sys.modules])
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("rows_a_part", [4_000_000, 3])
def test_compaction_changes_files_not_content(tmp_path: Path, rows_a_part: int) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 5)
    before = content(store)
    assert store.compact(rows_a_part=rows_a_part) > 0
    assert_same(content(store), before)
    n_parts = store.n_parts()
    assert store.compact(rows_a_part=rows_a_part) == 0
    assert store.n_parts() == n_parts == (3 if rows_a_part > 10 else 4 + 2 + 2)
    fill(store, 1, first=5)
    store.compact(rows_a_part=rows_a_part)
    assert len(store.read(EXECUTIONS)) == 12


def test_slices_of_a_compacted_table_are_left_unopened_when_old(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 5)
    store.compact(rows_a_part=2)
    latest = store.latest_us()
    assert latest is not None
    found = store.scan(EXECUTIONS, newer_than_us=latest - 1)
    assert found.column("run_id").to_pylist() == ["r4", "r4"]


def test_prune_drops_old_runs_from_all_tables_and_keeps_them_known(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 4)
    assert store.prune(START + timedelta(hours=2)) == 2
    assert [sorted(set(frame.run_id)) for frame in content(store)] == [["r2", "r3"]] * 3
    assert not store.append(**run_frames(0), digest=digest_of("run 0"))
    assert store.prune(START + timedelta(days=9)) == 2
    assert [len(frame) for frame in content(store)] == [0, 0, 0]
    assert store.latest_us() is None
    assert not store.append(**run_frames(3), digest=digest_of("run 3"))
    with pytest.raises(ValueError, match="no time zone"):
        store.prune(datetime(2026, 1, 1))


_KILLED = """
import os, signal, sys
from datetime import datetime
from pathlib import Path
from fastci_ml.sources.history.store import HistoryStore
steps = 0
def die(what, done, total):
    global steps
    if steps == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    steps += 1
store = HistoryStore(Path(sys.argv[1]))
if sys.argv[3] == "compact":
    store.compact(die)
else:
    store.prune(datetime.fromisoformat(sys.argv[3]), die)
"""


@pytest.mark.parametrize("step", range(6))
def test_kill_9_in_a_compaction_loses_nothing(tmp_path: Path, step: int) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 4)
    before = content(store)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), str(step), "compact"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert_same(content(store), before)
    assert not store.append(**run_frames(2), digest=digest_of("run 2"))
    fill(store, 1, first=4)
    store.compact()
    assert store.n_parts() == 3
    assert len(store.read(EXECUTIONS)) == 10


@pytest.mark.parametrize("step", range(6))
def test_a_prune_that_died_is_finished_by_the_next(tmp_path: Path, step: int) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 4)
    limit = START + timedelta(hours=2)
    arguments = [str(tmp_path), str(step), limit.isoformat()]
    done = subprocess.run([sys.executable, "-c", _KILLED, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    kept = [frame[frame.run_id.isin(["r2", "r3"])] for frame in content(store)]
    assert [len(frame) for frame in kept] == [4, 2, 2]
    store.prune(limit)
    assert [sorted(set(frame.run_id)) for frame in content(store)] == [["r2", "r3"]] * 3


def test_an_ingest_that_died_before_its_mark_is_not_seen_and_can_be_repeated(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 2)
    for part in (tmp_path / "runs").glob(f"*-{digest_of('run 1')}.parquet"):
        part.unlink()
    assert [sorted(set(frame.run_id)) for frame in content(store)] == [["r0"]] * 3
    store.compact()
    fill(store, 1, first=1)
    assert [sorted(set(frame.run_id)) for frame in content(store)] == [["r0", "r1"]] * 3
    assert len(store.read(EXECUTIONS)) == 4


_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_history as t
t.fill(t.HistoryStore(Path(sys.argv[2])), 15, first=int(sys.argv[3]))
"""


def test_two_processes_append_at_once_while_a_third_compacts(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent)
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, tests, str(tmp_path), str(first)])
        for first in (0, 100)
    ]
    store = HistoryStore(tmp_path)
    seen = 0
    while any(writer.poll() is None for writer in writers):
        store.compact()
        found = len(store.read(RUNS))
        assert found >= seen
        seen = found
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [len(frame) for frame in content(store)] == [60, 30, 30]


def test_a_part_that_is_torn_foreign_or_from_the_future_is_named(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 1)
    part = next((tmp_path / "executions").iterdir())
    whole = part.read_bytes()
    for n_bytes in (0, 3, len(whole) // 2, len(whole) - 1):
        part.write_bytes(whole[:n_bytes])
        with pytest.raises(HistoryError, match=part.name):
            store.read(EXECUTIONS)
    table = pa.table({"a": [1]})
    pq.write_table(table, part)
    with pytest.raises(HistoryError, match=f"{part.name}: schema no schema, expected fastci.history/1"):
        store.read(EXECUTIONS)
    pq.write_table(table.replace_schema_metadata({"fastci.schema": "fastci.history/2"}), part)
    with pytest.raises(HistoryError, match=r"schema fastci.history/2, expected fastci.history/1"):
        store.read(EXECUTIONS)
    pq.write_table(table.replace_schema_metadata({"fastci.schema": "fastci.history/1"}), part)
    with pytest.raises(HistoryError, match="column run_id is absent"):
        store.read(EXECUTIONS)
    part.write_bytes(whole)
    (part.parent / "notes.txt").write_text("mine")
    with pytest.raises(HistoryError, match=r"notes.txt: not a part of a history store"):
        store.read(EXECUTIONS)


def test_what_a_dying_writer_left_is_ignored(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 1)
    (tmp_path / "executions" / ".0123.tmp").write_bytes(b"PAR1")
    assert len(store.read(EXECUTIONS)) == 2


def test_append_refuses_what_it_could_not_give_back(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    frames = run_frames(0)
    with pytest.raises(ValueError, match="hex digits"):
        store.append(**frames, digest="../../etc")
    with pytest.raises(ValueError, match="no frame of RUNS"):
        store.append(**{**frames, "runs": frames["runs"].drop(columns="head")}, digest=digest_of("x"))
    with pytest.raises(ValueError, match="without runs"):
        store.append(**{**frames, "runs": frames["runs"].head(0)}, digest=digest_of("x"))
    with pytest.raises(ValueError, match=r"'run_id': 'r0'.* is not among the runs"):
        store.append(**{**frames, "runs": run_frames(1)["runs"]}, digest=digest_of("x"))
    untimed = frames["runs"].assign(finished_at=pd.Series([pd.NaT], dtype="datetime64[us, UTC]"))
    with pytest.raises(ValueError, match=r"runs.finished_at has 1 missing values"):
        store.append(**{**frames, "runs": untimed}, digest=digest_of("x"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_listed_is_an_error_not_an_empty_history(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(HistoryError, match="cannot be read"):
        HistoryStore(tmp_path).read(RUNS)


def test_a_folder_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "executions").write_text("a file")
    (tmp_path / "taken").write_text("a file")
    # Not even root can make a folder in /proc; elsewhere it is absent, and root could make one.
    nowhere = [Path("/proc/fastci")] if Path("/proc/self").exists() else []
    for folder in (tmp_path, tmp_path / "taken", *nowhere):
        with pytest.raises(HistoryError, match=str(folder)):
            HistoryStore(folder).append(**run_frames(0), digest=digest_of("x"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_named_error(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 2)
    folder = tmp_path / "executions"
    folder.chmod(0o500)
    try:
        with pytest.raises(HistoryError, match=str(folder)):
            fill(store, 1, first=2)
        with pytest.raises(HistoryError, match=str(folder)):
            store.compact()
    finally:
        folder.chmod(0o700)


def test_storable_keeps_good_text_and_names_bad_bytes() -> None:
    assert storable("src/é.py") == "src/é.py"
    assert storable(os.fsdecode(b"bad\xff.py")) == "bad\\xff.py"
    assert storable("half \ud800") == "half \\ud800"


_times = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_floats = st.floats(allow_nan=True)
_rows = st.fixed_dictionaries(
    {
        "run_id": st.sampled_from(["r0", "r1", ""]),
        "job": st.sampled_from(["", "j"]),
        "lane": _names,
        "node_id": _names,
        "attempt": st.just(NO_ATTEMPT) | st.integers(-(2**63), 2**63 - 1),
        "outcome": st.sampled_from(["passed", "failed"]),
        "started_at": st.none() | _times,
        "duration_s": _floats,
        "n_gpus": _floats,
        "is_joined": st.booleans(),
        "message": _names,
        "failure_rule": _names,
    }
)


@settings(max_examples=40)
@given(batches=st.lists(st.lists(_rows, max_size=6), min_size=1, max_size=4), compacts=st.booleans())
def test_history_comes_back_as_a_dictionary_of_last_rows_would_give_it(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, object]]], compacts: bool
) -> None:
    store = HistoryStore(tmp_path_factory.mktemp("history"))
    runs = make_frame(
        RUNS,
        [
            {"run_id": run, "job": job, "started_at": START, "finished_at": START}
            for run in ("r0", "r1", "")
            for job in ("", "j")
        ],
    )
    expected: dict[tuple[object, ...], pd.DataFrame] = {}
    for place, rows in enumerate(batches):
        executions = make_frame(EXECUTIONS, rows)
        store.append(
            executions=executions, runs=runs, changes=make_frame(CHANGES, []), digest=digest_of(str(place))
        )
        for row in range(len(executions)):
            one = executions.iloc[[row]]
            expected[tuple(one[list(EXECUTIONS.key)].iloc[0])] = one
    # A row that says that a result is lacking stands alone, and only while there is no other.
    by_test: dict[tuple[object, ...], list[tuple[object, ...]]] = {}
    for key in sorted(expected):
        run_id, job, _, lane, node_id, _ = key
        by_test.setdefault((run_id, job, lane, node_id), []).append(key)
    for keys in by_test.values():
        gaps = [key for key in keys if key[-1] == NO_ATTEMPT]
        for key in gaps if len(gaps) < len(keys) else gaps[1:]:
            del expected[key]
    if compacts:
        store.compact()
    found = store.read(EXECUTIONS)
    ordered = [expected[key] for key in sorted(expected)]
    slow = pd.concat(ordered, ignore_index=True) if ordered else make_frame(EXECUTIONS, [])
    pd.testing.assert_frame_equal(found, slow)


_any_text = st.text(st.characters(), max_size=6).map(storable)
# Every microsecond that a column can hold; the least int64 means unknown.
_any_us = st.integers(-(2**63) + 1, 2**63 - 1) | st.sampled_from([-1, 0, -62_135_596_800_000_001, 2**62])
_VALUES = {
    "str": _any_text,
    # Rows that say that a result is lacking go by a rule of their own, tested above.
    "int64": st.integers(-(2**63), 2**63 - 1).filter(lambda number: number != NO_ATTEMPT),
    "float64": st.floats(),
    "bool": st.booleans(),
    "datetime64[us, UTC]": _any_us,
}
_RUN_NAMES, _JOBS = ["r0", "r\0", "é\U0001f600", ""], ["", "j"]


def any_rows(frame: Frame, max_size: int) -> st.SearchStrategy[list[dict[str, object]]]:
    """Rows of any content, whose keys meet often."""
    columns: dict[str, st.SearchStrategy[object]] = {
        name: _VALUES[column.dtype] for name, column in frame.columns.items()
    }
    columns["run_id"] = st.sampled_from(_RUN_NAMES)
    for name in ("job", "shard"):
        if name in columns:
            columns[name] = st.sampled_from(_JOBS)
    for name in {"lane", "node_id", "path", "attempt"} & {*columns}:
        columns[name] = columns[name] | st.sampled_from([0, 1] if name == "attempt" else ["", "a", "a\0"])
    if frame is EXECUTIONS:
        for name in ("started_at", "finished_at"):
            columns[name] = st.none() | columns[name]
    return st.lists(st.fixed_dictionaries(columns), max_size=max_size)


def any_frame(frame: Frame, rows: list[dict[str, object]]) -> pd.DataFrame:
    columns = {}
    for name, column in frame.columns.items():
        values = [row[name] for row in rows]
        if column.dtype.startswith("datetime64"):
            us = [np.iinfo(np.int64).min if value is None else value for value in values]
            times = np.array(us, dtype=np.int64).view("datetime64[us]")
            columns[name] = pd.Series(times).dt.tz_localize("UTC")
        else:
            columns[name] = pd.Series(values, dtype=column.dtype)
    return frame.check(pd.DataFrame(columns))


def bits(rows: pd.DataFrame) -> pd.DataFrame:
    """A frame in which 0 and -0 differ, and NaN equals NaN."""
    floats = rows.select_dtypes("float64").columns
    return rows.assign(
        **{name: np.where(rows[name].isna(), -1, rows[name].to_numpy().view("int64")) for name in floats}
    )


def rewrite_as(release: str, directory: Path, digest: str) -> None:
    """Parts of one ingest as another release writes them: the first has no failure_rule, a later one more."""
    for path in directory.glob(f"*/*-{digest}.parquet"):
        table = pq.read_table(path)
        if release == "earlier" and "failure_rule" in table.column_names:
            table = table.drop_columns("failure_rule")
        if release == "later":
            table = table.append_column("peak_bytes", pa.array([1.5] * table.num_rows))
            table = table.add_column(0, "owner", pa.array(["me"] * table.num_rows).dictionary_encode())
        pq.write_table(table, path, compression="zstd")


@settings(max_examples=30)
@given(data=st.data())
def test_history_of_any_content_survives_parquet(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The round trip: any text, number and time in all three tables, over ingests of three releases."""
    store = HistoryStore(tmp_path_factory.mktemp("history"))
    expected: dict[str, dict[tuple[object, ...], dict[str, object]]] = {frame.name: {} for frame in HISTORY}
    releases = data.draw(st.lists(st.sampled_from(["now", "earlier", "later"]), min_size=1, max_size=4))
    for place, release in enumerate(releases):
        runs = data.draw(any_rows(RUNS, 4)) or data.draw(any_rows(RUNS, 4).filter(bool))
        names = {(row["run_id"], row["job"], row["shard"]) for row in runs}
        executions = [
            row
            for row in data.draw(any_rows(EXECUTIONS, 6))
            if (row["run_id"], row["job"], row["shard"]) in names
        ]
        changes = [row for row in data.draw(any_rows(CHANGES, 4)) if row["run_id"] in {n[0] for n in names}]
        digest = digest_of(str(place))
        store.append(
            executions=any_frame(EXECUTIONS, executions),
            runs=any_frame(RUNS, runs),
            changes=any_frame(CHANGES, changes),
            digest=digest,
        )
        rewrite_as(release, store.directory, digest)
        if release == "earlier":
            executions = [{**row, "failure_rule": ""} for row in executions]
        for frame, rows in ((EXECUTIONS, executions), (RUNS, runs), (CHANGES, changes)):
            expected[frame.name] |= {tuple(row[name] for name in frame.key): row for row in rows}
    if data.draw(st.booleans()):
        if "later" in releases:
            with pytest.raises(HistoryError, match=r"columns owner, peak_bytes of a later fastci-ml"):
                store.compact()
        else:
            store.compact(rows_a_part=data.draw(st.sampled_from([2, 4_000_000])))
    for frame in HISTORY:
        rows = [expected[frame.name][key] for key in sorted(expected[frame.name])]
        found = frame.check(store.read(frame))
        pd.testing.assert_frame_equal(bits(found), bits(any_frame(frame, rows)))
        columns = data.draw(st.lists(st.sampled_from([*frame.columns]), unique=True, min_size=1))
        pd.testing.assert_frame_equal(
            bits(store.read(frame, columns=columns)), bits(any_frame(frame, rows)[columns])
        )


@pytest.mark.parametrize("first", ["earlier", "now"])
def test_parts_without_and_with_the_rule_of_a_failure_are_one_history(tmp_path: Path, first: str) -> None:
    store = HistoryStore(tmp_path)
    for run in range(2):
        store.append(**run_frames(run, failure_rule="nccl-timeout"), digest=digest_of(f"run {run}"))
    rewrite_as("earlier", tmp_path, digest_of("run 0" if first == "earlier" else "run 1"))
    rules = ["", "", "nccl-timeout", "nccl-timeout"]
    for compacts in (False, True):
        assert store.compact() if compacts else True
        assert sorted(store.read(EXECUTIONS).failure_rule) == rules
        assert summarize(store).n_executions == 4


def test_neither_a_compaction_nor_a_prune_drops_what_a_later_release_wrote(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    fill(store, 3)
    rewrite_as("later", tmp_path, digest_of("run 1"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    assert len(store.read(EXECUTIONS)) == 6  # reading passes them over
    for rewrite in (store.compact, lambda: store.prune(START + timedelta(hours=1))):
        with pytest.raises(
            HistoryError, match="owner, peak_bytes of a later fastci-ml would be lost"
        ) as raised:
            rewrite()
        assert raised.value.hint == "pip install --upgrade fastci-ml"
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


@pytest.mark.parametrize("us", [-(2**63) + 1, -62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1])
def test_times_that_no_calendar_has_are_summed_up_all_the_same(tmp_path: Path, us: int) -> None:
    store = HistoryStore(tmp_path)
    frames = run_frames(0)
    time = pd.Series(np.array([us], dtype=np.int64).view("datetime64[us]")).dt.tz_localize("UTC")
    frames["runs"] = frames["runs"].assign(started_at=time, finished_at=time)
    store.append(**frames, digest=digest_of("odd"))
    summary = summarize(store)
    assert summary.first == summary.last
    assert summary.first in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
