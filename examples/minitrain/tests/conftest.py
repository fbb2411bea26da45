"""The fixture `train`, the launchers of ranks, and the table of times at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pool import Pool, Torchrun
from runs import Train

from minitrain.recipes import recipe
from minitrain.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How strictly a quantity is checked, from the strictest on.
STRICTNESS = ("exact", "tolerance", "invariant")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minitrain")
    group.addoption(
        "--launcher",
        choices=("pool", "torchrun"),
        default="pool",
        help="pool: ranks stay from test to test; torchrun: one torchrun for every run",
    )
    group.addoption(
        "--assign",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change every run of the selected tests, such as run.exit_at=3",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "recipe(name, *assignments, world, checks): the run of a test, the ranks that it needs, and the "
        f"quantities that it checks, each with {', '.join(STRICTNESS)}",
    )
    config.addinivalue_line("markers", "smoke: the best minute of the suite")
    for kind in ("convergence", "performance", "memory"):
        config.addinivalue_line(
            "markers", f"{kind}: a shorter or smaller run would prove nothing; never shrunk"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("recipe")
        if marker is not None:
            _check_declaration(item.nodeid, marker)


def _check_declaration(test: str, marker: pytest.Mark) -> None:
    """Refuse a declaration that is not true of its run."""
    config = recipe(marker.args[0], marker.args[1:])
    problems = [problem.message for problem in validate(config)]
    if config.parallel.world > marker.kwargs["world"]:
        problems.append(f"world={marker.kwargs['world']}, but its layout has {config.parallel.world} ranks")
    problems += [
        f"{kind!r} is no strictness" for kind in marker.kwargs["checks"].values() if kind not in STRICTNESS
    ]
    if problems:
        raise pytest.UsageError(f"{test}: {'; '.join(problems)}")


@pytest.fixture(scope="session")
def launcher(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool | Torchrun]:
    kind = Pool if pytestconfig.getoption("--launcher") == "pool" else Torchrun
    launcher = kind(tmp_path_factory.mktemp("ranks"))
    yield launcher
    launcher.close()


@pytest.fixture
def train(request: pytest.FixtureRequest, launcher: Pool | Torchrun, tmp_path: Path) -> Train:
    marker = request.node.get_closest_marker("recipe")
    override = tuple(request.config.getoption("--assign"))
    return Train(launcher, tmp_path, request.node.nodeid, marker.args, marker.kwargs["world"], override)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Tell how long the runs of a test took, and hold a test that passed to its declaration."""
    train = pyfuncitem.funcargs.get("train")
    if not isinstance(train, Train):
        return (yield)
    started_s = train.launcher.start_s
    try:
        result = yield
    finally:
        properties = {
            "world": train.world,
            "runs": len(train.runs),
            "seconds_in_steps": round(sum(run.seconds_in_steps for run in train.runs), 3),
            "seconds_of_start": round(train.launcher.start_s - started_s, 3),
        }
        pyfuncitem.user_properties.extend(properties.items())
    marker = pyfuncitem.get_closest_marker("recipe")
    assert marker is not None
    declared = set(marker.kwargs["checks"])
    assert train.looked_at == declared, f"looked at {sorted(train.looked_at)}, declared {sorted(declared)}"
    assert train.n_ranks_used == train.world, f"used {train.n_ranks_used} ranks, declared {train.world}"
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print for every test that trained: seconds without the start of ranks, and the share spent in steps."""
    seconds: dict[str, float] = {}
    properties: dict[str, dict[str, Any]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
                properties.setdefault(report.nodeid, {}).update(report.user_properties)
    rows = [(test, found) for test, found in properties.items() if found.get("runs")]
    if not rows:
        return
    terminalreporter.section("training runs")
    terminalreporter.write_line("seconds  in steps  ranks  runs  test")
    for test, found in rows:
        own_s = seconds[test] - found["seconds_of_start"]
        share = found["seconds_in_steps"] / own_s
        terminalreporter.write_line(f"{own_s:7.2f} {share:8.0%} {found['world']:7} {found['runs']:5}  {test}")
    total_s = sum(seconds[test] for test, _ in rows)
    start_s = sum(found["seconds_of_start"] for _, found in rows)
    steps_s = sum(found["seconds_in_steps"] for _, found in rows)
    terminalreporter.write_line(
        f"{len(rows)} tests took {total_s:.0f} s: {steps_s:.0f} s in steps, {start_s:.0f} s to start ranks"
    )
