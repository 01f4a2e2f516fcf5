"""Markdown, HTML and plain text: headings and paragraphs without markup."""

import re

from gpubloom.datasets.documents.blocks import (
    MOST_CHARACTERS,
    Block,
    Document,
    DocumentProblem,
    clean,
    too_long,
)

_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_FRONT_MATTER = re.compile(r"\A---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL)
# What a reader of the page does not read as its text.
_SKIPPED = {
    *("script", "style", "noscript", "template", "svg", "math", "head", "iframe", "object", "canvas"),
    *("nav", "footer", "aside", "form", "button", "select", "dialog"),
}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BREAKS = {
    *("p", "div", "section", "article", "main", "header", "li", "dt", "dd", "blockquote", "pre", "tr"),
    *("table", "ul", "ol", "dl", "figure", "figcaption", "address", "hr", "body"),
}
_SPACED = {"br", "td", "th"}


def read_text(content: bytes) -> Document:
    return _document([Block(text) for text in _paragraphs(_decoded(content))])


def read_markdown(content: bytes) -> Document:
    from markdown_it import MarkdownIt

    text = _FRONT_MATTER.sub("", _decoded(content))
    parser = MarkdownIt("commonmark", {"maxNesting": 50}).enable("table")
    blocks: list[Block] = []
    level, cells = 0, list[str]()
    in_table = False
    for token in parser.parse(text):
        match token.type:
            case "heading_open":
                level = int(token.tag[1])
            case "heading_close":
                level = 0
            case "tr_open":
                in_table, cells = True, []
            case "tr_close":
                in_table = False
                blocks.append(Block(" | ".join(cells)))
            case "inline" if in_table:
                cells += [cell] if (cell := _inline(token)) else []
            case "inline":
                blocks.append(Block(_inline(token), level))
            case "fence" | "code_block":
                blocks.append(Block(token.content.strip("\n")))
            case "html_block":
                blocks += _html_blocks(token.content)
            case _:
                pass
    return _document(blocks)


def _inline(token: object) -> str:
    parts = []
    for child in token.children or ():  # type: ignore[attr-defined]
        if child.type in {"text", "code_inline"}:
            parts.append(child.content)
        elif child.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
        elif child.type == "image":
            parts.append(child.content)
    return clean("".join(parts))


def read_html(content: bytes) -> Document:
    return _document(_html_blocks(content))


def _html_blocks(content: bytes | str) -> list[Block]:
    from lxml import etree, html

    if not content.strip():
        return []
    # No network and no huge trees; the parser is lenient and never resolves entities of its own.
    parser = html.HTMLParser(no_network=True, huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(content, parser=parser)
    except (etree.LxmlError, ValueError) as problem:
        raise DocumentProblem(
            "document_broken", f"cannot be read as HTML ({type(problem).__name__})."
        ) from None
    blocks: list[Block] = []
    words: list[str] = []

    def end_block(level: int = 0) -> None:
        if text := clean("".join(words)):
            blocks.append(Block(text, level))
        words.clear()

    # Not recursive: a page can be nested deeper than Python calls.
    walker = etree.iterwalk(root, events=("start", "end"))
    for event, node in walker:
        tag = node.tag if isinstance(node.tag, str) else ""
        if tag in _BREAKS or tag in _HEADINGS:
            end_block(_HEADINGS.get(tag, 0) if event == "end" else 0)
        elif tag in _SPACED:
            words.append(" ")
        if event == "end":
            words.append(node.tail or "")
        elif tag in _SKIPPED:
            walker.skip_subtree()
        else:
            words.append(node.text or "")
    end_block()
    return blocks


def _decoded(content: bytes) -> str:
    codec = next((codec for mark, codec in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    if text.count("\0") > len(text) / 100:
        raise DocumentProblem("document_broken", "is not text: it has zero bytes.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _paragraphs(text: str) -> list[str]:
    return [paragraph for part in re.split(r"\n\s*\n", text) if (paragraph := clean(part))]


def _document(blocks: list[Block]) -> Document:
    kept = tuple(block for block in blocks if block.text.strip())
    if not kept:
        raise DocumentProblem("document_without_text", "has no text.")
    if sum(len(block.text) for block in kept) > MOST_CHARACTERS:
        raise too_long()
    return Document(kept)
