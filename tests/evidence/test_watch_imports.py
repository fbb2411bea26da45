"""What the watch of imports books, on each interpreter at hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
from interpreters import VERSIONS, python_or_skip
from watched_programs import watch_program

from fastci_ml.records.evidence_kinds import CaptureKind

FILES = {
    "pkg/__init__.py": "from pkg import first\n",
    "pkg/first.py": "import pkg.second\n",
    "pkg/second.py": "def used():\n    pass\nused()\n",
    "pkg/late.py": "import pkg.second\nVALUE = pkg.second.used()\n",
    "pkg/other.py": "import importlib\ndef load(name):\n    return importlib.import_module(name)\n",
    "pkg/named.py": "",
    "pkg/by_foreign.py": "",
    "pkg/relative.py": "from importlib import import_module as by\ndef load():\n    by('.named', 'pkg')\n",
    "pkg/fails.py": "import pkg.inner_of_failing\nraise ValueError('no')\n",
    "pkg/inner_of_failing.py": "",
    "pkg/lazy.py": "VALUE = 3\n",
    "pkg/threaded.py": "def in_thread():\n    pass\nin_thread()\n",
    "pkg/circle_one.py": "import pkg.circle_two\n",
    "pkg/circle_two.py": "import pkg.circle_one\n",
    "space/part.py": "",
    "loose/plugin.py": "def made():\n    pass\nmade()\n",
    "script.py": "import pkg.of_script\n",
    "pkg/of_script.py": "",
    "pkg/main.py": "",
    "executed.txt.py": "import pkg.of_executed\n",
    "pkg/of_executed.py": "",
    "pkg/warns.py": "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n",
    "pkg/nested.py": "import pkg.deepest\ndef of_nested():\n    pass\nof_nested()\n",
    "pkg/deepest.py": "def of_deepest():\n    pass\nof_deepest()\n",
}

PROGRAM = """
import importlib, importlib.machinery, importlib.util, runpy, sys, threading, traceback, warnings
from importlib.machinery import SourceFileLoader
from pathlib import Path
import pkg
import pkg.other
import pkg.relative

HERE = Path(__file__).parent


def check_imports_late():
    import pkg.late


def check_imports_it_again():
    import pkg.late


def check_removed_and_again():
    del sys.modules["pkg.late"]
    import pkg.late


def check_by_name():
    importlib.import_module("pkg.late")


def check_by_name_from_elsewhere():
    pkg.other.load("pkg.named")


def check_by_name_again():
    pkg.other.load("pkg.named")


def check_relative_name():
    pkg.relative.load()


def check_by_name_of_a_library():
    assert importlib.import_module("json").__name__ == "json"
    assert importlib.__import__("pkg.late").__name__ == "pkg"


def check_reload():
    importlib.reload(pkg.second)


def check_fails():
    try:
        import pkg.fails
    except ValueError as error:
        frames = traceback.extract_tb(error.__traceback__)
        assert [Path(frame.filename).name for frame in frames] == ["program.py", "fails.py"], frames
    else:
        raise AssertionError
    assert "pkg.fails" not in sys.modules


def check_missing():
    try:
        import pkg.missing
    except ModuleNotFoundError as error:
        frames = traceback.extract_tb(error.__traceback__)
        assert [Path(frame.filename).name for frame in frames] == ["program.py"], frames
    try:
        importlib.import_module("pkg.missing")
    except ModuleNotFoundError as error:
        assert error.name == "pkg.missing"


def check_circle():
    import pkg.circle_one


def check_namespace():
    import space.part


def check_from_location():
    spec = importlib.util.spec_from_file_location("plugin_of_ours", HERE / "loose" / "plugin.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.made


def check_lazy():
    spec = importlib.util.find_spec("pkg.lazy")
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["pkg.lazy"] = module
    loader.exec_module(module)


def check_lazy_is_loaded():
    assert sys.modules["pkg.lazy"].VALUE == 3


def check_in_a_thread():
    def work():
        import pkg.threaded
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def check_runs_a_path():
    runpy.run_path(str(HERE / "script.py"))


def check_runs_a_module():
    runpy.run_module("pkg.main")


def check_executes_text():
    path = HERE / "executed.txt.py"
    exec(compile(path.read_text(), str(path), "exec"), {})


def check_warning_names_the_importer():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import pkg.warns
    assert [Path(one.filename).name for one in caught] == ["program.py"]


def check_nested():
    import pkg.nested


def check_odd_modules():
    asked = []
    class Odd:
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)
    sys.modules["odd"] = Odd()
    assert importlib.import_module("odd")
    # By the import system; not by us.
    assert set(asked) <= {"__spec__"}, asked
    sys.modules["none"] = None
    try:
        importlib.import_module("none")
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError


def check_nothing():
    pass


INHERITED = "exec_module" not in vars(SourceFileLoader)


def after_recording():
    assert not INHERITED and "exec_module" not in vars(SourceFileLoader)
    assert importlib._bootstrap._gcd_import.__code__.co_name == "_gcd_import"
    assert not hasattr(importlib._bootstrap._gcd_import, "__wrapped__")
    assert importlib.import_module.__code__.co_filename == importlib.__file__
    sys.modules.pop("pkg.late")
    import pkg.late
