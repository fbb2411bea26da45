"""Short forms for declaring parametrised tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

# What it means to train the same: quantities and how strictly they are compared.
SAME = {"loss": "tolerance", "grad_norm": "tolerance", "eval_loss": "tolerance"}
IDENTICAL = dict.fromkeys(SAME, "exact")


def case(
    title: str,
    world: int,
    name: str,
    assignments: str,
    checks: dict[str, str],
    *values: Any,
    smoke: bool = False,
) -> ParameterSet:
    """Declare one case of a parametrised test.

    Parameters
    ----------
    title
        The id of the case.
    name, assignments
        Recipe, and its assignments with spaces between them.
    values
        Arguments of the test.
    """
    marks = [pytest.mark.recipe(name, *assignments.split(), world=world, checks=checks)]
    if smoke:
        marks.append(pytest.mark.smoke)
    return pytest.param(*values, id=title, marks=marks)
