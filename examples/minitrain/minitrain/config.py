"""What a run is: frozen dataclasses, changed by assignments such as ``parallel.tp=2``.

Nothing here, in `validate` or in `recipes` imports torch, so that a solver can try thousands of them.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import operator
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from minitrain.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The network, whatever ranks it is laid out over."""

    vocabulary: int = 96
    layers: int = 4
    hidden: int = 64
    ffn: int = 160  # inner width of a dense block, and of each expert
    heads: int = 4
    kv_heads: int = 2  # fewer than heads: grouped-query attention
    rope_base: float = 10_000.0
    tied_embeddings: bool = False  # one matrix embeds tokens and predicts them
    dropout: float = 0.0  # of what each block adds to the residual stream
    experts: int = 0  # 0: every block is dense
    top_k: int = 2  # experts for each token
    moe_every: int = 1  # every n-th block has experts, the others are dense
    capacity_factor: float = 0.0  # 0: no token is dropped
    balance_coefficient: float = 0.01

    def has_experts(self, layer: int) -> bool:
        """Whether the block of this number, counted from 0, is a mixture of experts."""
        return self.experts > 0 and (layer + 1) % self.moe_every == 0

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """How the run is laid out over ranks, and what each rank keeps."""

    dp: int = 1  # data
    tp: int = 1  # tensor
    cp: int = 1  # context: the sequence is split
    pp: int = 1  # pipeline stages
    vpp: int = 1  # virtual stages on each rank
    ep: int = 1  # expert: divides dp x cp
    sequence_parallel: bool = False  # between blocks, tensor ranks hold a part of the sequence each
    zero: bool = False  # ZeRO-1: optimizer state is split over dp x cp
    bucket_kib: int = 64  # gradients are reduced in pieces of about this size
    recompute_layers: int = 0  # blocks in a recomputed chunk; 0 keeps all activations

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.cp * self.pp

    @property
    def n_stages(self) -> int:
        """Number of model pieces that a micro-batch passes."""
        return self.pp * self.vpp


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """The generated corpus, and how rows are made of its documents."""

    dir: Path = Path("runs/data")
    documents: int = 400
    eval_documents: int = 120
    mean_length: int = 48  # tokens in a document
    topics: int = 4  # languages in the corpus, each with its own grammar
    sequence: int = 64  # tokens in a row
    batch: int = 8  # rows in a step, over all ranks and micro-batches
    micro_batch: int = 4  # rows in a forward pass of one data rank
    packing: bool = True  # rows are cut from joined documents; else a document a row
    shuffle: bool = True
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimConfig:
    """The optimizer and its learning rate."""

    name: Literal["adamw", "lion"] = "adamw"
    lr: float = 3e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1  # of matrices; vectors are never decayed
    clip: float = 1.0  # largest global gradient norm; 0: no limit
    warmup_steps: int = 2
    decay: Literal["constant", "linear", "cosine"] = "cosine"
    decay_steps: int = 0  # step at which the rate is lowest; 0: the last one
    min_lr_ratio: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionConfig:
    """Number formats. Parameters, gradients and optimizer state are fp64 for ``fp64``, else fp32."""

    dtype: Literal["fp64", "fp32", "bf16", "fp16"] = "fp32"
    loss_scale: float = 2.0**16  # first one; fp16 only
    growth_interval: int = 100  # good steps before the scale doubles


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """When to save, what to keep, and whether to go on from what was saved."""

    every: int = 0  # steps, and after the last one; 0: never
    keep: int = 0  # newest ones; 0: all
    resume: bool = False  # from the newest one, if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Length, places and seed of a run."""

    dir: Path = Path("runs/run")
    steps: int = 20
    exit_at: int = 0  # stop after this step and leave every schedule as it is; 0: at the end
    seed: int = 0
    eval_every: int = 1000  # steps, and after the last one; 0: never
    eval_batches: int = 10  # each of data.batch rows; the last may be smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that decides a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def n_microbatches(self) -> int:
        """Forward passes of one data rank in a step."""
        return self.data.batch // (self.data.micro_batch * self.parallel.dp)

    @property
    def last_step(self) -> int:
        """Number of the step after which the run ends."""
        return min(self.run.exit_at or self.run.steps, self.run.steps)


def flatten(config: Config) -> dict[str, Any]:
    """Return every setting by its dotted key, in the order of definition; paths become strings.

    >>> flatten(Config())["model.heads"]
    4
    """
    values = {key: operator.attrgetter(key)(config) for key in setting_types()}
    return {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


@functools.cache
def setting_types() -> dict[str, Any]:
    """Return the type of every setting by its dotted key: int, float, bool, Path or a Literal."""
    types: dict[str, Any] = {}
    for section, group in typing.get_type_hints(Config).items():
        for name, kind in typing.get_type_hints(group).items():
            types[f"{section}.{name}"] = kind
    return types


def assign(config: Config, assignments: Iterable[str]) -> Config:
    """Return `config` with ``key=value`` assignments applied from left to right.

    >>> assign(Config(), ["parallel.tp=2", "optim.lr=1e-2"]).parallel.tp
    2

    Raises
    ------
    ConfigError
        If a key is unknown or a value is not of its type.
    """
    types = setting_types()
    for assignment in assignments:
        key, found, text = assignment.partition("=")
        if not found:
            raise ConfigError(f"{assignment!r} is no assignment, expected KEY=VALUE such as parallel.tp=2")
        if key not in types:
            near = difflib.get_close_matches(key, types, n=3)
            sections = ", ".join(section.name for section in dataclasses.fields(Config))
            hint = f"did you mean {' or '.join(near)}?" if near else f"sections are {sections}"
            raise ConfigError(f"{key!r} is no setting: {hint}")
        section, name = key.split(".")
        group = dataclasses.replace(getattr(config, section), **{name: _read(key, text, types[key])})
        config = dataclasses.replace(config, **{section: group})
    return config


def _read(key: str, text: str, kind: Any) -> Any:
    """Read the value of one assignment as its type asks."""
    if kind is Path:
        return Path(text)
    if kind is bool:
        if text not in ("true", "false"):
            raise ConfigError(f"{key}={text!r}: expected true or false")
        return text == "true"
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise ConfigError(f"{key}={text!r}: expected one of {', '.join(choices)}")
        return text
    try:
        value = kind(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r}: expected {kind.__name__}") from None
    if not math.isfinite(value):
        raise ConfigError(f"{key}={text!r}: expected a finite number")
    return value
