"""Children killed at random moments: what a record says is complete is all that they did."""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded_runs

SUBJECT = Path(__file__).parent / "children_subject"


def check_kills(tmp_path, n_workers, n_launches):
    """Kill so many workers and ranks; how many kills there were, and how many tests were complete."""
    logs = tmp_path / "logs"
    logs.mkdir()
    root = recorded_runs.make_subject(tmp_path / "repo", SUBJECT)
    checks = [
        f"checks_kills.py::check_{kind}" for kind, n in (("worker", n_workers), ("ranks", n_launches)) if n
    ]
    run = recorded_runs.record(
        root,
        "-q",
        *checks,
        KILL_LOGS=str(logs),
        N_WORKERS=str(n_workers),
        N_LAUNCHES=str(n_launches),
    )
    assert run.status == 0, run.output
    assert len(run.records) == n_workers + n_launches
    n_killed = n_complete = 0
    for node_id, record in run.records.items():
        kind, _, number = node_id.partition("::check_")[2].rstrip("]").partition("[")
        log = logs / f"{kind}-{number}"
        done = log.read_text().split("\n") if log.exists() else []
        begun = log.with_name(log.name + ".pids")
        n_begun = len(begun.read_text().split()) if begun.exists() else 0
        steps = {line for line in done if line.startswith("step_")}
        n_ended = sum(line.startswith("end ") for line in done)
        n_killed += 1 if kind == "worker" and not n_ended else n_begun - n_ended
        if record.is_complete:
            n_complete += 1
            assert n_ended == n_begun > 0, node_id
            assert steps <= {unit.name for unit in record.units}, node_id
    return n_killed, n_complete


def test_few_kills_of_workers(tmp_path):
    n_killed, n_complete = check_kills(tmp_path, 18, 0)
    assert n_killed > 5
    assert n_complete > 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_hundred_kills_of_workers_and_ranks(tmp_path):
    pytest.importorskip("torch")
    n_killed, n_complete = check_kills(tmp_path, 280, 24)
    assert n_killed >= 200
    assert n_complete > 10
