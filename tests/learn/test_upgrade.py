"""Case 50: a database of an earlier MLflow is upgraded on request only, with a backup, as a whole."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fastci_ml.cli.app import main
from fastci_ml.errors import RegistryError, UsageError
from fastci_ml.learn.registry import Registry, upgrade
from fastci_ml.learn.registry.database import read_revision
from fastci_ml.learn.registry.revisions import known_revisions, migrate
from fastci_ml.learn.registry.upgrade import upgrade_database
from fastci_ml.settings import Settings

if TYPE_CHECKING:
    from conftest import Processes

OLD = "3500859a5d39"
# One migration away where the way does not matter: sixty take a second of work.
NEAR = "last but one"
NOW = datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC)
TABLES = ("experiments", "runs", "metrics", "params", "tags", "registered_models", "model_versions")


def near_revision() -> str:
    return known_revisions()[-2]


def backup_of(revision: str) -> str:
    return f"mlflow.db.{revision}-20261130T120001.bak"


def place(database: Path, folder: Path) -> Path:
    path = folder / ".fastci" / "mlflow.db"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(database, path)
    return path


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What every release keeps of the trainings and versions in a database."""
    columns = {
        "experiments": "experiment_id, name",
        "runs": "run_uuid, experiment_id, status",
        "metrics": "run_uuid, key, value",
        "params": "run_uuid, key, value",
        "tags": "run_uuid, key, value",
        "registered_models": "name",
        "model_versions": "name, version, current_stage, run_id",
    }
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {
            table: sorted(connection.execute(f"select {columns[table]} from {table}").fetchall())
            for table in TABLES
        }


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize(
    ("revision", "mode"), [("2b4d017a5e9b", "delete"), (OLD, "wal"), ("last but one", "delete")]
)
def test_an_upgrade_keeps_every_row_and_a_backup_that_is_the_database_as_it_was(
    old_databases: dict[str, Path], tmp_path: Path, revision: str, mode: str
) -> None:
    path = place(old_databases[revision], tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma journal_mode = {mode}")
    path.chmod(0o640)
    before, found = rows(path), read_revision(path)
    assert before["model_versions"]
    done = upgrade_database(path, now=NOW)
    assert (done.before, done.after) == (found, known_revisions()[-1])
    assert read_revision(path) == done.after
    assert rows(path) == before
    assert done.backup is not None
    assert read_revision(done.backup) == found
    assert rows(done.backup) == before
    assert done.backup.stat().st_mode & 0o777 == 0o640
    assert files(path) == ["mlflow.db", done.backup.name]


@pytest.mark.timeout(300)
def test_only_the_command_upgrades_and_afterwards_the_registry_works(
    old_databases: dict[str, Path], tmp_path: Path, bundle_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(old_databases[OLD], tmp_path)
    content = path.read_bytes()
    root = ["--root", str(tmp_path)]
    register = ["register", *root, "--out", str(bundle_dir)]
    for words in (["list", *root], ["promote", "2", *root], ["pull", *root], register):
        assert main(["models", *words]) == 4
        said = capsys.readouterr().err
        assert f"schema revision {OLD} of an earlier MLflow" in said
        assert "hint: fastci-ml models upgrade" in said
        assert path.read_bytes() == content
    assert files(path) == ["mlflow.db"]

    assert main(["models", "upgrade", *root]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{path}: upgraded from schema revision {OLD} to {known_revisions()[-1]}"
    backup = Path(second.removeprefix("as it was: "))
    assert (read_revision(backup), backup.parent) == (OLD, path.parent)
    assert main(["models", "upgrade", *root]) == 0
    assert "nothing to do" in capsys.readouterr().out

    # What the earlier release left is read: its stages are shown, and become aliases by a command alone.
    assert main(["models", *root]) == 0
    assert "stage Production" in capsys.readouterr().out
    assert main(["models", "pull", *root]) == 4
    assert "hint: fastci-ml models promote 2" in capsys.readouterr().err
    assert main(["models", "promote", "2", *root]) == 0
    capsys.readouterr()
    assert main(["models", "pull", *root]) == 4  # none of ours: it has no bundle
    assert "version 2 has no bundle" in capsys.readouterr().err
    assert main(["models", *register]) == 0
    capsys.readouterr()
    versions = Registry(Settings(root=tmp_path, state_dir=tmp_path / ".fastci")).versions()
    assert [(v.version, v.aliases, v.stage) for v in versions] == [
        ("4", ("challenger",), ""),
        ("3", (), ""),
        ("2", ("champion",), "Production"),
        ("1", (), "Archived"),
    ]


_KILLED = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from fastci_ml.learn.registry import upgrade
path, _, step, percent = sys.argv[1:]
upgrade._PAGES_A_STEP = 20
def die(what, done, total):
    if what == step and (what != "pages" or done >= int(percent) * total // 100):
        os.kill(os.getpid(), 9)
upgrade.upgrade_database(Path(path), now=datetime(2026, 11, 30, tzinfo=UTC), progress=die)
"""
DEATHS = [
    *[("delete", step, "0") for step in ("lock the database", "back it up", "migrate a copy")],
    *[("delete", step, "0") for step in ("check the copy", "write it back")],
    *[("delete", "pages", percent) for percent in ("1", "60", "90")],
    ("wal", "pages", "60"),
]


@pytest.mark.timeout(120)
def test_kill_9_at_any_step_leaves_the_database_as_it_was_and_the_next_upgrade_works(
    old_databases: dict[str, Path], tmp_path: Path, processes: Processes
) -> None:
    deaths = {}
    for death in DEATHS:
        folder = tmp_path / "-".join(death)
        folder.mkdir()
        deaths[death] = place(old_databases[NEAR], folder)
        with contextlib.closing(sqlite3.connect(deaths[death])) as connection:
            connection.execute(f"pragma journal_mode = {death[0]}")
    before = rows(old_databases[NEAR])
    codes = processes.run(_KILLED, *[[str(path), *death] for death, path in deaths.items()])
    assert [code for code, _ in codes] == [-9] * len(DEATHS)
    for (_, step, percent), path in deaths.items():
        assert read_revision(path) == near_revision()
        with pytest.raises(RegistryError, match="of an earlier MLflow"):
            Registry(Settings(root=tmp_path, state_dir=path.parent)).versions()
        if (step, percent) in (("migrate a copy", "0"), ("pages", "60")):
            done = upgrade_database(path, now=NOW)
            assert done.before == near_revision()
            assert done.backup is not None
            assert rows(done.backup) == before
        assert rows(path) == before
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        if percent == "60":  # no copy is left behind, whoever made it; backups stay
            assert {name for name in files(path) if not name.endswith(".bak")} == {"mlflow.db"}


def test_a_migration_that_reports_success_and_changes_nothing_is_an_error(
    old_databases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(old_databases[NEAR], tmp_path)
    before = path.read_bytes()
    monkeypatch.setattr(upgrade, "migrate", lambda path: None)
    with pytest.raises(RegistryError, match=f"as it was.* at revision {near_revision()}, expected") as raised:
        upgrade_database(path, now=NOW)
    assert path.read_bytes() == before
    assert backup_of(near_revision()) in str(raised.value)
    assert files(path) == ["mlflow.db", backup_of(near_revision())]


def test_a_migration_that_stops_on_the_way_or_loses_rows_is_an_error(
    old_databases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place(old_databases[NEAR], tmp_path)
    before = path.read_bytes()

    def lose(copy: Path) -> None:
        migrate(copy)
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute("delete from model_versions where version = 1")
            connection.commit()

    def tear(copy: Path) -> None:
        migrate(copy)
        with copy.open("r+b") as file:
            file.seek(copy.stat().st_size // 2)
            file.write(bytes(60_000))

    def stop(copy: Path) -> None:
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute("update alembic_version set version_num = 'acf3f17fdcc7'")
            connection.commit()

    for broken, match in (
        (lose, r"lose rows of model_versions \(3 rows, now 2\)"),
        (tear, "malformed"),
        (stop, "at revision acf3f17fdcc7"),
    ):
        monkeypatch.setattr(upgrade, "migrate", broken)
        with pytest.raises(RegistryError, match=match):
            upgrade_database(path, now=NOW)
        assert path.read_bytes() == before
        (path.parent / backup_of(near_revision())).unlink()
        assert files(path) == ["mlflow.db"]


def test_a_migration_that_fails_of_itself_leaves_the_database_as_it_was(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    # A real failure of a real migration: the table that it wants to change is not there.
    path = place(old_databases[OLD], tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("drop table model_version_tags")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(RegistryError, match=r"not upgraded, it is as it was .*model_version_tags"):
        upgrade_database(path, now=NOW)
    assert path.read_bytes() == before
    assert files(path) == ["mlflow.db", backup_of(OLD)]


def test_a_damaged_page_deep_inside_stops_the_upgrade_at_the_backup(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    path = place(old_databases[NEAR], tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 8_192] = bytes(8_192)
    path.write_bytes(content)
    with pytest.raises(RegistryError, match="torn"):
        upgrade_database(path, now=NOW)
    assert path.read_bytes() == content
    assert files(path) == ["mlflow.db"]


_FULL = """
import resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.revisions import known_revisions
from fastci_ml.learn.registry.upgrade import upgrade_database
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
known_revisions()
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    upgrade_database(Path(sys.argv[1]), now=datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC))
except RegistryError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
@pytest.mark.parametrize(("share", "match"), [(0.5, "no backup can be made"), (1.5, "it is as it was")])
def test_a_disk_without_room_stops_the_upgrade_before_the_database_is_touched(
    old_databases: dict[str, Path], tmp_path: Path, processes: Processes, share: float, match: str
) -> None:
    path = place(old_databases[OLD], tmp_path)
    before = path.read_bytes()
    [(code, said)] = processes.run(_FULL, [str(path), str(int(len(before) * share))])
    assert code == 0, said
    assert match in said
    assert path.read_bytes() == before
    assert files(path) == (["mlflow.db"] if share < 1 else ["mlflow.db", backup_of(OLD)])


def test_an_open_connection_of_another_process_sees_the_upgraded_database(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    # Why pages go back into the file, and no other file takes its name: what is written there is not lost.
    path = place(old_databases[NEAR], tmp_path)
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("select version_num from alembic_version").fetchone()[0], flush=True)
sys.stdin.readline()
print(connection.execute("select version_num from alembic_version").fetchone()[0])
connection.execute("insert into params (key, value, run_uuid) values ('late', '1', ?)", ("0" * 32,))
connection.commit()
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == f"{near_revision()}\n"
        upgrade_database(path, now=NOW)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{known_revisions()[-1]}\n"
        assert process.wait() == 0
    assert ("0" * 32, "late", "1") in rows(path)["params"]


def test_a_database_in_use_is_not_upgraded(old_databases: dict[str, Path], tmp_path: Path) -> None:
    path = place(old_databases[NEAR], tmp_path)
    before = path.read_bytes()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("begin immediate")
        with pytest.raises(RegistryError, match="locked by another process"):
            upgrade_database(path, now=NOW)
        writer.execute("rollback")
    assert path.read_bytes() == before
    assert files(path) == ["mlflow.db"]


def test_of_two_upgrades_at_once_one_is_done(
    old_databases: dict[str, Path], tmp_path: Path, processes: Processes
) -> None:
    path = place(old_databases[NEAR], tmp_path)
    before = rows(path)
    code = """
import sys
from fastci_ml.cli.app import main
print("code", main(["models", "upgrade", "--root", sys.argv[1]]))
"""
    told = processes.run(code, [str(tmp_path)], [str(tmp_path)])
    assert [code for code, _ in told] == [0, 0]
    assert sum("upgraded from" in text for _, text in told) == 1
    # The other came late, or met the lock.
    assert all(text.endswith(("code 0\n", "code 4\n")) for _, text in told)
    assert read_revision(path) == known_revisions()[-1]
    assert rows(path) == before
    assert len(list(path.parent.glob("*.bak"))) == 1


def test_what_cannot_be_upgraded_is_told(
    old_databases: dict[str, Path], mlflow_template: Path, tmp_path: Path
) -> None:
    with pytest.raises(RegistryError, match="no such database"):
        upgrade_database(tmp_path / "none.db", now=NOW)
    path = place(mlflow_template, tmp_path)
    assert upgrade_database(path, now=NOW).backup is None
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("update alembic_version set version_num = '0123456789ab'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(RegistryError, match="no way from it") as raised:
        upgrade_database(path, now=NOW)
    assert raised.value.hint == "pip install --upgrade mlflow"
    assert path.read_bytes() == before
    assert files(path) == ["mlflow.db"]


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:9", "https://ci:secret@mlflow.example.org", "postgresql://ci:secret@db/mlflow"]
)
def test_the_database_of_a_server_is_never_upgraded_from_here(tmp_path: Path, uri: str) -> None:
    registry = Registry(Settings(root=tmp_path, state_dir=tmp_path, tracking_uri=uri))
    with pytest.raises(UsageError, match="only a local SQLite database") as raised:
        registry.upgrade(now=NOW)
    assert "mlflow db upgrade" in str(raised.value.hint)
    assert "secret" not in str(raised.value)


def test_a_database_that_is_named_by_its_uri_is_upgraded_where_it_lies(
    old_databases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shared registry.db"
    shutil.copy(old_databases[NEAR], path)
    uri = ["--root", str(tmp_path), "--tracking-uri", f"sqlite:///{path}"]
    assert main(["models", *uri]) == 4
    assert f"hint: fastci-ml models upgrade --tracking-uri sqlite:///{path}" in capsys.readouterr().err
    assert main(["models", "upgrade", *uri, "--json"]) == 0
    assert f'"before": "{near_revision()}"' in capsys.readouterr().out
    assert not (tmp_path / ".fastci").exists()
