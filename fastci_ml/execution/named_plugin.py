"""The plugin, for where it is named in ``PYTEST_PLUGINS``: pytest may have loaded it by then."""

from __future__ import annotations

import pytest

from fastci_ml.execution import plugin

_NAME = "fastci"


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the plugin under the name of its entry point, unless ``-p`` did."""
    # Twice would be an error of pytest, and end the tests before they begin.
    if not pluginmanager.has_plugin(_NAME) and not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, _NAME)
