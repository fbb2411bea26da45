"""Posting lists: what was packed is read again, by each of the two ways, and what is no list is refused."""

from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.evidence.store.postings import (
    BITS,
    DEFLATED,
    GAPS,
    WIDE,
    DamagedListError,
    has,
    pack,
    split,
    unpack,
)
from fastci_ml.evidence.store.union import unite

N_RECORDS = 200_000
# Dense, clustered, and so sparse that gaps do not fit their bytes.
steps = st.one_of(
    st.integers(1, 3), st.integers(1, 600), st.sampled_from([1, 254, 255, 256, 510, 65535, 70_000])
)


@st.composite
def number_lists(draw: st.DrawFn) -> list[int]:
    found, number = [], 0
    for step in draw(st.lists(steps, min_size=1, max_size=60)):
        for _ in range(draw(st.sampled_from([1, 1, 1, 40]))):
            number += step
            if number <= N_RECORDS:
                found.append(number)
    return found or [draw(st.integers(1, N_RECORDS))]


@pytest.fixture(params=["plain", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("numpy")
    if request.param == "plain":
        monkeypatch.delitem(sys.modules, "numpy")
    return request.param


@given(numbers=number_lists())
def test_packed_numbers_come_back(numbers: list[int]) -> None:
    blob = pack(numbers)
    assert unpack(blob) == numbers
    known = set(numbers)
    for number in [*numbers[:5], numbers[-1], numbers[-1] + 1, 1, N_RECORDS]:
        assert has(blob, number) == (number in known)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([8], GAPS),
        (range(1, 9), BITS),
        (range(1, 100_000), BITS | DEFLATED),
        ([255, 510, 511], GAPS),
        (range(100, 100_000, 100), GAPS | DEFLATED),
        ([1, 65536, 65537, 131072, 131073 + 65535], WIDE),
        (range(300, 200_000, 300), WIDE | DEFLATED),
    ],
)
def test_each_kind_of_list_is_written_and_read(numbers: list[int], kind: int) -> None:
    blob = pack(list(numbers))
    assert blob[0] == kind
    assert unpack(blob) == list(numbers)


def test_a_pair_takes_no_more_than_two_bytes() -> None:
    # Whatever the density: a bit each where records are many, two bytes where they are few.
    for step in (1, 2, 7, 8, 9, 100, 254, 255, 256, 300, 5000, 60_000):
        numbers = list(range(step, 500_000, step))
        assert len(pack(numbers)) <= 2 * len(numbers) + 1


@given(lists=st.lists(number_lists(), max_size=8), without=st.none() | number_lists())
def test_union_is_that_of_sets_by_either_way(lists: list[list[int]], without: list[int] | None) -> None:
    expected = sorted(
        {number + 7 for numbers in lists for number in numbers} - {n + 7 for n in without or ()}
    )
    blobs = list(map(pack, lists))
    packed = None if without is None else pack(without)
    numpy = pytest.importorskip("numpy")
    assert list(unite(blobs, packed, N_RECORDS, 7)) == expected
    try:
        del sys.modules["numpy"]
        assert list(unite(blobs, packed, N_RECORDS, 7)) == expected
    finally:
        sys.modules["numpy"] = numpy


def test_union_of_more_lists_than_one_pass_takes(way: str) -> None:
    lists = [list(range(start, N_RECORDS, 97)) for start in range(1, 98)] * 3
    lists += [list(range(start, N_RECORDS, 397)) for start in range(1, 20)]
    assert list(unite(map(pack, lists), None, N_RECORDS, 0)) == list(range(1, N_RECORDS))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        bytes([GAPS]),
        bytes([3, 1]),
        bytes([32, 1]),
        bytes([GAPS | DEFLATED, 255, 255]),
        bytes([WIDE, 1]),
        bytes([GAPS, 0]),
        bytes([GAPS, 11]),
        bytes([WIDE, 11, 0]),
        bytes([BITS, 0, 4]),
        bytes([BITS, 0, 0, 0, 0, 0, 0, 0, 1]),
    ],
)
def test_what_is_no_list_of_ten_records_is_refused(way: str, blob: bytes) -> None:
    with pytest.raises(DamagedListError, match="damaged"):
        unite([pack([1, 2, 3]), blob], None, 10, 0)


@given(
    blob=st.binary(max_size=40),
    numbers=number_lists(),
    place=st.integers(0, 10_000),
    flip=st.integers(1, 255),
)
def test_any_bytes_are_read_or_refused(blob: bytes, numbers: list[int], place: int, flip: int) -> None:
    bent = bytearray(pack(numbers))
    bent[place % len(bent)] ^= flip
    for damaged in (blob, bytes(bent), bytes(bent[: place % len(bent)])):
        for read in (split, unpack, lambda it: has(it, 3), lambda it: unite([it], None, 100, 0)):
            with contextlib.suppress(DamagedListError):
                read(damaged)
