"""What the watch of caches books, and that a cache stays what it is, on each interpreter at hand."""

from __future__ import annotations

import pytest
from interpreters import VERSIONS, python_or_skip
from watched_programs import watch_program

from fastci_ml.evidence.bundle.source_pack import SourcePack, pack_of
from fastci_ml.evidence.merge.bundle_evidence import build_records
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

PROGRAM = '''
import functools, gc, inspect, os, pickle, sys, threading, traceback, warnings
from functools import cache, lru_cache
from pathlib import Path

HERE = Path(__file__).parent


def deep(x):
    return x


def other(x):
    return x


@functools.lru_cache
def bare(x):
    """Words."""
    return deep(x)


@lru_cache(maxsize=None)
def endless(x: int, y: str = "y") -> int:
    return deep(x)


@lru_cache(2, True)
def small(x):
    return deep(x)


@lru_cache(maxsize=0)
def none(x):
    return deep(x)


@cache
def simple(x):
    return bare(x) + other(x)


@cache
def fibonacci(n):
    return deep(n) if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@cache
def counts(n):
    return counts(n - 1) + 1 if n else 0


@cache
def fails(x):
    deep(x)
    raise KeyError(x)


@cache
def reads(name):
    return (HERE / name).read_text()


@cache
def warns():
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    deep(1)


class Holder:
    @lru_cache(maxsize=8)
    def method(self, x):
        return deep(x)

    @staticmethod
    @cache
    def fixed(x):
        return deep(x)

    @classmethod
    @cache
    def of_class(cls, x):
        return deep(x)

    @property
    @cache
    def value(self):
        return deep(1)


HOLDER = Holder()
SIZES = lru_cache(os.path.getsize)
TEXTS = lru_cache(None)(Path.read_text)
PART = cache(functools.partial(deep, 3))
MADE = cache(Holder)


def own():
    @cache
    def inner(x):
        return deep(x)

    return inner


OWN = own()
DYING = [own()]
THREAD_FILLED = own()
MANY = own()
CLEARED = own()
REFILLED = own()


def check_fill():
    assert [bare(1), endless(1), small(1), none(1), simple(1)] == [1, 1, 1, 1, 2]
    assert [HOLDER.method(1), HOLDER.fixed(1), HOLDER.of_class(1), HOLDER.value] == [1] * 4
    assert fibonacci(20) == 6765
    assert reads("data.txt") == "data"
    assert PART() == 3
    assert OWN(1) == DYING[0](1) == 1
    assert isinstance(MADE(), Holder)
    assert TEXTS(HERE / "text.txt") == "text"
    assert SIZES(HERE / "text.txt") == 4


def check_bare():
    assert bare(1) == 1


def check_endless():
    assert endless(1) == 1


def check_small():
    assert small(1) == 1


def check_none():
    assert none(1) == 1


def check_simple_stands_on_bare():
    assert simple(1) == 2


def check_methods():
    assert HOLDER.method(1) == 1


def check_fixed():
    assert HOLDER.fixed(1) == 1


def check_of_class():
    assert HOLDER.of_class(1) == 1


def check_value():
    assert HOLDER.value == 1


def check_fibonacci():
    assert fibonacci(20) == 6765


def check_reads():
    assert reads("data.txt") == "data"


def check_partial():
    assert PART() == 3


def check_class():
    assert MADE()


def check_texts():
    assert TEXTS(HERE / "text.txt") == "text"


def check_own():
    assert OWN(1) == 1


def check_no_cache():
    pass


def check_dies():
    made = DYING.pop()
    assert made(1) == 1
    del made


def check_fails():
    for _ in range(2):
        try:
            fails(1)
        except KeyError as error:
            frames = traceback.extract_tb(error.__traceback__)
            frames = [frame.name for frame in frames if "<frozen" not in frame.filename]
            assert frames == ["check_fails", "fails"]
    assert fails.cache_info().currsize == 0


def check_fills_in_a_thread():
    thread = threading.Thread(target=THREAD_FILLED, args=(5,))
    thread.start()
    thread.join()


def check_thread_filled_it():
    assert THREAD_FILLED(5) == 5


def check_hits_in_a_thread():
    thread = threading.Thread(target=bare, args=(1,))
    thread.start()
    thread.join()


def check_fills_many():
    other(1)
    for number in range(100):
        MANY(number)


def check_many_served():
    assert MANY(99) == 99


def check_clears():
    CLEARED(1)
    CLEARED.cache_clear()
    CLEARED(1)


def check_cleared_served():
    assert CLEARED(1) == 1


def check_refills():
    REFILLED(1)
    REFILLED(1)


def check_refilled_to_the_same_counts():
    assert REFILLED(1) == 1
    REFILLED.cache_clear()
    REFILLED(1)
    REFILLED(1)
    # What was known of it before, to the number.
    assert REFILLED.cache_info()[:2] == (1, 1)


def check_deep_recursion():
    # As far as without us: the limit counts frames, and ours are between them.
    plain = functools._lru_cache_wrapper
    def depth(make):
        low, high = 1, 1200
        while low < high:
            middle = (low + high + 1) // 2
            called = []
            called.append(make(lambda n: 0 if n <= 0 else 1 + called[0](n - 1)))
            try:
                called[0](middle)
                low = middle
            except RecursionError:
                high = middle - 1
        return low
    limit = sys.getrecursionlimit()
    with_us = depth(cache)
    assert sys.getrecursionlimit() == limit
    without = depth(lambda function: plain(function, None, False, functools._CacheInfo))
    assert abs(with_us - without) <= 24, (with_us, without)


def check_user_sets_the_limit():
    limit = sys.getrecursionlimit()
    @cache
    def sets(n):
        if n == 0:
            sys.setrecursionlimit(limit + 500)
            return 0
        return sets(n - 1)
    sets(40)
    assert sys.getrecursionlimit() == limit + 500
    sys.setrecursionlimit(limit)


def check_warning_names_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warns()
    assert [os.path.basename(one.filename) for one in caught] == ["program.py"]
    assert caught[0].lineno == check_warning_names_the_caller.__code__.co_firstlineno + 3


def check_looks_the_same():
    assert type(bare) is functools._lru_cache_wrapper
    assert bare.__wrapped__.__code__.co_name == "bare" and bare.__wrapped__.__module__ == "program"
    assert (bare.__name__, bare.__qualname__) == ("bare", "bare")
    assert (bare.__doc__, bare.__module__) == ("Words.", "program")
    assert str(inspect.signature(endless)) == "(x: int, y: str = 'y') -> int"
    assert inspect.unwrap(bare) is bare.__wrapped__
    assert inspect.getsource(bare).startswith("@functools.lru_cache")
    assert bare.cache_parameters() == {"maxsize": 128, "typed": False}
    assert small.cache_parameters() == {"maxsize": 2, "typed": True}
    assert simple.cache_parameters() == {"maxsize": None, "typed": False}
    assert pickle.loads(pickle.dumps(bare)) is bare
    assert set(vars(bare)) == {"cache_parameters", "__module__", "__name__", "__qualname__", "__doc__",
                               "__wrapped__"} | set(vars(bare)) & {"__type_params__", "__annotations__"}
    assert Holder.method.__qualname__ == "Holder.method"
    assert not hasattr(PART, "__name__") and PART.__wrapped__.func is deep
    assert PART.__doc__ == functools.partial.__doc__
    for wrong in (lambda: lru_cache("x"), lambda: lru_cache(1)(2), lambda: cache(None)):
        try:
            wrong()
        except TypeError:
            continue
        raise AssertionError(wrong)
    assert functools.lru_cache.__name__ == "lru_cache" and not hasattr(functools.lru_cache, "__wrapped__")
    assert pickle.loads(pickle.dumps(functools.lru_cache)) is functools.lru_cache
    assert str(inspect.signature(functools.lru_cache)) == "(maxsize=128, typed=False)"


def check_typed():
    @lru_cache(typed=True)
    def typed(x):
        return type(x)
    assert typed(1) is int and typed(1.0) is float
    @lru_cache(typed=False)
    def untyped(x, y):
        return type(x)
    assert untyped(1, 2) is int and untyped(1.0, 2) is int


def check_unhashable():
    try:
        bare([])
    except TypeError:
        pass
    else:
        raise AssertionError


def check_no_cycle_of_ours():
    import weakref
    gc.disable()
    try:
        made = own()
        made(1)
        dead = weakref.ref(made)
        del made
        assert dead() is None
    finally:
        gc.enable()


def check_library_cache():
    import re
    from json import decoder
    @cache
    def foreign(x):
        return x
    made = cache(len)
    assert made("ab") == 2


FOUND = functools.lru_cache


def after_recording():
    assert functools.lru_cache is not FOUND
    assert functools.lru_cache.__code__.co_filename.endswith("functools.py")
    assert bare(7) == 7 and bare.cache_info().misses >= 2
    @FOUND
    def late(x):
        return x
    assert late(1) == 1
'''

