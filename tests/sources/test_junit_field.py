"""JUnit files as they are in the field: not quite XML, of another kind, huge, hostile, or any bytes."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastci_ml.errors import ReportError
from fastci_ml.sources.junit import parser, reader
from fastci_ml.sources.junit.reader import read_junit
from fastci_ml.sources.reports import executions_table


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def told(path: Path) -> list[tuple[str, str]]:
    rows = executions_table(read_junit(path), run_id="r", job="", shard="", lane="l").to_pylist()
    return [(row["node_id"], row["outcome"]) for row in rows]


CLEAN = (
    "<?xml version='1.0' encoding='utf-8'?>\n<testsuites><testsuite name='pytest' tests='3'>"
    "<testcase classname='t.test_a' name='a[é]' time='0.5'><system-out>OUT</system-out></testcase>"
    "<testcase classname='t.test_a' name='b' time='0.5'><failure message='assert 0'>OUT</failure></testcase>"
    "<testcase classname='t.test_a' name='c' time='0.5'><skipped message='OUT'/></testcase>"
    "</testsuite></testsuites>"
)
ENDS = [("t/test_a.py::a[é]", "passed"), ("t/test_a.py::b", "failed"), ("t/test_a.py::c", "skipped")]


# case 33: bytes that are not XML


@pytest.mark.parametrize(
    ("content", "name", "note"),
    [
        (b"<testcase name='a\x1b' classname='t.test_a'/>", "a#x1B", "1 characters or bytes"),  # case 33
        (b"<testcase name='a&#27;[0m' classname='t.test_a'/>", "a#x1B[0m", "1 characters or bytes"),
        (b"<testcase name='a[\x00\xff]' classname='t.test_a'/>", "a[#x00\\xff]", "2 characters or bytes"),
        (
            b"<testcase name='\xef\xbf\xbe\xed\xa0\x80' classname='t.test_a'/>",
            "#xFFFE\\xed\\xa0\\x80",
            "4 char",
        ),
        (b"<testcase name='a & b' classname='t.test_a'/>", "a & b", "1 bare ampersands or brackets"),
        (b"<testcase name='a<b>' classname='t.test_a'/>", "a<b>", "1 bare ampersands or brackets"),
        (b"<testcase name='&eacute;' classname='t.test_a'/>", "&eacute;", "1 bare ampersands or brackets"),
        (
            b"<testcase name='a' time='<time>1</time>' classname='t.test_a'/>",
            "a",
            "2 bare ampersands",
        ),  # case 31
    ],
)
def test_what_xml_forbids_in_a_name_is_spelled_out_and_counted(
    tmp_path: Path, content: bytes, name: str, note: str
) -> None:
    path = write(tmp_path / "j.xml", b"<testsuite>" + content + b"<testcase name='t.test_b'/></testsuite>")
    assert told(path) == [(f"t/test_a.py::{name}", "passed"), ("t/test_b.py", "passed")]
    assert read_junit(path).notes[0].startswith(note)


def test_names_that_differ_in_a_forbidden_byte_only_stay_apart(tmp_path: Path) -> None:
    """Without a trace they would be one test, flaky as one of them fails."""
    cases = b"".join(
        b"<testcase classname='t.test_a' name='a[" + byte + b"]'>" + end + b"</testcase>"
        for byte, end in ((b"\x1b", b"<failure/>"), (b"\x1c", b""), (b"\xff", b"<failure/>"), (b"\xfe", b""))
    )
    path = write(tmp_path / "j.xml", b"<testsuite>" + cases + b"</testsuite>")
    assert len({node_id for node_id, _ in told(path)}) == 4


@pytest.mark.parametrize(
    "hurt", [b"\x1b[31m", b"\x00", b"\xff\xfe", b"a && b", b"1 < 2", b"&nbsp;", b"&#0;", b"&#xDFFF;", b"\xc3"]
)
def test_hurt_bodies_change_no_id_and_no_outcome(tmp_path: Path, hurt: bytes) -> None:
    path = write(tmp_path / "j.xml", CLEAN.encode().replace(b"OUT", hurt))
    assert told(path) == ENDS
    assert len(read_junit(path).notes) == 1


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("\n" + CLEAN, ""),
        ("Running tests...\n" + CLEAN, "15 characters around the report"),
        (CLEAN.encode("utf-8-sig"), ""),
        (codecs.BOM_UTF8 * 2 + CLEAN.encode(), ""),
        (CLEAN.encode() + b"\n\n", ""),
        (CLEAN.encode() + b"\0" * 7, "7 characters or bytes"),
        (CLEAN + "\x1a", "1 characters or bytes"),
        (CLEAN + "\ndone: it's 100 % \n", "16 characters around the report"),
        (CLEAN.replace("utf-8", "utf-16"), "declared as utf-16, read as utf-8"),
        (CLEAN.replace("utf-8", "no-such"), "declared as no-such, read as utf-8"),
        (CLEAN.replace("utf-8", "us-ascii"), "declared as us-ascii, read as utf-8"),
        (CLEAN.replace("'1.0'", "'1.1'"), ""),
        (CLEAN.replace("utf-8", "windows-1252").encode("cp1252"), ""),
        (CLEAN.replace("utf-8", "latin-1").encode("latin-1"), ""),
        (CLEAN.replace("utf-8", "mac-roman").encode("mac-roman"), ""),
        (CLEAN.replace("utf-8", "gb18030").encode("gb18030"), ""),
        (CLEAN.encode("utf-16"), ""),
        (CLEAN.replace("utf-8", "utf-16").encode("utf-16"), ""),
        (CLEAN.replace("utf-8", "utf-16").encode("utf-16-be"), ""),
        (CLEAN.encode("utf-32"), ""),
        (CLEAN.replace("utf-8", "utf-32").encode("utf-32-le"), ""),
    ],
)
def test_what_surrounds_and_encodes_a_report_changes_nothing_in_it(
    tmp_path: Path, content: str | bytes, note: str
) -> None:
    path = write(tmp_path / "j.xml", content)
    assert told(path) == ENDS
    notes = read_junit(path).notes
    assert notes[0].startswith(note) if note else notes == ()


def test_a_clean_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "XmlRepair", None)
    assert told(write(tmp_path / "j.xml", CLEAN)) == ENDS


@pytest.mark.parametrize("hurt", ["", "&", "\x1b"])
def test_a_torn_file_is_never_made_whole(tmp_path: Path, hurt: str) -> None:
    whole = CLEAN.replace("OUT", f"OUT{hurt}").encode()
    path = tmp_path / "j.xml"
    for length in range(0, len(whole), 7):
        write(path, whole[:length])
        with pytest.raises(ReportError, match=r"j.xml: (torn|no XML).*: line \d+, column \d+"):
            read_junit(path)
    # As a file system leaves it that had no time to write the end.
    write(path, whole[:-30] + b"\0" * 30)
    with pytest.raises(ReportError, match=r"j.xml: (torn|no XML).*: line \d+, column \d+"):
        read_junit(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<testsuite>\n<testcase></testsuite>", r"mismatched tag: line 2, column 12"),
        ("<testsuite><testcase name='a' name='b'/></testsuite>", r"duplicate attribute: line 1, column 30"),
        (
            "<testsuite>\n\n<testcase name=a/></testsuite>",
            r"not well-formed \(invalid token\): line 3, column 15",
        ),
        ("<testsuite><testcase message='it's'/></testsuite>", r"line 1, column 33"),
        (
            CLEAN + CLEAN.partition("\n")[2],
            "more elements behind the end of the root, expected one report a file",
        ),
        (
            CLEAN + "' name='old'/></testsuite>",
            "more elements behind the end of the root, expected one report a file",
        ),
        ("no XML at all", r"torn: .*no element found: line 1, column 0"),
    ],
)
def test_what_cannot_be_repaired_is_named_with_its_place(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ReportError, match=message) as found:
        read_junit(write(tmp_path / "j.xml", content))
    assert str(found.value).startswith(f"{tmp_path / 'j.xml'}: ")


# case 32: other roots


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("coverage", "a coverage report"),
        ("checkstyle", "a linter"),
        ("html", "a web page"),
        ("test-run", "NUnit 3"),
        ("assemblies", "xUnit.net"),
        ("TestRun", "Visual Studio"),
        ("n:robot", "Robot Framework"),
        ("whatever", "expected <testsuites> or <testsuite>"),
        ("x" * 100_000, "expected <testsuites> or <testsuite>"),
    ],
)
def test_a_file_of_another_kind_is_named_by_its_root(tmp_path: Path, root: str, words: str) -> None:
    declared = " xmlns:n='urn:n'" if ":" in root else ""
    path = write(
        tmp_path / "j.xml", f"<{root}{declared}><testsuite><testcase name='a'/></testsuite></{root}>"
    )
    with pytest.raises(ReportError, match=words) as found:
        read_junit(path)
    assert len(str(found.value)) < 1000


# case 34: huge, and hostile


def bodies(n_bytes: int, kind: str) -> list[bytes]:
    """Pieces of a report with one large thing in it; most of the file is that."""
    line = b"[2026-01-01 00:00:00] one line of a log\n"
    many = [line * 1000] * (n_bytes // len(line) // 1000)
    flat, blank = [b"x" * 100_000] * (n_bytes // 100_000), [b"\n" * 100_000] * (n_bytes // 100_000)
    # Elements take longer than text.
    failures = [b"<failure message='E  assert 0'/>" * 100] * (n_bytes // 20_000)
    properties = [b"<property name='a' value='b'/>" * 100] * (n_bytes // 20_000)
    comments = [b"<!-- " + b"c" * 10_000 + b" -->"] * (n_bytes // 10_000)
    suite, start = b"<testsuite>", b"<testcase classname='t.test_a' name='a'>"
    tail = b"</testcase><testcase classname='t.test_a' name='b'/></testsuite>"
    return {
        "system-out": [suite, start, b"<system-out>", *many, b"</system-out>", tail],
        "one line": [suite, start, b"<system-err>", *flat, b"</system-err>", tail],
        "failure": [suite, start, b"<failure>E  assert 0\n", *many, b"</failure>", tail],
        "CDATA": [suite, start, b"<failure><![CDATA[E  assert 0\n", *many, b"]]></failure>", tail],
        "blank lines": [suite, start, b"<failure>E  assert 0\n", *blank, b"</failure>", tail],
        "hurt": [suite, start, b"<system-out>&", *many, b"\x1b</system-out>", tail],
        "results": [suite, start, *failures, tail],
        "properties": [suite, b"<properties>", *properties, b"</properties>", start, tail],
        "comments": [suite, start, *comments, tail],
    }[kind]


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    try:
        assert [node_id for node_id, _ in told(path)] == ["t/test_a.py::a", "t/test_a.py::b"]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "kind",
    [
        "system-out",
        "one line",
        "failure",
        "CDATA",
        "blank lines",
        "hurt",
        "results",
        "properties",
        "comments",
    ],
)
def test_memory_does_not_grow_with_what_is_not_kept(tmp_path: Path, kind: str) -> None:
    """Case 34 and its kind, ten times as large against a tenth: expat's own memory is looked at below."""
    path = tmp_path / "j.xml"
    peaks = {}
    for n_bytes in (400_000, 1_200_000, 12_000_000):
        with path.open("wb") as file:
            file.writelines(bodies(n_bytes, kind))
        peaks[n_bytes] = peak_bytes(path)
    assert peaks[12_000_000] - peaks[1_200_000] < 1_000_000


