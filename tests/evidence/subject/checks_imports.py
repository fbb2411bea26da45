import importlib
import sys

from lib import registry


def check_constant():
    assert registry.LIMIT == 3


def check_registered():
    assert registry.TABLE["one"]() == 1


def check_imports_late():
    sys.modules.pop("lib.late", None)
    from lib import late

    assert late.value() == 2


def check_imports_again():
    from lib import late

    assert late.value() == 2


def check_imports_by_computed_name():
    assert importlib.import_module(".".join(["lib", "late"])).value() == 2
