"""Imports everything, as packages do."""

from lib import core, registry  # noqa: F401
