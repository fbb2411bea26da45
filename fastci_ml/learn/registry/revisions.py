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

if TYPE_CHECKING:
    from alembic.config import Config


def check_revision(path: Path, found: str, *, upgrade: str) -> None:
    """Refuse a database that the installed MLflow would change, or cannot read.

    Parameters
    ----------
    path : Path
        The database.
    found : str
        Its revision.
    upgrade : str
        Command that upgrades it.

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
            f"{path}: schema revision {found} of an earlier MLflow, {release} expects {known[-1]} "
            f"({n_steps} migrations later); nothing is written to it",
            hint=f"{upgrade}   # keeps a backup",
        )
    raise RegistryError(
        f"{path}: schema revision {found} is not known to {release}, which expects {known[-1]}: "
        "a later MLflow made it, or something else; nothing is written to it",
        hint="pip install --upgrade mlflow",
    )


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
