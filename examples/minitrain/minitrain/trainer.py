"""The training loop."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from minitrain import checkpoint
from minitrain.buckets import Buckets
from minitrain.collectives import sum_
from minitrain.config import Config, flatten
from minitrain.data import Loader
from minitrain.errors import ConfigError, DivergenceError
from minitrain.journal import Journal
from minitrain.mesh import Mesh
from minitrain.model import Stage
from minitrain.optim import OPTIMIZERS
from minitrain.pipeline import Pipeline, Sums
from minitrain.precision import LossScaler
from minitrain.schedule import learning_rate
from minitrain.validate import check


class Trainer:
    """One run on one rank. Making it and every method are collectives of the whole world.

    Parameters
    ----------
    config : Config
        Its world must be the number of ranks that were started.
    """

    def __init__(self, config: Config) -> None:
        check(config)
        n_ranks = dist.get_world_size() if dist.is_initialized() else 1
        if config.parallel.world != n_ranks:
            raise ConfigError(f"the layout asks for {config.parallel.world} ranks, {n_ranks} were started")
        self.config = config
        self.mesh = Mesh(config)
        numbers = range(self.mesh["pp"].index, config.parallel.n_stages, config.parallel.pp)
        self.stages = [Stage(config, self.mesh, number) for number in numbers]
        self.buckets = Buckets(config, self.mesh, self.stages)
        self.optimizer = OPTIMIZERS[config.optim.name](config.optim, self.buckets)
        self.scaler = LossScaler(config.precision)
        self.pipeline = Pipeline(config, self.mesh, self.stages)
        self.loader = Loader(config, self.mesh, is_eval=False)
        self.eval_loader = Loader(config, self.mesh, is_eval=True) if config.run.eval_every else None
        self.journal = Journal(config.run.dir / "journal.jsonl" if self.mesh.rank == 0 else None)
        self.checkpoints = config.run.dir / "checkpoints"
        self.step = 0  # steps done, skipped ones included

    def train(self) -> list[dict[str, Any]]:
        """Run to the last step, from the newest checkpoint if asked to, and return the journal's records."""
        self.journal.add("start", config=flatten(self.config))
        if self.config.checkpoint.resume:
            self._restore()
        while self.step < self.config.last_step:
            self.journal.add("step", **self.train_step())
            if self._is_due(self.config.run.eval_every):
                self.journal.add("eval", step=self.step, **self.evaluate())
            if self._is_due(self.config.checkpoint.every):
                self._save()
        self.journal.add("end", step=self.step)
        return self.journal.records

    def train_step(self) -> dict[str, Any]:
        """Make one step, and return what there is to log of it.

        Raises
        ------
        DivergenceError
            If the gradient is not finite and no loss scale can be blamed for it.
        """
        started = time.perf_counter()
        n_rows = self.config.data.batch
        batches = self.loader.batches(self.step * n_rows)
        # Every token of the step weighs the same, wherever it stands: sums are divided by their number.
        n_local = torch.stack([batch.weights.sum() for batch in batches]).sum()
        n_tokens = float(sum_(n_local, self.mesh["data"]))
        self.buckets.zero_gradients()
        sums = self.pipeline.train(
            batches,
            loss_scale=self.scaler.scale / n_tokens,
            balance_scale=self.scaler.scale * self.config.model.balance_coefficient / n_rows,
            buckets=self.buckets,
        )
        self.buckets.finish_reductions()
        norm = self.buckets.gradient_norm() / self.scaler.scale
        is_finite = norm < float("inf")  # false for NaN too
        lr = learning_rate(self.config, self.optimizer.n_updates)
        loss_scale = self.scaler.scale
        if is_finite:
            clip = self.config.optim.clip
            shrink = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
            self.buckets.scale_gradients(shrink / self.scaler.scale)
            self.optimizer.update(lr)
            self.buckets.gather_values()
        self.step += 1
        loss, balance = self._total(sums)
        if not self.scaler.is_dynamic and not is_finite:
            raise DivergenceError(f"step {self.step}: loss {loss / n_tokens}, gradient norm {norm}")
        self.scaler.update(is_finite=is_finite)
        seconds = time.perf_counter() - started
        return {
            "step": self.step,
            "samples": self.step * n_rows,
            "epoch": (self.step * n_rows - 1) // len(self.loader.rows),
            "loss": loss / n_tokens,
            "balance": balance / n_rows,
            "grad_norm": norm if is_finite else None,
            "lr": lr,
            "loss_scale": loss_scale,
            "is_skipped": not is_finite,
            "n_tokens": int(n_tokens),
            "seconds": seconds,
            "tokens_per_s": n_tokens / seconds,
        }

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Return the mean loss of the evaluation rows, at most ``run.eval_batches`` batches of them."""
        assert self.eval_loader is not None
        for stage in self.stages:
            stage.eval()
        n_rows, n_batches = self.config.data.batch, self.config.run.eval_batches
        totals = torch.zeros(2, dtype=torch.float64)
        for first in range(0, min(len(self.eval_loader.rows), n_rows * n_batches), n_rows):
            batches = self.eval_loader.batches(first)
            totals[0] += self._total(self.pipeline.evaluate(batches))[0]
            totals[1] += sum(batch.weights.sum() for batch in batches)
        for stage in self.stages:
            stage.train()
        n_tokens = float(sum_(totals[1], self.mesh["data"]))
        return {"loss": float(totals[0]) / n_tokens, "n_tokens": int(n_tokens)}

    def _is_due(self, every: int) -> bool:
        """Whether what is done every so many steps is due: on their grid, and after the last step."""
        return every > 0 and (self.step % every == 0 or self.step == self.config.last_step)

    def _total(self, sums: Sums) -> tuple[float, float]:
        """Sum loss and balance over the world, counting once what several ranks computed alike."""
        is_first_tensor_rank = self.mesh.is_first_in(["tp"])
        # Only the last stage has a loss. Where the sequence is split, a tensor rank balances its own tokens.
        loss = sums.loss if is_first_tensor_rank else torch.zeros_like(sums.loss)
        counts_balance = is_first_tensor_rank or self.config.parallel.sequence_parallel
        balance = sums.balance if counts_balance else torch.zeros_like(sums.balance)
        total = sum_(torch.stack((loss, balance)).double(), self.mesh["world"])
        return float(total[0]), float(total[1])

    def _save(self) -> None:
        n_updates, scaler = self.optimizer.n_updates, self.scaler.state()
        progress = {"step": self.step, "n_updates": n_updates, "scaler": scaler}
        checkpoint.save(self.checkpoints, self.config, self.mesh, self.buckets, self.optimizer, progress)
        self.journal.add("save", step=self.step)

    def _restore(self) -> None:
        progress = checkpoint.restore(self.checkpoints, self.config, self.mesh, self.buckets, self.optimizer)
        if progress is None:
            return
        self.step, self.optimizer.n_updates = progress["step"], progress["n_updates"]
        self.scaler.restore(progress["scaler"])
        self.journal.add("resume", step=self.step)


def run(config: Config) -> list[dict[str, Any]]:
    """Train once with the ranks that were started, and return the journal's records."""
    return Trainer(config).train()
