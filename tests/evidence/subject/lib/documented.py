"""Functions whose text is part of what they do."""


def shown(x):
    """Twice a number.

    >>> shown(2)
    4
    """
    return 2 * x


def described():
    return shown.__doc__
