"""What is computed once."""

import functools

from lib import core

_MEMO = {}


@functools.lru_cache
def cached(x):
    return core.twice(x)


@functools.cache
def fibonacci(n):
    return n if n < 2 else core.add(fibonacci(n - 1), fibonacci(n - 2))


def remembered(x):
    if x not in _MEMO:
        _MEMO[x] = core.decorated(x)
    return _MEMO[x]


class Holder:
    @functools.lru_cache(maxsize=8)  # noqa: B019
    def square(self, x):
        return core.SQUARE(x)
