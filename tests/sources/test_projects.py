from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from fastci_ml.sources.projects import default_project, prefix_report
from fastci_ml.sources.reports import Report, executions_table


@pytest.fixture
def report():
    node_ids = pa.array(["t/a.py::x", "t/a.py::x", "t/b.py::y[../z]"]).dictionary_encode()
    return Report(
        node_ids=node_ids,
        outcomes=np.zeros(3, np.int8),
        classes=np.zeros(3, np.int8),
        durations_s=np.zeros(3),
        is_joined=np.ones(3, bool),
        messages={},
    )


def test_report_of_a_project_has_ids_from_the_top(report):
    moved = prefix_report(report, "services/a")
    assert moved.node_ids.to_pylist() == [
        "services/a/t/a.py::x",
        "services/a/t/a.py::x",
        "services/a/t/b.py::y[../z]",
    ]
    assert moved.node_ids.indices.equals(report.node_ids.indices)
    assert prefix_report(report, "") is report


def test_two_spellings_of_one_file_are_one_test(report):
    spelled = pa.array(["../s/t/a.py::x", "t/a.py::x", "t/a.py::x"]).dictionary_encode()
    moved = prefix_report(replace(report, node_ids=spelled), "s")
    assert moved.node_ids.dictionary.to_pylist() == ["s/t/a.py::x"]
    table = executions_table(moved, run_id="1", job="", shard="", lane="")
    assert table.column("attempt").to_pylist() == [0, 1, 2]


def test_project_is_the_path_below_the_nearest_git_folder_or_file(tmp_path):
    project = tmp_path / "repo" / "services" / "a"
    project.mkdir(parents=True)
    assert default_project(project) == ""
    (tmp_path / "repo" / ".git").mkdir()
    assert default_project(project) == "services/a"
    assert default_project(tmp_path / "repo") == ""
    (project.parent / ".git").write_text("gitdir: elsewhere\n", encoding="utf-8")  # a submodule or worktree
    assert default_project(project) == "a"
    (tmp_path / "link").symlink_to(project)
    assert default_project(tmp_path / "link") == "a"


def test_project_with_a_name_that_is_no_utf8_is_spelled_as_the_history_spells_it(tmp_path):
    (tmp_path / ".git").mkdir()
    folder = tmp_path / os.fsdecode(b"bad\xff")
    folder.mkdir()
    assert default_project(folder) == r"bad\xff"
