"""Settings: assignments, recipes, and every rule of validation, which a solver must be able to trust."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from minitrain.config import Config, assign, flatten, setting_types
from minitrain.errors import ConfigError
from minitrain.recipes import RECIPES, recipe
from minitrain.validate import check, validate


def rules(*assignments: str, name: str = "small") -> list[str]:
    return [problem.rule for problem in validate(recipe(name, assignments))]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_run(name: str) -> None:
    assert validate(recipe(name)) == []


@pytest.mark.parametrize(
    ("rule", "assignments"),
    [
        ("range", "parallel.tp=0"),
        ("range", "model.dropout=1"),
        ("range", "run.steps=0"),
        ("hidden-over-heads", "model.heads=32 model.hidden=96"),
        ("heads-over-kv-heads", "model.heads=4 model.kv_heads=3"),
        ("heads-over-tp", "parallel.tp=3 model.kv_heads=1 model.ffn=90"),
        ("kv-heads-over-tp", "model.heads=12 model.hidden=96 model.kv_heads=3 parallel.tp=2"),
        ("ffn-over-tp", "model.ffn=161 parallel.tp=2"),
        (
            "vocabulary-over-tp",
            "model.vocabulary=8 parallel.tp=16 model.heads=16 model.hidden=64 model.kv_heads=1",
        ),
        ("sequence-parallel-without-tp", "parallel.sequence_parallel=true"),
        ("ep-without-experts", "parallel.ep=2 parallel.dp=2"),
        ("experts-over-ep", "model.experts=3 parallel.ep=2 parallel.dp=2"),
        ("ep-over-data", "model.experts=4 parallel.ep=2"),
        ("top-k-over-experts", "model.experts=1"),
        ("moe-every-over-layers", "model.experts=4 model.moe_every=5"),
        ("sequence-over-cp", "data.sequence=66 parallel.cp=2"),
        ("sequence-over-cp-tp", "data.sequence=63 parallel.tp=2 parallel.sequence_parallel=true"),
        ("batch-over-micro-batches", "data.batch=9"),
        ("batch-over-micro-batches", "parallel.dp=4"),
        ("layers-over-stages", "model.layers=5 parallel.pp=2"),
        ("vpp-without-pp", "parallel.vpp=2"),
        ("micro-batches-over-pp", "parallel.pp=2 parallel.vpp=2 data.batch=12"),
        ("exit-after-end", "run.exit_at=21"),
        ("warmup-over-decay", "optim.warmup_steps=20"),
        ("eval-without-data", "run.eval_every=1 data.eval_documents=0"),
    ],
)
def test_rule_is_named_with_the_settings_that_can_mend_it(rule: str, assignments: str) -> None:
    changed = assignments.split()
    problems = validate(recipe("small", changed))
    assert [problem.rule for problem in problems] == [rule]
    keys = {assignment.partition("=")[0] for assignment in changed}
    assert keys & set(problems[0].keys)
    for key in problems[0].keys:
        assert key in flatten(Config())
    # The message holds every value that it is about.
    for assignment in changed:
        key, _, value = assignment.partition("=")
        if key in problems[0].keys and key in problems[0].message:
            assert f"{key}={value}" in problems[0].message


def test_every_rule_has_a_case_above() -> None:
    source = (Path(__file__).parent.parent / "minitrain" / "validate.py").read_text()
    found = {
        word
        for line in source.splitlines()
        for word in line.split('"')
        if word.count("-") and " " not in word
    }
    tested = {
        str(param[0]) for param in test_rule_is_named_with_the_settings_that_can_mend_it.pytestmark[0].args[1]
    }
    assert found <= tested | {"sequence-parallel-without-tp"}


def test_choice_of_a_configuration_made_in_python_is_checked() -> None:
    import dataclasses

    from minitrain.config import OptimConfig

    config = dataclasses.replace(Config(), optim=OptimConfig(name="sgd"))  # type: ignore[arg-type]
    assert [problem.rule for problem in validate(config)] == ["choice"]


def test_check_names_all_problems_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)heads-over-tp.*ffn-over-tp.*batch-over-micro-batches"):
        check(recipe("small", ["parallel.tp=3", "data.batch=9"]))


def test_solver_finds_all_layouts_of_four_ranks_that_can_run() -> None:
    """What a shrinker does: try them all, without torch, in no time."""
    found = [
        sizes
        for sizes in itertools.product((1, 2, 3, 4), repeat=4)
        if not rules(
            *(f"parallel.{axis}={size}" for axis, size in zip(("dp", "tp", "cp", "pp"), sizes, strict=True))
        )
        and sizes[0] * sizes[1] * sizes[2] * sizes[3] == 4
    ]
    assert (1, 2, 2, 1) in found
    assert (1, 1, 1, 4) in found
    assert (4, 1, 1, 1) not in found  # 8 rows are no multiple of 4 ranks with micro-batches of 4
    assert len(found) == 9


def test_configuration_modules_import_no_torch() -> None:
    code = "import sys, minitrain.validate, minitrain.recipes; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent, check=False).returncode
        == 0
    )


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("parallel.tpp=2", "did you mean parallel.tp"),
        ("x.y=2", "sections are model, parallel"),
        ("parallel.tp", "expected KEY=VALUE"),
        ("parallel.tp=two", "expected int"),
        ("optim.lr=fast", "expected float"),
        ("optim.lr=nan", "expected a finite number"),
        ("parallel.zero=yes", "expected true or false"),
        ("optim.name=sgd", "expected one of adamw, lion"),
    ],
)
def test_assignment_that_cannot_be_read_is_explained(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign(Config(), [assignment])


def test_unknown_recipe_is_explained() -> None:
    with pytest.raises(ConfigError, match="did you mean tiny-moe"):
        recipe("tiny_moe")
    with pytest.raises(ConfigError, match="expected one of tiny"):
        recipe("zzz")


def test_later_assignments_win_and_every_setting_can_be_assigned() -> None:
    assert recipe("tiny", ["model.layers=3", "model.layers=5"]).model.layers == 5
    flat = flatten(Config())
    assert list(flat) == list(setting_types())
    texts = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in flat.items()
    ]
    assert assign(Config(), texts) == Config()
