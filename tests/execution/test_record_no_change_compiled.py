"""torch.compile compiles the same graphs whether the functions in them are recorded or not."""

from __future__ import annotations

import json
import subprocess

import pytest
from same_runs import run

from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle
from fastci_ml.records.evidence_kinds import CaptureKind

pytest.importorskip("torch", reason="torch is not installed")

MODELS = """
import contextlib
import functools

import torch
from torch import nn


def scaled(x, by=2.0):
    return x * by


@functools.lru_cache(maxsize=None)
def cached(n):
    return n + 1


@functools.cache
def cached_bias(n):
    return float(n) / 2


def made(factor):
    def inner(x):
        return scaled(x, factor)

    return inner


def pieces(x, n):
    for i in range(n):
        yield x + i


@contextlib.contextmanager
def nothing():
    yield 3


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.seen = 0

    def forward(self, x):
        return scaled(torch.relu(self.linear(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


class Hooked(Layer):
    def __init__(self):
        super().__init__()
        self.register_forward_hook(lambda module, given, out: scaled(out, 0.5))
        self.register_forward_pre_hook(lambda module, given: (scaled(given[0], 3.0),))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return scaled(grad * x)


class Config:
    def __init__(self):
        self.width = 4

    @property
    def doubled(self):
        return self.width * 2

    @functools.cached_property
    def halved(self):
        return self.width / 2


CONFIG = Config()
assert CONFIG.halved == 2


def use_cached(x):
    return x * cached(3) + cached_bias(4)


def use_closure(x):
    return made(3.0)(x) + functools.reduce(lambda a, b: a + b, [x, x])


def use_generator(x):
    total = torch.zeros_like(x)
    for piece in pieces(x, 3):
        total = total + piece
    return total + sum(pieces(x, 2))


def use_context(x):
    with torch.no_grad(), nothing():
        return scaled(x)


def use_config(x):
    return x * CONFIG.doubled + CONFIG.halved


def use_function(x):
    return Square.apply(x).sum()


def use_branches(x):
    return x * 2 if x.shape[0] > 2 else x * 3


def breaks(x):
    print("a graph break of its own")
    return scaled(x) + 1


CASES = {
    "net": (Net(), True),
    "hooks": (Hooked(), True),
    "cache": (use_cached, False),
    "closure": (use_closure, False),
    "generator": (use_generator, False),
    "context": (use_context, False),
    "config": (use_config, False),
    "function": (use_function, True),
    "branches": (use_branches, False),
    "break": (breaks, False),
}
"""
TESTS = """
import json
import pathlib
import pytest
import torch
from torch._dynamo.utils import counters

import models

FOUND = {}


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, "eager") for name in models.CASES] + [(name, "aot_eager") for name in ("net", "hooks")],
)
def test_compiles(name, backend):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, has_backward = models.CASES[name]
    compiled = torch.compile(model, backend=backend)
    for n in (3, 3, 5):
        x = torch.randn(n, 4, requires_grad=True)
        out = compiled(x)
        torch.testing.assert_close(out, model(x))
        if has_backward:
            out.sum().backward()
            assert x.grad is not None
    FOUND[f"{name} {backend}"] = {
        "graph_breaks": dict(counters["graph_break"]),
        "unimplemented": dict(counters["unimplemented"]),
        "frames": dict(counters["frames"]),
        "stats": {key: counters["stats"][key] for key in ("unique_graphs", "calls_captured")},
    }


@pytest.mark.parametrize("name", [name for name in models.CASES if name != "break"])
def test_is_one_graph(name):
    torch._dynamo.reset()
    model, _ = models.CASES[name]
    torch.compile(model, backend="eager", fullgraph=True)(torch.randn(3, 4))


def test_explained():
    torch._dynamo.reset()
    FOUND["explained"] = {
        name: [done.graph_count, done.graph_break_count]
        for name in ("net", "cache", "closure")
        for done in [torch._dynamo.explain(models.CASES[name][0])(torch.randn(3, 4))]
    }


def test_writes():
    pathlib.Path("counted.json").write_text(json.dumps(FOUND, default=str))
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What torch counted, plain and recorded, and the repository."""
    root = tmp_path_factory.mktemp("compiled") / "repo"
    root.mkdir()
    (root / "models.py").write_text(MODELS)
    (root / "test_models.py").write_text(TESTS)
    (root / "fastci.toml").write_text("")
    author = ["-c", "user.email=a@example.com", "-c", "user.name=a"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "models"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    found = []
    for is_recorded in (False, True):
        done = run(root, ("-q",), is_recorded=is_recorded, OMP_NUM_THREADS="1")
        assert done.status == 0, done.output
        found.append((done, json.loads((root / "counted.json").read_text())))
        (root / "counted.json").unlink()
    return root, found


def test_no_graph_break_is_added(both):
    _, ((_, plain), (_, recorded)) = both
    assert recorded == plain


def test_graphs_were_counted(both):
    # The comparison is of something: the break that is meant is there, and nothing else breaks.
    _, ((_, plain), _) = both
    broken = {name for name, found in plain.items() if found.get("graph_breaks")}
    assert broken == {"break eager"}
    assert {name for name, found in plain.items() if not found.get("stats", {}).get("calls_captured")} == {
        "explained"
    }


def test_outcomes_are_the_same(both):
    _, ((plain, _), (recorded, _)) = both
    # Torch's own log of its tracing, which pytest captures, names each file once: ours are none of it.
    assert {name: word for name, (word, _) in recorded.tests.items()} == {
        name: word for name, (word, _) in plain.tests.items()
    }
    assert recorded.output == plain.output


def test_compilations_were_recorded(both):
    root, _ = both
    (bundle,) = [read_bundle(path) for path in find_bundles([root / ".fastci" / "bundles"])]
    tests = [capture for capture in bundle.captures.values() if capture.kind is CaptureKind.TEST]
    assert bundle.gaps == []
    assert len(tests) == 23
    assert [capture.gaps for capture in tests] == [()] * 23