def test_a_process_does_not_grow_with_a_body(tmp_path: Path) -> None:
    """Resident memory, expat's included: a 60 MB report with 12 MB bodies against one of 1 MB."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom fastci_ml.sources.junit.reader import read_junit\n"
        "assert len(read_junit(Path(sys.argv[1]))) == 10\n"
        "status = Path('/proc/self/status').read_text()\nprint(status.split('VmHWM:')[1].split()[0])\n"
    )
    peaks = []
    for n_bytes in (100_000, 12_000_000):
        with (tmp_path / "j.xml").open("wb") as file:
            file.write(b"<testsuites>")
            for kind in ("system-out", "one line", "failure", "CDATA", "blank lines"):
                file.writelines(bodies(n_bytes, kind))
            file.write(b"</testsuites>")
        found = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "j.xml")],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(found.stdout))
    assert peaks[1] - peaks[0] < 4 * 1024


def test_a_large_attribute_costs_a_few_times_its_size_and_is_not_scanned_for_each_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expat needs a tag as a whole, and begins anew with each block: the time would be quadratic."""
    told(write(tmp_path / "j.xml", CLEAN))  # what is imported on first use
    large = "y" * 12_000_000
    path = write(
        tmp_path / "j.xml",
        f"<testsuite><testcase classname='t.test_a' name='a' note='{large}'><failure message='E  {large}'/>"
        "</testcase><testcase classname='t.test_a' name='b'/></testsuite>",
    )
    assert peak_bytes(path) < 6 * len(large)
    flush, n_chunks = parser.JunitParser._flush, 0

    def counted(self: parser.JunitParser) -> None:
        nonlocal n_chunks
        n_chunks += 1
        flush(self)

    monkeypatch.setattr(parser.JunitParser, "_flush", counted)
    report = read_junit(path)
    assert report.messages == {0: "E  " + "y" * 197}
    assert report.notes == ()
    assert n_chunks < 30


