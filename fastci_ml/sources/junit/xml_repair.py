"""What XML forbids, taken out of a stream: control characters, bare ampersands, bytes of another encoding.

Only what stands inside of texts and values is touched, and nothing is ever completed: a file that ends too
early ends too early here as well. A filter in flat memory, which runs only over files that expat has refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

_BLOCK_BYTES = 1 << 17
_HEAD_BYTES = 1024
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAMED = "amp|lt|gt|quot|apos"
_AMPERSAND = re.compile(rf"&(?:(?:{_NAMED});|#(\d{{1,12}});|#x([0-9A-Fa-f]{{1,10}});)?")
_NAME_START = re.compile(r"</?[A-Za-z_:\x80-\U0010ffff]|<!")
# Ends of a block that only the next one explains: half a reference, half of "]]>".
_UNFINISHED = re.compile(r"(?:&[#\w]{0,14}|\]{1,2})\Z")
# A tag and the text before it without anything to repair: most of any file. Linear, since no two parts of it
# can take the same character.
_GOOD = re.compile(
    r"""[^<&\]]*</?[A-Za-z_:][^<>"'&]*(?:"[^"<&]*"[^<>"'&]*|'[^'<&]*'[^<>"'&]*)*>""",
)
_TAG_MARK = re.compile("[\"'>]")
_DECLARED = re.compile(rb"\s*<\?xml[^>]*?encoding\s*=\s*[\"']([A-Za-z][\w.:-]*)[\"']")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0\0\0", "utf-32-le"),
    (b"\0\0\0<", "utf-32-be"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
# What a code must leave alone to be trusted with markup; its second half is what escapes of codes look like.
_ASCII = "<?xml version='1.0' a=\"b\"/>&;#[]{}09azAZ" + "\\x41\\u0041 +AGE- ~{VP~} .xn--80ak6aa92e."
_UNDECODABLE = "fastci_ml.undecodable"


def encoding_of(head: bytes) -> str:
    """Encoding of a file by its first bytes, and by what it declares as far as that can be.

    Parameters
    ----------
    head : bytes
        The first 1,024 bytes of the file or more.

    Returns
    -------
    str
        UTF-8 where the declared code is unknown, or belies the bytes that declare it.

    Examples
    --------
    >>> encoding_of(b"<?xml version='1.0' encoding='cp1252'?>"), encoding_of(b"<?xml encoding='utf-16'?>")
    ('cp1252', 'utf-8')
    >>> encoding_of("<testsuite/>".encode("utf-16-le"))
    'utf-16-le'
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    declared = _DECLARED.match(head)
    name = declared[1].decode("ascii") if declared else "utf-8"
    # Nobody declares ASCII and means that other bytes are errors.
    return name if _keeps_ascii(name) and codecs.lookup(name).name != "ascii" else "utf-8"


class XmlRepair:
    r"""One pass over a file, and what it had to repair.

    Attributes
    ----------
    n_illegal : int
        Characters that XML forbids, references to such, and bytes that are none of the file's encoding. They
        are spelled out, characters as pytest does (``#x1B``), bytes as the history does (``\xff``): if they
        left no trace, two tests could get one name.
    n_markup : int
        Bare ampersands and angle brackets, which stand for themselves now.
    n_before : int
        Characters before the first tag, left out; blanks are not counted.
    encoding : str
        What the file was decoded as.
    declared : str
        What it declares instead; empty where that is the same, or nothing.
    """

    def __init__(self) -> None:
        self.n_illegal = 0
        self.n_markup = 0
        self.n_before = 0
        self.encoding = self.declared = ""
        self._out: list[str] = []
        self._quote = ""
        self._is_started = False
        self._step: Callable[[str, int, bool], int] = self._text

    def blocks(self, file: BinaryIO) -> Iterator[bytes]:
        """The file in UTF-8, from its beginning, without comments and declarations."""
        block = file.read(_BLOCK_BYTES)
        self.encoding = encoding_of(block[:_HEAD_BYTES])
        declared = _DECLARED.match(block[:_HEAD_BYTES])
        if declared and self.encoding == "utf-8" and not declared[1].lower().startswith((b"utf-8", b"utf8")):
            self.declared = declared[1].decode("ascii")
        decoder = codecs.getincrementaldecoder(self.encoding)(_UNDECODABLE)
        rest = ""
        while block:
            rest = self._repair(rest + self._legal(decoder.decode(block)), is_last=False)
            yield self._taken()
            block = file.read(_BLOCK_BYTES)
        self._repair(rest + self._legal(decoder.decode(b"", True)), is_last=True)
        yield self._taken()

    def _taken(self) -> bytes:
        block = "".join(self._out).encode()
        self._out.clear()
        return block

    def _legal(self, text: str) -> str:
        text, n_found = _ILLEGAL.subn(_spelled, text)
        self.n_illegal += n_found
        return text

    def _repair(self, text: str, *, is_last: bool) -> str:
        """Put out what can be settled; returns the rest, which waits for the next block."""
        at, before = 0, -1
        while before < at < len(text):
            before, at = at, self._step(text, at, is_last)
        return text[at:]

    # One method for each place that the stream can be in. Each takes the text, where to go on, and whether it
    # is the last; puts out what it understands, and returns the place behind that: the same if it needs more.

    def _text(self, text: str, at: int, is_last: bool) -> int:
        if self._is_started and (good := _GOOD.match(text, at)):
            self._out.append(good[0])
            return good.end()
        bracket = text.find("<", at)
        end = bracket if bracket >= 0 else len(text)
        if bracket < 0 and not is_last and (unfinished := _UNFINISHED.search(text, max(at, end - 16))):
            end = unfinished.start()
        if end > at:
            self._put_text(text[at:end])
        return self._tag_start(text, bracket, is_last) if bracket >= 0 else end

    def _put_text(self, text: str) -> None:
        if not self._is_started:
            self.n_before += sum(map(len, text.replace("\ufeff", "").split()))
            return
        self.n_markup += text.count("]]>")
        self._out.append(self._escaped(text).replace("]]>", "]]&gt;"))

    def _tag_start(self, text: str, at: int, is_last: bool) -> int:
        if len(text) - at < len("<![CDATA[") and not is_last:
            return at
        for start, step in (("<!--", self._comment), ("<![CDATA[", self._cdata), ("<?", self._declaration)):
            if text.startswith(start, at):
                self._step = step
                if step == self._cdata:
                    self._out.append(start)
                return at + len(start)
        if _NAME_START.match(text, at):
            self._is_started = True
            self._step = self._tag
            self._out.append("<")
        elif self._is_started:
            self.n_markup += 1
            self._out.append("&lt;")
        else:
            self.n_before += 1
        return at + 1

    def _tag(self, text: str, at: int, _: bool) -> int:
        found = _TAG_MARK.search(text, at)
        end = found.end() if found else len(text)
        self._out.append(text[at:end])
        if found and found[0] == ">":
            self._step = self._text
        elif found:
            self._quote = found[0]
            self._step = self._value
        return end

    def _value(self, text: str, at: int, is_last: bool) -> int:
        end = text.find(self._quote, at)
        is_whole = end >= 0
        if not is_whole:
            end = len(text)
            if not is_last and (unfinished := _UNFINISHED.search(text, max(at, end - 16))):
                end = unfinished.start()
        value = text[at:end]
        self.n_markup += value.count("<")
        self._out.append(self._escaped(value).replace("<", "&lt;"))
        if is_whole:
            self._out.append(self._quote)
            self._step = self._tag
        return end + is_whole

    def _cdata(self, text: str, at: int, is_last: bool) -> int:
        return self._until("]]>", text, at, is_last, is_kept=True)

    def _comment(self, text: str, at: int, is_last: bool) -> int:
        return self._until("-->", text, at, is_last, is_kept=False)

    def _declaration(self, text: str, at: int, is_last: bool) -> int:
        return self._until("?>", text, at, is_last, is_kept=False)

    def _until(self, mark: str, text: str, at: int, is_last: bool, *, is_kept: bool) -> int:
        end = text.find(mark, at)
        if end >= 0:
            self._step = self._text
            end += len(mark)
        else:
            end = len(text) if is_last else max(at, len(text) - len(mark) + 1)
        if is_kept:
            self._out.append(text[at:end])
        return end

    def _escaped(self, text: str) -> str:
        return _AMPERSAND.sub(self._reference, text) if "&" in text else text

    def _reference(self, match: re.Match[str]) -> str:
        if match[0] == "&":
            self.n_markup += 1
            return "&amp;"
        if match[1] is None and match[2] is None:
            return match[0]
        code = int(match[1]) if match[2] is None else int(match[2], 16)
        if code > 0x10FFFF:
            self.n_markup += 1
            return f"&amp;{match[0][1:]}"
        if _ILLEGAL.match(chr(code)):
            self.n_illegal += 1
            return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"
        return match[0]


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC00 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"#x{code:02X}" if code <= 0xFF else f"#x{code:04X}"


def _keeps_ascii(name: str) -> bool:
    try:
        return _ASCII.encode("ascii").decode(name) == _ASCII
    except (LookupError, ValueError, Warning):  # codes of escapes warn, and warnings may be errors
        return False


def _undecodable(error: UnicodeError) -> tuple[str, int]:
    """Bytes that are none of their encoding, one lone half of a character each: `_spelled` knows them."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_UNDECODABLE, _undecodable)
