"""What the watch of compilations books: by this interpreter, where torch is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from watched_programs import watch_program

from fastci_ml.records.evidence_kinds import CaptureKind, Gap

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """
import functools
import torch


def deepest(x):
    return x * 3


def inlined(x):
    return deepest(x) * 2


def raises(x):
    raise KeyError(x)


def handled(x):
    try:
        return raises(x)
    except KeyError:
        return x + 1


def after(x):
    return x - 1


def root(x):
    return inlined(x) + 1


def breaks(x):
    y = inlined(x) + 1
    open(__file__).close()
    return after(y)


def unused(x):
    return x


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return doubled(x)

    @staticmethod
    def backward(ctx, grad):
        return backwards(grad)


def doubled(x):
    return x * 2


def backwards(grad):
    return grad * 2


def differentiable(x):
    return Double.apply(x).sum()


class Block(torch.nn.Module):
    def forward(self, x):
        return self.part(x)

    def part(self, x):
        return inlined(x)


def numbers(x):
    yield x
    yield deepest(x)


def uses_generator(x):
    return sum(numbers(x))


@functools.lru_cache
def cached(n):
    return after(n)


def uses_cache(x):
    return x * cached(3)


def constant():
    return unused(4)


def folded(x):
    return x * torch.compiler.assume_constant_result(constant)()


def backend(graph, inputs):
    after(1)
    return graph.forward


def inner(x):
    return deepest(x)


INNER = torch.compile(inner, backend="eager")


def outer(x):
    return INNER(x) + 1


def many(x, n):
    return inlined(x) if n < 2 else after(x)


def by_name(x):
    import importlib
    return importlib.import_module("math").pi * deepest(x)
"""

PROGRAM = """
import json
import sys
import threading
import warnings
import torch
import library
from library import *

warnings.simplefilter("ignore")
X = torch.ones(2)
EAGER = torch.compile(root, backend="eager")
AOT = torch.compile(root, backend="aot_eager")
FULL = torch.compile(root, backend="eager", fullgraph=True)
BREAKS = torch.compile(breaks, backend="eager")
HANDLED = torch.compile(handled, backend="eager")
BACKWARD = torch.compile(differentiable, backend="aot_eager")
MODULE = torch.compile(Block(), backend="eager")
FOREIGN = torch.compile(torch.nn.Sequential(Block()), backend="eager")
GENERATOR = torch.compile(uses_generator, backend="eager")
CACHED = torch.compile(uses_cache, backend="eager")
FOLDED = torch.compile(folded, backend="eager")
OWN_BACKEND = torch.compile(root, backend=library.backend)
OUTER = torch.compile(outer, backend="eager")
MANY = torch.compile(many, backend="eager", dynamic=False)
NAMED = torch.compile(by_name, backend="eager")
THREADED = torch.compile(uses_generator, backend="aot_eager")


def check_eager():
    EAGER(X)


def check_eager_again():
    EAGER(X)


def check_aot():
    AOT(X)


def check_aot_again():
    AOT(X)


def check_full():
    FULL(X)


def check_full_again():
    FULL(X)


def check_breaks():
    BREAKS(X)


def check_breaks_again():
    BREAKS(X)


def check_handled():
    HANDLED(X)


def check_handled_again():
    HANDLED(X)


def check_backward():
    BACKWARD(torch.ones(2, requires_grad=True)).backward()


def check_backward_again():
    BACKWARD(torch.ones(2, requires_grad=True)).backward()


def check_module():
    MODULE(X)


def check_module_again():
    MODULE(X)


def check_foreign():
    FOREIGN(X)


def check_foreign_again():
    FOREIGN(X)


def check_generator():
    GENERATOR(X)


def check_generator_again():
    GENERATOR(X)


def check_cached():
    CACHED(X)


def check_cached_again():
    CACHED(X)


def check_folded():
    FOLDED(X)


def check_folded_again():
    FOLDED(X)


def check_own_backend():
    OWN_BACKEND(X)


def check_own_backend_again():
    OWN_BACKEND(X)


def check_outer():
    OUTER(X)


def check_outer_again():
    OUTER(X)


def check_many():
    MANY(X, 1)


def check_many_recompiles():
    MANY(X, 2)


def check_many_again():
    MANY(X, 1)


def check_named():
    NAMED(X)


def check_named_again():
    NAMED(X)


def check_in_a_thread():
    thread = threading.Thread(target=THREADED, args=(X,))
    thread.start()
    thread.join()


def check_thread_compiled_it():
    THREADED(X)


def check_after_reset():
    torch._dynamo.reset()
    EAGER(X)


def check_after_reset_again():
    EAGER(X)


LOADER = []


def check_workers():
    data = [torch.ones(1), torch.ones(1)]
    LOADER.append(torch.utils.data.DataLoader(data, num_workers=1, persistent_workers=True))
    assert len(list(LOADER[0])) == 2


def check_beside_the_workers():
    library.unused(1)


def check_same_workers():
    assert len(list(LOADER[0])) == 2


def check_ends_workers():
    LOADER.clear()


def check_nothing():
    library.unused(1)


def after_recording():
    import torch._dynamo.convert_frame as frames
    assert frames._compile.__code__.co_filename == frames.__file__
    counters = torch._dynamo.utils.counters
    print("COUNTED", json.dumps({name: dict(values) for name, values in counters.items()}))
