from __future__ import annotations

import inspect

import pytest

from fastci_ml import errors
from fastci_ml.errors import DataError, ExternalError, FastCIError, UsageError

ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FastCIError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_exit_code_follows_from_the_branch_of_the_tree(kind):
    expected = {UsageError: 2, DataError: 3, ExternalError: 4}
    branch = next((base for base in expected if issubclass(kind, base)), None)
    assert kind.exit_code == expected.get(branch, 70)


def test_slugs_are_unique_lower_case_words():
    slugs = [kind.slug for kind in ALL]
    assert len(set(slugs)) == len(slugs)
    assert all(slug.replace("-", "").isalpha() and slug == slug.lower() for slug in slugs)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_message_and_hint_are_kept(kind):
    error = kind("what went wrong", hint="a command")
    assert str(error) == "what went wrong"
    assert error.hint == "a command"
    assert kind("x").hint is None


def test_the_tree_in_the_docstring_is_the_tree():
    for kind in ALL:
        (line,) = [line for line in errors.__doc__.splitlines() if f" {kind.__name__} " in f" {line}"]
        assert str(kind.exit_code) in line
