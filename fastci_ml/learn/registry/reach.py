"""Where a tracking URI leads, whether something is there, and what to say where not."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fastci_ml.errors import RegistryError

_PROBE_TIMEOUT_S = 3.0
# A port above 65,535 overflows; what is no answer of HTTP is an error of its own.
_FAILURES = (OSError, ValueError, OverflowError, http.client.HTTPException)
_N_VERSION_BYTES = 100
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):")  # of two letters at least: C: is a drive
_NAME = re.compile(r"""[^/:'"`\\\x00-\x1f\x7f]{1,200}""")


def check_uri(uri: str) -> None:
    """Refuse a store that cannot keep a registry.

    Raises
    ------
    RegistryError
        For a folder (MLflow's file store) and for a database in memory.
    """
    scheme = _SCHEME.match(uri)
    if uri.startswith("databricks"):  # MLflow takes the bare word for a server
        return
    if scheme is None or scheme[1] == "file":
        folder = uri.removeprefix("file:").removeprefix("//") if scheme else uri
        if Path(folder).is_file() or Path(folder).suffix in (".db", ".sqlite", ".sqlite3"):
            raise RegistryError(
                f"tracking_uri {uri}: a file without what it is", hint=f'tracking_uri = "sqlite:///{folder}"'
            )
        raise RegistryError(
            f"tracking_uri {uri}: MLflow's file store, which is given up, expected a database or a server",
            hint=f"mlflow migrate-filestore --source {folder} --target sqlite:///mlflow.db   "
            '# then tracking_uri = "sqlite:///mlflow.db", or leave it out for the default',
        )
    if is_sqlite(uri) and uri.partition("://")[2].lstrip("/") in ("", ":memory:"):
        raise RegistryError(
            f"tracking_uri {uri}: a database in memory forgets every version at once",
            hint='tracking_uri = "sqlite:////absolute/path/mlflow.db", or leave it out for the default',
        )


def check_name(name: str) -> str:
    """Return the name of a model if MLflow can keep it and search for it.

    Raises
    ------
    RegistryError
        If it is empty, long, or holds what MLflow takes for syntax.
    """
    if not _NAME.fullmatch(name) or name != name.strip():
        raise RegistryError(
            f"model_name {name!r}: expected 1 to 200 characters, no blank at an end, none of /:'\"`\\",
            hint='model_name = "fastci-risk"',
        )
    return name


def is_database(uri: str) -> bool:
    """Whether MLflow opens a database itself, of whatever kind, rather than asking a server."""
    return uri.startswith(("sqlite", "postgresql", "mysql", "mssql"))


def is_sqlite(uri: str) -> bool:
    """Whether a URI names an SQLite file, with or without its driver."""
    return uri.startswith(("sqlite:", "sqlite+"))


def sqlite_path(uri: str) -> Path:
    """File that an SQLite URI names.

    Raises
    ------
    RegistryError
        If SQLAlchemy would open another: it decodes %20 and cuts at ?, where MLflow does not.
    """
    text = uri.partition(":///")[2]
    if not text or "%" in text or "?" in text:
        raise RegistryError(
            f"{uri}: MLflow cannot keep a database whose path has % or ? in it",
            hint="set tracking_uri, or another state_dir, in [tool.fastci]",
        )
    return Path(text).absolute()


def probe(uri: str) -> None:
    """Ask a server whether it is there and of our release; any other store is.

    Raises
    ------
    RegistryError
        If nothing answers within three seconds, or it says that it is of another major release.
    """
    if not is_server(uri):
        return
    try:
        _get(f"{uri.rstrip('/')}/health")
    except urllib.error.HTTPError:
        return  # it answers; whether it lets us in is for MLflow to find out
    except _FAILURES as error:
        raise registry_error(uri, error) from error
    found, ours = server_version(uri), _our_version()
    if found and ours and _major(found) != _major(ours):
        older = int(_major(found)) < int(_major(ours))
        hint = f"on the server: pip install 'mlflow=={ours}'" if older else f"pip install 'mlflow=={found}'"
        raise RegistryError(
            f"MLflow at {shown(uri)}: the server is MLflow {found}, this is {ours}, other major release",
            hint=hint,
        )


def is_server(uri: str) -> bool:
    """Whether a URI names a tracking server."""
    return uri.startswith(("http://", "https://"))


def server_version(uri: str) -> str:
    """Release of MLflow that a server says it is; empty where it says none."""
    try:
        text = _get(f"{uri.rstrip('/')}/version").decode("utf-8", "replace").strip()
    except _FAILURES:
        return ""
    return text if re.fullmatch(r"\d+(\.\w+)+", text) else ""


def shown(uri: str) -> str:
    """URI without its password: what we print ends up in CI logs.

    Examples
    --------
    >>> shown("postgresql://ci:secret@db.example.org/mlflow")
    'postgresql://***@db.example.org/mlflow'
    """
    return re.sub(r"://[^/\s]*@", "://***@", uri)


def registry_error(uri: str, error: Exception) -> RegistryError:
    """Our error for a failure of MLflow or of what it stands on, with what to type."""
    text = shown(str(error).strip() or type(error).__name__)
    hint = None
    if is_server(uri):
        hint = f"is the server up? curl {shown(uri).rstrip('/')}/health"
        if "out-of-date" in text:
            hint = "on the server, after a backup of its database: mlflow db upgrade DATABASE_URI"
        elif not isinstance(error, _FAILURES):
            text, hint = _with_versions(uri, text, hint)
    elif isinstance(error, ImportError):
        hint = f"pip install {error.name}"
    elif "out-of-date" in text:
        # Only on request and after a backup: an upgrade cannot be undone.
        hint = f"after a backup of the database: mlflow db upgrade {shown(uri)}"
    return RegistryError(f"MLflow at {shown(uri)}: {text.splitlines()[0]}", hint=hint)


def _with_versions(uri: str, text: str, hint: str) -> tuple[str, str]:
    """Say of a server of another release that it is one: what it does not know, it calls an error of ours."""
    found, ours = server_version(uri), _our_version()
    if not found or not ours or found == ours:
        return text, hint
    return f"{text.splitlines()[0]} (the server is MLflow {found}, this is {ours})", hint


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_PROBE_TIMEOUT_S) as answer:  # noqa: S310  callers check the scheme
        return bytes(answer.read(_N_VERSION_BYTES))


def _our_version() -> str:
    try:
        return version("mlflow")
    except PackageNotFoundError:
        return ""


def _major(release: str) -> str:
    return release.partition(".")[0]
