import cProfile

from lib import core


def check_before():
    assert core.scale(1) == 2


def check_profiles():
    profiler = cProfile.Profile()
    profiler.enable()
    core.add(1, 1)
    profiler.disable()
    core.scale(1)


def check_afterwards():
    assert core.scale(1) == 2