def test_a_name_that_is_none_is_cut_with_a_note_and_stays_apart(tmp_path: Path) -> None:
    long = "z" * 3_000_000
    cases = "".join(f"<testcase classname='t.test_a' name='{long}{end}'/>" for end in ("1", "2", "1"))
    path = write(tmp_path / "j.xml", f"<testsuite tests='3'>{cases}</testsuite>")
    report = read_junit(path)
    names = report.node_ids.to_pylist()
    assert names[0] == names[2] != names[1]
    assert max(map(len, names)) < 140_000
    assert not report.is_joined.any()
    assert report.notes == ("3 cases have names that are too long to be any, and were cut",)


def test_a_tag_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "j.xml").open("wb") as file:
        file.write(b"<testsuite>\n<testcase name='")
        for _ in range(40):
            file.write(b"x" * (1 << 20))
    with pytest.raises(ReportError, match="line 2: a tag or comment of more than 32 MiB"):
        read_junit(tmp_path / "j.xml")


def test_deep_and_wide_markup_is_read(tmp_path: Path) -> None:
    deep = "<x>" * 100_000 + "</x>" * 100_000
    wide = "".join(f" a{i}=''" for i in range(100_000))
    path = write(
        tmp_path / "j.xml",
        f"<testsuite>{deep}<testcase classname='t.test_a' name='a'{wide}><failure>{deep}</failure>"
        f"</testcase><testcase classname='t.test_a' name='b'>{deep}</testcase></testsuite>",
    )
    assert told(path) == [("t/test_a.py::a", "failed"), ("t/test_a.py::b", "passed")]


