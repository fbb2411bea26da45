"""Which programs surely run no Python code: compilers, git, what looks at the machine. All others may."""

from __future__ import annotations

from os import X_OK, access, defpath, environ, fsdecode, listdir
from os.path import basename, dirname, isfile, join, lexists, normpath, realpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set
    from types import FrameType

# Kept short on purpose: a program that starts others (a shell, make, xargs, env, ninja) is none of these.
_QUIET_NAMES = """
ar arch as basename bunzip2 bzip2 c++ cat cc chmod chown cicc clang clang++ cmp cp cpp cuobjdump cut
date df diff dirname dot du echo false fatbinary ffmpeg ffprobe file flang free g++ gcc getconf
gfortran git grep groups gunzip gzip head hostname id ip ld ld.bfd ld.gold ld.lld ldconfig ldd lld
ln locale ls lscpu lsmod lspci lsusb md5sum mkdir mktemp mv nm nproc nvcc nvdisasm nvidia-smi nvlink
objcopy objdump openssl otool pgrep printf ps ptxas pwd ranlib readelf readlink realpath rm rmdir
rustc sha1sum sha256sum sleep sort stat strip stty sysctl tail tar tee touch tput tr true tty uname
uniq unxz unzip uptime wc which whoami xz zip zstd
"""
_QUIET = frozenset(_QUIET_NAMES.split())
_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")
_EXECUTABLES = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PYTHONS = ("python", "pypy")
_DIGITS = "0123456789."
_OF_NAMES = frozenset("abcdefghijklmnopqrstuvwxyz+.")
_OF_TARGETS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
# Processes of this part of torch compile generated code or try out the compiler.
_COMPILER_OF_TORCH = "/torch/_inductor/"
# How often a frame of `subprocess` or of ours stands between a child and who starts it.
_FRAMES_TO_LOOK_AT = 16
# Commands of git that say nothing of files, or make a repository of their own.
_GIT_HISTORY_NAMES = """
branch clone config describe help init log merge-base name-rev remote rev-list rev-parse shortlog show-ref
symbolic-ref tag var version
"""
# How the commands of helpers are told: by their code, or by the path of their script.
_TRACKER = "from multiprocessing.resource_tracker import main;main("
_HELPERS = ("torch/_inductor/compile_worker", "/debugpy/")
_GIT_HISTORY = frozenset(_GIT_HISTORY_NAMES.split())
_open = open


def find_program(name: str, env: Mapping[str, str] | None, folder: str) -> str | None:
    """File that a name starts, as the system finds it; None where there is none.

    Parameters
    ----------
    name : str
        As given to `subprocess`.
    env : mapping of str to str, optional
        Environment of the child; this process's own by default.
    folder : str
        Its working directory.
    """
    if "/" in name:
        return join(folder, name)
    for place in (environ if env is None else env).get("PATH", defpath).split(":"):
        path = join(folder, place, name)
        if isfile(path) and access(path, X_OK):
            return path
    return None


def may_run_python(program: str | None, arguments: Sequence[str]) -> bool:
    """Whether a child may run Python code that belongs to what it tests.

    Parameters
    ----------
    program : str or None
        From `find_program`.
    arguments : sequence of str
        Of the child, its own name first.
    """
    if program is None:
        # Nothing will be started.
        return False
    name = basename(program)
    if _is_python(name) or _is_python(basename(realpath(program))):
        return list(arguments[1:]) not in (["-V"], ["--version"])
    if name not in _QUIET and _without_target(name) not in _QUIET:
        return True
    # A script of that name, in front of the real one, may be anything.
    return not (program.startswith(_SYSTEM) or _begin_of(program).startswith(_EXECUTABLES))


def is_helper(arguments: Sequence[str]) -> bool:
    """Whether a command is one of the standard library, of torch's compiler or of a debugger.

    They run nothing of a repository.
    """
    words = list(arguments[1:])
    while len(words) > 1 and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        del words[0]
    if words[:1] == ["-c"]:
        return len(words) > 1 and words[1].startswith(_TRACKER)
    return bool(words) and any(helper in words[0] for helper in _HELPERS)


def records_itself(program: str | None, arguments: Sequence[str]) -> bool:
    """Whether a program is surely Python with its start-up hooks: an interpreter, or a script of one.

    Parameters
    ----------
    program : str or None
        From `find_program`.
    arguments : sequence of str
        Of the child, its own name first.
    """
    if program is None:
        return True
    if not (_is_python(basename(program)) or _is_python(basename(realpath(program)))):
        return _is_python_script(program)
    for word in arguments[1:]:
        if not word.startswith("-") or word in ("-", "-c", "-m"):
            break
        if not word.startswith("--") and "S" in word:
            return False
    return True


