from __future__ import annotations

from pathlib import Path

import pytest

from fastci_ml.errors import SettingsError
from fastci_ml.settings import Settings, find_root, load_settings


def test_without_files_everything_has_its_default(tmp_path):
    assert load_settings(tmp_path) == Settings(root=tmp_path, state_dir=tmp_path / ".fastci")


def test_folders_lie_under_the_state_folder(tmp_path):
    settings = Settings(root=tmp_path, state_dir=tmp_path / "s")
    assert settings.history_dir == tmp_path / "s" / "history"
    assert settings.model_dir == tmp_path / "s" / "model"
    assert settings.spool_dir == tmp_path / "s" / "spool"


def test_table_of_pyproject_is_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.other]\nx = 1\n[tool.fastci]\nlane = "l"\nstate_dir = "build/ci"\nmodel_name = "m"\n'
        'tracking_uri = "http://localhost"\n[tool.fastci.tables.jenkins]\ntest = "name"\n'
    )
    found = load_settings(tmp_path)
    assert (found.lane, found.model_name, found.tracking_uri) == ("l", "m", "http://localhost")
    assert found.state_dir == tmp_path / "build" / "ci"
    assert dict(found.tables) == {"jenkins": {"test": "name"}}


def test_failure_rules_are_kept_in_their_order_for_those_who_check_them(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        "[[tool.fastci.failure_rules]]\nid = 'b'\n[[tool.fastci.failure_rules]]\nid = 'a'\nodd = 3\n"
    )
    assert load_settings(tmp_path).failure_rules == ({"id": "b"}, {"id": "a", "odd": 3})


def test_absolute_state_folder_is_kept(tmp_path):
    (tmp_path / "fastci.toml").write_text('state_dir = "/var/fastci"\n')
    assert load_settings(tmp_path).state_dir == Path("/var/fastci")


def test_own_file_wins_as_a_whole(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.fastci]\nlane = "shared"\nmodel_name = "m"\n')
    (tmp_path / "fastci.toml").write_text('lane = "own"\n')
    found = load_settings(tmp_path)
    assert (found.lane, found.model_name) == ("own", "fastci-risk")


def test_relative_root_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path()).root == tmp_path.resolve()


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('lnae = "x"\n', "unknown setting 'lnae'", "did you mean 'lane'?"),
        ('zzz = "x"\n', "unknown setting 'zzz'", "known keys: children_flushed, children_limit, "),
        ("lane = 3\n", "setting 'lane' is int, expected str", None),
        ("tables = []\n", "setting 'tables' is list, expected dict", None),
        ("min_join_ratio = true\n", "setting 'min_join_ratio' is bool, expected float", None),
        ("min_join_ratio = 90\n", "'min_join_ratio' is 90, expected a share from 0 to 1", None),
        ("min_join_ratio = nan\n", "'min_join_ratio' is nan, expected a share from 0 to 1", None),
        ("lane = \n", "not readable as TOML", None),
    ],
)
def test_wrong_file_is_named_with_a_hint(tmp_path, text, says, hint):
    path = tmp_path / "fastci.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert (caught.value.hint or "").startswith(hint or "")


def test_bytes_that_are_not_utf8_are_a_settings_error(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.fastci]\nlane = '\xff'\n")
    with pytest.raises(SettingsError, match="not readable as TOML"):
        load_settings(tmp_path)


def test_a_folder_in_place_of_the_file_is_a_settings_error(tmp_path):
    (tmp_path / "fastci.toml").mkdir()
    with pytest.raises(SettingsError, match="not readable as TOML"):
        load_settings(tmp_path)


def test_something_else_than_a_table_is_a_settings_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\nfastci = 3\n")
    with pytest.raises(SettingsError, match=r"tool\.fastci is int, expected a table"):
        load_settings(tmp_path)


@pytest.mark.parametrize("marker", ["fastci.toml", "pyproject.toml", ".git"])
def test_root_is_the_nearest_folder_with_a_marker(tmp_path, marker):
    (tmp_path / marker).touch()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_root(inner) == tmp_path.resolve()
    (tmp_path / "a" / marker).touch()
    assert find_root(inner) == (tmp_path / "a").resolve()


def test_tool_that_is_no_table_is_a_settings_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("tool = 3\n")
    with pytest.raises(SettingsError, match="tool is int, expected a table"):
        load_settings(tmp_path)
