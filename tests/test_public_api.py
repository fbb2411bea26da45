"""The public names: sorted, there, and described."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastci_ml

API_PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_names_are_sorted_and_stand_once() -> None:
    assert fastci_ml.__all__ == sorted(set(fastci_ml.__all__))
    assert dir(fastci_ml) == fastci_ml.__all__


@pytest.mark.parametrize("name", fastci_ml.__all__)
def test_name_resolves_to_something_documented(name: str) -> None:
    found = getattr(fastci_ml, name)
    assert found.__doc__
    if callable(found):
        assert found.__name__ == name


def test_docs_describe_exactly_the_public_names() -> None:
    described = re.findall(r"^- \*\*`(\w+)`\*\*", API_PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(described) == fastci_ml.__all__


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fastci_ml.nonsense


def test_importing_the_package_loads_no_module_of_it_or_of_others() -> None:
    script = (
        "import sys, fastci_ml; print([m for m in sys.modules if m.startswith('fastci_ml.') or m == 'numpy'])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
