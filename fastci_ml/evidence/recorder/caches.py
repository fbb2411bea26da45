"""`functools.lru_cache`: who is served from a cache of the repository stands on what filled it.

Rules, each giving too much evidence rather than too little:

- The function inside a cache is wrapped, so that each miss is a capture; those of one cache share a number.
  A hit costs nothing: the cache counts its hits itself, and whenever a capture opens or closes the count is
  compared with what it was.
- A miss that cannot have a capture (in another thread, or one of very many) makes the cache stand on the
  whole capture around it. One inside another miss of the same cache is part of that.
- A cache that was there before us cannot be wrapped: each of its misses is of that kind. If it held anything
  by then, nobody knows what made it, and a hit is a gap.
"""

from __future__ import annotations

import functools
import gc
import sys
from _weakref import ref

from fastci_ml.evidence.recorder.callables import CacheType, label_of
from fastci_ml.evidence.recorder.captures import ClosedCapture, OpenCapture
from fastci_ml.evidence.recorder.nesting import Nesting
from fastci_ml.evidence.recorder.transparent import transparent
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastci_ml.evidence.recorder.collector import Collector

# A capture makes the interpreter report every function anew: with more misses than this in one capture that
# would cost more than the misses.
_MAX_MISSES = 64
# With more caches than this alive, one of each object say, the others are not asked: they count as used, and
# those made by one function are one.
_MAX_ASKED = 256

# Bound early, and past what a program may have put on its cache under the same name.
_cache_info = CacheType.cache_info


# Hits and misses of a cache that was never called.
_NOT_USED: tuple[int, ...] = (0, 0)


class _Cache:
    """One cache, and what was known of it when it was last asked."""

    __slots__ = ("counted", "info", "is_wrapped", "label", "made", "n_missed", "number", "was_filled")

    def __init__(self, label: str, *, is_wrapped: bool) -> None:
        self.label = label
        self.number: int | None = None
        self.is_wrapped = is_wrapped
        self.was_filled = False
        self.made: Callable[[], Any] = _nothing
        self.info = _NOT_USED
        # Misses that we saw, and how many of them when it was last asked.
        self.n_missed = 0
        self.counted = 0


_NONE_OPEN: frozenset[_Cache] = frozenset()


