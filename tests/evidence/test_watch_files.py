"""What the watch of files books, on each interpreter at hand: one program reads in every way it can."""

from __future__ import annotations

import pytest
from interpreters import VERSIONS, python_or_skip
from watched_programs import watch_program

from fastci_ml.evidence.bundle.blob_id import blob_id
from fastci_ml.records.evidence_kinds import CaptureKind

PROGRAM = """
import builtins, ctypes, glob, importlib.resources, inspect, io, json, linecache, os, pkgutil, runpy, shutil
import sqlite3, sys, tempfile, threading, traceback, warnings
from pathlib import Path
import package.module

ROOT = Path(__file__).parent
DATA = ROOT / "data"
ELSEWHERE = Path(tempfile.mkdtemp())


def check_text():
    open(DATA / "a.txt").close()
    open(str(DATA / "b.txt"), "rb").close()
    open(os.fsencode(DATA / "c.txt"), "r+").close()


def check_descriptors():
    number = os.open(DATA / "a.txt", os.O_RDONLY)
    open(number).close()


def check_pathlib():
    (DATA / "a.txt").read_text()
    (DATA / "b.txt").read_bytes()


def check_fileio():
    io.FileIO(DATA / "a.txt").close()
    io.open_code(str(DATA / "b.txt")).close()


def check_from_another_folder():
    before = os.getcwd()
    os.chdir(DATA)
    open("a.txt").close()
    open("./deep/../b.txt").close()
    os.chdir(before)


def check_dots():
    open(str(DATA / "deep" / ".." / "a.txt")).close()
    open(f"{ELSEWHERE}/../../../../../../../..{DATA}/b.txt").close()


def check_missing():
    try:
        open(DATA / "missing.txt")
    except FileNotFoundError:
        pass


def check_resources():
    pkgutil.get_data("package", "part.json")
    importlib.resources.files("package").joinpath("other.json").read_text()


def check_loader_shows_source():
    package.module.__loader__.get_source("package.module")


def check_get_source():
    inspect.getsource(package.module.function)


def check_get_source_again():
    inspect.getsource(package.module.function)


def tools():
    folder = ELSEWHERE / "site-packages"
    (folder / "coverage").mkdir(parents=True, exist_ok=True)
    (folder / "coverage" / "__init__.py").write_text("")
    text = "import inspect\\ndef text(file):\\n    return open(file).read()\\n"
    text += "def source(x):\\n    inspect.getsource(x)\\n    return x\\n"
    (folder / "coverage" / "tool.py").write_text(text)
    (folder / "jitlike.py").write_text(text)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def check_report_of_a_tool_is_no_read():
    tools()
    import coverage.tool
    coverage.tool.text(package.module.__file__)
    coverage.tool.source(package.module.function)


def check_library_takes_source():
    tools()
    import jitlike
    jitlike.source(package.module.function)


def check_library_takes_source_while_importing():
    import package.jitted


def check_traceback_is_no_read():
    linecache.clearcache()
    try:
        package.module.fails()
    except ValueError:
        assert "raise" in traceback.format_exc()


def check_import_is_no_read():
    import package.late


def check_module_looks_at_itself():
    import package.looks


def check_runs_a_path():
    runpy.run_path(str(ROOT / "script.py"))


def check_reads_a_module():
    (ROOT / "package" / "late.py").read_text()


def check_listings():
    os.listdir(DATA)
    list(os.scandir(str(DATA / "deep")))


def check_listing_of_here():
    os.listdir()


def check_glob():
    assert glob.glob(str(DATA / "*.txt"))


def check_path_glob():
    assert list(DATA.rglob("*.txt"))


def check_walks():
    list(os.walk(DATA))


def check_walks_by_descriptors():
    for _, _, names, number in os.fwalk(DATA):
        for name in names:
            os.close(os.open(name, os.O_RDONLY, dir_fd=number))


def check_modules_of_a_package():
    names = [found.name for found in pkgutil.iter_modules(package.__path__)]
    assert names == ["jitted", "late", "looks", "module"]


def check_outside():
    (ELSEWHERE / "x.txt").write_text("x")
    (ELSEWHERE / "x.txt").read_text()
    os.listdir(ELSEWHERE)


def check_output():
    (ROOT / "out.txt").write_text("x")
    (ROOT / "out.txt").read_text()


def check_output_put_in_place():
    (ELSEWHERE / "new.txt").write_text("x")
    os.replace(ELSEWHERE / "new.txt", ROOT / "out2.txt")
    (ROOT / "out2.txt").read_text()


def check_restores_what_it_read():
    text = (DATA / "b.txt").read_text()
    (DATA / "b.txt").write_text("other")
    (DATA / "b.txt").write_text(text)


def check_restored_is_read():
    (DATA / "b.txt").read_text()


def check_appends():
    with open(ROOT / "data" / "log.txt", "a") as stream:
        stream.write("x")
    (ROOT / "data" / "log.txt").read_text()


def check_appends_to_new():
    with open(ROOT / "new.log", "a") as stream:
        stream.write("x")
    (ROOT / "new.log").read_text()


def check_moves_an_input():
    os.rename(DATA / "moved.txt", ELSEWHERE / "moved.txt")


def check_link_in_the_repository():
    (ROOT / "link.txt").read_text()
    (ROOT / "linked" / "x.txt").read_text()
    os.listdir(ROOT / "linked")


def check_link_from_elsewhere():
    os.symlink(DATA, ELSEWHERE / "data")
    (ELSEWHERE / "data" / "a.txt").read_text()
    os.link(DATA / "b.txt", ELSEWHERE / "b.txt")
    (ELSEWHERE / "b.txt").read_text()


def check_many_links():
    for number in range(40):
        os.symlink(DATA, ELSEWHERE / f"data{number}")
    (ELSEWHERE / "data39" / "a.txt").read_text()


def check_copies():
    shutil.copytree(DATA / "deep", ELSEWHERE / "deep")


def check_database():
    sqlite3.connect(DATA / "some.db").close()
    sqlite3.connect(f"file:{DATA / 'other.db'}?mode=ro", uri=True).close()
    sqlite3.connect(":memory:").close()


def check_new_database():
    sqlite3.connect(ROOT / "made.db").close()
    open(ROOT / "made.db").close()


def check_library():
    try:
        ctypes.CDLL(str(DATA / "lib.so"))
    except OSError:
        pass


def check_thread():
    thread = threading.Thread(target=lambda: open(DATA / "a.txt").close())
    thread.start()
    thread.join()


def check_mocked():
    found = os.getcwd, os.lstat, os.path.realpath, os.path.join, builtins.open
    def fails(*_, **__):
        raise AssertionError("called")
    io_open = io.open
    os.getcwd = os.lstat = os.path.realpath = os.path.join = builtins.open = fails
    try:
        io_open("data/a.txt").close()
    finally:
        os.getcwd, os.lstat, os.path.realpath, os.path.join, builtins.open = found


def check_odd_names():
    for name in ("", "a\\0b", b"\\xff"):
        try:
            open(name)
        except (OSError, ValueError):
            pass
    try:
        open(object())
    except TypeError:
        pass


def check_nothing():
    pass


FOUND = linecache.getlines


def after_recording():
    open(DATA / "a.txt").close()
    assert linecache.getlines is not FOUND
    assert linecache.getlines.__module__ == "linecache"
    assert not hasattr(linecache.getlines, "__wrapped__")
"""

