"""Things that happen at import."""

LIMIT = 3
TABLE = {}


def register(name):
    def keep(function):
        TABLE[name] = function
        return function

    return keep


def build():
    return [LIMIT] * LIMIT


BUILT = build()


@register("one")
def one():
    return 1