class CacheWatch:
    """Makes each miss of a cache of the repository a capture, and books hits as uses.

    Parameters
    ----------
    collector : Collector
        Where it books.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._alive: dict[int, _Cache] = {}
        # Those that are too many to be asked, by their labels.
        self._unasked: dict[str, _Cache] = {}
        # Open captures of misses, each with the caches that it is part of.
        self._open: list[tuple[OpenCapture, frozenset[_Cache]]] = []
        self._n_misses: dict[int, int] = {}
        # Which stands on which whole capture: said already, and to be said by the thread that may write.
        self._standing: set[tuple[_Cache, int]] = set()
        self._to_say: set[tuple[_Cache, int]] = set()
        self._nesting = Nesting()
        # Set where not even a function of ours can be called any more.
        self._has_lost = False

    def install(self) -> None:
        """Put a function of ours in the place of `functools.lru_cache`, which `functools.cache` calls."""
        self._found = functools.lru_cache
        self._ours = self._around(functools.lru_cache)
        functools.lru_cache = self._ours
        for cache in gc.get_objects():
            if type(cache) is CacheType:
                self._adopt(cache)

    def remove(self) -> None:
        """Put the one found back, unless someone else has put a third there."""
        if functools.lru_cache is self._ours:
            functools.lru_cache = self._found

    def begin_again(self) -> None:
        """Misses so far are in another bundle: whoever forks stands on all of them."""
        for cache in (*self._snapshot(), *self._unasked.values()):
            cache.number = None
        self._open.clear()
        self._n_misses.clear()
        self._standing.clear()
        self._to_say.clear()
        self._nesting = Nesting()

    def filled(self) -> set[int]:
        """Numbers of all caches that hold anything."""
        caches = (*self._snapshot(), *self._unasked.values())
        return {cache.number for cache in caches if cache.number is not None}

    def opening(self) -> None:
        """Book hits so far on what is open."""
        self._ask_all(self._collector.top)

    def closing(self, capture: OpenCapture) -> None:
        """Book hits, and write what is to be said of caches."""
        self._n_misses.pop(capture.number, None)
        self._ask_all(capture)
        self._say()
        if self._has_lost:
            self._has_lost = False
            detail = "the recursion limit left no room to record a cache"
            capture.gaps[Gap.RECORDER_FAILED, detail] = None
            self._collector.gap(Gap.RECORDER_FAILED, detail)

    def _around(self, found: Any) -> Any:
        decorate = self._decorate

        @functools.wraps(found)
        def lru_cache(maxsize: Any = 128, typed: Any = False) -> Any:
            if callable(maxsize) and isinstance(typed, bool):
                return decorate(maxsize, lambda function: found(function, typed))
            decorator = found(maxsize, typed)

            def decorating_function(user_function: Any) -> Any:
                return decorate(user_function, decorator)

            return decorating_function

        del lru_cache.__wrapped__
        return lru_cache

    def _decorate(self, function: Any, apply: Callable[[Any], Any]) -> Any:
        collector = self._collector
        label = None
        if collector.is_active and callable(function):
            try:
                label = label_of(function, sys._getframe(2), collector.files)  # noqa: SLF001  the documented way
            except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
                collector.failed(error)
        if label is None:
            return apply(function)
        cache = _Cache(label, is_wrapped=True)
        is_one_of_many = len(self._alive) >= _MAX_ASKED
        if is_one_of_many:
            cache = self._unasked.setdefault(label, cache)
        made = apply(self._counted(cache, function))
        # What `functools` does to a cache, once more and from the function that the program knows.
        for name in functools.WRAPPER_ASSIGNMENTS:
            vars(made).pop(name, None)
        functools.update_wrapper(made, function)
        if not is_one_of_many:
            collector.guard(self._keep, cache, made)
        return made

    def _counted(self, cache: _Cache, function: Any) -> Any:
        begin, end = self._begin, self._end

        def miss(*arguments: Any, **keywords: Any) -> Any:
            try:
                begun = begin(cache)
            except RecursionError:
                # The program may still get by with what is left.
                self._has_lost, begun = True, None
            try:
                return function(*arguments, **keywords)
            finally:
                if begun is not None:
                    try:
                        end(cache, begun)
                    except RecursionError:
                        self._has_lost = True

        return transparent(miss)

    def _begin(self, cache: _Cache) -> OpenCapture | int | None:
        """Open a capture for a miss; the number of what is open instead where there is to be none."""
        cache.n_missed += 1
        collector = self._collector
        if not collector.is_active:
            return None
        top = collector.top
        if not collector.may_push:
            self._to_say.add((cache, top.number))
            return top.number
        within = self._open[-1][1] if self._open and self._open[-1][0] is top else _NONE_OPEN
        n_misses = self._n_misses.get(top.number, 0) + 1
        if cache not in within and n_misses > _MAX_MISSES:
            self._to_say.add((cache, top.number))
        if cache in within or n_misses > _MAX_MISSES:
            self._nesting.enter()
            return top.number
        self._n_misses[top.number] = n_misses
        try:
            capture = collector.push(CaptureKind.CACHE, cache.label)
        except RecursionError:
            raise
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)
            return None
        self._nesting.enter()
        if cache.number is None:
            cache.number = capture.number
        self._open.append((capture, within | {cache}))
        return capture

    def _end(self, cache: _Cache, begun: OpenCapture | int) -> None:
        collector = self._collector
        if not collector.may_push:
            if collector.is_active:
                # Another thread: the capture that is open by now may be another.
                self._to_say.add((cache, collector.top.number))
            return
        self._nesting.leave()
        if not isinstance(begun, OpenCapture):
            return
        while self._open and self._open.pop()[0] is not begun:
            pass
        try:
            collector.pop(begun, add_to=cache.number)
        except RecursionError:
            raise
        except Exception as error:  # noqa: BLE001  the border named in CONVENTIONS
            collector.failed(error)

    def _keep(self, cache: _Cache, made: Any) -> None:
        """Remember a cache for as long as it lives."""
        identity = id(made)
        alive = self._alive

        def forget(_: object) -> None:
            held = alive.pop(identity, None)
            # It cannot be asked any more: what it served since it last was, it served to what is open.
            if held is not None and held.number is not None and self._collector.is_active:
                self._collector.guard(self._collector.top.uses.add, held.number)

        cache.made = ref(made, forget)
        alive[identity] = cache

    def _adopt(self, made: Any) -> None:
        """Remember a cache that was made before we came."""
        label = label_of(vars(made).get("__wrapped__"), None, self._collector.files)
        if label is None:
            return
        cache = _Cache(label, is_wrapped=False)
        cache.info = _cache_info(made)
        cache.was_filled = cache.info[3] > 0
        self._keep(cache, made)

    def _ask_all(self, capture: OpenCapture) -> None:
        capture.uses.update(
            [self._number(cache) for cache in tuple(self._unasked.values()) if cache.n_missed]
        )
        for cache in self._snapshot():
            # Without a miss there is nothing that could be hit.
            if cache.is_wrapped and not cache.n_missed:
                continue
            made = cache.made()
            if made is not None:
                info = _cache_info(made)
                if info != cache.info or cache.n_missed != cache.counted:
                    self._compare(cache, info, capture)

    def _snapshot(self) -> tuple[_Cache, ...]:
        while True:
            try:
                return tuple(self._alive.values())
            except RuntimeError:
                # One of them died at this very moment.
                continue

    def _compare(self, cache: _Cache, info: tuple[int, ...], capture: OpenCapture) -> None:
        """Book what a change of a cache's counts says."""
        hits, misses = cache.info[:2]
        # Counts start again when a cache is cleared, which shows in misses that we saw and it does not know.
        was_cleared = cache.is_wrapped and info[1] - misses != cache.n_missed - cache.counted
        if info[0] != hits or was_cleared or info[1] < misses:
            capture.uses.add(self._number(cache))
            if cache.was_filled:
                capture.gaps[Gap.CACHE_UNSEEN, cache.label] = None
        if not cache.is_wrapped and info[1] != misses:
            self._to_say.add((cache, capture.number))
        cache.info, cache.counted = info, cache.n_missed

    def _number(self, cache: _Cache) -> int:
        if cache.number is None:
            writer = self._collector.writer
            cache.number = writer.new_capture()
            # Whoever stands on it finds it, also where no miss of it has a capture.
            writer.add_capture(cache.number, ClosedCapture(CaptureKind.CACHE, cache.label))
        return cache.number

    def _say(self) -> None:
        """Write which caches stand on whole captures."""
        while self._to_say:
            cache, number = said = self._to_say.pop()
            if said not in self._standing and number != cache.number:
                self._standing.add(said)
                stands = ClosedCapture(CaptureKind.CACHE, cache.label, uses=frozenset({number}))
                self._collector.writer.add_capture(self._number(cache), stands)


def _nothing() -> None:
    return None
