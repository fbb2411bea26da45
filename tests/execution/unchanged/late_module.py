VALUE = 3


def function():
    return VALUE
