"""Which configurations can run. `validate` names every violated constraint, for people and for solvers."""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from minitrain.config import Config, flatten, setting_types
from minitrain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Smallest value of every number.
_AT_LEAST: dict[str, float] = {
    **dict.fromkeys(("model.vocabulary",), 8),
    **dict.fromkeys(("data.mean_length",), 4),
    **dict.fromkeys(("data.sequence",), 2),
    **dict.fromkeys(("model.layers", "model.hidden", "model.ffn", "model.heads", "model.kv_heads"), 1),
    **dict.fromkeys(("model.rope_base", "model.top_k", "model.moe_every"), 1),
    **dict.fromkeys(("model.dropout", "model.experts"), 0),
    **dict.fromkeys(("model.capacity_factor", "model.balance_coefficient"), 0),
    **dict.fromkeys((f"parallel.{axis}" for axis in ("dp", "tp", "cp", "pp", "vpp", "ep")), 1),
    **dict.fromkeys(("parallel.bucket_kib",), 1),
    **dict.fromkeys(("parallel.recompute_layers",), 0),
    **dict.fromkeys(("data.documents", "data.topics", "data.batch", "data.micro_batch"), 1),
    **dict.fromkeys(("data.eval_documents", "data.seed"), 0),
    **dict.fromkeys(("optim.lr", "optim.beta1", "optim.beta2", "optim.eps", "optim.weight_decay"), 0),
    **dict.fromkeys(("optim.clip", "optim.warmup_steps", "optim.decay_steps", "optim.min_lr_ratio"), 0),
    **dict.fromkeys(("precision.loss_scale", "precision.growth_interval"), 1),
    **dict.fromkeys(("checkpoint.every", "checkpoint.keep"), 0),
    **dict.fromkeys(("run.steps", "run.eval_batches"), 1),
    **dict.fromkeys(("run.exit_at", "run.seed", "run.eval_every"), 0),
}

