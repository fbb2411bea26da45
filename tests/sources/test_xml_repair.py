"""What XML forbids is repaired, whatever the blocks of the stream, and nothing is ever completed."""

from __future__ import annotations

import encodings.aliases
import io
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastci_ml.sources.junit import xml_repair
from fastci_ml.sources.junit.xml_repair import XmlRepair, encoding_of


def repaired(content: bytes) -> tuple[str, XmlRepair]:
    repair = XmlRepair()
    return b"".join(repair.blocks(io.BytesIO(content))).decode(), repair


@pytest.mark.parametrize(
    ("content", "expected", "n_illegal", "n_markup"),
    [
        (b"<a b='\x1b'>\x00\x7f</a>", "<a b='#x1B'>#x00\x7f</a>", 2, 0),
        (b"<a b='&#27;&#x1B;&#65;&#10;'/>", "<a b='#x1B#x1B&#65;&#10;'/>", 2, 0),
        (b"<a>&#xD800;&#xFFFE;&#1114112;</a>", "<a>#xD800#xFFFE&amp;#1114112;</a>", 2, 1),
        ("<a>\ufffe\uffff\ufffd</a>".encode(), "<a>#xFFFE#xFFFF\ufffd</a>", 2, 0),
        (b"<a b='\xff\xc3'>\xed\xa0\x80</a>", "<a b='\\xff\\xc3'>\\xed\\xa0\\x80</a>", 5, 0),
        (
            b"<a b='x & y &nbsp; &amp; &'>&lt &gt;</a>",
            "<a b='x &amp; y &amp;nbsp; &amp; &amp;'>&amp;lt &gt;</a>",
            0,
            4,
        ),
        (b'<a b="<c>1</c>">1 < 2 <= 3</a>', '<a b="&lt;c>1&lt;/c>">1 &lt; 2 &lt;= 3</a>', 0, 4),
        (b"<a>]]> ]]</a>", "<a>]]&gt; ]]</a>", 0, 1),
        (b"<a><![CDATA[ & < \x1b ]]>&</a>", "<a><![CDATA[ & < #x1B ]]>&amp;</a>", 1, 1),
        (b"<?xml version='1.0'?><!-- -- & --><a><?x & ?></a>", "<a></a>", 0, 0),
        (b"\xef\xbb\xbf\n <a/>\n", "<a/>\n", 0, 0),
    ],
)
def test_what_xml_forbids_is_spelled_out_and_counted(
    content: bytes, expected: str, n_illegal: int, n_markup: int
) -> None:
    text, repair = repaired(content)
    assert text == expected
    assert (repair.n_illegal, repair.n_markup) == (n_illegal, n_markup)


@pytest.mark.parametrize(
    "content", [b"<a", b"<a b='", b"<a b=''", b"<a>", b"<a><!--", b"<a><![CDATA[x", b"<a>&am"]
)
def test_nothing_is_completed(content: bytes) -> None:
    with pytest.raises(ET.ParseError):
        ET.fromstring(repaired(content)[0])


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        (b"<a/>", "utf-8"),
        (b"<?xml version='1.0' encoding='UTF-8'?>", "UTF-8"),
        (b"<?xml version='1.0' encoding='windows-1252'?>", "windows-1252"),
        (b"<?xml version='1.0' encoding='shift_jis'?>", "shift_jis"),
        (b"<?xml version='1.0' encoding='us-ascii'?>", "utf-8"),
        # The bytes that declare these are none of them.
        (b"<?xml version='1.0' encoding='utf-16'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='utf-32'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='cp037'?>", "utf-8"),
        # No encodings of text, or none with markup in it.
        (b"<?xml version='1.0' encoding='no-such'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='zlib'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='unicode_escape'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='raw_unicode_escape'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='utf-7'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='hz'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='idna'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='punycode'?>", "utf-8"),
        (b"<?xml version='1.0' encoding='undefined'?>", "utf-8"),
        (b"", "utf-8"),
    ],
)
def test_a_declared_encoding_is_believed_as_far_as_it_can_be(head: bytes, encoding: str) -> None:
    assert encoding_of(head) == encoding


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
)
def test_wide_encodings_are_known_by_their_bytes(encoding: str) -> None:
    text, repair = repaired("<a b='é日'/>".encode(encoding))
    assert text == "<a b='é日'/>"
    assert repair.n_illegal == 0


@pytest.mark.parametrize("encoding", sorted({*encodings.aliases.aliases.values(), "cp65001"}))
def test_any_bytes_in_any_encoding_come_out_as_utf_8(encoding: str) -> None:
    content = f"<?xml version='1.0' encoding='{encoding}'?><a>".encode() + bytes(range(256)) * 3
    text, repair = repaired(content)
    assert text.startswith("<a>")
    assert repair.n_illegal


PIECES = (
    *(
        "<a>",
        "</a>",
        "<a b='",
        "'",
        '"',
        "<",
        ">",
        "&",
        "&lt;",
        "&#27;",
        "&#x41;",
        ";",
        "]]>",
        "]",
        "<![CDATA[",
    ),
    *("<!--", "-->", "<?x", "?>", "x", " ", "\x1b", "é", "\ufffe", '<b c="d"/>', "/"),
)
_pieces = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@given(content=_pieces, size=st.integers(1, 9))
@example("<a b='" + "&" * 40 + "'>" + "]" * 40 + "</a>", 3)
def test_where_the_blocks_end_makes_no_difference(content: str, size: int) -> None:
    whole = repaired(content.encode())
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(xml_repair, "_BLOCK_BYTES", size)
        pieces = repaired(content.encode())
    assert pieces[0] == whole[0]
    assert (pieces[1].n_illegal, pieces[1].n_markup, pieces[1].n_before) == (
        whole[1].n_illegal,
        whole[1].n_markup,
        whole[1].n_before,
    )


@given(content=_pieces)
def test_what_is_xml_stays_what_it_is(content: str) -> None:
    try:
        before = ET.fromstring(content)
    except ET.ParseError:
        return
    text, repair = repaired(content.encode())
    after = ET.fromstring(text)
    assert ET.tostring(after) == ET.tostring(before)
    assert (repair.n_illegal, repair.n_markup) == (0, 0)


@given(content=_pieces)
def test_what_is_repaired_has_nothing_left_to_repair(content: str) -> None:
    once = repaired(content.encode())[0]
    again, repair = repaired(once.encode())
    assert again == once
    assert (repair.n_illegal, repair.n_markup) == (0, 0)


HOSTILE = (
    b"<a b='" + b"<" * 1_000_000,
    b"<a " + b"b='' " * 200_000,
    b"&" * 1_000_000,
    b"]" * 1_000_000,
    b"<" * 300_000,
    b"<a>" * 300_000,
    b"<a>" + b"\x00" * 300_000,
    b"<a><!--" + b"-" * 1_000_000,
)


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_bytes_take_time_and_memory_that_grow_with_them_only(content: bytes) -> None:
    """Quadratic steps would take hours here; a block is put out for each that comes in."""
    largest = max(map(len, XmlRepair().blocks(io.BytesIO(content))))
    assert largest <= 8 * (1 << 17)