"""

# What a test runs, and what it does not, in `library.py`.
RUNS = {
    "eager": ({"root", "inlined", "deepest"}, "after"),
    "aot": ({"root", "inlined", "deepest"}, "after"),
    "full": ({"root", "inlined", "deepest"}, "after"),
    "breaks": ({"breaks", "inlined", "deepest", "after"}, "root"),
    "handled": ({"handled", "raises"}, "root"),
    "backward": ({"differentiable", "Double.forward", "Double.backward", "doubled", "backwards"}, "root"),
    "module": ({"Block.forward", "Block.part", "inlined", "deepest"}, "root"),
    "foreign": ({"Block.forward", "Block.part", "inlined", "deepest"}, "root"),
    "generator": ({"uses_generator", "numbers", "deepest"}, "root"),
    "cached": ({"uses_cache", "cached", "after"}, "root"),
    "folded": ({"folded", "constant", "unused"}, "root"),
    "own_backend": ({"root", "inlined", "deepest", "backend", "after"}, "unused"),
    "outer": ({"outer", "inner", "deepest"}, "root"),
    "many": ({"many", "inlined", "deepest"}, "root"),
    "named": ({"by_name", "deepest"}, "root"),
    "after_reset": ({"root", "inlined", "deepest"}, "unused"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("compiled") / "repo"
    root.mkdir()
    (root / "library.py").write_text(LIBRARY)
    return root


@pytest.fixture(scope="module")
def watched(root):
    return watch_program(root, PROGRAM)


@pytest.mark.parametrize("again", ["", "_again"])
@pytest.mark.parametrize("name", RUNS)
def test_what_was_inlined_is_in_every_run_of_the_compiled_code(watched, name, again):
    has, lacks = RUNS[name]
    codes = watched.codes(f"check_{name}{again}")
    assert has <= codes
    assert lacks not in codes


def test_compilation_in_another_thread_stands_on_the_test(watched):
    assert {"uses_generator", "numbers", "deepest"} <= watched.codes("check_in_a_thread")
    assert {"uses_generator", "numbers", "deepest"} <= watched.codes("check_thread_compiled_it")


def test_each_compilation_is_a_capture_of_its_own(watched):
    labels = [one.label for one in watched.bundle.captures.values() if one.kind is CaptureKind.CACHE]
    assert labels.count("torch.compile::many") == 2
    # Behind the second, what was compiled first is not what runs.
    assert "after" in watched.codes("check_many_recompiles")
    assert "after" not in watched.codes("check_many_again")


def test_rest_of_a_function_behind_a_graph_break_is_none_of_its_own(watched):
    assert not [code for code in watched.bundle.codes.values() if "torch_dynamo_resume" in code.name]


def test_nothing_failed_while_compilations_were_watched(watched):
    workers = ("check_workers", "check_beside_the_workers", "check_same_workers", "check_ends_workers")
    assert not [one for one in watched.bundle.captures.values() if one.gaps and one.label not in workers]
    assert "library.py" in watched.reads("check_breaks")
    assert watched.reads("check_eager") == set()


def test_workers_of_a_data_loader_are_children_as_long_as_they_live(watched):
    assert watched.gaps("check_workers") == {Gap.CHILD_WITHOUT_RECORD}
    assert watched.gaps("check_beside_the_workers") == {Gap.CHILD_WITHOUT_RECORD}
    assert watched.gaps("check_same_workers") == {Gap.CHILD_WITHOUT_RECORD}


def test_torch_compiles_what_it_would_have_compiled_without_us(watched, root):
    names = "names = [name for name in vars(program) if name.startswith('check_')]"
    code = f"import program; {names}; [vars(program)[name]() for name in names]; program.counted()"
    (root / "program.py").write_text(PROGRAM.replace("def after_recording", "def counted"))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert counters(done.stdout) == counters(watched.output)
    assert counters(done.stdout)["stats"]["unique_graphs"] > 10


def counters(output):
    (line,) = [line for line in output.splitlines() if line.startswith("COUNTED")]
    return json.loads(line.removeprefix("COUNTED"))


@pytest.mark.slow
def test_compiled_before_recording_is_a_gap(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    (root / "library.py").write_text(LIBRARY)
    program = """
import torch
import library

def check_runs_it():
    library.EARLY(torch.ones(2))


def check_compiles():
    torch.compile(library.root, backend="eager")(torch.ones(2))


def check_nothing():
    library.unused(1)
"""
    before = "import library, torch\nlibrary.EARLY = torch.compile(library.root, backend='eager')"
    watched = watch_program(root, program, before=f"{before}\nlibrary.EARLY(torch.ones(2))")
    assert watched.gaps("check_runs_it") == {Gap.COMPILED_UNSEEN}
    assert watched.gaps("check_nothing") == set()
    other = tmp_path / "other"
    other.mkdir()
    (other / "library.py").write_text(LIBRARY)
    watched = watch_program(other, program, before=before)
    assert watched.gaps("check_runs_it") == set()
    assert {"root", "inlined", "deepest"} <= watched.codes("check_runs_it")


@pytest.mark.slow
def test_torch_that_is_not_as_expected_is_a_gap(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    (root / "library.py").write_text(LIBRARY)
    program = """
import torch
import library

FIRST = torch.compile(library.root, backend="eager")

def check_compiles():
    FIRST(torch.ones(2))


def check_runs_it():
    FIRST(torch.ones(2))


def check_nothing():
    library.unused(1)
"""
    before = """
import torch._dynamo.convert_frame as frames
frames._compile = lambda *arguments, found=frames._compile, **keywords: found(*arguments, **keywords)
"""
    watched = watch_program(root, program, before=before)
    assert watched.gaps("check_compiles") == {Gap.COMPILED_UNSEEN}
    assert watched.gaps("check_runs_it") == {Gap.COMPILED_UNSEEN}
    assert watched.gaps("check_nothing") == set()
