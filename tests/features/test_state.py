"""What a model bundle carries of the features, and what damage to it is told as."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from random_runs import PATHS, Run, runs_of, to_log

from fastci_ml.errors import ModelError
from fastci_ml.features.state import FeatureState
from fastci_ml.records.changes import ChangeStatus, FileChange

RUN = Run(
    "cpu",
    0,
    5,
    (("a.py::t", 1, 1.0), ("b.py::u[\udcff]", 0, 2.0)),
    (FileChange(path="x\udcff.py", status=ChangeStatus.ADDED),),
)


@given(runs_of(max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_saved_state_reads_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, runs: list[Run]
) -> None:
    directory = tmp_path_factory.mktemp("state")
    state = FeatureState.from_log(to_log(runs))
    state.save(directory)
    again = FeatureState.load(directory)
    changes = tuple(FileChange(path=path, status=ChangeStatus.MODIFIED) for path in PATHS)
    for lane in ("cpu", "gpu", "new lane"):
        nodes = [*state.tests_of(lane), "new.py::test"]
        np.testing.assert_array_equal(again.matrix(nodes, lane, changes), state.matrix(nodes, lane, changes))
    assert again.watermark_us == state.watermark_us


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    FeatureState.from_log(to_log([RUN])).save(tmp_path)
    assert FeatureState.load(tmp_path).tests_of("cpu") == ["a.py::t", "b.py::u[\udcff]"]


@pytest.mark.parametrize("name", ["names.json", "records.json", "fold.npz"])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "foreign"])
def test_a_damaged_state_is_a_named_error(tmp_path: Path, name: str, damage: str) -> None:
    FeatureState.from_log(to_log([RUN])).save(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(
            {"empty": b"", "torn": content[: len(content) // 2], "foreign": b'{"schema": "x/1"}'}[damage]
        )
    with pytest.raises(ModelError, match="no usable feature state") as caught:
        FeatureState.load(tmp_path)
    assert caught.value.hint == "fastci-ml train"


def test_arrays_of_another_shape_are_refused(tmp_path: Path) -> None:
    FeatureState.from_log(to_log([RUN])).save(tmp_path)
    other = FeatureState.from_log(to_log([Run("cpu", 0, 1, (("a.py::t", 0, 1.0),), None)]))
    other.save(tmp_path / "other")
    (tmp_path / "other" / "fold.npz").replace(tmp_path / "fold.npz")
    with pytest.raises(ModelError, match=r"state is float32 \(15, 1\), expected float32 \(15, 2\)"):
        FeatureState.load(tmp_path)