# Test -> functions that it stands on, and one that it does not.
SERVED = {
    "check_bare": ({"bare", "deep"}, "other"),
    "check_endless": ({"endless", "deep"}, "other"),
    "check_small": ({"small", "deep"}, "other"),
    "check_none": ({"none", "deep"}, "other"),
    "check_simple_stands_on_bare": ({"simple", "other", "bare", "deep"}, "small"),
    "check_methods": ({"Holder.method", "deep"}, "other"),
    "check_fixed": ({"Holder.fixed", "deep"}, "other"),
    "check_of_class": ({"Holder.of_class", "deep"}, "other"),
    "check_value": ({"Holder.value", "deep"}, "other"),
    "check_fibonacci": ({"fibonacci", "deep"}, "other"),
    "check_partial": ({"deep"}, "other"),
    "check_class": ({"check_class"}, "other"),
    "check_own": ({"own.<locals>.inner", "deep"}, "other"),
    "check_no_cache": ({"check_no_cache"}, "deep"),
    "check_dies": ({"own.<locals>.inner", "deep"}, "other"),
    "check_thread_filled_it": ({"own.<locals>.inner", "deep"}, "bare"),
    "check_hits_in_a_thread": ({"bare", "deep"}, "other"),
    "check_many_served": ({"own.<locals>.inner", "deep", "check_fills_many", "other"}, "bare"),
    "check_cleared_served": ({"own.<locals>.inner", "deep"}, "bare"),
    "check_refilled_to_the_same_counts": ({"own.<locals>.inner", "deep"}, "bare"),
}


