"""What the interpreter tells of itself must be as without a recorder."""

import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref

import lib
import pytest


def depth():
    frame, n = sys._getframe(), 0
    while frame is not None:
        frame, n = frame.f_back, n + 1
    return n


@pytest.fixture
def stack():
    return depth()


def check_depth_of_stack(stack, request):
    # In the numbers that the plain run found: frames of a recorder would be nearer to the limit.
    print("depth", depth(), stack)


def check_names_on_stack():
    names = [frame.name for frame in traceback.extract_stack()]
    print(len(names), names[-12:])


def check_recursion_limit():
    print(sys.getrecursionlimit())
    free = sys.getrecursionlimit() - depth()
    assert lib.down(free - 60) == free - 60
    with pytest.raises(RecursionError):
        lib.down(free + 10)
    assert sys.getrecursionlimit() == 1000


def check_low_limit():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth() + 40)
    try:
        lib.down(30)
        with pytest.raises(RecursionError):
            lib.down(45)
    finally:
        sys.setrecursionlimit(limit)


def check_warning_is_told_of_its_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("x", stacklevel=2)
        import late_warning  # noqa: F401
    print([(str(w.message), w.category.__name__, w.filename.rpartition("/")[2], w.lineno) for w in caught])


def check_traceback_through_an_import():
    try:
        import late_failing  # noqa: F401
    except ZeroDivisionError as error:
        print([(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)])
    with pytest.raises(ModuleNotFoundError) as caught:
        import nothing_of_that_name  # noqa: F401
    print(len(traceback.extract_tb(caught.value.__traceback__)), caught.value.name)


def check_objects_die_at_once():
    class Thing:
        pass

    thing = Thing()
    seen = weakref.ref(thing)
    del thing
    assert seen() is None


def check_functions_die_at_once():
    def function():
        return 1

    function()
    seen = weakref.ref(function)
    del function
    assert seen() is None


def check_frames_die_at_once():
    class Thing:
        pass

    def holds():
        thing = Thing()
        return weakref.ref(thing)

    assert holds()() is None


def check_references_of_a_function():
    def function():
        return 1

    function()
    print(sys.getrefcount(function), len(gc.get_referrers(function)))


def check_collector_is_as_it_was():
    print(gc.isenabled(), gc.get_threshold(), gc.callbacks)


def check_garbage():
    gc.collect()
    assert gc.garbage == []
    a = []
    a.append(a)
    del a
    assert gc.collect() >= 1
    assert gc.collect() == 0


@pytest.mark.filterwarnings("error")
def check_files_left_open_are_told_of(tmp_path):
    gc.collect()
    with pytest.warns(ResourceWarning):
        (tmp_path / "x").open("w")
        gc.collect()


def check_no_thread_was_added():
    print(sorted(thread.name for thread in threading.enumerate()), threading.active_count())


