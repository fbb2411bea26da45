"""What fixtures call."""


def session_part():
    return "session"


def module_part():
    return "module"


def class_part():
    return "class"


def asked_for():
    return "asked for"


def torn_down():
    return None
