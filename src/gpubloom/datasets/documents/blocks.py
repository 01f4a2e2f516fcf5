"""What a parser finds in a document: headings and paragraphs in reading order, or one reason why not."""

import re
import unicodedata
from dataclasses import dataclass

from gpubloom.errors import InputError

# Of one document, unpacked. A book has a few million characters.
MOST_BYTES = 100 << 20
MOST_CHARACTERS = 20_000_000
MOST_PAGES = 5_000

_SPACE = re.compile(r"\s+")
_UNSEEN = {"Cc", "Cf", "Cs", "Co"}


class DocumentProblem(InputError):
    """A document, or a page of it, that gives no text; the sentence begins with what is wrong."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or a heading when `level` is 1 to 6. Pages count from 1; only PDF has them."""

    text: str
    level: int = 0
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """The blocks of one file, how many pages it has, and what was left out of it."""

    blocks: tuple[Block, ...]
    pages: int | None = None
    notes: tuple[str, ...] = ()


def clean(text: str) -> str:
    """One paragraph on one line, in composed Unicode, without characters that cannot be seen."""
    text = _SPACE.sub(" ", unicodedata.normalize("NFC", text))
    if not text.isprintable():
        text = "".join(one for one in text if unicodedata.category(one) not in _UNSEEN)
    return text.strip()


def too_long() -> DocumentProblem:
    """What a document is told that has more text than a book."""
    return DocumentProblem(
        "document_too_large", f"has more than {MOST_CHARACTERS:,} characters of text. Split it."
    )
