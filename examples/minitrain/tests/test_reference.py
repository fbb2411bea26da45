"""Training gives the stored numbers, in every layout: exact references in fp64, drift bounds elsewhere.

The files in ``references`` are made by ``python -m tools.make_reference``, on one rank. Comparing 10 digits
is exact for all that training can do wrong, and holds on other CPUs, whose sums differ in the 15th.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from declare import IDENTICAL, SAME, case
from oracles import assert_close, reference

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet
    from runs import Run, Train


def stored(name: str, layout: str, *, world: int, smoke: bool = False) -> ParameterSet:
    """Declare the run of a stored reference in a layout such as "tp=2 zero=true"."""
    return case(
        f"{name}-{layout.replace(' ', '-') or 'plain'}",
        world,
        reference(name)["recipe"],
        " ".join([*declared(name), *(f"parallel.{part}" for part in layout.split())]),
        IDENTICAL,
        name,
        smoke=smoke,
    )


def declared(name: str) -> list[str]:
    return [*reference(name)["assignments"], "precision.dtype=fp64"]


def assert_stored(run: Run, expected: dict[str, list[float]], tolerance: float, norms: float) -> None:
    """Compare with the stored numbers; `norms` is the tolerance of gradient norms."""
    n_steps = len(run.losses)  # all of them, unless the run was cut short on purpose
    assert_close(run.losses, expected["step_loss"][:n_steps], tolerance)
    assert_close(run.steps("grad_norm"), expected["step_grad_norm"][:n_steps], norms)
    evaluated = run.eval_losses
    if n_steps == len(expected["step_loss"]):
        assert_close(evaluated, expected["eval_loss"], tolerance)


@pytest.mark.parametrize(
    "name",
    [
        stored("dense", "", world=1, smoke=True),
        stored("dense", "dp=2 bucket_kib=16", world=2),
        stored("dense", "tp=2 sequence_parallel=true", world=2),
        stored("dense", "pp=2 vpp=2 recompute_layers=1", world=2),
        stored("dense", "cp=2", world=2),
        stored("dense", "tp=2 pp=2", world=4),
        stored("dense", "dp=2 cp=2 zero=true", world=4),
        stored("dense", "dp=2 tp=2 zero=true recompute_layers=3", world=4),
        stored("experts", "", world=1),
        stored("experts", "dp=2 ep=2 zero=true", world=2, smoke=True),
        stored("experts", "cp=2 ep=2 recompute_layers=1", world=2),
        stored("experts", "pp=2 dp=2", world=4),
        stored("experts", "tp=2 dp=2 ep=2 sequence_parallel=true", world=4),
        stored("tied", "", world=1),
        stored("tied", "pp=2 tp=2", world=4),
        stored("tied", "pp=2 zero=true dp=2", world=4),
        stored("odd", "", world=1),
        stored("odd", "dp=3 zero=true", world=3),
        stored("odd", "tp=2 recompute_layers=2", world=2),
    ],
)
def test_run_gives_the_stored_losses(name: str, train: Train) -> None:
    assert_stored(train(), reference(name), 1e-9, 1e-9)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        case("fp32", 1, "tiny", " ".join([*declared("dense"), "precision.dtype=fp32"]), SAME, "dense", 1e-4),
        case(
            "bf16-tp",
            2,
            "tiny",
            " ".join([*declared("dense"), "precision.dtype=bf16 parallel.tp=2"]),
            SAME,
            "dense",
            0.05,
        ),
        case(
            "fp32-experts-zero",
            2,
            "tiny-moe",
            " ".join([*declared("experts"), "precision.dtype=fp32 parallel.dp=2 parallel.zero=true"]),
            SAME,
            "experts",
            1e-3,
        ),
    ],
)
def test_lower_precision_stays_near_the_reference(name: str, tolerance: float, train: Train) -> None:
    """A drift bound over the whole run: what it would catch late, a shorter run would miss."""
    assert_stored(train(), reference(name), tolerance, 10 * tolerance)
