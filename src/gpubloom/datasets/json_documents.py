"""A .json file: one array of objects, read element by element; or one object; or JSON lines.

Elements are found by their brackets and parsed one at a time, so a broken element is one broken row and the
rows after it are still read. Not ijson: it stops at the first syntax error, gives no byte offset to continue
from, and holds a string of any length in memory; here a row has at most LONGEST_ROW_BYTES.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from gpubloom.datasets.encodings import Encoding
from gpubloom.datasets.lines import LONGEST_ROW_BYTES, too_long
from gpubloom.datasets.problems import NotADataset, RowProblem
from gpubloom.datasets.rows import Progress, Row, Start, parse_object

_CHUNK = 1 << 18
_SHOWN = 200
_SPACE = re.compile(r"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n,]*+")
# A character that opens, closes or separates, or a whole string; a lone quote begins one that the chunk cuts.
_SIGN = re.compile(r'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)
_IN_STRING = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the file holds its rows, and where the first one is looked for."""

    kind: str
    start: Start
    note: str | None = None


class _Characters:
    """Decoded text with a moving window; knows the byte offset and line where the window begins."""

    def __init__(self, file: BinaryIO, encoding: Encoding, start: Start) -> None:
        self._file = file
        self._errors = "surrogatepass" if encoding.is_wide else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(encoding.codec)(self._errors)
        self._codec = encoding.codec
        file.seek(start.offset)
        self.window = ""
        self.at = 0
        self.offset = start.offset
        self.line = start.line
        self.ended = False

    def __len__(self) -> int:
        return len(self.window) - self.at

    def more(self) -> bool:
        """Reads on; False at the end of the file."""
        if self.ended:
            return False
        content = self._file.read(_CHUNK)
        self.ended = not content
        try:
            decoded = self._decoder.decode(content, final=self.ended)
        except UnicodeDecodeError:
            # Only an odd byte at the end of a UTF-16 file comes here; the brackets will tell.
            decoded, self.ended = "", True
        self.window = self.window[self.at :] + decoded
        self.at = 0
        return True

    def drop(self, count: int) -> str:
        """Moves the window forward and returns the text that it passed."""
        passed = self.window[self.at : self.at + count]
        self.at += count
        self.offset += len(passed.encode(self._codec, self._errors))
        self.line += passed.count("\n")
        return passed

    def peek(self, skipped: re.Pattern[str]) -> str:
        """The next character that is not to be skipped; empty at the end."""
        while True:
            found = skipped.match(self.window, self.at)
            if found is not None:
                self.drop(found.end() - self.at)
            if len(self) > 0:
                return self.window[self.at]
            if not self.more():
                return ""


def find_layout(file: BinaryIO, encoding: Encoding) -> Layout:
    """Reads only the beginning of the file."""
    begin = Start(1, 1, encoding.mark)
    characters = _Characters(file, encoding, begin)
    first = characters.peek(_SPACE)
    if first == "[":
        characters.drop(1)
        return Layout("array", Start(1, characters.line, characters.offset))
    if first == "{":
        line = characters.line
        element = _take(characters, give_up=True)
        several = element != "" and characters.peek(_SPACE) != ""
        if several and (characters.line > line or "\n" in element):
            if "\n" in element.strip():
                raise NotADataset(
                    "invalid_json_layout",
                    "The file contains several JSON objects that each span several lines. "
                    "Put the objects into one array, or write each object on one line.",
                )
            return Layout("lines", begin, "The file contains one JSON object per line, like .jsonl.")
        return Layout(
            "object",
            begin,
            "The file contains one JSON object, so it is one row. To get several rows, put them into an "
            "array.",
        )
    raise NotADataset(
        "invalid_json_layout",
        "The file does not begin with [ or {: a .json file must be an array of objects, or one object per "
        "line.",
    )


def read_json_array(
    file: BinaryIO, encoding: Encoding, layout: Layout, start: Start, progress: Progress
) -> Iterator[Row]:
    """The elements of the array (or the one object)."""
    characters = _Characters(file, encoding, start)
    number = start.number
    while True:
        first = characters.peek(_SPACE_AND_COMMAS)
        line, offset = characters.line, characters.offset
        if first == "]" and layout.kind == "array":
            characters.drop(1)
            if characters.peek(_SPACE) != "":
                reason = "comes after the end of the array; the rest of the file is ignored"
                shown = characters.window[characters.at : characters.at + _SHOWN]
                yield Row(number, characters.line, characters.offset, None, reason, shown)
            return
        if first == "":
            if layout.kind == "array":
                yield Row(
                    number, line, offset, None, "is the end of the file, but the array is not closed with ]"
                )
            return
        size_before = characters.offset
        # A bracket that closes nothing is an element without content; it must be passed all the same.
        text = _take(characters) or characters.drop(1)
        progress.offset = characters.offset
        yield _element(text, characters.offset - size_before, number, line, offset)
        number += 1
        if layout.kind == "object":
            return


def _element(text: str, size: int, number: int, line: int, offset: int) -> Row:
    try:
        if size > LONGEST_ROW_BYTES:
            raise RowProblem("row_too_long", too_long(size))
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise RowProblem("row_invalid_text", "has characters that are not valid in the file's encoding")
        return Row(number, line, offset, parse_object(text))
    except RowProblem as problem:
        return Row(number, line, offset, None, str(problem), text[:_SHOWN])


def _take(characters: _Characters, *, give_up: bool = False) -> str:
    """One value up to the comma or bracket that ends it; only its beginning when it is too long."""
    brackets = _Brackets()
    kept = ""
    while True:
        end = brackets.find_end(characters.window, characters.at)
        if end is not None:
            return kept + characters.drop(end)
        if len(characters) > LONGEST_ROW_BYTES:
            if give_up:
                return ""
            kept = kept or characters.window[characters.at : characters.at + _SHOWN]
            characters.drop(brackets.position)
            brackets.position = 0
        if not characters.more():
            return kept + characters.drop(len(characters))


@dataclass(slots=True)
class _Brackets:
    """Counts brackets outside of strings, chunk by chunk; no character is looked at twice."""

    depth: int = 0
    # Counted from the beginning of what is still held of the value.
    position: int = 0
    in_string: bool = False

    def find_end(self, text: str, at: int) -> int | None:
        position = at + self.position
        try:
            while True:
                if self.in_string:
                    inside = _IN_STRING.match(text, position)
                    position = inside.end() if inside else position
                    if text[position : position + 1] != '"':
                        # The string goes on in the next chunk; a backslash waits for what it stands before.
                        return None
                    self.in_string = False
                    position += 1
                found = _SIGN.search(text, position)
                if found is None:
                    position = len(text)
                    return None
                position = found.end()
                end = self._count(found)
                if end is not None:
                    return end - at
        finally:
            self.position = position - at

    def _count(self, found: re.Match[str]) -> int | None:
        """Counts a sign; returns where the value ends, if it ends here."""
        sign = found.group()
        if sign == '"':
            self.in_string = True
        elif sign in "[{":
            self.depth += 1
        elif sign in "]}":
            if self.depth == 0:
                return found.start()
            self.depth -= 1
            if self.depth == 0:
                return found.end()
        elif sign == "," and self.depth == 0:
            return found.start()
        return None