def test_more_results_than_a_case_can_have_keep_a_failure_among_them(tmp_path: Path) -> None:
    skips = "<skipped/>" * 2_000
    path = write(
        tmp_path / "j.xml",
        f"<testsuite><testcase classname='t.test_a' name='a'>{skips}<failure/>{skips}</testcase></testsuite>",
    )
    assert told(path) == [("t/test_a.py::a", "failed")]
    assert read_junit(path).notes[0].startswith("3001 results of cases with more than a thousand")


ENTITIES = {
    "billion laughs": "<!DOCTYPE l [<!ENTITY a 'ha'>" + "".join(
        f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)) + "]>",
    "external": "<!DOCTYPE l [<!ENTITY i SYSTEM 'file:///etc/passwd'>]>",
    "parameter": "<!DOCTYPE l [<!ENTITY % p SYSTEM 'http://127.0.0.1:9/x.dtd'> %p;]>",
    "plain": "<!DOCTYPE testsuite>",
}  # fmt: skip


@pytest.mark.parametrize("name", ENTITIES)
@pytest.mark.parametrize("hurt", ["", "&"])
def test_a_document_type_is_refused_also_where_there_is_something_to_repair(
    tmp_path: Path, name: str, hurt: str
) -> None:
    path = write(tmp_path / "j.xml", f"{hurt}{ENTITIES[name]}<testsuite><testcase name='&i;'/></testsuite>")
    with pytest.raises(ReportError, match="a document type is declared"):
        read_junit(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "j.xml")
    with pytest.raises(ReportError, match="a pipe, expected a regular file"):
        read_junit(tmp_path / "j.xml")