READS = {
    "check_text": {"data/a.txt", "data/b.txt", "data/c.txt"},
    "check_descriptors": {"data/a.txt"},
    "check_pathlib": {"data/a.txt", "data/b.txt"},
    "check_fileio": {"data/a.txt", "data/b.txt"},
    "check_from_another_folder": {"data/a.txt", "data/b.txt"},
    "check_dots": {"data/a.txt", "data/b.txt"},
    "check_missing": {"data/missing.txt"},
    "check_resources": {"package/part.json", "package/other.json"},
    "check_loader_shows_source": {"package/module.py"},
    "check_get_source": {"package/module.py"},
    "check_get_source_again": {"package/module.py"},
    "check_report_of_a_tool_is_no_read": set(),
    "check_library_takes_source": {"package/module.py"},
    "check_library_takes_source_while_importing": set(),
    "check_traceback_is_no_read": set(),
    "check_import_is_no_read": set(),
    "check_runs_a_path": set(),
    "check_reads_a_module": {"package/late.py"},
    "check_outside": set(),
    "check_output": set(),
    "check_output_put_in_place": set(),
    "check_restores_what_it_read": {"data/b.txt"},
    "check_restored_is_read": {"data/b.txt"},
    "check_appends": {"data/log.txt"},
    "check_appends_to_new": set(),
    "check_moves_an_input": {"data/moved.txt"},
    "check_link_in_the_repository": {"link.txt", "data/a.txt", "linked", "data/deep/x.txt"},
    "check_link_from_elsewhere": {"data/a.txt", "data/b.txt"},
    "check_many_links": {"data/a.txt"},
    "check_copies": {"data/deep/x.txt"},
    "check_database": {"data/some.db", "data/other.db"},
    "check_new_database": set(),
    "check_library": {"data/lib.so"},
    "check_thread": {"data/a.txt"},
    "check_mocked": {"data/a.txt"},
    "check_nothing": set(),
}
LISTINGS = {
    "check_listings": {"data", "data/deep"},
    "check_listing_of_here": {"."},
    "check_glob": {"data"},
    "check_path_glob": {"data", "data/deep"},
    "check_walks": {"data", "data/deep"},
    "check_link_in_the_repository": {"data/deep"},
    "check_copies": {"data/deep"},
    "check_modules_of_a_package": {"package"},
    "check_import_is_no_read": set(),
    "check_outside": set(),
    "check_nothing": set(),
}


