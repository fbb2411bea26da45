"""Who asks the system for a file or a folder: the program, or those who only look for modules and tests."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


# Who reads a module's source to run or to show it, by function and end of the file that it stands in.
_MODULE_READERS: dict[str, tuple[str, ...]] = {
    "get_data": ("importlib._bootstrap_external>",),
    "_get_code_from_file": ("runpy.py", "<frozen runpy>"),
    # `runpy` asks first whether the file is an archive.
    "_read_directory": ("zipimport.py", "<frozen zipimport>"),
    "_rewrite_test": ("_pytest/assertion/rewrite.py",),
    "updatecache": ("linecache.py",),
}
# Tools that read the sources of whatever ran, or of all there is, and whose reports are no tests.
_TOOLS = ("-packages/coverage/", "-packages/hypothesis/")
# Who lists folders to find modules, packages and tests: a new file there is no change to what a test does,
# unless it shadows a module, which is another question.
_SEARCHERS = ("importlib._bootstrap_external>", "/importlib/metadata/__init__.py")
_PYTEST = "/_pytest/"
_DELETES = "rmtree"
# Whose functions stand between the event and who asked. A program that asks `pkgutil` for the modules of a
# package is one that a new module changes.
_PATH_MODULES = (
    "/pkgutil.py",
    "/pathlib.py",
    "/pathlib/__init__.py",
    "/pathlib/_abc.py",
    "/pathlib/_local.py",
    "/glob.py",
    "/os.py",
    "<frozen os>",
    "<frozen glob>",
)
# Our own frames and those of pathlib stand between the event and who asked.
_FRAMES_TO_LOOK_AT = 12


def is_module_read(asker: FrameType) -> bool:
    """Whether a Python file is being opened only to be imported, or to show or measure lines of it."""
    frame = asker
    for _ in range(_FRAMES_TO_LOOK_AT):
        code = frame.f_code
        if is_tool(code.co_filename):
            return True
        file = _MODULE_READERS.get(code.co_name)
        if file is not None and code.co_filename.endswith(file):
            # A loader can also be asked for data and for source, by a program that wants to see them.
            return code.co_name != "get_data" or _name_of_caller(frame) == "get_code"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def is_tool(file: str) -> bool:
    """Whether code of that file reads sources for a report on them."""
    return any(tool in file for tool in _TOOLS)


def is_search(asker: FrameType) -> bool:
    """Whether a folder is being looked at to find modules, packages or tests, or to delete it."""
    frame: FrameType | None = asker
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(_SEARCHERS) or (file.endswith("/shutil.py") and _DELETES in frame.f_code.co_name):
            return True
        if not file.endswith(_PATH_MODULES):
            return _PYTEST in file
        frame = frame.f_back
    return False


def _name_of_caller(frame: FrameType) -> str:
    return frame.f_back.f_code.co_name if frame.f_back is not None else ""