@pytest.fixture(scope="module", params=VERSIONS)
def watched(request, tmp_path_factory):
    python = python_or_skip(request.param)
    root = tmp_path_factory.mktemp("caches") / "repo"
    root.mkdir()
    (root / "data.txt").write_text("data")
    (root / "text.txt").write_text("text")
    return watch_program(root, PROGRAM, python=python)


@pytest.mark.parametrize("name", SERVED)
def test_who_is_served_stands_on_what_filled_the_cache(watched, name):
    has, lacks = SERVED[name]
    codes = watched.codes(name)
    assert has <= codes
    assert lacks not in codes


def test_files_read_for_a_cache_are_those_of_whom_it_serves(watched):
    def reads(name):
        files = watched.bundle.files
        numbers = {number for one in watched.all_captures(name) for number in one.reads}
        return {files[number].path for number in numbers}

    assert reads("check_reads") == {"data.txt"}
    assert reads("check_texts") == {"text.txt"}
    assert reads("check_bare") == set()


def test_a_hit_is_no_capture_and_a_cache_has_one_number(watched):
    labels = [one.label for one in watched.bundle.captures.values() if one.kind is CaptureKind.CACHE]
    assert labels.count("program.py::bare") == 1
    assert labels.count("program.py::Holder.method") == 1
    assert labels.count("program.py::own.<locals>.inner") == 7


def test_nothing_failed_while_caches_were_watched(watched):
    # At the limit of recursion there is no room for us, which is said.
    labels = {
        one.label
        for one in watched.bundle.captures.values()
        if one.gaps and "check_deep_recursion" not in one.label
    }
    assert labels == set()


def test_records_of_merge_hold_the_tests_that_filled_a_cache_without_captures(watched):
    sources = SourcePack(pack_of(watched.bundle.path))
    records = build_records(watched.bundle, lambda _path, blob: sources.get(blob)).records()
    units = {record.node_id: {unit.name for unit in record.units} for record in records}
    for name in ("check_many_served", "check_thread_filled_it"):
        assert {"own.<locals>.inner", "deep"} <= units[name], name
    assert "other" in units["check_many_served"]
    assert "deep" not in units["check_no_cache"]


def test_cache_that_was_filled_before_is_a_gap_and_an_empty_one_stands_on_whole_tests(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    (root / "early.py").write_text(
        "import functools\n"
        "def deep(x):\n    return x\n"
        "@functools.cache\ndef filled(x):\n    return deep(x)\n"
        "@functools.cache\ndef empty(x):\n    return deep(x)\n"
        "filled(1)\n"
    )
    program = """
import early


def check_fills():
    early.empty(1)


def check_served():
    early.empty(1)


def check_served_from_before():
    early.filled(1)


def check_nothing():
    pass
"""
    watched = watch_program(root, program, before="import early")
    assert watched.gaps("check_served") == set()
    assert {"deep", "check_fills"} <= watched.codes("check_served")
    assert watched.gaps("check_served_from_before") == {Gap.CACHE_UNSEEN}
    assert watched.gaps("check_nothing") == set()
    assert "deep" not in watched.codes("check_nothing")
