"""Which configurations can run. `validate` names every violated constraint, for people and for solvers."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from minitrain.config import Config, flatten, setting_types
from minitrain.errors import ConfigError

# The settings that must be at least this much: every number.
_AT_LEAST = {
    8: "model.vocabulary",
    4: "data.mean_length",
    2: "data.sequence",
    1: "model.layers model.hidden model.ffn model.heads model.kv_heads model.rope_base model.top_k "
    "model.moe_every parallel.dp parallel.tp parallel.cp parallel.pp parallel.vpp parallel.ep "
    "parallel.bucket_kib data.documents data.topics data.batch data.micro_batch precision.loss_scale "
    "precision.growth_interval run.steps run.eval_batches",
    0: "model.dropout model.experts model.capacity_factor model.balance_coefficient "
    "parallel.recompute_layers data.eval_documents data.seed optim.lr optim.beta1 optim.beta2 optim.eps "
    "optim.weight_decay optim.clip optim.warmup_steps optim.decay_steps optim.min_lr_ratio "
    "checkpoint.every checkpoint.keep run.exit_at run.seed run.eval_every",
}

_BELOW_ONE = ("model.dropout", "optim.beta1", "optim.beta2")


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


def _require(holds: bool, rule: str, message: str, *keys: str) -> Iterator[Problem]:
    """Give one problem, unless its constraint holds."""
    if not holds:
        yield Problem(rule=rule, keys=keys, message=message)


def _require_divides(config: Config, rule: str, whole: str, *parts: str, times: int = 1) -> Iterator[Problem]:
    """Require that the product of `parts`, `times` over, divides `whole`."""
    flat = flatten(config)
    divisor = times * math.prod(flat[part] for part in parts)
    factors = [str(times)] if times > 1 else []
    product = " x ".join(factors + [f"{part}={flat[part]}" for part in parts])
    message = f"{whole}={flat[whole]} is no multiple of {product}"
    yield from _require(flat[whole] % divisor == 0, rule, message, whole, *parts)


def _ranges(config: Config) -> Iterator[Problem]:
    flat = flatten(config)
    for least, keys in _AT_LEAST.items():
        for key in keys.split():
            message = f"{key}={flat[key]}, expected at least {least}"
            yield from _require(flat[key] >= least, "range", message, key)
    for key in _BELOW_ONE:
        yield from _require(flat[key] < 1, "range", f"{key}={flat[key]}, expected less than 1", key)
    for key, kind in setting_types().items():
        if typing.get_origin(kind) is Literal:
            choices = typing.get_args(kind)
            message = f"{key}={flat[key]}, expected one of {', '.join(choices)}"
            yield from _require(flat[key] in choices, "choice", message, key)


def _attention(config: Config) -> Iterator[Problem]:
    # Twice the heads: rotary embedding turns pairs of channels.
    yield from _require_divides(config, "hidden-over-heads", "model.hidden", "model.heads", times=2)
    yield from _require_divides(config, "heads-over-kv-heads", "model.heads", "model.kv_heads")
    yield from _require_divides(config, "heads-over-tp", "model.heads", "parallel.tp")
    kv_heads, tp = config.model.kv_heads, config.parallel.tp
    message = f"model.kv_heads={kv_heads} and parallel.tp={tp}: one must divide the other"
    is_even = kv_heads % tp == 0 or tp % kv_heads == 0
    yield from _require(is_even, "kv-heads-over-tp", message, "model.kv_heads", "parallel.tp")


def _widths(config: Config) -> Iterator[Problem]:
    yield from _require_divides(config, "ffn-over-tp", "model.ffn", "parallel.tp")
    vocabulary, tp = config.model.vocabulary, config.parallel.tp
    message = f"model.vocabulary={vocabulary} is less than parallel.tp={tp}"
    yield from _require(vocabulary >= tp, "vocabulary-over-tp", message, "model.vocabulary", "parallel.tp")
    is_useful = tp > 1 or not config.parallel.sequence_parallel
    keys = ("parallel.sequence_parallel", "parallel.tp")
    message = "parallel.sequence_parallel=true needs parallel.tp > 1"
    yield from _require(is_useful, "sequence-parallel-without-tp", message, *keys)


def _experts(config: Config) -> Iterator[Problem]:
    model, parallel = config.model, config.parallel
    if model.experts == 0:
        message = f"parallel.ep={parallel.ep} needs model.experts > 0"
        yield from _require(parallel.ep == 1, "ep-without-experts", message, "parallel.ep", "model.experts")
        return
    yield from _require_divides(config, "experts-over-ep", "model.experts", "parallel.ep")
    is_even = (parallel.dp * parallel.cp) % parallel.ep == 0
    message = f"parallel.ep={parallel.ep} does not divide dp={parallel.dp} x cp={parallel.cp}"
    yield from _require(is_even, "ep-over-data", message, "parallel.ep", "parallel.dp", "parallel.cp")
    are_enough = model.top_k <= model.experts
    message = f"model.top_k={model.top_k} is more than model.experts={model.experts}"
    yield from _require(are_enough, "top-k-over-experts", message, "model.top_k", "model.experts")
    has_any = model.moe_every <= model.layers
    message = f"model.moe_every={model.moe_every} is more than model.layers={model.layers}: no expert at all"
    yield from _require(has_any, "moe-every-over-layers", message, "model.moe_every", "model.layers")


def _rows(config: Config) -> Iterator[Problem]:
    # Two pieces a context rank: an early one and a late one, so that causal work is shared evenly.
    if config.parallel.cp > 1:
        yield from _require_divides(config, "sequence-over-cp", "data.sequence", "parallel.cp", times=2)
    if config.parallel.sequence_parallel:
        parts = ("parallel.cp", "parallel.tp")
        yield from _require_divides(config, "sequence-over-cp-tp", "data.sequence", *parts)
    parts = ("data.micro_batch", "parallel.dp")
    yield from _require_divides(config, "batch-over-micro-batches", "data.batch", *parts)


def _stages(config: Config) -> Iterator[Problem]:
    yield from _require_divides(config, "layers-over-stages", "model.layers", "parallel.pp", "parallel.vpp")
    pp, vpp = config.parallel.pp, config.parallel.vpp
    if vpp == 1:
        return
    message = f"parallel.vpp={vpp} needs parallel.pp > 1"
    yield from _require(pp > 1, "vpp-without-pp", message, "parallel.vpp", "parallel.pp")
    keys = ("data.batch", "data.micro_batch", "parallel.dp", "parallel.pp")
    message = f"{config.n_microbatches} micro-batches are no multiple of parallel.pp={pp}, as vpp > 1 asks"
    yield from _require(config.n_microbatches % pp == 0, "micro-batches-over-pp", message, *keys)


def _schedule(config: Config) -> Iterator[Problem]:
    run, optim = config.run, config.optim
    message = f"run.exit_at={run.exit_at} lies after the last of run.steps={run.steps}"
    yield from _require(run.exit_at <= run.steps, "exit-after-end", message, "run.exit_at", "run.steps")
    lowest = optim.decay_steps or run.steps
    can_decay = optim.decay == "constant" or optim.warmup_steps < lowest
    keys = ("optim.warmup_steps", "optim.decay_steps", "run.steps")
    message = f"optim.warmup_steps={optim.warmup_steps} leaves no step to decay before step {lowest}"
    yield from _require(can_decay, "warmup-over-decay", message, *keys)
    has_data = not run.eval_every or config.data.eval_documents > 0
    message = f"run.eval_every={run.eval_every} has nothing to read: data.eval_documents=0"
    yield from _require(has_data, "eval-without-data", message, "run.eval_every", "data.eval_documents")


_RELATIONS = (_attention, _widths, _experts, _rows, _stages, _schedule)
