"""Lists of changed files that an API may have cut off: case 44."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ci_folders import ingest, write_junit, write_run

from fastci_ml.errors import GitError
from fastci_ml.features.log import build_log
from fastci_ml.records.frames import CHANGES, RUNS
from fastci_ml.sources.history.store import HistoryStore
from fastci_ml.sources.ingest.list_caps import CAPS
from fastci_ml.sources.ingest.run_file import RunInfo, read_run_file


def listed(n_files: int) -> list[dict[str, str]]:
    return [{"path": f"src/{place}.py"} for place in range(n_files)]


def one_run(tmp_path: Path, n_files: int, **told: object) -> Path:
    folder = tmp_path / "logs"
    write_run(folder, run_id="7", changes=listed(n_files), **told)
    write_junit(folder / "junit.xml", ["test_a"])
    return folder


@pytest.mark.parametrize("n_files", [3000, 300, 1000, 100, 30, 20, 25])
def test_a_list_as_long_as_a_known_cap_is_an_unknown_change(tmp_path: Path, n_files: int) -> None:  # case 44
    report = ingest(tmp_path / "history", one_run(tmp_path, n_files))
    store = HistoryStore(tmp_path / "history")
    assert len(store.read(CHANGES)) == 0
    assert build_log(store).changes == [None]
    assert len(report.warnings) == 1
    assert f"run 7: its change is unknown: run.json lists {n_files:,} files" in report.warnings[0]
    assert CAPS[n_files] in report.warnings[0]
    assert "--repo PATH" in report.warnings[0]
    assert (report.problems, report.n_executions) == ([], 1)


@pytest.mark.parametrize("n_files", [3001, 2999, 299, 301, 101, 1, 0])
def test_a_list_of_another_length_is_taken_as_it_is(tmp_path: Path, n_files: int) -> None:  # case 44
    assert ingest(tmp_path / "history", one_run(tmp_path, n_files)).warnings == []
    assert len(HistoryStore(tmp_path / "history").read(CHANGES)) == n_files


@pytest.mark.parametrize(("n_told", "is_known"), [(300, True), (3001, False), (299, False)])
def test_the_count_that_the_api_gives_beside_the_list_settles_it(
    tmp_path: Path, n_told: int, is_known: bool
) -> None:  # case 44
    report = ingest(tmp_path / "history", one_run(tmp_path, 300, n_changed_files=n_told))
    assert len(HistoryStore(tmp_path / "history").read(CHANGES)) == (300 if is_known else 0)
    assert [f"lists 300 files of {n_told:,} that changed" in line for line in report.warnings] == (
        [] if is_known else [True]
    )


@pytest.fixture
def pull_request(make_repo: Callable[..., object]) -> tuple[Path, str, str]:
    """A real repository with a change of 301 files, of which the API told 300."""
    repo = make_repo()
    base = repo.commit("base")  # type: ignore[attr-defined]
    for place in range(301):
        repo.write(f"src/{place}.py", "x\n")  # type: ignore[attr-defined]
    return repo.root, base, repo.commit("head")  # type: ignore[attr-defined]


def test_a_repository_that_knows_the_commits_tells_the_whole_change(
    tmp_path: Path, pull_request: tuple[Path, str, str]
) -> None:  # case 44
    root, base, head = pull_request
    report = ingest(tmp_path / "history", one_run(tmp_path, 300, base=base, head=head), repository=root)
    assert report.warnings == []
    changes = HistoryStore(tmp_path / "history").read(CHANGES)
    assert len(changes) == 301
    assert set(changes.status) == {"A"}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({}, "without its base and head no repository can be asked"),
        ({"head": "HEAD"}, "without its base and head no repository can be asked"),
        ({"base": "a" * 40, "head": "HEAD"}, "a" * 40),
    ],
)
def test_a_repository_that_cannot_tell_leaves_the_change_unknown_and_the_others_in(
    tmp_path: Path, pull_request: tuple[Path, str, str], told: dict[str, str], words: str
) -> None:  # case 44
    folder = one_run(tmp_path, 300, **told)
    write_run(folder / "next", changes=listed(2))
    write_junit(folder / "next" / "junit.xml", ["test_a"], second=5)
    report = ingest(tmp_path / "history", folder, repository=pull_request[0])
    assert len(report.warnings) == 1
    assert words in report.warnings[0]
    store = HistoryStore(tmp_path / "history")
    assert set(store.read(CHANGES).run_id) == {"next"}
    assert set(store.read(RUNS).run_id) == {"7", "next"}


def test_commits_of_a_run_json_that_no_repository_has_cost_a_line_and_those_that_are_typed_an_error(
    tmp_path: Path, pull_request: tuple[Path, str, str]
) -> None:
    write_run(tmp_path / "logs", run_id="7", base="a" * 40, head="b" * 40)
    path = write_junit(tmp_path / "logs" / "junit.xml", ["test_a"])
    report = ingest(tmp_path / "history", tmp_path / "logs", repository=pull_request[0])
    assert (report.problems, report.n_executions, len(report.warnings)) == ([], 1, 1)
    assert "its change is unknown" in report.warnings[0]
    (tmp_path / "logs" / "run.json").unlink()
    typed = RunInfo(run_id="7", base="a" * 40, head="b" * 40)
    with pytest.raises(GitError):
        ingest(tmp_path / "other", path, run=typed, repository=pull_request[0])


def test_every_cap_has_its_reason() -> None:
    assert all("GitHub" in words or "GitLab" in words or "Bitbucket" in words for words in CAPS.values())
    assert {300, 3000} <= set(CAPS)  # the two that public reports are about


@pytest.mark.parametrize("n_told", [True, "300", 3.5, [300]])
def test_a_count_that_is_none_is_a_named_error(tmp_path: Path, n_told: object) -> None:
    from fastci_ml.errors import ReportError

    path = write_run(tmp_path, run_id="7", changes=[], n_changed_files=n_told)
    with pytest.raises(ReportError, match=r"n_changed_files is .* expected a count or null"):
        read_run_file(path)
