"""Case 50: a database that this MLflow would change, or cannot read, is refused before a byte is written."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fastci_ml.errors import RegistryError
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.registry import Registry
from fastci_ml.learn.registry.database import read_revision
from fastci_ml.learn.registry.revisions import ask_revision, known_revisions
from fastci_ml.settings import Settings

if TYPE_CHECKING:
    from conftest import Processes

OLD_REVISIONS = ("2b4d017a5e9b", "3500859a5d39", "last but one")
OUTCOME = {
    "outcome_id": "a",
    "model": {"name": "fastci-risk", "version": "1"},
    "at": "2026-11-30T12:00:00+00:00",
    "metrics": {"apfd": 0.5},
}


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its bytes and the time of its last change."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def settings_of(folder: Path) -> Settings:
    return Settings(root=folder, state_dir=folder / ".fastci")


def place(content: Path | bytes, folder: Path) -> Path:
    path = folder / ".fastci" / "mlflow.db"
    path.parent.mkdir(exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        shutil.copy(content, path)
    return path


def execute(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def assert_refused(
    folder: Path, bundle_dir: Path | None = None, *, match: str, within_s: float = 30.0
) -> RegistryError:
    """Every way into the registry says the same, and leaves every byte of the state folder as it was."""
    registry = Registry(settings_of(folder))
    before, errors = tree(folder / ".fastci"), []
    calls: list[Callable[[], object]] = [
        registry.versions,
        lambda: registry.promote("1"),
        lambda: registry.pull("champion", folder / "pulled"),
        lambda: registry.log_outcome(OUTCOME),
    ]
    if bundle_dir is not None:
        calls.append(lambda: registry.log_training(bundle_dir, ModelBundle.load(bundle_dir), []))
    for call in calls:
        start = time.monotonic()
        with pytest.raises(RegistryError, match=match) as raised:
            call()
        assert time.monotonic() - start < within_s
        errors.append(raised.value)
    assert tree(folder / ".fastci") == before
    assert not (folder / "pulled").exists()
    assert {str(error) for error in errors} == {str(errors[0])}
    assert errors[0].hint
    return errors[0]


@pytest.mark.parametrize("revision", OLD_REVISIONS)
def test_a_database_of_an_earlier_release_is_refused_with_both_revisions_and_the_command(
    old_databases: dict[str, Path], tmp_path: Path, bundle_dir: Path, revision: str
) -> None:
    # case 50: made by the migrations that the earlier release ran, so that its tables are the old ones too.
    path = place(old_databases[revision], tmp_path)
    error = assert_refused(tmp_path, bundle_dir, match="of an earlier MLflow")
    found = known_revisions()[-2] if revision == "last but one" else revision
    assert found in str(error)
    assert known_revisions()[-1] in str(error)
    assert str(error.hint).startswith("fastci-ml models upgrade")
    assert read_revision(path) == found


def test_mlflow_itself_would_upgrade_such_a_database_unasked(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    # Why we look first. If this fails, MLflow has become careful, which is no harm.
    from mlflow import MlflowClient

    path = place(old_databases["3500859a5d39"], tmp_path)
    uri = f"sqlite:///{path}"
    MlflowClient(tracking_uri=uri, registry_uri=uri).search_registered_models()
    assert read_revision(path) == known_revisions()[-1]


@pytest.mark.parametrize("revision", ["0123456789ab", "ffffffffffff", "head", "'; drop table runs; --"])
def test_a_revision_of_a_later_release_or_of_nobody_is_refused(
    mlflow_template: Path, tmp_path: Path, bundle_dir: Path, revision: str
) -> None:
    path = place(mlflow_template, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("update alembic_version set version_num = ?", (revision,))
        connection.commit()
    error = assert_refused(tmp_path, bundle_dir, match="is not known to MLflow")
    assert revision in str(error)
    assert known_revisions()[-1] in str(error)
    assert error.hint == "pip install --upgrade mlflow"


def _without_versions(path: Path) -> None:
    execute(path, "drop table alembic_version")


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "a text": (
        lambda path: path.write_bytes(b"no database, but long enough to be one" * 99),
        "not a database",
    ),
    "a short text": (lambda path: path.write_bytes(b"x"), "not a database"),
    "a zip": (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(5_000)), "not a database"),
    "zeros": (lambda path: path.write_bytes(bytes(8_192)), "not a database"),
    "half a header": (lambda path: path.write_bytes(path.read_bytes()[:50]), "torn"),
    "one page": (lambda path: path.write_bytes(path.read_bytes()[:4_096]), "torn"),
    "half": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "torn"),
    "all but a byte": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "torn"),
    "garbage in the first page": (
        lambda path: path.write_bytes(path.read_bytes()[:100] + b"\xff" * 3_996 + path.read_bytes()[4_096:]),
        "torn",
    ),
    "no alembic table": (_without_versions, "without alembic_version"),
    "no revision": (lambda path: execute(path, "delete from alembic_version"), "0 revisions"),
    "two revisions": (
        lambda path: execute(path, "insert into alembic_version values ('0123456789ab')"),
        "2 revisions",
    ),
    "no table at all": (
        lambda path: (path.unlink(), execute(path, "create table t (x)", "drop table t"))[0],
        "without tables",
    ),
    "a coverage file": (
        lambda path: (path.unlink(), execute(path, "create table file (id)", "create table arc (id)"))[0],
        r"something else \(tables arc, file\)",
    ),
    "another program's with alembic": (
        lambda path: (
            path.unlink(),
            execute(
                path,
                "create table dag (id)",
                "create table alembic_version (version_num)",
                "insert into alembic_version values ('0123456789ab')",
            ),
        )[0],
        "something else",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_no_whole_database_of_mlflow_is_refused_and_named(
    mlflow_template: Path, tmp_path: Path, bundle_dir: Path, what: str
) -> None:
    path = place(mlflow_template, tmp_path)
    damage, match = DAMAGE[what]
    damage(path)
    error = assert_refused(tmp_path, bundle_dir, match=match, within_s=10.0)
    assert str(path) in str(error)


def test_a_folder_a_pipe_and_a_link_to_nothing_are_refused_at_once(tmp_path: Path, bundle_dir: Path) -> None:
    path = tmp_path / ".fastci" / "mlflow.db"
    path.mkdir(parents=True)
    assert_refused(tmp_path, bundle_dir, match="a folder", within_s=5.0)
    path.rmdir()
    os.mkfifo(path)
    assert_refused(
        tmp_path, bundle_dir, match="no plain file", within_s=5.0
    )  # opening one would wait for ever
    path.unlink()
    path.symlink_to("mlflow.db")
    assert_refused(tmp_path, bundle_dir, match="not readable", within_s=5.0)  # a loop
    path.unlink()
    path.symlink_to("elsewhere.db")
    assert_refused(tmp_path, bundle_dir, match="a link to elsewhere.db", within_s=5.0)
    assert not (tmp_path / ".fastci" / "elsewhere.db").exists()


@pytest.mark.parametrize("side", ["journal", "wal"])
def test_what_is_left_of_a_database_that_is_gone_is_not_mixed_with_a_new_one(
    tmp_path: Path, bundle_dir: Path, side: str
) -> None:
    left = tmp_path / ".fastci" / f"mlflow.db-{side}"
    left.parent.mkdir()
    left.write_bytes(b"x" * 600)
    error = assert_refused(tmp_path, bundle_dir, match=f"gone, but its mlflow.db-{side} is there")
    assert f"mv {left} {left}.old" in str(error.hint)


_KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"pragma journal_mode = {sys.argv[2]}")
connection.execute("pragma cache_size = 5")
connection.execute("begin")
connection.execute("update alembic_version set version_num = 'half-written'")
connection.execute("create table filling (x)")
for _ in range(300):
    connection.execute("insert into filling values (randomblob(4000))")
if sys.argv[3] == "commit":
    connection.execute("commit")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("mode", "end", "revision"),
    [
        ("delete", "kill", "3500859a5d39"),  # a hot journal: what is in the file is half of a change
        ("truncate", "kill", "3500859a5d39"),
        ("wal", "kill", "3500859a5d39"),
        ("wal", "commit", "half-written"),  # the revision stands in the log alone
    ],
)
def test_a_database_that_a_killed_process_left_is_looked_at_as_its_next_writer_will_find_it(
    old_databases: dict[str, Path], tmp_path: Path, mode: str, end: str, revision: str
) -> None:
    path = place(old_databases["3500859a5d39"], tmp_path)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path), mode, end], check=False)
    assert done.returncode == -9
    assert any(side.exists() and side.stat().st_size for side in path.parent.glob("mlflow.db-*"))
    error = assert_refused(tmp_path, match=revision)
    assert revision in str(error)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() == [(revision,)]


def test_a_database_with_a_write_ahead_log_is_looked_at_without_a_file_beside_it(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    path = place(old_databases["3500859a5d39"], tmp_path)
    execute(path, "pragma journal_mode = wal")
    assert_refused(tmp_path, match="3500859a5d39")
    assert [file.name for file in path.parent.iterdir()] == ["mlflow.db"]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process that holds a database for itself."""
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin exclusive")
print("locked", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_another_process_keeps_locked_is_told_within_seconds(
    mlflow_template: Path, tmp_path: Path, mode: str
) -> None:
    path = place(mlflow_template, tmp_path)
    execute(path, f"pragma journal_mode = {mode}")
    registry = Registry(settings_of(tmp_path))
    with locked(path):
        before = path.read_bytes()
        start = time.monotonic()
        if mode == "delete":
            with pytest.raises(RegistryError, match="locked by another process") as raised:
                registry.versions()
            assert "fuser" in str(raised.value.hint)
        else:
            assert registry.versions() == []  # readers of a log are in nobody's way
        assert time.monotonic() - start < 15
        assert path.read_bytes() == before
    assert registry.versions() == []


_AS_NOBODY = """
import os, sys
from pathlib import Path
from fastci_ml.errors import RegistryError
from fastci_ml.learn.bundle import ModelBundle
from fastci_ml.learn.registry import Registry
from fastci_ml.settings import Settings

def use(root, say):
    registry = Registry(Settings(root=root, state_dir=root / ".fastci"))
    for call in (
        registry.versions,
        lambda: registry.log_training(root / "model", ModelBundle.load(root / "model"), []),
    ):
        try:
            say(call())
        except RegistryError as error:
            say(f"{error} | {error.hint}")

warm, *roots = map(Path, sys.argv[1:])
# Once as root, because nobody may not be able to read where Python imports from.
use(warm, lambda text: None)
os.setgroups([])
os.setegid(65534)
os.seteuid(65534)
for root in roots:
    use(root, print)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others can get to; pytest keeps its own closed."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become nobody")
def test_a_read_only_database_is_read_and_named_where_it_would_be_written(
    mlflow_template: Path,
    old_databases: dict[str, Path],
    open_folder: Path,
    bundle_dir: Path,
    processes: Processes,
) -> None:
    closed = [folder for folder in Path(pytest.__file__).parents if not folder.stat().st_mode & 0o001]
    if closed:
        pytest.skip(f"nobody cannot get to the packages: {closed[-1]} is closed to others")
    old_database = old_databases["3500859a5d39"]
    databases = {"warm": mlflow_template, "new": mlflow_template, "old": old_database, "log": old_database}
    roots = {name: open_folder / name for name in (*databases, "of others")}
    for name, root in roots.items():
        shutil.copytree(bundle_dir, root / "model")
        path = place(databases.get(name, mlflow_template), root)
        if name == "log":  # SQLite would make files beside it, and cannot
            execute(path, "pragma journal_mode = wal")
    for path in (open_folder, *open_folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (roots["of others"] / ".fastci" / "mlflow.db").chmod(0o600)
    before = {name: tree(root) for name, root in roots.items()}
    [(code, said)] = processes.run(_AS_NOBODY, [*map(str, roots.values())])
    assert code == 0, said
    assert all(tree(root) == before[name] for name, root in roots.items() if name != "warm")
    new_read, new_written, *old, other_read, other_written = said.splitlines()
    assert new_read == "[]"
    assert "read-only" in new_written
    assert "ls -ld" in new_written
    assert all("of an earlier MLflow" in line for line in old)
    assert "Permission denied" in other_read
    assert (old[0], other_read) == (old[1], other_written)
    assert len(old) == 4  # and no line of MLflow's own


_KILLED_MAKER = """
import os, sys
from pathlib import Path
from fastci_ml.learn.registry import revisions
revisions.migrate = lambda path: os.kill(os.getpid(), 9)  # the first tables are made, the others are not
revisions.create_database(Path(sys.argv[1]))
"""
_MAKER = """
import sys
from pathlib import Path
from fastci_ml.learn.registry import Registry
from fastci_ml.settings import Settings
root = Path(sys.argv[1])
print(Registry(Settings(root=root, state_dir=root / ".fastci")).versions())
"""


@pytest.mark.timeout(120)
def test_a_new_database_is_made_as_a_whole_or_not_at_all_and_once(
    tmp_path: Path, processes: Processes
) -> None:
    path = tmp_path / ".fastci" / "mlflow.db"
    path.parent.mkdir()
    [(code, _)] = processes.run(_KILLED_MAKER, [str(path)])
    assert code == -9
    left = [file.name for file in path.parent.iterdir()]
    assert left
    assert all(name.startswith(".mlflow.db.") for name in left)
    assert read_revision(path) is None
    assert processes.run(_MAKER, [str(tmp_path)], [str(tmp_path)]) == [(0, "[]\n")] * 2
    assert {file.name for file in path.parent.iterdir()} == {*left, "mlflow.db"}
    assert read_revision(path) == known_revisions()[-1]


def test_a_database_of_a_server_is_asked_for_its_revision_and_left_as_it_is(
    old_databases: dict[str, Path], tmp_path: Path
) -> None:
    # The way for PostgreSQL and its like, here with the driver that is always there.
    path = place(old_databases["3500859a5d39"], tmp_path)
    before = tree(tmp_path)
    assert ask_revision(f"sqlite:///{path}") == "3500859a5d39"
    assert tree(tmp_path) == before
    execute(path, "delete from alembic_version")
    with pytest.raises(RegistryError, match="alembic_version holds 0 revisions"):
        ask_revision(f"sqlite:///{path}")
    execute(path, "drop table alembic_version")
    with pytest.raises(RegistryError, match="something else"):
        ask_revision(f"sqlite:///{path}")
    assert ask_revision(f"sqlite:///{tmp_path / 'new.db'}") is None
