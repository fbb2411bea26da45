"""Functions of many shapes."""

import functools


def add(a, b):
    return a + b


def scale(x):
    # Called by others only.
    return 2 * x


def twice(x):
    return scale(x)


def only_doc():
    """A body may come later."""


def outer(x):
    def inner(y):
        return y + x

    return inner


CLOSURE = outer(3)

SQUARE = lambda x: x * x  # noqa: E731


def comprehends(values):
    return [add(value, 1) for value in values]


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@logged
def decorated(x):
    return scale(x)


class Base:
    factor = 3

    def method(self, x):
        return self.factor * x

    @property
    def third(self):
        return 1 / self.factor

    @staticmethod
    def fixed():
        return 4

    @classmethod
    def made(cls):
        return cls()


class Derived(Base):
    def __init__(self):
        self.kept = []


def numbers():
    yield add(1, 0)
    yield scale(1)


async def waits(x):
    return add(x, 1)


def thrown():
    try:
        yield 1
    except KeyError:
        yield add(2, 2)


def in_thread(done):
    add(1, 1)
    done.set()


def at_exit():
    return scale(1)


def never():
    return 0
