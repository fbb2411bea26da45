import importlib
from pathlib import Path


def check_imports_what_was_written_just_now():
    made = Path(__file__).parent / "lib" / "made.py"
    made.write_text("def value():\n    return 1\n")
    importlib.invalidate_caches()
    assert importlib.import_module("lib.made").value() == 1
