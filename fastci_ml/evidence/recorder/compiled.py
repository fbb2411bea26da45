"""torch.compile: what was inlined while a function was compiled runs again whenever the compiled code does.

Compiling is treated as the filling of a cache: a capture of its own, which holds what ran meanwhile (fake
implementations, graph passes, files that were read) and every function that was traced into. Whoever runs the
compiled code stands on it, also in a test that compiles nothing. The hooks are private to torch: where they
are not as expected, tests that run compiled code are incomplete.
"""

from __future__ import annotations

import functools
import sys
from _weakref import ref
from types import CodeType, FunctionType

from fastci_ml.evidence.recorder.backend import identity
from fastci_ml.evidence.recorder.captures import ClosedCapture, OpenCapture
from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastci_ml.evidence.recorder.collector import Collector
    from fastci_ml.evidence.recorder.imports import ImportWatch

_FRAMES = "torch._dynamo.convert_frame"
_TRANSLATORS = "torch._dynamo.symbolic_convert"
_CALLBACKS = "torch._dynamo.callback"
_CONTINUES = "torch_dynamo_resume_in_"
# What torch puts around a compiled function, in a file of that name.
_WRAPPERS = frozenset({"_fn", "compile_wrapper"})
_WRAPPERS_FILE = "eval_frame.py"
_OURS = ("fastci_ml.evidence.", "fastci_ml.records.")


class _Compilation:
    """One compilation of one function, or of the rest of one behind a graph break."""

    __slots__ = ("label", "number")

    def __init__(self, code: CodeType) -> None:
        self.label = f"torch.compile::{code.co_qualname}"
        self.number: int | None = None


class CompileWatch:
    """Makes each compilation by torch a capture, and books the running of compiled code as its use.

    Parameters
    ----------
    collector : Collector
        Where it books.
    imports : ImportWatch
        Tells when torch's compiler is loaded, which is before it can compile anything.
    """

    def __init__(self, collector: Collector, imports: ImportWatch) -> None:
        self._collector = collector
        self._imports = imports
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        # By the identity of what came out: it is what runs.
        self._compiled: dict[int, tuple[ref[CodeType], _Compilation]] = {}
        # By torch's id.
        self._latest: dict[str, _Compilation] = {}
        # Which stands on which whole capture, to be said by the thread that may write.
        self._to_say: set[tuple[_Compilation, int]] = set()
        # Why compiled code may run whose inlined functions are not known; empty if it cannot.
        self._blind = ""
        self._is_in_use = False

    def install(self) -> None:
        """Begin, as soon as there is something to watch."""
        self._imports.after(_FRAMES, self._watch_frames)
        self._imports.after(_TRANSLATORS, self._watch_translators)
        self._imports.after(_CALLBACKS, self._watch_backward)

    def remove(self) -> None:
        """Put back what was replaced, unless someone else has put something there."""
        for place, name, ours, found in reversed(self._replaced):
            if vars(place).get(name) is ours:
                setattr(place, name, found)
        self._replaced.clear()

    def begin_again(self) -> None:
        """Compilations so far are in another bundle: whoever forks stands on all of them."""
        for _, compilation in self._compiled.values():
            compilation.number = None
        self._to_say.clear()

    def filled(self) -> set[int]:
        """Numbers of all compilations."""
        return {made.number for _, made in self._compiled.values() if made.number is not None}

    def opening(self) -> None:
        """Nothing is kept back."""

    def closing(self, capture: OpenCapture) -> None:
        """Book the compiled code that ran."""
        self._say()
        for key in self._compiled.keys() & capture.codes.keys():
            code, compilation = self._compiled[key]
            if code() is capture.codes[key]:
                capture.uses.add(self._number(compilation))
        if self._is_in_use:
            # Torch's own, with the name of no function: what they are the rest of ran before them.
            rests = [key for key, code in capture.codes.items() if code.co_name.startswith(_CONTINUES)]
            for key in rests:
                del capture.codes[key]
        if self._blind and any(_runs_compiled(code) for code in capture.codes.values()):
            capture.gaps[Gap.COMPILED_UNSEEN, self._blind] = None

    def _watch_frames(self) -> None:
        module = sys.modules[_FRAMES]
        found = getattr(module, "_compile", None)
        if not _takes(found, "code"):
            self._be_blind(f"{_FRAMES}._compile is not as expected")
            return
        seen = getattr(getattr(module, "output_codes", None), "seen", None)
        if seen is None or any(code() is not None for code in seen):
            self._be_blind("functions had been compiled before recording began")
        _leave_us_alone()
        self._replace(module, "_compile", self._around_compile(found))

    def _watch_translators(self) -> None:
        translator = getattr(sys.modules[_TRANSLATORS], "InstructionTranslatorBase", None)
        found = vars(translator).get("__init__") if translator is not None else None
        if not _takes(found, "f_code"):
            self._be_blind(f"{_TRANSLATORS}.InstructionTranslatorBase is not as expected")
            return
        self._replace(translator, "__init__", self._around_translation(found))

    def _watch_backward(self) -> None:
        handler = getattr(sys.modules[_CALLBACKS], "CompilationCallbackHandler", None)
        found = vars(handler).get("install_callbacks") if handler is not None else None
        if found is not None:
            self._replace(handler, "install_callbacks", self._around_backward(found))

    def _be_blind(self, why: str) -> None:
        self._blind = why
        # Foreign code is not reported for long, unless someone asks for it.
        folder = getattr(sys.modules.get("torch._dynamo"), "__file__", "").rpartition("/")[0]
        self._collector.keep(f"{folder}/{_WRAPPERS_FILE}")

    def _replace(self, place: Any, name: str, ours: Any) -> None:
        self._replaced.append((place, name, ours, vars(place)[name]))
        setattr(place, name, ours)

    def _around_compile(self, found: Any) -> Any:
        begin, end = self._begin, self._end

        @functools.wraps(found)
        def _compile(code: CodeType, *arguments: Any, **keywords: Any) -> Any:
            begun = begin(code, str(keywords.get("compile_id")))
            result = None
            try:
                result = found(code, *arguments, **keywords)
                return result
            finally:
                if begun is not None:
                    end(begun, result)

        return transparent(_compile)

    def _around_translation(self, found: Any) -> Any:
        collector = self._collector

        @functools.wraps(found)
        def __init__(translator: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
            code = keywords.get("f_code")
            if collector.is_active and type(code) is CodeType:
                collector.guard(collector.top.add_code, code)
            found(translator, *arguments, **keywords)

        return transparent(__init__)

    def _around_backward(self, found: Any) -> Any:
        """The compilation of a backward graph is put off until someone needs it."""
        latest = self._latest

        @functools.wraps(found)
        def install_callbacks(handler: Any, trigger: Any, compile_id: str) -> Any:
            context = found(handler, trigger, compile_id)
            compilation = latest.get(compile_id)
            if compilation is None or getattr(trigger, "name", "") != "LAZY_BACKWARD":
                return context
            return _Backward(self, compilation, context)

        return transparent(install_callbacks)

    def _begin(self, code: CodeType, compile_id: str) -> _Begun | None:
        self._is_in_use = True
        compilation = self._latest[compile_id] = _Compilation(code)
        return self.begin(compilation)

    def _end(self, begun: _Begun, result: Any) -> None:
        self.end(begun)
        code = getattr(getattr(result, "guarded_code", result), "code", None)
        if type(code) is CodeType:
            self._collector.guard(self._keep, code, begun[1])

    def begin(self, compilation: _Compilation) -> _Begun | None:
        """Open a capture for a compilation; in another thread it is a part of what is open."""
        collector = self._collector
        if not collector.is_active:
            return None
        try:
            if collector.may_push:
                capture = collector.push(CaptureKind.CACHE, compilation.label)
                if compilation.number is None:
                    compilation.number = capture.number
                return capture, compilation
            self._to_say.add((compilation, collector.top.number))
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)
        return None, compilation

    def end(self, begun: _Begun) -> None:
        """End it."""
        collector = self._collector
        capture, compilation = begun
        if capture is not None and collector.may_push:
            try:
                collector.pop(capture, add_to=self._number(compilation))
            except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
                collector.failed(error)

    def _keep(self, code: CodeType, compilation: _Compilation) -> None:
        self._compiled[identity(code)] = (ref(code), compilation)
        if self._collector.files.relative(code.co_filename) is None:
            self._collector.keep(code.co_filename)

    def _number(self, compilation: _Compilation) -> int:
        if compilation.number is None:
            writer = self._collector.writer
            compilation.number = writer.new_capture()
            # Whoever stands on it finds it, also where none of its compilations has a capture.
            writer.add_capture(compilation.number, ClosedCapture(CaptureKind.CACHE, compilation.label))
        return compilation.number

    def _say(self) -> None:
        """Write which compilations stand on whole captures."""
        while self._to_say:
            compilation, number = self._to_say.pop()
            stands = ClosedCapture(CaptureKind.CACHE, compilation.label, uses=frozenset({number}))
            self._collector.writer.add_capture(self._number(compilation), stands)