def check_threads():
    found = []
    threads = [threading.Thread(target=lambda: found.append(lib.square(7))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [49] * 5
    print(threading.active_count())


def check_error_in_a_thread():
    seen = []
    hook, threading.excepthook = threading.excepthook, lambda given: seen.append(given.exc_type)
    try:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = hook
    assert seen == [ZeroDivisionError]


def check_cache_is_a_cache():
    assert type(lib.square) is functools._lru_cache_wrapper
    lib.square.cache_clear()
    assert [lib.square(3), lib.square(3)] == [9, 9]
    info = lib.square.cache_info()
    assert (info.hits, info.misses, info.currsize, info.maxsize) == (1, 1, 1, None)
    assert lib.square.cache_parameters() == {"maxsize": None, "typed": False}
    assert lib.square.__wrapped__(4) == 16
    print(lib.square.__name__, lib.square.__module__, inspect.signature(lib.square), sorted(vars(lib.square)))
    print(inspect.getsource(lib.square))


def check_cache_of_a_test_is_a_cache():
    calls = []

    @functools.lru_cache(maxsize=1)
    def remember(x):
        calls.append(x)
        return x

    for x in (1, 1, 2, 1):
        remember(x)
    assert calls == [1, 2, 1]
    print(remember.cache_info(), remember.__qualname__, inspect.signature(remember), sorted(vars(remember)))
    print(
        functools.lru_cache.__module__, functools.lru_cache.__name__, inspect.signature(functools.lru_cache)
    )


def check_error_in_a_cache():
    @functools.cache
    def fails(x):
        raise KeyError(x)

    with pytest.raises(KeyError) as caught:
        fails(1)
    # A recorder may stand between, as the import system does.
    frames = traceback.extract_tb(caught.value.__traceback__)
    print(
        [(frame.name, frame.line) for frame in frames if not frame.filename.startswith("<frozen importlib")]
    )


def check_recursion_through_a_cache():
    @functools.cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(120) == 5358359254990966640871840
    fibonacci.cache_clear()
    with pytest.raises(RecursionError):
        fibonacci(3000)


def check_pickles():
    for thing in (
        lib.square,
        lib.down,
        lib.Thing,
        lib.Thing(3),
        functools.lru_cache,
        functools.partial(lib.down, 3),
    ):
        back = pickle.loads(pickle.dumps(thing))
        assert type(back) is type(thing)
    assert copy.deepcopy(lib.square) is lib.square
    assert pickle.loads(pickle.dumps(lib.Thing(4))).twice == 8


def check_environment(request):
    import os

    shown = sorted(name for name in os.environ if name.startswith(("PYTEST_", "FASTCI", "COV", "PYTHON")))
    print(shown, type(os.environ).__name__, len(os.environ) == len(dict(os.environ)))


def check_child_sees_the_same_environment():
    code = "import os, sys; print(sorted(n for n in os.environ if n.startswith(('FASTCI', 'COV'))), sys.flags, sys.argv)"
    print(subprocess.check_output([sys.executable, "-c", code], text=True))


def check_flags_and_paths():
    print(
        sys.flags,
        sys.warnoptions,
        sys.dont_write_bytecode,
        len(sys.path),
        [type(f).__name__ for f in sys.meta_path],
    )


def check_signals():
    import signal

    print(
        [
            (number, str(signal.getsignal(number))[:30])
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
        ]
    )


def check_modules_that_are_imported_late():
    import late_module

    assert late_module.VALUE == 3
    assert sys.modules["late_module"] is late_module
    spec = late_module.__spec__
    print(type(late_module.__loader__).__name__, spec.name, spec.has_location, sorted(vars(late_module))[:20])
    print(inspect.getsource(late_module))


def check_generators():
    walk = lib.numbers(4)
    assert next(walk) == 0
    with pytest.raises(KeyError):
        walk.throw(KeyError())
    assert list(lib.numbers(3)) == [0, 1, 4]


def check_coroutines():
    import asyncio

    async def nap():
        await asyncio.sleep(0)
        return 5

    async def main():
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await asyncio.gather(nap(), nap())

    assert asyncio.run(main()) == [5, 5]


def check_source_that_is_executed():
    space = {}
    exec(compile("def f():\n    return 1/0\n", "made.py", "exec"), space)
    with pytest.raises(ZeroDivisionError) as caught:
        space["f"]()
    print([(f.filename, f.name, f.lineno) for f in traceback.extract_tb(caught.value.__traceback__)][1:])


def check_time_passes():
    start = time.perf_counter()
    assert time.perf_counter() >= start


def check_fails():
    x = {"a": lib.square(3)}
    assert x == {"a": 8}, "as it should"


def check_raises():
    lib.down("x")


@pytest.mark.xfail(strict=True)
def check_expected_failure():
    raise AssertionError


@pytest.mark.skip(reason="left out")
def check_skipped():
    pass


@pytest.fixture
def broken():
    yield 1
    raise OSError("teardown")


def check_error_at_teardown(broken):
    assert broken == 1