def make_files(root):
    (root / "data" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "c.txt", "log.txt", "moved.txt", "lib.so", "deep/x.txt"):
        (root / "data" / name).write_text(name)
    for name in ("some.db", "other.db"):
        (root / "data" / name).write_bytes(b"")
    (root / "link.txt").symlink_to("data/a.txt")
    (root / "linked").symlink_to("data/deep")
    (root / "script.py").write_text("print('script')\n")
    package = root / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text("def function():\n    pass\n\ndef fails():\n    raise ValueError\n")
    (package / "late.py").write_text("")
    (package / "jitted.py").write_text("import inspect, jitlike\n@jitlike.source\ndef f():\n    pass\n")
    (package / "looks.py").write_text("import inspect\ndef f():\n    pass\ninspect.getsource(f)\n")
    (package / "part.json").write_text("{}")
    (package / "other.json").write_text("{}")


@pytest.fixture(scope="module", params=VERSIONS)
def watched(request, tmp_path_factory):
    python = python_or_skip(request.param)
    root = tmp_path_factory.mktemp("files") / "repo"
    root.mkdir()
    make_files(root)
    return watch_program(root, PROGRAM, python=python)


def test_files_are_booked_where_they_were_read(watched):
    assert {name: watched.reads(name) for name in READS} == READS


def test_folders_are_booked_where_they_were_listed(watched):
    assert {name: watched.listings(name) for name in LISTINGS} == LISTINGS


def test_text_of_a_module_that_is_being_imported(watched):
    assert watched.reads("package/jitted.py", CaptureKind.IMPORT) == set()
    assert watched.reads("package/looks.py", CaptureKind.IMPORT) == {"package/looks.py"}


def test_names_that_were_looked_up_in_open_folders_are_found(watched):
    assert {"data/a.txt", "data/deep/x.txt"} <= watched.reads("check_walks_by_descriptors")
    assert {"data", "data/deep"} <= watched.listings("check_walks_by_descriptors")


def test_nothing_failed_while_files_were_watched(watched):
    assert not [capture.label for capture in watched.bundle.captures.values() if capture.gaps]


def test_links_have_the_blob_that_git_gives_them(watched):
    blobs = {seen.path: seen.blob for seen in watched.bundle.files.values()}
    assert blobs["link.txt"] == blob_id(b"data/a.txt")
    assert blobs["linked"] == blob_id(b"data/deep")


def test_reading_is_not_booked_once_the_recording_has_ended(watched):
    assert watched.bundle.gaps == []