_Begun = tuple[OpenCapture | None, _Compilation]


class _Backward:
    """A context of torch's with a capture around it."""

    def __init__(self, watch: CompileWatch, compilation: _Compilation, context: Any) -> None:
        self._watch = watch
        self._compilation = compilation
        self._context = context
        self._begun: _Begun | None = None

    def __enter__(self) -> Any:
        entered = self._context.__enter__()
        self._begun = self._watch.begin(self._compilation)
        return entered

    def __exit__(self, *raised: Any) -> Any:
        if self._begun is not None:
            self._watch.end(self._begun)
        return self._context.__exit__(*raised)


def _takes(function: Any, name: str) -> bool:
    """Whether a function of torch's has a parameter of that name."""
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _runs_compiled(code: CodeType) -> bool:
    """Whether this is what torch.compile puts around a function."""
    return code.co_name in _WRAPPERS and code.co_filename.endswith(f"/torch/_dynamo/{_WRAPPERS_FILE}")


def _leave_us_alone() -> None:
    """Keep torch from compiling our own functions where they run between those that it compiles."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    types = sys.modules.get("torch._dynamo.types")
    skip = getattr(frames, "set_code_exec_strategy", None)
    strategy = getattr(types, "FrameExecStrategy", None)
    action = getattr(getattr(types, "FrameAction", None), "SKIP", None)
    if skip is None or strategy is None or action is None:
        return
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_OURS):
            for code in _codes_of(module):
                # And nothing that is called from there.
                skip(code, strategy(action, action))


def _codes_of(module: Any) -> list[CodeType]:
    found: list[CodeType] = []
    ahead = list(vars(module).values())
    while ahead:
        value = ahead.pop()
        if isinstance(value, type) and value.__module__ == module.__name__:
            ahead.extend(vars(value).values())
        elif isinstance(value, staticmethod | classmethod):
            ahead.append(value.__func__)
        elif isinstance(value, property):
            ahead.append(value.fget)
        elif isinstance(value, FunctionType):
            ahead.append(value.__code__)
        elif isinstance(value, CodeType) and value.co_filename == module.__file__:
            found.append(value)
            ahead.extend(value.co_consts)
    return found
