"""Bundles of strangers: whatever a file holds or is, reading it ends, in bounded memory, with an answer."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from bundle_makers import PROVENANCE, content, write_small_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from fastci_ml.errors import EvidenceError
from fastci_ml.evidence.bundle.lines import SUFFIX, seal
from fastci_ml.evidence.bundle.reader import find_bundles, read_bundle
from fastci_ml.records.evidence_kinds import Gap

# Reads a bundle in a process whose address space is limited, and says what it found.
_READ_IN_LITTLE = """
import resource, sys
from pathlib import Path
from fastci_ml.evidence.bundle.reader import read_bundle
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
bundle = read_bundle(Path(sys.argv[1]))
print([gap.value for gap, _ in bundle.gaps], len(bundle.captures))
"""


def _read_in_little(path: Path, limit_bytes: int = 700 << 20) -> str:
    command = [sys.executable, "-c", _READ_IN_LITTLE, str(path), str(limit_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def _with_line(tmp_path: Path, raw: bytes) -> Path:
    """The small bundle with one more line, closed behind it as its writer would have."""
    path = write_small_bundle(tmp_path, is_closed=False)
    before = path.read_bytes()
    path.write_bytes(before + raw + seal(["end", before.count(b"\n") + 1]))
    return path


@pytest.mark.parametrize("n_bytes", [400 << 20, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_a_huge_line_is_damage_and_not_held(tmp_path: Path, n_bytes: int) -> None:
    path = write_small_bundle(tmp_path, is_closed=False)
    with path.open("r+b") as stream:
        # A hole in the file: zeros up to the end, and no line end among them.
        stream.truncate(n_bytes)
    assert _read_in_little(path, 300 << 20) == "['torn_line', 'no_end_mark'] 3"


@pytest.mark.parametrize("piece", [b'[0,"', b'{"a":', b"[[],", b"1" * 5_000 + b","])
def test_json_that_is_a_bomb_is_damage(tmp_path: Path, piece: bytes) -> None:
    # Sealed as a whole line, so that the checksum does not save us.
    body = b'["file",' + piece * ((8 << 20) // len(piece))
    path = _with_line(tmp_path, b"%08x %s\n" % (zlib.crc32(body), body))
    assert _read_in_little(path) == "['torn_line'] 3"


@pytest.mark.parametrize("brackets", ["[]", "{}"], ids=["lists", "objects"])
def test_deep_nesting_that_is_whole_json_is_damage(tmp_path: Path, brackets: str) -> None:
    opened = "[" if brackets == "[]" else '{"a":'
    body = f'["capture",9,"test","t",{opened * 100_000}1{brackets[1] * 100_000}]'.encode()
    path = _with_line(tmp_path, b"%08x %s\n" % (zlib.crc32(body), body))
    assert _read_in_little(path) == "['torn_line'] 3"


def test_many_captures_are_read_in_linear_time_and_memory(tmp_path: Path) -> None:
    path = write_small_bundle(tmp_path, is_closed=False)
    lines = [seal(["capture", 10 + n, "test", "t", {"uses": [9 + n]}]) for n in range(50_000)]
    path.write_bytes(path.read_bytes() + b"".join(lines))
    assert _read_in_little(path) == "['no_end_mark'] 50003"


def test_what_is_no_regular_file_is_found_and_refused(tmp_path: Path) -> None:
    good = write_small_bundle(tmp_path)
    (tmp_path / f"folder{SUFFIX}").mkdir()
    os.mkfifo(tmp_path / f"pipe{SUFFIX}")
    (tmp_path / f"loop{SUFFIX}").symlink_to(f"loop{SUFFIX}")
    (tmp_path / f"astray{SUFFIX}").symlink_to("nowhere")
    (tmp_path / f"device{SUFFIX}").symlink_to(os.devnull)
    found = find_bundles([tmp_path, tmp_path / f"absent{SUFFIX}"])
    assert len(found) == 7
    refused = {}
    for path in found:
        if path != good:
            with pytest.raises(EvidenceError) as error:
                read_bundle(path)
            refused[path.name.removesuffix(SUFFIX)] = str(error.value)
    assert "a folder, expected a regular file" in refused["folder"]
    assert "a pipe, expected a regular file" in refused["pipe"]
    assert "a device, expected a regular file" in refused["device"]
    assert "leads back to itself" in refused["loop"]
    assert "not there" in refused["astray"]
    assert "No such file" in refused["absent"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 4)
    | st.floats()
    | st.sampled_from(["capture", "test", "codes", "gaps", "outcome", "started_us", "passed", "a"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["codes", "uses", "gaps", "outcome", "started_us"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
WORDS = st.sampled_from(["file", "code", "capture", "ran", "edge", "end", "begin", "other"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("small"), is_closed=False)


@settings(max_examples=300)
@given(lines=st.lists(st.tuples(WORDS, st.lists(JSON, max_size=4)), max_size=5))
def test_sealed_lines_of_anything_give_gaps_and_no_error(
    small: Path, tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, list[Any]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(small.read_bytes() + b"".join(seal([word, *rest]) for word, rest in lines))
    bundle = read_bundle(path)
    if not any(word == "end" for word, _ in lines):
        assert Gap.NO_END_MARK in dict(bundle.gaps)
    assert bundle.provenance == PROVENANCE
    # What came in is of the types that it says: nothing else can reach the store.
    for number, capture in bundle.captures.items():
        assert type(number) is int
        assert all(type(code) is int and code in bundle.codes for code in capture.codes)
        assert all(type(file) is int and file in bundle.files for file in capture.reads | capture.imports)
    for facts in bundle.runs.values():
        assert type(facts.outcome) is str
        assert type(facts.started_us) is int


@settings(max_examples=200)
@given(data=st.binary(max_size=200), keep=st.integers(0, 1_500))
def test_any_bytes_behind_a_beginning_give_a_gap_or_a_refusal(
    small: Path, tmp_path_factory: pytest.TempPathFactory, data: bytes, keep: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(small.read_bytes()[:keep] + data)
    try:
        bundle = read_bundle(path)
    except EvidenceError:
        return
    assert bundle.gaps
    assert content(bundle)[0] == PROVENANCE