def _is_python_script(program: str) -> bool:
    """Whether the first line of a file names an interpreter of Python, by itself or by ``env``."""
    try:
        with _open(program, "rb") as stream:
            line = stream.readline(256)
    except OSError:
        return False
    if not line.startswith(b"#!"):
        return False
    words = fsdecode(line[2:]).split()
    if words and basename(words[0]) == "env":
        words = [word for word in words[1:] if word != "-S"]
    options = words[1:]
    return bool(words) and _is_python(basename(words[0])) and not any("S" in word for word in options)


def summary_of(program: str, arguments: Sequence[str]) -> str:
    """A command for a person: without folders, which may be temporary, and without code.

    Examples
    --------
    >>> summary_of("/usr/bin/python3", ["python3", "/tmp/x/serve.py", "/tmp/x/socket", "-v"])
    'python3 serve.py socket'
    """
    shown = arguments[1:3] if "-c" not in arguments[1:2] else arguments[1:2]
    return " ".join(map(basename, [program, *shown]))


def is_started_to_compile(frame: FrameType | None) -> bool:
    """Whether torch's compiler starts a child for its own ends, which runs nothing of a repository.

    Parameters
    ----------
    frame : frame
        Of ours, below which `subprocess` was called.
    """
    for _ in range(_FRAMES_TO_LOOK_AT):
        if frame is None:
            break
        if basename(frame.f_code.co_filename) == "subprocess.py" and frame.f_back is not None:
            caller = frame.f_back.f_code.co_filename
            if basename(caller) != "subprocess.py":
                return _COMPILER_OF_TORCH in caller
        frame = frame.f_back
    return False


def asks_git_for_files(arguments: Sequence[str], folder: str, tops: Set[str]) -> bool:
    """Whether a git command looks at files of the repository that is tested.

    Parameters
    ----------
    arguments : sequence of str
        Of git, its own name first.
    folder : str
        Working directory of the child.
    tops : set of str
        Names of the repository's top.
    """
    folder, words = _folder_of_git(arguments, folder)
    if not words or words[0] in _GIT_HISTORY:
        return False
    top = _top_of_git(folder)
    return top is not None and (top in tops or realpath(top) in tops)


def _folder_of_git(arguments: Sequence[str], folder: str) -> tuple[str, list[str]]:
    """Where a git command works, and its words behind its own options."""
    words = list(arguments[1:])
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-C" and words:
            folder = join(folder, words.pop(0))
        elif word == "-c" and words:
            words.pop(0)
    return folder, words


def _top_of_git(folder: str) -> str | None:
    """Top of the repository around a folder."""
    folder = normpath(folder)
    while not lexists(join(folder, ".git")):
        if folder == dirname(folder):
            return None
        folder = dirname(folder)
    return folder


def _is_python(name: str) -> bool:
    """Whether a file is named as interpreters are: ``python``, ``python3.13t``, ``pypy3``."""
    for begin in _PYTHONS:
        if name.startswith(begin) and not name[len(begin) :].removesuffix("t").strip(_DIGITS):
            return True
    return False


def _without_target(name: str) -> str:
    """``gcc`` of ``x86_64-linux-gnu-gcc-12``; empty for what is not named that way."""
    parts = name.split("-")
    if len(parts) > 1 and parts[-1] and not parts[-1].strip(_DIGITS):
        parts.pop()
    *target, own = parts
    is_plain = bool(own) and _OF_NAMES.issuperset(own)
    is_target = len(target) != 1 and all(part and _OF_TARGETS.issuperset(part) for part in target)
    return own if is_plain and is_target else ""


def has_git_hooks(arguments: Sequence[str], folder: str) -> bool:
    """Whether a git command may run hooks of its repository, which may be Python.

    Hooks that a setting of the user or the machine names are not looked for.
    """
    folder, words = _folder_of_git(arguments, folder)
    if not words or words[0] in _GIT_HISTORY - {"clone", "init"}:
        return False
    top = _top_of_git(folder)
    if top is None:
        return False
    try:
        return any(not name.endswith(".sample") for name in listdir(join(top, ".git", "hooks")))
    except OSError:
        return False


def _begin_of(program: str) -> bytes:
    try:
        with _open(program, "rb") as stream:
            return stream.read(4)
    except OSError:
        return b""
