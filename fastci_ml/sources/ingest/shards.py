"""Which shards of a job there should be, by what they and their run.json say, and which are not there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

# "2/4", "2 of 4", "shard-2-of-4", "gpu (2/4)", "2_of_4": the spellings that tell the total by themselves.
_TELLING = re.compile(r"(\D*?)(\d{1,6})([ _-]*(?:/|of)[ _-]*)(\d{1,6})(\D*)", re.IGNORECASE)
_NUMBERED = re.compile(r"(\D*)(\d{1,6})(\D*)")
_MOST_NAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentShards:
    """Shards that no report speaks for.

    Attributes
    ----------
    n_absent, n_shards : int
        How many, of how many.
    names : tuple of str
        Which; empty where the names of the others do not tell.
    """

    n_absent: int
    n_shards: int
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say it in words, for one line.

        Examples
        --------
        >>> AbsentShards(n_absent=2, n_shards=4, names=("2/4", "4/4")).describe()
        '2 of 4 shards absent: 2/4, 4/4'
        """
        text = f"{self.n_absent:,} of {self.n_shards:,} shards absent"
        if not self.names:
            return f"{text} (which ones, the names of the others do not tell)"
        more = f" and {len(self.names) - _MOST_NAMES:,} more" if len(self.names) > _MOST_NAMES else ""
        return f"{text}: {', '.join(self.names[:_MOST_NAMES])}{more}"


def total_of(shard: str) -> int | None:
    """How many shards there are by the name of one; None where it does not say.

    Examples
    --------
    >>> [total_of(name) for name in ("2/4", "2 of 4", "shard-2-of-4", "2", "gpu-2", "5/4")]
    [4, 4, 4, None, None, None]
    """
    match = _TELLING.fullmatch(shard.strip())
    if match is None:
        return None
    number, total = int(match[2]), int(match[4])
    return total if total > 0 and number <= total else None


def find_absent(present: Collection[str], n_shards: int) -> AbsentShards | None:
    """Find out which shards are absent.

    Parameters
    ----------
    present : collection of str
        Names of the shards that are there.
    n_shards : int
        How many there should be.

    Returns
    -------
    AbsentShards or None
        None when none is. Names are told where those of the others show how shards are counted: from 0 when
        there is a 0; from 1 when there is one of the number `n_shards`, or when names tell the total, which
        every tool that writes them so counts from 1.

    Examples
    --------
    >>> find_absent(["shard-0", "shard-2"], 4).names
    ('shard-1', 'shard-3')
    >>> find_absent(["1", "2"], 4).describe()
    '2 of 4 shards absent (which ones, the names of the others do not tell)'
    """
    n_absent = n_shards - len(set(present))
    if n_absent <= 0:
        return None
    names = _missing_names(present, n_shards)
    return AbsentShards(n_absent=n_absent, n_shards=n_shards, names=names if len(names) == n_absent else ())


def in_order(shards: Iterable[str]) -> list[str]:
    """Names of shards in the order of people: 2 before 10.

    Examples
    --------
    >>> in_order(["10", "2", "1"])
    ['1', '2', '10']
    """
    return sorted(shards, key=shard_key)


def shard_key(shard: str) -> tuple[list[tuple[int, str]], str]:
    """Key that puts shards in the order of people."""
    words = re.findall(r"\d+|\D+", shard)
    return [(int(word), "") if word.isdecimal() and len(word) < 19 else (-1, word) for word in words], shard


def _missing_names(present: Collection[str], n_shards: int) -> tuple[str, ...]:
    """Names of the others in the style of those that are present; empty where these have no common style."""
    numbers, styles = set(), set()
    tells_total = False
    for shard in present:
        match = _TELLING.fullmatch(shard)
        if match is not None:
            styles.add((match[1], match[3] + match[4] + match[5]))
            tells_total = True
        else:
            match = _NUMBERED.fullmatch(shard)
            if match is None:
                return ()
            styles.add((match[1], match[3]))
        numbers.add(int(match[2]))
    if len(styles) != 1:
        return ()
    start = _start(numbers, n_shards, tells_total=tells_total)
    if start is None:
        return ()
    before, after = styles.pop()
    return tuple(
        f"{before}{number}{after}" for number in range(start, start + n_shards) if number not in numbers
    )


def _start(numbers: Sequence[int] | set[int], n_shards: int, *, tells_total: bool) -> int | None:
    if 0 in numbers:
        return 0
    return 1 if tells_total or n_shards in numbers else None
