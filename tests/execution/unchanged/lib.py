import functools


@functools.lru_cache(maxsize=None)
def square(x):
    return x * x


@functools.cache
def label(x):
    return f"<{x}>"


def down(n):
    return 0 if n == 0 else 1 + down(n - 1)


def numbers(n):
    for x in range(n):
        yield square(x)


class Thing:
    def __init__(self, value):
        self.value = value

    @functools.cached_property
    def twice(self):
        return self.value * 2