# Settings that must stay below a limit.
_BELOW: dict[str, float] = {"model.dropout": 1, "optim.beta1": 1, "optim.beta2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One violated constraint.

    Attributes
    ----------
    rule : str
        Stable id of the constraint.
    keys : tuple of str
        The settings that it relates: changing one of them can mend it.
    message : str
        What was found and what was expected.
    """

    rule: str
    keys: tuple[str, ...]
    message: str


def validate(config: Config) -> list[Problem]:
    """Return every violated constraint, in a stable order; an empty list means that the run can start.

    Relations are checked only when every single value lies in its range.

    >>> from minitrain.config import assign
    >>> [problem.rule for problem in validate(assign(Config(), ["model.layers=3", "parallel.pp=2"]))]
    ['layers-over-stages']
    """
    problems = list(_ranges(config))
    if not problems:
        for relation in _RELATIONS:
            problems.extend(relation(config))
    return problems


def check(config: Config) -> None:
    """Raise `ConfigError` with every problem of `config`, a line each, if it has any."""
    problems = validate(config)
    if problems:
        lines = "\n".join(f"  {problem.rule}: {problem.message}" for problem in problems)
        raise ConfigError(f"this configuration cannot run:\n{lines}")


def _ranges(config: Config) -> Iterator[Problem]:
    flat = flatten(config)
    for key, least in _AT_LEAST.items():
        if flat[key] < least:
            yield _problem("range", f"{key}={flat[key]}, expected at least {least}", key)
    for key, limit in _BELOW.items():
        if flat[key] >= limit:
            yield _problem("range", f"{key}={flat[key]}, expected less than {limit}", key)
    for key, kind in setting_types().items():
        if typing.get_origin(kind) is Literal and flat[key] not in typing.get_args(kind):
            choices = ", ".join(typing.get_args(kind))
            yield _problem("choice", f"{key}={flat[key]}, expected one of {choices}", key)


def _problem(rule: str, message: str, *keys: str) -> Problem:
    return Problem(rule=rule, keys=keys, message=message)


def _divides(rule: str, config: Config, whole: str, *parts: str, times: int = 1) -> Iterator[Problem]:
    """Check that the product of `parts`, `times` over, divides `whole`."""
    flat = flatten(config)
    divisor = times * math.prod(flat[part] for part in parts)
    if flat[whole] % divisor:
        factors = [str(times)] if times > 1 else []
        product = " x ".join(factors + [f"{part}={flat[part]}" for part in parts])
        yield _problem(rule, f"{whole}={flat[whole]} is no multiple of {product}", whole, *parts)


def _attention(config: Config) -> Iterator[Problem]:
    # Twice the heads: rotary embedding turns pairs of channels.
    yield from _divides("hidden-over-heads", config, "model.hidden", "model.heads", times=2)
    yield from _divides("heads-over-kv-heads", config, "model.heads", "model.kv_heads")
    yield from _divides("heads-over-tp", config, "model.heads", "parallel.tp")
    kv_heads, tp = config.model.kv_heads, config.parallel.tp
    if kv_heads % tp and tp % kv_heads:
        message = f"model.kv_heads={kv_heads} and parallel.tp={tp}: one must divide the other"
        yield _problem("kv-heads-over-tp", message, "model.kv_heads", "parallel.tp")


def _widths(config: Config) -> Iterator[Problem]:
    yield from _divides("ffn-over-tp", config, "model.ffn", "parallel.tp")
    if config.model.vocabulary < config.parallel.tp:
        message = f"model.vocabulary={config.model.vocabulary} is less than parallel.tp={config.parallel.tp}"
        yield _problem("vocabulary-over-tp", message, "model.vocabulary", "parallel.tp")
    if config.parallel.sequence_parallel and config.parallel.tp == 1:
        message = "parallel.sequence_parallel=true needs parallel.tp > 1"
        yield _problem("sequence-parallel-without-tp", message, "parallel.sequence_parallel", "parallel.tp")


def _experts(config: Config) -> Iterator[Problem]:
    model, parallel = config.model, config.parallel
    if model.experts == 0:
        if parallel.ep > 1:
            message = f"parallel.ep={parallel.ep} needs model.experts > 0"
            yield _problem("ep-without-experts", message, "parallel.ep", "model.experts")
        return
    yield from _divides("experts-over-ep", config, "model.experts", "parallel.ep")
    if (parallel.dp * parallel.cp) % parallel.ep:
        message = f"parallel.ep={parallel.ep} does not divide dp={parallel.dp} x cp={parallel.cp}"
        yield _problem("ep-over-data", message, "parallel.ep", "parallel.dp", "parallel.cp")
    if model.top_k > model.experts:
        message = f"model.top_k={model.top_k} is more than model.experts={model.experts}"
        yield _problem("top-k-over-experts", message, "model.top_k", "model.experts")
    if model.moe_every > model.layers:
        message = (
            f"model.moe_every={model.moe_every} is more than model.layers={model.layers}: no expert at all"
        )
        yield _problem("moe-every-over-layers", message, "model.moe_every", "model.layers")


def _sequence(config: Config) -> Iterator[Problem]:
    # Two pieces a context rank: an early one and a late one, so that causal work is shared evenly.
    if config.parallel.cp > 1:
        yield from _divides("sequence-over-cp", config, "data.sequence", "parallel.cp", times=2)
    if config.parallel.sequence_parallel:
        keys = ("data.sequence", "parallel.cp", "parallel.tp")
        yield from _divides("sequence-over-cp-tp", config, *keys)


def _batch(config: Config) -> Iterator[Problem]:
    yield from _divides("batch-over-micro-batches", config, "data.batch", "data.micro_batch", "parallel.dp")


def _stages(config: Config) -> Iterator[Problem]:
    yield from _divides("layers-over-stages", config, "model.layers", "parallel.pp", "parallel.vpp")
    pp, vpp = config.parallel.pp, config.parallel.vpp
    if vpp > 1 and pp == 1:
        yield _problem(
            "vpp-without-pp", f"parallel.vpp={vpp} needs parallel.pp > 1", "parallel.vpp", "parallel.pp"
        )
    elif vpp > 1 and config.n_microbatches % pp:
        keys = ("data.batch", "data.micro_batch", "parallel.dp", "parallel.pp")
        message = (
            f"{config.n_microbatches} micro-batches are no multiple of parallel.pp={pp}, as vpp > 1 asks"
        )
        yield _problem("micro-batches-over-pp", message, *keys)


def _schedule(config: Config) -> Iterator[Problem]:
    run, optim = config.run, config.optim
    if run.exit_at > run.steps:
        message = f"run.exit_at={run.exit_at} lies after the last of run.steps={run.steps}"
        yield _problem("exit-after-end", message, "run.exit_at", "run.steps")
    lowest = optim.decay_steps or run.steps
    if optim.decay != "constant" and optim.warmup_steps >= lowest:
        keys = ("optim.warmup_steps", "optim.decay_steps", "run.steps")
        message = f"optim.warmup_steps={optim.warmup_steps} leaves no step to decay before step {lowest}"
        yield _problem("warmup-over-decay", message, *keys)
    if run.eval_every and not config.data.eval_documents:
        message = f"run.eval_every={run.eval_every} has nothing to read: data.eval_documents=0"
        yield _problem("eval-without-data", message, "run.eval_every", "data.eval_documents")


_RELATIONS = (_attention, _widths, _experts, _sequence, _batch, _stages, _schedule)
