"""A folder with 500 mixed files through the real command line: a line a problem, right counts, code 3."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ci_folders import FAILURE, ids, write_junit, write_run

from fastci_ml.records.frames import CHANGES, EXECUTIONS, NO_ATTEMPT, RUNS
from fastci_ml.sources.history.store import HistoryStore

_HUGE_BYTES = 20_000_000


@dataclass
class Mixed:
    """The folder, and what must come of it."""

    root: Path
    n_written: int = 0
    n_files: int = 0
    n_runs: int = 0
    n_executions: int = 0
    n_duplicates: int = 0
    n_incomplete_runs: int = 0
    n_absent_shards: int = 0
    n_missing: int = 0
    n_noted: int = 0
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    odd_runs: set[str] = field(default_factory=set)

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.logs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.n_written += 1
        return path

    def run(self, name: str, **told: object) -> None:
        write_run(self.logs / name, **told)
        self.n_written += 1

    def report(self, name: str, names: list[str], *, inner: str = "", second: int = 0) -> Path:
        self.n_written += 1
        self.n_files += 1
        return write_junit(self.logs / name, names, inner=inner, second=second)

    def unusable(self, name: str, content: bytes | str, *, is_recognised: bool = False) -> None:
        """A file that costs one line."""
        self.file(name, content)
        self.n_files += is_recognised
        self.problems.append(str(self.logs.name + "/" + name))


def _flavours(name: str) -> str:
    """Reports of two tests each as other tools write them, with times of their own."""
    case = "<testcase classname='t.test_a' file='t/test_a.py' name='{}' time='1'/>"
    cases = case.format("test_a") + case.format("test_b")
    suite = "testsuite timestamp='2026-01-01T00:00:00' time='2'"
    prefixed = cases.replace("<testcase", "<j:testcase")
    return {
        "bare": f"<{suite}>{cases}</testsuite>",
        "wrapped": f"<testsuites><{suite}>{cases}</testsuite></testsuites>",
        "nested": f"<testsuites><{suite}><{suite}>{cases}</testsuite></testsuite></testsuites>",
        "declared": f"<?xml version='1.0' encoding='utf-8'?>\n<{suite}>{cases}</testsuite>",
        "namespace": f"<j:{suite} xmlns:j='urn:j'>{prefixed}</j:testsuite>",
    }[name]


def _log(n_tests: int, *, is_finished: bool = True) -> str:
    lines: list[dict[str, object]] = [{"pytest_version": "9", "$report_type": "SessionStart"}]
    for place in range(n_tests):
        lines += [
            {
                "nodeid": f"t/test_a.py::test_{place}",
                "when": when,
                "outcome": "passed",
                "duration": 0.1,
                "start": 1767225600.0,
                "stop": 1767225601.0,
                "$report_type": "TestReport",
            }
            for when in ("setup", "call", "teardown")
        ]
    lines += [{"exitstatus": 0, "$report_type": "SessionFinish"}] if is_finished else []
    return "".join(json.dumps(line) + "\n" for line in lines)


def _good(mixed: Mixed) -> None:
    """Runs with nothing odd in them."""
    for place in range(40):
        mixed.run(f"good/{place}", job="unit", changes=[{"path": f"src/{place}.py"}])
        mixed.report(
            f"good/{place}/junit.xml", ["test_a", "test_b", "test_c"], inner="" if place % 5 else FAILURE
        )
        mixed.n_runs += 1
        mixed.n_executions += 3
    for place in range(3):
        for name in ("bare", "wrapped", "nested", "declared", "namespace"):
            mixed.run(f"flavours/{name}-{place}")
            mixed.file(f"flavours/{name}-{place}/report.xml", _flavours(name))
            mixed.n_files += 1
            mixed.n_runs += 1
            mixed.n_executions += 2
    for place in range(5):
        mixed.run(f"logs/log-{place}")
        mixed.file(f"logs/log-{place}/out.jsonl", _log(3))
        mixed.n_files += 1
        mixed.n_runs += 1
        mixed.n_executions += 3
    for place in range(20):  # without a run.json each is a run of its own
        mixed.report(f"bare/{place}.xml", [f"test_{place}"], second=place)
        mixed.n_runs += 1
        mixed.n_executions += 1


def _sharded(mixed: Mixed) -> None:
    """Ten runs of three shards: whole, with one absent, with one overwritten, each with its attempts."""
    for run in range(10):
        for shard in (1, 2, 3):
            if run in (3, 4) and shard == 3:
                continue
            mixed.run(f"shards/s{run}/{shard}", run_id=f"s{run}", shard=f"{shard}/3", attempt=1)
            is_copy = run in (5, 6) and shard == 2
            second = 1 if is_copy else shard
            mixed.report(f"shards/s{run}/{shard}/junit.xml", [f"test_{second}"], second=second)
            if not is_copy:
                mixed.n_runs += 1
                mixed.n_executions += 1
        if run in (3, 4, 5, 6):
            absent = 3 if run < 5 else 2
            mixed.warnings.append(f"run s{run}: 1 of 3 shards absent: {absent}/3")
            mixed.n_absent_shards += 1
            mixed.n_incomplete_runs += 1
            mixed.odd_runs.add(f"s{run}")
        if run in (5, 6):
            mixed.warnings.append(f"logs/shards/s{run}/2/junit.xml: the same bytes")
            # Its run.json tells that the shard was there, and the history that it left nothing.
            mixed.n_runs += 1
    for place in range(5):
        mixed.run(f"again/{place}", run_id="s0", shard="1/3", attempt=2 + place)
        mixed.report(f"again/{place}/junit.xml", ["test_1"], second=10 + place)
        mixed.n_runs += 1
        mixed.n_executions += 1


def _died(mixed: Mixed) -> None:
    """Runs that left less than they should."""
    for place in range(6):
        mixed.run(f"dead/d{place}", selected=ids("test_a", "test_b"))
        mixed.warnings += [f"run d{place}: no report", f"run d{place}: 2 of 2 selected tests have no result"]
        mixed.n_runs += 1
        mixed.n_executions += 2
        mixed.n_missing += 2
    for place in range(6):
        mixed.run(f"half/h{place}", selected="selected.txt")
        mixed.file(
            f"half/h{place}/selected.txt", "\n".join([*ids("test_a", "test_b", "test_c"), "", "3 tests"])
        )
        mixed.report(f"half/h{place}/junit.xml", ["test_a"])
        mixed.warnings.append(f"run h{place}: 2 of 3 selected tests have no result")
        mixed.n_runs += 1
        mixed.n_executions += 3
        mixed.n_missing += 2
    mixed.n_incomplete_runs += 12
    mixed.odd_runs |= {f"{kind}{place}" for kind in "dh" for place in range(6)}


def _odd(mixed: Mixed) -> None:
    """Runs that are in, with a warning."""
    for place in range(5):
        mixed.run(f"capped/c{place}", changes=[{"path": f"{n}.py"} for n in range(300)])
        mixed.report(f"capped/c{place}/junit.xml", ["test_a"])
        mixed.warnings.append(f"run c{place}: its change is unknown")
        mixed.n_runs += 1
        mixed.n_executions += 1
    for place in range(5):
        mixed.run(f"torn-log/t{place}")
        mixed.file(f"torn-log/t{place}/out.jsonl", _log(2, is_finished=False) + '{"nodeid": "t/te')
        mixed.n_files += 1
        mixed.warnings += [f"logs/torn-log/t{place}/out.jsonl: "] * 2
        mixed.n_runs += 1
        mixed.n_executions += 2
        mixed.n_noted += 1
    for place in range(5):
        mixed.run(f"times/u{place}")
        path = mixed.report(f"times/u{place}/junit.xml", ["test_a"])
        path.write_text(path.read_text().replace("time='1'", "time='soon'"))
        mixed.warnings.append(f"logs/times/u{place}/junit.xml: ")
        mixed.n_runs += 1
        mixed.n_executions += 1
        mixed.n_noted += 1
    mixed.odd_runs |= {f"{kind}{place}" for kind in "ctu" for place in range(5)}


def _unusable(mixed: Mixed) -> None:
    """Files that cost a line each."""
    whole = _flavours("wrapped")
    for place in range(45):
        mixed.unusable(f"torn/{place}.xml", whole[: 80 + 3 * place], is_recognised=True)
    for place in range(50):
        mixed.unusable(f"empty/{place}.xml", b"")
    for place in range(10):
        mixed.unusable(f"cut/{place}.xml", "<?xml version='1.0'"[: 5 + place])
    for place in range(10):
        mixed.unusable(f"noise/{place}.xml", bytes((place * 37 + n * n) % 251 for n in range(900)))
    for place in range(5):
        mixed.unusable(f"packed/{place}.xml.gz", gzip.compress(whole.encode()))
    for place, text in enumerate(
        ("", "{", "[]", '{"schema": "fastci.run/9"}', '{"schema": "fastci.run/1"}', "[" * 100_000)
    ):
        mixed.unusable(f"broken/{place}/run.json", text)
        mixed.report(f"broken/{place}/junit.xml", ["test_a"])
    mixed.unusable(
        "bomb.xml",
        "<?xml version='1.0'?><!DOCTYPE t [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;'>]>"
        "<testsuite><testcase name='&b;'/></testsuite>",
        is_recognised=True,
    )
    mixed.unusable("future.xml", whole.replace("2026", "9999"), is_recognised=True)


def _passed_over(mixed: Mixed) -> None:
    """Files of other kinds, which are of no interest."""
    for place in range(45):
        mixed.file(f"other/coverage-{place}.xml", "<?xml version='1.0'?><coverage line-rate='0.5'/>")
        mixed.file(f"other/notes-{place}.txt", "hello")
    for place in range(5):
        mixed.file(f"other/table-{place}.csv", "a,b\n")


def _copies(mixed: Mixed) -> None:
    """Reports that came twice."""
    for place in range(30):
        shutil.copy(mixed.logs / f"good/{place}/junit.xml", mixed.logs / f"good/{place}/copy.xml")
    for place in range(10):
        shutil.copy(mixed.logs / f"bare/{place}.xml", mixed.logs / f"bare/copy-of-{place}.xml")
    mixed.n_written += 40
    mixed.n_files += 40
    mixed.n_duplicates += 40


def _huge(mixed: Mixed) -> None:
    """One report with a body of 20 MB."""
    mixed.run("huge")
    line = "a line of output that nobody reads &amp; &lt;tags&gt;\n"
    body = line * (_HUGE_BYTES // len(line))
    case = "<testcase classname='t.test_a' file='t/test_a.py' name='test_{}' time='1'>{}</testcase>"
    cases = case.format("big", f"<system-out>{body}</system-out>") + case.format("small", "")
    path = mixed.file(
        "huge/junit.xml", f"<testsuite timestamp='2026-01-01T00:00:00' time='2'>{cases}</testsuite>"
    )
    assert path.stat().st_size > 0.99 * _HUGE_BYTES
    mixed.n_files += 1
    mixed.n_runs += 1
    mixed.n_executions += 2


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Mixed:
    made = Mixed(tmp_path_factory.mktemp("mixed"))
    (made.root / "fastci.toml").write_text("lane = 'cpu'\n")
    for part in (_good, _sharded, _died, _odd, _unusable, _passed_over, _copies, _huge):
        part(made)
    assert 500 <= made.n_written == sum(path.is_file() for path in made.logs.rglob("*"))
    return made


def fastci(mixed: Mixed, history: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastci_ml", "ingest", "logs", "--history", history, *words]
    return subprocess.run(command, cwd=mixed.root, capture_output=True, text=True, check=False)


def _heads(lines: list[str], wanted: list[str]) -> list[str]:
    """For each line the one of `wanted` that it begins with, else the line."""
    return [max((head for head in wanted if line.startswith(head)), key=len, default=line) for line in lines]


@pytest.fixture(scope="module")
def first(mixed: Mixed) -> subprocess.CompletedProcess[str]:
    """The first ingest of the folder, into the history `first`."""
    return fastci(mixed, "first", "--json")


_COUNTS = (
    "n_files",
    "n_runs",
    "n_executions",
    "n_duplicates",
    "n_noted",
    "n_incomplete_runs",
    "n_absent_shards",
    "n_missing",
)


def test_500_mixed_files_cost_one_line_a_problem_with_the_right_counts_and_exit_code_3(
    mixed: Mixed, first: subprocess.CompletedProcess[str]
) -> None:
    assert first.returncode == 3
    answer = json.loads(first.stdout)
    assert sorted(_heads(answer["problems"], mixed.problems)) == sorted(mixed.problems)
    assert sorted(_heads(answer["warnings"], mixed.warnings)) == sorted(mixed.warnings)
    told = [line for line in first.stderr.splitlines() if line.startswith("unusable: ")]
    assert told == [f"unusable: {line}" for line in answer["problems"]]
    assert {key: answer[key] for key in _COUNTS} == {key: getattr(mixed, key) for key in _COUNTS}
    store = HistoryStore(mixed.root / "first")
    executions = store.read(EXECUTIONS)
    assert len(executions) == mixed.n_executions
    assert (executions.attempt == NO_ATTEMPT).sum() == mixed.n_missing
    assert (executions.outcome == "failed").sum() == 8 * 3
    assert set(store.read(CHANGES).run_id) == {str(place) for place in range(40)}


def test_500_mixed_files_give_the_same_lines_and_rows_each_time(
    mixed: Mixed, first: subprocess.CompletedProcess[str]
) -> None:
    second = fastci(mixed, "second", "--json")
    assert first.stdout.replace('"first"', '"second"') == second.stdout
    for frame in (EXECUTIONS, RUNS, CHANGES):
        left, right = (HistoryStore(mixed.root / name).read(frame) for name in ("first", "second"))
        assert left.equals(right)


def test_500_mixed_files_again_are_known_and_leave_the_history_as_it_is(
    mixed: Mixed, first: subprocess.CompletedProcess[str]
) -> None:
    before = {path.name for path in (mixed.root / "first").rglob("*.parquet")}
    done = fastci(mixed, "first", "--json")
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert (answer["n_runs"], answer["n_executions"]) == (0, 0)
    assert answer["n_duplicates"] == mixed.n_files - _n_never_in(mixed)
    assert sorted(_heads(answer["problems"], mixed.problems)) == sorted(mixed.problems)
    assert (answer["n_missing"], answer["n_absent_shards"]) == (mixed.n_missing, mixed.n_absent_shards)
    assert {path.name for path in (mixed.root / "first").rglob("*.parquet")} == before


def _n_never_in(mixed: Mixed) -> int:
    """Reports that are never in the history: torn, beside a broken run.json, or overwritten."""
    n_torn = sum(name.startswith(("logs/torn/", "logs/bomb", "logs/future")) for name in mixed.problems)
    return n_torn + 6 + 2


def test_strict_on_500_mixed_files_adds_the_runs_with_nothing_odd_only(
    mixed: Mixed, first: subprocess.CompletedProcess[str]
) -> None:
    done = fastci(mixed, "strict", "--strict", "--json")
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert answer["warnings"] == []
    heads = [*mixed.problems, *mixed.warnings]
    assert sorted(_heads(answer["problems"], heads)) == sorted(heads)
    added = set(HistoryStore(mixed.root / "strict").read(RUNS).run_id)
    everything = set(HistoryStore(mixed.root / "first").read(RUNS).run_id)
    assert everything - added == mixed.odd_runs
    assert added <= everything