"""

IMPORTS = {
    "check_imports_late": {"pkg/__init__.py", "pkg/late.py"},
    "check_imports_it_again": set(),
    "check_removed_and_again": {"pkg/__init__.py", "pkg/late.py"},
    "check_by_name": {"pkg/__init__.py", "pkg/late.py"},
    "check_by_name_from_elsewhere": {"pkg/__init__.py", "pkg/named.py"},
    "check_by_name_again": {"pkg/__init__.py", "pkg/named.py"},
    "check_relative_name": {"pkg/__init__.py", "pkg/named.py"},
    "check_by_name_of_a_library": {"pkg/__init__.py", "pkg/late.py"},
    "check_reload": {"pkg/__init__.py", "pkg/second.py"},
    "check_fails": {"pkg/__init__.py", "pkg/fails.py"},
    "check_missing": set(),
    "check_circle": {"pkg/__init__.py", "pkg/circle_one.py"},
    "check_namespace": {"space/part.py"},
    "check_from_location": {"loose/plugin.py"},
    "check_lazy": set(),
    "check_lazy_is_loaded": {"pkg/__init__.py", "pkg/lazy.py"},
    "check_in_a_thread": {"pkg/__init__.py", "pkg/threaded.py"},
    "check_runs_a_path": {"script.py", "pkg/__init__.py", "pkg/of_script.py"},
    "check_runs_a_module": {"pkg/main.py"},
    "check_executes_text": {"executed.txt.py", "pkg/__init__.py", "pkg/of_executed.py"},
    "check_nested": {"pkg/__init__.py", "pkg/nested.py"},
    "check_odd_modules": set(),
    "check_nothing": set(),
}
EDGES = {
    ("program.py", "pkg/__init__.py"),
    ("pkg/__init__.py", "pkg/first.py"),
    ("pkg/first.py", "pkg/second.py"),
    ("program.py", "pkg/late.py"),
    ("pkg/other.py", "pkg/named.py"),
    ("pkg/relative.py", "pkg/named.py"),
    ("pkg/fails.py", "pkg/inner_of_failing.py"),
    ("pkg/circle_one.py", "pkg/circle_two.py"),
    ("program.py", "pkg/lazy.py"),
    ("program.py", "pkg/threaded.py"),
    ("script.py", "pkg/of_script.py"),
    ("executed.txt.py", "pkg/of_executed.py"),
    ("pkg/nested.py", "pkg/deepest.py"),
}


@pytest.fixture(scope="module", params=VERSIONS)
def watched(request, tmp_path_factory):
    python = python_or_skip(request.param)
    root = tmp_path_factory.mktemp("imports") / "repo"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return watch_program(root, PROGRAM, python=python)


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_are_booked_on_whoever_made_them(watched, name):
    assert watched.imports(name) == IMPORTS[name]


def test_edges_lead_from_the_importer_to_what_it_imported(watched):
    assert watched.edges() >= EDGES
    foreign = {edge for edge in watched.edges() if edge[0] == edge[1] or None in edge}
    assert not foreign


def test_reloaded_module_is_an_import_of_the_test(watched):
    assert "pkg/second.py" in watched.imports("check_reload")


def test_execution_of_a_module_is_a_capture_of_its_own(watched):
    captures = [one for one in watched.bundle.captures.values() if one.kind is CaptureKind.IMPORT]
    names = {}
    for one in captures:
        names.setdefault(one.label, []).append({watched.bundle.codes[code].name for code in one.codes})
    assert names["pkg/nested.py"] == [{"<module>", "of_nested"}]
    assert names["pkg/deepest.py"] == [{"<module>", "of_deepest"}]
    assert names["loose/plugin.py"] == [{"<module>", "made"}]
    # Once more when it was removed, and when it was reloaded.
    assert len(names["pkg/late.py"]) == 2
    assert len(names["pkg/second.py"]) == 2
    # Not in the thread of the tests: then it belongs to the test.
    assert "pkg/threaded.py" not in names
    assert {"in_thread", "<module>"} <= watched.codes("check_in_a_thread")
    assert "of_nested" not in watched.codes("check_nested")


def test_nothing_failed_while_imports_were_watched(watched):
    assert not [one.label for one in watched.bundle.captures.values() if one.gaps]


def test_modules_that_pytest_rewrites_are_captures_too(tmp_path):
    (tmp_path / "fastci.toml").write_text("")
    (tmp_path / "conftest.py").write_text("import helped\n")
    (tmp_path / "helped.py").write_text("def run():\n    pass\nrun()\n")
    (tmp_path / "test_it.py").write_text("import helped\ndef test_it():\n    assert helped\n")
    (tmp_path / "test_broken.py").write_text("import missing_module\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fastci-record"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'missing_module'" in done.stdout
    # What pytest shows of the failing import is the user's own frame alone.
    assert "exec_module" not in done.stdout
    assert "fastci_ml" not in done.stdout.replace("fastci: recording", "")
    from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle

    (path,) = find_bundles([tmp_path / ".fastci"])
    bundle = read_bundle(path)
    labels = {one.label for one in bundle.captures.values() if one.kind is CaptureKind.IMPORT}
    assert {"conftest.py", "helped.py", "test_it.py", "test_broken.py"} <= labels
    edges = {(bundle.files[one].path, bundle.files[other].path) for one, other in bundle.edges}
    assert ("conftest.py", "helped.py") in edges


def test_odd_modules_that_were_loaded_before_are_neither_asked_nor_in_the_way(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    before = """if True:
        import types
        class Lazy(types.ModuleType):
            @property
            def __dict__(self):
                raise ImportError("asked")
            def __getattribute__(self, name):
                raise ImportError("asked")
        class Odd:
            __class__ = property(lambda self: 1 / 0)
        sys.modules["lazy"], sys.modules["odd"], sys.modules["none"] = Lazy("lazy"), Odd(), None
    """
    watched = watch_program(root, "def check_nothing():\n    pass\n", before=before)
    assert watched.gaps("check_nothing") == set()
