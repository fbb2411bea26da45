"""What a test gets to train with: the fixture `train`, and the runs that it returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool import Job

from minitrain.checkpoint import saved_steps
from minitrain.config import assign
from minitrain.recipes import recipe
from minitrain.trainer import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool import Pool, Torchrun

    from minitrain.config import Config

# A busy machine is no fault of a test; what hangs is told of all the same.
TIMEOUT_S = 600.0
# One rank without anything that is only there for a layout, or to save memory.
PLAIN = (
    *(f"parallel.{axis}=1" for axis in ("dp", "tp", "cp", "pp", "vpp", "ep")),
    "parallel.sequence_parallel=false",
    "parallel.zero=false",
    "parallel.recompute_layers=0",
)


class Run:
    """One training run as its journal tells it.

    It notes which quantities a test looks at: they are what is lost without the test, so it declares them.
    """

    def __init__(self, records: list[dict[str, Any]], directory: Path, looked_at: set[str]) -> None:
        self.records, self.directory, self._looked_at = records, directory, looked_at

    def steps(self, quantity: str) -> list[Any]:
        """Return a value of every step: loss, balance, grad_norm, lr, loss_scale, is_skipped, seconds, ..."""
        self._looked_at.add(quantity)
        return [record[quantity] for record in self.records if record["event"] == "step"]

    @property
    def losses(self) -> list[float]:
        return self.steps("loss")

    @property
    def eval_losses(self) -> list[float]:
        self._looked_at.add("eval_loss")
        return [record["loss"] for record in self.records if record["event"] == "eval"]

    @property
    def events(self) -> list[tuple[str, int]]:
        """Kind and step of everything that is no plain step."""
        self._looked_at.add("events")
        return [
            (record["event"], record["step"])
            for record in self.records
            if record["event"] not in ("start", "step")
        ]

    @property
    def checkpoints(self) -> list[int]:
        """Steps that have a checkpoint on disk."""
        self._looked_at.add("checkpoint")
        return saved_steps(self.directory / "checkpoints")

    @property
    def seconds_in_steps(self) -> float:
        """For the report on times; not something that a test looks at."""
        return sum(record["seconds"] for record in self.records if record["event"] == "step")


class Train:
    """Runs what the marker ``recipe`` of a test declares, as often as the test asks."""

    def __init__(
        self, launcher: Pool | Torchrun, tmp_path: Path, test: str, declared: tuple[str, ...], world: int,
        override: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.launcher, self.tmp_path, self.test = launcher, tmp_path, test
        self.declared, self.world, self.override = declared, world, override
        self.config = recipe(declared[0], [*declared[1:], *override])  # as declared
        self.runs: list[Run] = []
        self.looked_at: set[str] = set()
        self.n_ranks_used = 0
        self._n_jobs = 0

    def __call__(self, *assignments: str, folder: str = "run") -> Run:
        """Train with more assignments; runs in the same folder find each other's checkpoints."""
        config = self.configured(*assignments, folder=folder)
        records = self.on_ranks(run, config, world=config.parallel.world)
        self.runs.append(Run(records, config.run.dir, self.looked_at))
        return self.runs[-1]

    def configured(self, *assignments: str, folder: str = "run") -> Config:
        """Return the declared configuration with more assignments, and places of the test's own.

        What the command line assigns comes last, but never lets a run go on after the step at which its test
        stops it: a shortened test of resuming still stops and resumes.
        """
        name, *declared = self.declared
        places = [f"run.dir={self.tmp_path / folder}", f"data.dir={self.tmp_path / 'data'}"]
        asked = recipe(name, [*declared, *assignments])
        config = assign(asked, [*self.override, *places])
        if 0 < asked.run.exit_at < config.run.exit_at:
            config = assign(config, [f"run.exit_at={asked.run.exit_at}"])
        return config

    def plain(self, *assignments: str, folder: str = "plain") -> Run:
        """Train the same model on the same data on one rank."""
        return self(*PLAIN, *assignments, folder=folder)

    def on_ranks(
        self, function: Callable[..., Any], *arguments: Any, world: int, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Run an importable function on some ranks, and return what rank 0 returned."""
        self._n_jobs += 1
        self.n_ranks_used = max(self.n_ranks_used, world)
        store = self.tmp_path / f"store-{self._n_jobs}"
        return self.launcher.run(Job(function, arguments, world, self.test, store), timeout_s)
