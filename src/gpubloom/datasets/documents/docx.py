"""Word documents by python-docx: headings by their styles, paragraphs, lists and tables in order.

A .docx is a zip archive of XML. Its sizes and its XML are checked before python-docx sees them: it unpacks
everything into memory.
"""

import io
import re
import zipfile
import zlib

from gpubloom.datasets.documents.blocks import (
    MOST_BYTES,
    MOST_CHARACTERS,
    Block,
    Document,
    DocumentProblem,
    clean,
    too_long,
)

# More than this is a zip bomb: text and XML shrink to a tenth at best, rarely to a fiftieth.
MOST_RATIO = 200
_MOST_PARTS = 10_000
# What zipfile raises for archives that are damaged, encrypted or packed in a way that it does not know.
UNPACKING_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
)
_HEADING = re.compile(r"(?:heading|überschrift|titre|título|titolo)\s*([1-9])", re.IGNORECASE)


def read_docx(content: bytes) -> Document:
    import docx
    from docx.table import Table

    _check_archive(content)
    blocks: list[Block] = []
    characters = 0
    try:
        document = docx.Document(io.BytesIO(content))
        for item in document.iter_inner_content():
            if isinstance(item, Table):
                found = [Block(line) for line in _rows(item)]
            elif text := clean(item.text):
                found = [Block(text, _level(item))]
            else:
                continue
            characters += sum(len(block.text) for block in found)
            if characters > MOST_CHARACTERS:
                raise too_long()
            blocks += found
    except (DocumentProblem, MemoryError):
        raise
    except Exception as problem:  # noqa: BLE001 - whatever hostile bytes make of a parser
        raise _broken(type(problem).__name__) from None
    if not blocks:
        raise DocumentProblem("document_without_text", "has no text.")
    return Document(tuple(blocks))


def _check_archive(content: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
            size = sum(part.file_size for part in parts)
            if len(parts) > _MOST_PARTS or size > MOST_BYTES or size > MOST_RATIO * max(1, len(content)):
                raise DocumentProblem(
                    "document_too_large",
                    f"unpacks to {size / 1e6:,.0f} MB from {len(content) / 1e6:,.1f} MB, above the limit.",
                )
            for part in parts:
                if part.filename.endswith((".xml", ".rels")):
                    _check_xml(archive.read(part))
    except DocumentProblem:
        raise
    except UNPACKING_ERRORS as problem:
        raise _broken(type(problem).__name__) from None


def _check_xml(xml: bytes) -> None:
    # Word writes no DTD; entities are how XML is made to explode or to read other files.
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml or b"<\0!\0D" in xml or b"\0<\0!\0D" in xml:
        raise DocumentProblem("document_unsafe", "declares XML entities, which Word never writes.")


def _broken(reason: str) -> DocumentProblem:
    return DocumentProblem(
        "document_broken", f"is damaged, encrypted or no Word document ({reason}). Save it again and retry."
    )


def _level(paragraph: object) -> int:
    style = getattr(paragraph, "style", None)
    name = str(getattr(style, "name", "") or "")
    if match := _HEADING.match(name):
        return min(6, int(match[1]))
    return 1 if name in {"Title", "Titel"} else 0


def _rows(table: object) -> list[str]:
    lines = []
    for row in table.rows:  # type: ignore[attr-defined]
        cells: list[str] = []
        for cell in row.cells:
            text = clean(cell.text)
            # A merged cell is given once for each column that it covers.
            if text and (not cells or cells[-1] != text):
                cells.append(text)
        if cells:
            lines.append(" | ".join(cells))
    return lines
