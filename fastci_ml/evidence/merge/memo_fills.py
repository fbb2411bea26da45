"""What was read, and what went wrong, while memos were filled: whoever is served from one stands on it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from fastci_ml.evidence.bundle.reader import Bundle
from fastci_ml.evidence.merge.bits import bits
from fastci_ml.records.evidence_kinds import CaptureKind, Gap

# Of captures, what was read.
FIELDS = ("reads", "listings", "environ")


class MemoFills:
    """Captures of one bundle that filled a memo.

    A capture that entered one without running anything that it calls was served from it: what that read has
    nothing to do with it. A memo that calls nothing of the repository may be filled whenever it is entered.

    Parameters
    ----------
    bundle : Bundle
        Its captures.
    memos : mapping of int to int
        By code number, the bit of the memo that it is.
    names : mapping of int to str
        By code number, the simple name of its function.
    reads : sequence of frozenset of str
        For each memo, the names that its code uses, its own aside.
    """

    def __init__(
        self,
        bundle: Bundle,
        memos: Mapping[int, int],
        names: Mapping[int, str],
        reads: Sequence[frozenset[str]],
    ) -> None:
        self._bundle = bundle
        # By memo, when a thing was first seen together with it, and the thing: a field and a number or name.
        self._things: dict[int, list[tuple[int, str, int | str]]] = {}
        self._first: dict[int, int] = {}
        known: set[tuple[int, str, int | str]] = set()
        all_names = frozenset(names.values())
        called = [words & all_names for words in reads]
        for number in sorted(bundle.captures) if memos else ():
            capture = bundle.captures[number]
            if capture.kind is CaptureKind.SESSION:
                continue  # every test stands on it anyhow
            mask = 0
            for code in capture.codes & memos.keys():
                mask |= memos[code]
            if not mask:
                continue
            ran = {names[code] for code in capture.codes & names.keys()}
            for memo in bits(mask):
                self._first.setdefault(memo, number)
                if not called[memo] or not ran.isdisjoint(called[memo]):
                    self._add(memo, number, known)

    def _add(self, memo: int, number: int, known: set[tuple[int, str, int | str]]) -> None:
        for field in FIELDS:
            for thing in getattr(self._bundle.captures[number], field):
                if (memo, field, thing) not in known:
                    known.add((memo, field, thing))
                    self._things.setdefault(memo, []).append((number, field, thing))

    def things(self, memo: int, end: int | None) -> list[tuple[int, str, int | str]]:
        """What was read in captures that filled a memo and began before `end`: capture, field, thing."""
        found = self._things.get(memo, [])
        return found if end is None else found[: bisect_left(found, (end,))]

    def gaps(self, memo: int, end: int | None) -> tuple[tuple[Gap, str], ...]:
        """What went wrong when a memo was entered first.

        Not what went wrong later: who enters a memo mostly does many other things, and what is wrong with one
        test would be with all that follow.
        """
        first = self._first.get(memo)
        if first is None or (end is not None and first >= end):
            return ()
        return self._bundle.captures[first].gaps
