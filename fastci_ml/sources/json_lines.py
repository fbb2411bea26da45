"""Objects of a file of JSON lines, one at a time, in memory that neither the file nor a line of it sets.

A line is read in pieces. One that is longer than a piece is shortened on the way: long texts are cut, and of
what nests only the parts stay that were asked for. What is odd is counted. What cannot be read is given as
such: the caller decides.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fastci_ml.errors import ReportError
from fastci_ml.sources.regular_files import open_regular

_PIECE_BYTES = 1 << 20
_TEXT_LIMIT = 4_000
_KEPT_LIMIT = 8 << 20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SPECIAL = re.compile(r'["{}\[\]:]')
_TEXT_END = re.compile(r'["\\]')
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|[^u])")
# A text from inside to its end or that of the piece, in one go.
_REST_OF_TEXT = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
# What of a long line is worth keeping: by key, the keys below it, and so on.
Keep: TypeAlias = Mapping[str, "Keep"]


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One line that is not blank.

    Attributes
    ----------
    number : int
        From 1.
    value : dict or None
        The object; None if the line is none.
    error : str
        Why it is none.
    """

    number: int
    value: dict[str, Any] | None
    error: str = ""


class JsonLines:
    """Reads a file line by line.

    Parameters
    ----------
    path : Path
        A regular file.
    keep : mapping of str to mapping
        What of the objects and lists in the lines to keep where a line is long.

    Attributes
    ----------
    encoding : str
        UTF-8 unless a mark at the beginning says otherwise.
    n_undecodable, n_control, n_long : int
        Lines with bytes that are none of the encoding, halves of characters in the texts; with NULs and other
        control characters, NULs around them left out; and those that were shortened.
    """

    def __init__(self, path: Path, keep: Keep) -> None:
        self._path = path
        self._keep = keep
        self.encoding = "utf-8"
        self.n_undecodable = 0
        self.n_control = 0
        self.n_long = 0

    def __iter__(self) -> Iterator[JsonLine]:
        with open_regular(self._path) as file:
            try:
                yield from self._lines(file)
            except OSError as error:
                raise ReportError(f"{self._path}: cannot be read: {error}") from error

    def _lines(self, file: BinaryIO) -> Iterator[JsonLine]:
        head = file.read(4)
        mark, self.encoding = next(((m, name) for m, name in _MARKS if head.startswith(m)), (b"", "utf-8"))
        file.seek(len(mark))
        is_plain = self.encoding == "utf-8"
        pieces = _byte_pieces(file) if is_plain else _recoded_pieces(file, self.encoding)
        # `_shortened` takes the further pieces of a long line, so that this counts lines.
        for number, piece in enumerate(pieces, 1):
            is_long = not piece.endswith(b"\n") and len(piece) == _PIECE_BYTES
            self.n_long += is_long
            text = self._shortened(piece, pieces) if is_long else self._text(piece)
            if text is None:
                yield JsonLine(number, None, f"more than {_KEPT_LIMIT >> 20} MiB that are no text")
            elif text.strip():
                yield self._parsed(number, text, is_long=is_long)

    def _text(self, piece: bytes) -> str:
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            self.n_undecodable += 1
            text = piece.decode("utf-8", "surrogateescape")
        if "\0" in text:
            stripped = text.strip("\0\r\n")
            self.n_control += stripped != text.strip("\r\n")
            return stripped
        return text

    def _parsed(self, number: int, text: str, *, is_long: bool) -> JsonLine:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            try:
                value = json.loads(text, strict=False)
            except (ValueError, RecursionError):
                return JsonLine(number, None, "cut off, or no JSON" if is_long else str(error))
            self.n_control += 1
        if not isinstance(value, dict):
            return JsonLine(number, None, f"{type(value).__name__}, expected an object")
        return JsonLine(number, value)

    def _shortened(self, piece: bytes, pieces: Iterator[bytes]) -> str | None:
        """A long line without what nobody asked for; None where that is still too much."""
        shortener = _Shortener(self._keep)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        is_undecodable = False
        while True:
            is_end = piece.endswith(b"\n") or len(piece) < _PIECE_BYTES
            text = decoder.decode(piece, is_end)
            is_undecodable |= not text.isascii() and re.search("[\udc80-\udcff]", text) is not None
            shortener.feed(text)
            if is_end:
                break
            piece = next(pieces, b"")
        self.n_undecodable += is_undecodable
        return shortener.text()


