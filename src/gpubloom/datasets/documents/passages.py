"""Cut the blocks of a document to passages: whole paragraphs up to a length, each with its source.

A passage begins at a heading when the passage before is not tiny; a heading stays the first line of what it
heads. A paragraph that is longer than a passage is cut between sentences, then between words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpubloom.datasets.documents.blocks import Block, Document

LEAST_CHARACTERS = 200
MOST_CHARACTERS = 20_000
CHARACTERS = 1_500
# Of the length: a shorter passage does not end at a heading.
_TINY = 0.25
_SENTENCES = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text for one row, and where it stands."""

    text: str
    file: str
    number: int
    page: int | None = None
    last_page: int | None = None
    heading: str | None = None

    def row(self) -> dict[str, Any]:
        """The row of a dataset."""
        return {"text": self.text, "source": self.source()}

    def source(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "passage": self.number,
            "page": self.page,
            "last_page": self.last_page,
            "heading": self.heading,
        }


def cut(document: Document, file: str, characters: int = CHARACTERS) -> Iterator[Passage]:
    """The passages of a document, none longer than `characters` by more than its heading."""
    number, length = 0, 0
    held: list[Block] = []
    headings: list[Block] = []
    # The headings above the first block that is held.
    above: tuple[Block, ...] = ()

    def finished() -> Passage:
        nonlocal number
        number += 1
        pages = [block.page for block in held if block.page is not None]
        path = " › ".join(block.text for block in above)[:500] or None
        return Passage(
            "\n\n".join(block.text for block in held),
            file,
            number,
            pages[0] if pages else None,
            pages[-1] if pages else None,
            path,
        )

    for block in document.blocks:
        if block.level:
            if length >= _TINY * characters:
                # Headings right before this one belong to what follows.
                trailing = _trailing_headings(held)
                following = held[len(held) - trailing :]
                del held[len(held) - trailing :]
                if held:
                    yield finished()
                held, length = following, sum(len(each.text) for each in following)
            headings = [each for each in headings if each.level < block.level] + [block]
            if not held or all(each.level for each in held):
                above = tuple(headings)
            held.append(block)
            length += len(block.text)
            continue
        for piece in _pieces(block, characters):
            if held and length + len(piece.text) > characters and not all(each.level for each in held):
                yield finished()
                held, length = [], 0
            if not held:
                above = tuple(headings)
            held.append(piece)
            length += len(piece.text)
    if held and not all(each.level for each in held):
        yield finished()


def _trailing_headings(blocks: list[Block]) -> int:
    count = 0
    for block in reversed(blocks):
        if not block.level:
            break
        count += 1
    return count


def _pieces(block: Block, characters: int) -> Iterator[Block]:
    if len(block.text) <= characters:
        yield block
        return
    current = ""
    for sentence in _SENTENCES.split(block.text):
        for part in _words(sentence, characters):
            if current and len(current) + 1 + len(part) > characters:
                yield Block(current, page=block.page)
                current = ""
            current = f"{current} {part}" if current else part
    if current:
        yield Block(current, page=block.page)


def _words(sentence: str, characters: int) -> Iterator[str]:
    while len(sentence) > characters:
        end = sentence.rfind(" ", characters // 2, characters)
        end = characters if end < 0 else end
        yield sentence[:end].rstrip()
        sentence = sentence[end:].lstrip()
    if sentence:
        yield sentence
