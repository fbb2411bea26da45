"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but less than it could."""
    PROBLEM = "problem"
    """Something does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    topic, name : str
        What it is, and the part of the installation that it belongs to.
    level : Level
        How it is.
    text : str
        What was found, in one line.
    hint : str
        What to type; empty where nothing is to be done.
    """

    topic: str
    name: str
    level: Level
    text: str
    hint: str = ""


def ok(topic: str, name: str, text: str) -> Finding:
    """Something that is as it should be."""
    return Finding(topic=topic, name=name, level=Level.OK, text=text)


def warning(topic: str, name: str, text: str, hint: str) -> Finding:
    """Something that could be better."""
    return Finding(topic=topic, name=name, level=Level.WARNING, text=text, hint=hint)


def problem(topic: str, name: str, text: str, hint: str) -> Finding:
    """Something that does not work."""
    return Finding(topic=topic, name=name, level=Level.PROBLEM, text=text, hint=hint)
