"""Which version is the champion and which the challenger. Takes a client, imports nothing of MLflow.

Aliases, never stages: MLflow gives those up. What an earlier release left in a stage is read, and named.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from fastci_ml.errors import RegistryError
from fastci_ml.learn.registry.layout import find_versions, read_version

CHAMPION, CHALLENGER = "champion", "challenger"
PROMOTIONS = "fastci.promotions"
_PRODUCTION = "Production"
# A tag holds 5,000 characters; the oldest promotions go first.
_N_PROMOTIONS = 50

# What an error of its database names where a row was there already.
_ALIASES_TABLE = "registered_model_aliases"


def read_aliases(client: Any, name: str) -> dict[str, str]:
    """Version of each alias of a model; none where it is not registered."""
    models = client.search_registered_models(f"name = '{name}'")
    return {alias: str(version) for alias, version in models[0].aliases.items()} if models else {}


def name_newest(client: Any, name: str) -> None:
    """Let the challenger be the newest version, also where two trainings end at the same moment."""
    named, newest = 0, _newest(client, name)
    # Looked at again after each change: of two processes, the last to change has then seen both versions.
    while named < newest:
        _set_alias(client, name, CHALLENGER, str(newest))
        named, newest = newest, _newest(client, name)


def promote(client: Any, name: str, version: str) -> str | None:
    """Make a version the champion; the one before, which also stands in the model's tag `PROMOTIONS`."""
    before = read_aliases(client, name).get(CHAMPION)
    client.get_model_version(name, version)
    _set_alias(client, name, CHAMPION, version)
    tags = client.get_registered_model(name).tags
    promotions = [*_read_promotions(tags.get(PROMOTIONS, "[]")), {"from": before, "to": version}]
    client.set_registered_model_tag(name, PROMOTIONS, json.dumps(promotions[-_N_PROMOTIONS:]))
    client.set_model_version_tag(name, version, "fastci.champion_before", before or "none")
    return before


def find_number(client: Any, name: str, version: str) -> str:
    """Number of a version that is named by number or alias.

    Raises
    ------
    RegistryError
        If there is no such version or alias, or what the alias names is gone.
    """
    aliases = read_aliases(client, name)
    versions = {str(found.version): found for found in find_versions(client, f"name = '{name}'")}
    number = aliases.get(version, version)
    if number in versions:
        return number
    if version in aliases:
        raise RegistryError(
            f"{name}: alias {version!r} names version {number}, which is gone",
            hint=f"fastci-ml models promote {max(versions, key=int, default='N')}   # or another",
        )
    if number.isdecimal():
        raise RegistryError(f"{name}: version {number} is not found", hint="fastci-ml models")
    hint = "fastci-ml models"
    staged = [n for n, found in versions.items() if read_version(found, {}).stage == _PRODUCTION]
    if version == CHAMPION and staged:
        hint = f"fastci-ml models promote {max(staged, key=int)}   # the newest in stage {_PRODUCTION}"
    known = ", ".join(sorted(aliases)) or "none"
    raise RegistryError(f"{name} has no alias {version!r}, known: {known}", hint=hint)


def _set_alias(client: Any, name: str, alias: str, version: str) -> None:
    """Name a version. Of two processes that give an alias for the first time at once, MLflow fails one."""
    try:
        client.set_registered_model_alias(name, alias, version)
    except Exception as error:
        if _ALIASES_TABLE not in str(error):
            raise
        client.set_registered_model_alias(name, alias, version)


def _newest(client: Any, name: str) -> int:
    return max(int(found.version) for found in find_versions(client, f"name = '{name}'"))


def _read_promotions(text: str) -> list[Any]:
    # Anyone may edit a tag; what is no list there is no reason to refuse a promotion.
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return found
    return []
