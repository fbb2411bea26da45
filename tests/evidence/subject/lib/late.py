"""Imported while tests run."""

from lib import core

START = core.scale(1)


def value():
    return START
