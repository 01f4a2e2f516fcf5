"""PDF: the text of each page by pypdf, without the lines that most pages repeat.

A PDF knows no paragraphs, only pieces of text at places. So lines are joined here until one ends a sentence
early, or an empty line follows; words that were cut at the end of a line are joined again.
"""

import io
import re
from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING

from gpubloom.datasets.documents.blocks import (
    MOST_CHARACTERS,
    MOST_PAGES,
    Block,
    Document,
    DocumentProblem,
    clean,
    too_long,
)

if TYPE_CHECKING:
    from pypdf import PdfReader

# Headers and footers stand among these many lines at the edges of a page.
_EDGE_LINES = 3
_LEAST_PAGES = 3
_LONGEST_NUMBERED = 60
_DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
_CUT_WORD = re.compile(r"(\w)[-‐]$")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”’)\]]*$")
# A line this much shorter than the others ends its paragraph.
_SHORT_LINE = 0.8
_MOST_PAGE_CHARACTERS = 1_000_000


def read_pdf(content: bytes) -> Document:
    """The paragraphs of a PDF with their pages. Pages that cannot be read are named in the notes."""
    texts, unreadable = _page_lines(_opened(content))
    if not any(any(lines) for lines in texts):
        if unreadable:
            raise DocumentProblem("document_broken", "is damaged: none of its pages can be read.")
        raise DocumentProblem(
            "document_without_text",
            "has no text. It probably holds scanned images: run OCR (text recognition) on it first.",
        )
    repeated = _repeated_lines(texts)
    blocks = [
        Block(paragraph, page=number)
        for number, lines in enumerate(texts, 1)
        for paragraph in _paragraphs(_without(lines, repeated))
    ]
    notes = [f"Pages that cannot be read: {_listed(unreadable)}."] if unreadable else []
    empty = [n for n, lines in enumerate(texts, 1) if not any(lines) and n not in unreadable]
    if empty:
        notes.append(f"Pages without text: {_listed(empty)}.")
    return Document(tuple(blocks), len(texts), tuple(notes))


def _opened(content: bytes) -> "PdfReader":
    from pypdf import PasswordType, PdfReader

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
            raise DocumentProblem(
                "document_encrypted", "is encrypted with a password. Save it without a password first."
            )
        pages = len(reader.pages)
    except (DocumentProblem, MemoryError):
        raise
    except Exception as problem:  # noqa: BLE001 - whatever hostile bytes make of a parser
        raise DocumentProblem(
            "document_broken", f"is damaged or no PDF ({type(problem).__name__}). Save it again and retry."
        ) from None
    if pages > MOST_PAGES:
        raise DocumentProblem("document_too_large", f"has {pages:,} pages; the limit is {MOST_PAGES:,}.")
    return reader


def _page_lines(reader: "PdfReader") -> tuple[list[list[str]], list[int]]:
    """The lines of each page, and which pages cannot be read."""
    texts: list[list[str]] = []
    unreadable: list[int] = []
    characters = 0
    for number in range(1, len(reader.pages) + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever hostile bytes make of a parser
            unreadable.append(number)
            text = ""
        if len(text) > _MOST_PAGE_CHARACTERS:
            unreadable.append(number)
            text = ""
        characters += len(text)
        if characters > MOST_CHARACTERS:
            raise too_long()
        texts.append([line.strip() for line in text.splitlines()])
    return texts, unreadable


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10:,} more"


def _key(line: str) -> str:
    """Page numbers differ from page to page, the rest of a header does not. Numbers in long lines count."""
    line = clean(line).casefold()
    return _DIGITS.sub("#", line) if len(line) <= _LONGEST_NUMBERED else line


def _edges(lines: list[str]) -> tuple[list[int], list[int]]:
    """The first and the last lines of a page, each from the edge inwards."""
    filled = [index for index, line in enumerate(lines) if line]
    return filled[:_EDGE_LINES], filled[::-1][:_EDGE_LINES]


def _repeated_lines(pages: list[list[str]]) -> set[str]:
    """Lines at the edges of more than half of the pages."""
    counted = [lines for lines in pages if any(lines)]
    if len(counted) < _LEAST_PAGES:
        return set()
    counts = Counter(
        key for lines in counted for key in {_key(lines[index]) for edge in _edges(lines) for index in edge}
    )
    return {key for key, count in counts.items() if count > len(counted) / 2}


def _without(lines: list[str], repeated: set[str]) -> list[str]:
    dropped: set[int] = set()
    for edge in _edges(lines):
        # Behind the first line of its own, a page has no header any more.
        dropped.update(takewhile(lambda index: _key(lines[index]) in repeated, edge))
    return [line for index, line in enumerate(lines) if index not in dropped]


def _paragraphs(lines: list[str]) -> list[str]:
    widest = max((len(line) for line in lines), default=0)
    found: list[str] = []
    current = ""
    for line in [*lines, ""]:
        if line and current and (cut := _CUT_WORD.search(current)) and line[0].islower():
            current = current[: cut.start()] + cut[1] + line
        elif line:
            current = f"{current} {line}" if current else line
        ends = _SENTENCE_END.search(line) and len(line) < _SHORT_LINE * widest
        if current and (not line or ends):
            if paragraph := clean(current):
                found.append(paragraph)
            current = ""
    return found
