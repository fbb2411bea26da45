"""Which schema revisions the installed MLflow knows, and bringing a file from one to another.

The migrations are those of MLflow's own package, run by Alembic, its tool for them.
"""

from __future__ import annotations

import functools
import os
import secrets
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.reach import shown

if TYPE_CHECKING:
    from alembic.config import Config


def check_revision(database: str, found: str, *, upgrade: str) -> None:
    """Refuse a database that the installed MLflow would change, or cannot read.

    Parameters
    ----------
    database : str
        What to call it.
    found : str
        Its revision.
    upgrade : str
        How it is upgraded, for the hint.

    Raises
    ------
    RegistryError
        If it is of an earlier release, or of one that is not known here.
    """
    known = known_revisions()
    if found == known[-1]:
        return
    release = f"MLflow {version('mlflow')}"
    if found in known:
        n_steps = len(known) - 1 - known.index(found)
        raise RegistryError(
            f"{database}: schema revision {found} of an earlier MLflow, {release} expects {known[-1]} "
            f"({n_steps} migrations later); nothing is written to it",
            hint=upgrade,
        )
    raise RegistryError(
        f"{database}: schema revision {found} is not known to {release}, which expects {known[-1]}: "
        "a later MLflow made it, or something else; nothing is written to it",
        hint="pip install --upgrade mlflow",
    )


def ask_revision(uri: str) -> str | None:
    """Revision of a database that is no file, by a query that changes nothing.

    Returns
    -------
    str or None
        None for a database without tables, in which MLflow makes its own.

    Raises
    ------
    RegistryError
        If there are tables, but not one revision of MLflow.
    sqlalchemy.exc.SQLAlchemyError, ImportError
        If it cannot be reached, or its driver is not installed.
    """
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        tables = sqlalchemy.inspect(connection).get_table_names()
        if not tables:
            return None
        if "alembic_version" not in tables or "experiments" not in tables:
            raise RegistryError(
                f"{shown(uri)}: a database of something else (tables {', '.join(sorted(tables)[:5])})",
                hint="set tracking_uri to a database of its own in [tool.fastci]",
            )
        found = connection.execute(sqlalchemy.text("select version_num from alembic_version")).scalars().all()
    if len(found) != 1:
        raise RegistryError(f"{shown(uri)}: alembic_version holds {len(found)} revisions, expected 1")
    return str(found[0])


@functools.cache
def known_revisions() -> tuple[str, ...]:
    """Revisions from the first to the one that the installed MLflow reads and writes.

    Raises
    ------
    RegistryError
        If MLflow has no migrations where they have always been, or several last ones.
    """
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        scripts = ScriptDirectory.from_config(_config(Path("unused")))
        head = scripts.get_current_head()
        revisions = [script.revision for script in scripts.walk_revisions()]
    except CommandError as error:
        raise RegistryError(
            f"MLflow {version('mlflow')}: its database migrations are not usable: {error}",
            hint="pip install --force-reinstall mlflow",
        ) from error
    assert revisions[0] == head  # `get_current_head` refuses several
    return tuple(reversed(revisions))


def create_database(path: Path) -> None:
    """Make an MLflow database where there is none, as a whole or not at all.

    MLflow takes seconds for its tables. A process that dies meanwhile would leave some of them, and two
    processes that begin at once would be in each other's way.
    """
    import sqlalchemy
    from mlflow.store.tracking.dbmodels.initial_models import Base

    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        engine = sqlalchemy.create_engine(f"sqlite:///{fresh}")
        Base.metadata.create_all(engine)
        engine.dispose()
        migrate(fresh)
        if not path.exists():  # another process may have made one meanwhile, and that holds something
            _rename_new(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _rename_new(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)  # in one step with the look whether there is one
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        fresh.rename(path)


def migrate(path: Path) -> None:
    """Run the migrations that a database lacks, in place: give it a copy.

    Raises
    ------
    alembic.util.CommandError, sqlalchemy.exc.SQLAlchemyError
        As Alembic and SQLAlchemy raise them.
    """
    from alembic import command

    command.upgrade(_config(path), "heads")


def _config(path: Path) -> Config:
    import mlflow
    from alembic.config import Config

    config = Config()
    # Alembic takes % for the start of a reference.
    scripts = str(Path(mlflow.__file__).parent / "store" / "db_migrations")
    config.set_main_option("script_location", scripts.replace("%", "%%"))
    config.set_main_option("sqlalchemy.url", f"sqlite:///{path}".replace("%", "%%"))
    return config
