import asyncio

from lib import core

WALK = core.numbers()
THROWN = core.thrown()
COROUTINES = []


def check_starts():
    assert next(WALK) == 1
    assert next(THROWN) == 1
    COROUTINES.append(core.waits(1))


def check_generator_goes_on():
    assert next(WALK) == 2


def check_generator_is_thrown_into():
    assert THROWN.throw(KeyError()) == 4


def check_coroutine_of_another_test():
    assert asyncio.run(COROUTINES.pop()) == 2
