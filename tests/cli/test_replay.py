"""`fastci-ml replay`: what it refuses, and what it then says to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastci_ml.cli.app import main


def refuse(words: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["replay", *words, "--root", str(root)])
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


def test_without_a_kind_of_replay_the_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = refuse([], tmp_path, capsys)
    assert code == 2
    assert "hint: fastci-ml replay --prediction" in err


def test_empty_history_is_unusable_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refuse(["--prediction", "--history", str(tmp_path / "none")], tmp_path, capsys)
    assert code == 3
    assert f"{tmp_path / 'none'}: no runs" in err
    assert "fastci-ml ingest" in err


def test_unknown_policy_is_refused_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = refuse(["--prediction", "--policies", "random,wizard"], tmp_path, capsys)
    assert code == 2
    assert "unknown policy 'wizard'" in err
    assert "failure-rate/duration" in err


@pytest.mark.parametrize("words", [["--split", "70"], ["--start", "0"], ["--retrain", "-1"]])
def test_share_outside_its_range_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = refuse(["--prediction", *words], tmp_path, capsys)
    assert code == 2
    assert "expected a number" in err
