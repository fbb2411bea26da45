"""The command line, the journal, and the tests' own options, as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pool import Pool, rank_environment
from runs import Train

from minitrain.__main__ import main
from tools.make_reference import main as reference_main

ROOT = Path(__file__).parent.parent


def read_journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**rank_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_command_trains_and_prints_a_line_a_step(tmp_path: Path) -> None:
    places = [f"run.dir={tmp_path}/run", f"data.dir={tmp_path}/data"]
    found = run("-m", "minitrain", "tiny", "run.steps=3", "run.eval_every=3", *places)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["event=step", "step=1"],
        ["event=step", "step=2"],
        ["event=step", "step=3"],
        ["event=eval", "step=3"],
    ]
    records = read_journal(tmp_path / "run")
    assert [record["event"] for record in records] == ["start", "step", "step", "step", "eval", "end"]
    assert records[0]["config"]["run.steps"] == 3


def test_torchrun_starts_the_same_command_on_more_ranks(tmp_path: Path) -> None:
    places = [f"run.dir={tmp_path}/run", f"data.dir={tmp_path}/data"]
    found = run(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "minitrain", "tiny"),
        *("parallel.tp=2", "run.steps=3", *places),
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("event=step") == 3  # rank 0 speaks for all
    events = [record["event"] for record in read_journal(tmp_path / "run")]
    assert events == ["start", "step", "step", "step", "eval", "end"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "parallel.tp=2"], "the layout asks for 2 ranks, 1 were started"),
        (["tini"], "did you mean tiny"),
        (
            ["tiny", "data.batch=3"],
            "batch-over-micro-batches: data.batch=3 is no multiple of data.micro_batch=4",
        ),
    ],
)
def test_mistakes_are_explained_in_words(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, f"run.dir={tmp_path}", f"data.dir={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_reference_is_made_and_made_again(tmp_path: Path) -> None:
    file = tmp_path / "new.json"
    assert reference_main([str(file), "tiny", "run.steps=3", "run.eval_every=3"]) == 0
    made = file.read_text()
    assert list(json.loads(made)) == ["recipe", "assignments", "step_loss", "step_grad_norm", "eval_loss"]
    assert reference_main([str(file)]) == 0
    assert file.read_text() == made


def test_stored_references_name_every_file() -> None:
    for file in (ROOT / "tests" / "references").iterdir():
        stored = json.loads(file.read_text())
        steps = next(part for part in stored["assignments"] if part.startswith("run.steps="))
        assert len(stored["step_loss"]) == int(steps.partition("=")[2])


@pytest.mark.recipe(
    "tiny", "run.steps=4", "checkpoint.every=2", "run.eval_every=3", world=1, checks={"events": "exact"}
)
def test_resumed_run_appends_to_its_journal(train: Train) -> None:
    first = train("run.exit_at=2")
    second = train("checkpoint.resume=true")
    records = read_journal(second.directory)
    assert records == json.loads(json.dumps(first.records + second.records))
    assert second.events == [("resume", 2), ("eval", 3), ("eval", 4), ("save", 4), ("end", 4)]


SUITE = """
import pytest
from declare import SAME

@pytest.mark.recipe("tiny", "run.steps=5", world=1, checks={"loss": "invariant"})
def test_declared(train):
    run = train()
    assert len(run.losses) == EXPECTED

@pytest.mark.recipe("tiny", "run.steps=5", world=1, checks=SAME)
def test_looks_at_less_than_it_declares(train):
    train().losses
"""


def suite(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of its own with the conftest of this one."""
    (tmp_path / "test_inner.py").write_text(text)
    for name in ("conftest.py", "pool.py", "rank.py", "runs.py", "declare.py"):
        (tmp_path / name).write_text((ROOT / "tests" / name).read_text())
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    return run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        *options,
        str(tmp_path),
        **environment,
    )


def test_declaration_is_held_to_and_assignments_can_shorten_runs(tmp_path: Path) -> None:
    found = suite(tmp_path, SUITE.replace("EXPECTED", "2"), "--assign", "run.exit_at=2")
    assert "1 failed, 1 passed" in found.stdout
    assert "looked at ['loss'], declared ['eval_loss', 'grad_norm', 'loss']" in found.stdout
    assert "1     1  test_inner.py::test_declared" in found.stdout


def test_shortened_run_still_stops_where_its_test_stops_it(tmp_path: Path) -> None:
    declared = ("tiny", "run.steps=50", "checkpoint.every=25")
    train = Train(Pool(tmp_path), tmp_path, "t", declared, 1, ("checkpoint.every=2", "run.exit_at=4"))
    assert train.config.checkpoint.every == 2
    assert train.configured("run.exit_at=2").run.exit_at == 2
    assert train.configured("run.exit_at=30").run.exit_at == 4
    assert train.configured().run.exit_at == 4
    assert train.configured().run.steps == 50  # schedules stay


def test_declaration_of_a_run_that_cannot_be_is_refused(tmp_path: Path) -> None:
    text = SUITE.replace('"run.steps=5", world=1', '"parallel.tp=2", "data.batch=3", world=1')
    found = suite(tmp_path, text)
    assert found.returncode == 4
    assert "world=1, but its layout has 2 ranks" in found.stderr
    assert "data.batch=3 is no multiple" in found.stderr