class _Shortener:
    """Copies the text of one JSON object without long texts, and without nested values that are not kept."""

    def __init__(self, keep: Keep) -> None:
        self._out: list[str] = []
        self._n_kept = 0
        self._rest = ""
        self._stack: list[
            Keep | None
        ] = []  # of the objects and lists that are open; None in what is left out
        self._outside: Keep = keep
        self._is_text = False
        self._n_text = 0
        self._last: list[str] = []  # the text before a colon is a key
        self._key = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        at = before = 0
        while at < len(text):
            before, at = at, self._in_text(text, at) if self._is_text else self._between(text, at)
            if at == before:
                break
        self._rest = text[at:]

    def text(self) -> str | None:
        self._put(self._rest)
        return "".join(self._out) if self._n_kept <= _KEPT_LIMIT else None

    def _put(self, text: str) -> None:
        if not self._stack or self._stack[-1] is not None:
            self._n_kept += len(text)
            if self._n_kept <= _KEPT_LIMIT:
                self._out.append(text)

    def _between(self, text: str, at: int) -> int:
        found = _SPECIAL.search(text, at)
        if found is None:
            self._put(text[at:])
            return len(text)
        self._put(text[at : found.start()])
        mark = found[0]
        if mark == '"':
            self._put(mark)
            self._is_text, self._n_text = True, 0
            self._last.clear()
        elif mark == ":":
            self._put(mark)
            self._key = "".join(self._last)
        elif mark in "{[":
            self._open(mark)
        else:
            self._close(mark)
        return found.end()

    def _open(self, mark: str) -> None:
        if not self._stack:
            kept: Keep | None = self._outside
        else:
            outer = self._stack[-1]
            kept = None if outer is None else outer.get(self._key)
            if outer is not None and kept is None:
                self._put("null")
        self._stack.append(kept)
        self._put(mark)
        self._key = ""

    def _close(self, mark: str) -> None:
        self._put(mark)
        if self._stack:
            self._stack.pop()

    def _in_text(self, text: str, at: int) -> int:
        if self._n_text >= _TEXT_LIMIT:
            return self._past_text(text, at)
        found = _TEXT_END.search(text, at)
        end = found.start() if found else len(text)
        self._put_text(text[at : min(end, at + _TEXT_LIMIT - self._n_text)])
        if found is None:
            return end
        if found[0] == '"':
            return self._end_text(end)
        escape = _ESCAPE.match(text, end)
        if escape is not None:
            self._put_text(escape[0])
            return escape.end()
        if len(text) - end < len("\\u0000"):
            return end  # the rest of it comes with the next piece
        self._put_text(text[end])  # no escape at all, so no JSON: for others to say
        return end + 1

    def _past_text(self, text: str, at: int) -> int:
        """What is too much of a text, up to its end."""
        found = _REST_OF_TEXT.match(text, at)
        end = found.end() if found else at
        return self._end_text(end) if text.startswith('"', end) else end

    def _end_text(self, at: int) -> int:
        self._put('"')
        self._is_text = False
        return at + 1

    def _put_text(self, text: str) -> None:
        self._n_text += len(text)
        self._last.append(text)
        self._put(text)


def _byte_pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.readline(_PIECE_BYTES):
        yield piece


def _recoded_pieces(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Lines of a file in another encoding, in UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = b""
    while block := file.read(_PIECE_BYTES):
        *lines, rest = (rest + decoder.decode(block).encode()).split(b"\n")
        for line in lines:
            yield from _cut(line + b"\n")
        n_whole = len(rest) - len(rest) % _PIECE_BYTES
        yield from _cut(rest[:n_whole])
        rest = rest[n_whole:]
    yield from _cut(rest + decoder.decode(b"", True).encode())


def _cut(line: bytes) -> Iterator[bytes]:
    for start in range(0, len(line), _PIECE_BYTES):
        yield line[start : start + _PIECE_BYTES]