# Laws


def is_report_or_named_error(path: Path, body: bytes) -> None:
    write(path, body)
    try:
        table = executions_table(read_junit(path), run_id="r", job="", shard="", lane="l")
        message = f"{path}: {len(table)} attempts"
    except ReportError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")


_attributes = st.sampled_from(
    [" name='a'", " time='0,5'", " tests='2'", " message='failed on teardown with \"x\"'", " hostname='tbd'",
     " classname='t.test_a'", " status='failed'", " timestamp='0001-01-01T00:00:00+23:59'", " x:y='1'", ""]
)  # fmt: skip
_tags = st.sampled_from(
    ["testsuites", "testsuite", "testcase", "failure", "error", "skipped", "flakyFailure", "rerunError",
     "system-out", "properties", "property", "n:testcase", "n:testsuite"]
)  # fmt: skip
_markup = st.recursive(
    st.text(st.sampled_from("ab \n&<>é\x1b\ufffe]"), max_size=6),
    lambda inner: st.builds(
        lambda tag, attributes, children: f"<{tag}{''.join(attributes)}>{''.join(children)}</{tag}>",
        _tags,
        st.lists(_attributes, max_size=3, unique=True),
        st.lists(inner, max_size=5),
    ),
    max_leaves=25,
).map(lambda body: f"<testsuites xmlns:n='u' xmlns:x='v'>{body}</testsuites>")

ENCODINGS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "latin-1",
    "cp1252",
    "gb18030",
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Bytes of a report that were cut, flipped, doubled, added to, or written or declared as others."""
    text = draw(st.one_of(st.just(CLEAN), _markup))
    if draw(st.booleans()):
        declared = draw(st.sampled_from([*ENCODINGS, "no-such", "idna", "zlib", "unicode_escape", "cp037"]))
        text = f"<?xml version='1.0' encoding='{declared}'?>" + text.partition("?>\n")[2]
    body = text.encode(draw(st.sampled_from(ENCODINGS)), "replace")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        until = draw(st.integers(at, min(len(body), at + 200)))
        more = draw(st.one_of(st.binary(max_size=4), st.just(body[at:until]), st.just(b"\0" * 9)))
        body = draw(
            st.sampled_from([body[:at], body[:at] + more + body[at:], body[:at] + more + body[until:]])
        )
    return body


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("junit") / "j.xml"


@given(body=st.binary(max_size=300))
def test_any_bytes_are_a_report_or_a_named_error(scratch: Path, body: bytes) -> None:
    is_report_or_named_error(scratch, body)


@given(body=damaged())
def test_any_damage_leaves_a_report_or_a_named_error(scratch: Path, body: bytes) -> None:
    is_report_or_named_error(scratch, body)


@given(
    hurt=st.lists(
        st.sampled_from([b"\x1b", b"\xff", b"&", b"&#0;", b" < ", b"x", b"\xc3\xa9"]), max_size=9
    ).map(b"".join)
)
def test_whatever_hurts_a_body_changes_no_id_and_no_outcome(scratch: Path, hurt: bytes) -> None:
    assert told(write(scratch, CLEAN.encode().replace(b"OUT", hurt))) == ENDS


@given(markup=_markup, size=st.integers(1, 200))
def test_where_the_blocks_of_a_file_end_makes_no_difference(scratch: Path, markup: str, size: int) -> None:
    def outcome(patch: Callable[[pytest.MonkeyPatch], None]) -> object:
        context = pytest.MonkeyPatch()
        with context.context() as patched:
            patch(patched)
            try:
                report = read_junit(scratch)
                return told(scratch), report.notes, report.durations_s.tolist().__repr__()
            except ReportError as error:
                return str(error)

    write(scratch, markup)
    whole = outcome(lambda patched: None)
    assert outcome(lambda patched: patched.setattr(reader, "_BLOCK_BYTES", size)) == whole


def test_the_limit_of_a_tag_is_more_than_any_block(scratch: Path) -> None:
    assert parser._TAG_LIMIT_BYTES > 100 * reader._BLOCK_BYTES
