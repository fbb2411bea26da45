"""Tests below a fixture that replaces what a recorder calls, for as long as it lives."""

import os
import time
from unittest import mock

import lib
import pytest


@pytest.fixture(scope="module")
def frozen():
    """Stays in place while other captures open and close."""
    with (
        mock.patch.object(time, "time_ns", side_effect=AssertionError),
        mock.patch.object(os.path, "exists", side_effect=AssertionError),
        mock.patch.object(os, "write", side_effect=AssertionError),
    ):
        yield


def check_under_a_fixture_that_replaces(frozen):
    assert lib.label("frozen") == "<frozen>"


def check_under_it_again(frozen):
    assert lib.label("frozen again") == "<frozen again>"
