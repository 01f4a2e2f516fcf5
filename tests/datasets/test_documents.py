"""Documents become paragraphs and passages with their source; hostile ones become one reason each."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpubloom.datasets.documents import archive, docx
from gpubloom.datasets.documents.archive import members
from gpubloom.datasets.documents.blocks import Block, Document, DocumentProblem
from gpubloom.datasets.documents.docx import read_docx
from gpubloom.datasets.documents.markup import read_html, read_markdown, read_text
from gpubloom.datasets.documents.passages import cut
from gpubloom.datasets.documents.pdf import read_pdf
from gpubloom.datasets.documents.questions import MOST_PAIRS, parse, prompt
from tests.documents import encrypt_pdf, make_docx, make_pdf, make_zip
from tests.errors import raises


def test_lines_of_a_pdf_become_paragraphs_without_headers_and_footers() -> None:
    pages = [
        [
            "ACME Handbook",
            f"The pump of line {number} is cleaned every Monday before the first shift be-",
            "gins, by the person who opened the valve.",
            f"Paragraph {number} of this page is long enough to fill a whole line of it, and more.",
            f"Page {number} of 4",
        ]
        for number in range(1, 5)
    ]
    document = read_pdf(make_pdf(*pages))
    assert document.pages == 4
    texts = [block.text for block in document.blocks if block.page == 3]
    assert texts == [
        "The pump of line 3 is cleaned every Monday before the first shift begins, by the person who opened "
        "the valve.",
        "Paragraph 3 of this page is long enough to fill a whole line of it, and more.",
    ]
    assert not any("ACME" in block.text or "Page" in block.text for block in document.blocks)


def test_a_page_without_text_is_named_and_a_scan_is_refused() -> None:
    assert read_pdf(make_pdf(["Some text."], [])).notes == ("Pages without text: 2.",)
    with raises(DocumentProblem, code="document_without_text"):
        read_pdf(make_pdf([], []))


def test_headings_lists_and_tables_of_word_are_kept() -> None:
    content = make_docx(
        (1, "Pumps"), (2, "Cleaning"), (0, "Use water."), table=[["Part", "Tool"], ["Seal", "Brush"]]
    )
    assert read_docx(content).blocks == (
        Block("Pumps", 1),
        Block("Cleaning", 2),
        Block("Use water."),
        Block("Part | Tool"),
        Block("Seal | Brush"),
    )


def test_markdown_and_html_lose_their_markup_and_keep_their_headings() -> None:
    markdown = b"---\ntitle: x\n---\n# Pumps\n\nUse *warm*\nwater.\n\n- a\n\n```\nx  = 1\n```\n"
    assert read_markdown(markdown).blocks == (
        Block("Pumps", 1),
        Block("Use warm water."),
        Block("a"),
        Block("x  = 1"),
    )
    page = b"<title>T</title><nav>Menu</nav><h1>Pumps</h1><p>Use <b>warm</b> water.<script>x()</script><p>End"
    assert read_html(page).blocks == (Block("Pumps", 1), Block("Use warm water."), Block("End"))
    assert read_text("Zwei Sätze.\r\n\r\nEnde".encode("cp1252")).blocks == (
        Block("Zwei Sätze."),
        Block("Ende"),
    )


def test_passages_keep_paragraphs_whole_and_know_where_they_stand() -> None:
    blocks = (
        Block("Pumps", 1, 1),
        Block("a" * 90 + ".", 0, 1),
        Block("Cleaning", 2, 2),
        Block("b" * 150 + ".", 0, 2),
        Block("c" * 95 + ".", 0, 3),
        Block("One sentence here. " * 30, 0, 4),
    )
    passages = list(cut(Document(blocks), "guide.pdf", 250))
    assert [(one.number, one.page, one.last_page, one.heading) for one in passages[:2]] == [
        (1, 1, 1, "Pumps"),
        (2, 2, 2, "Pumps › Cleaning"),
    ]
    assert passages[1].text == "Cleaning\n\n" + "b" * 150 + "."
    assert all(len(one.text) <= 250 + 10 for one in passages)
    assert all(one.text.endswith(".") for one in passages[2:])
    assert passages[0].row()["source"] == {
        "file": "guide.pdf",
        "passage": 1,
        "page": 1,
        "last_page": 1,
        "heading": "Pumps",
    }


def _bomb() -> bytes:
    return make_zip({"word/document.xml": b" " * (50 << 20), "[Content_Types].xml": b"<x/>"})


def _with_entities() -> bytes:
    xml = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    out = io.BytesIO(make_docx((0, "text")))
    with zipfile.ZipFile(out, "a") as opened:
        opened.writestr("word/extra.xml", xml)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "code"),
    [
        ("a.pdf", lambda: encrypt_pdf(make_pdf(["Secret."]), "open sesame"), "document_encrypted"),
        ("a.pdf", lambda: b"%PDF-1.7\nnothing of the kind", "document_broken"),
        ("a.pdf", lambda: make_pdf(["x"])[:60], "document_broken"),
        ("a.docx", _bomb, "document_too_large"),
        ("a.docx", _with_entities, "document_unsafe"),
        ("a.docx", lambda: b"PK\x03\x04 broken", "document_broken"),
        ("a.md", lambda: b"", "document_without_text"),
        ("a.txt", lambda: bytes(1_000), "document_broken"),
        ("a.html", lambda: b"<script>x()</script>", "document_without_text"),
        ("a.xlsx", lambda: b"x", "document_type_unsupported"),
    ],
)
def test_what_cannot_be_read_has_one_reason(
    tmp_path: Path, name: str, make: Callable[[], bytes], code: str
) -> None:
    path = tmp_path / f"upload{Path(name).suffix}"
    path.write_bytes(make())
    (only,) = members(path, name)
    with raises(DocumentProblem, code=code):
        only.parsed()


def test_a_deeply_nested_page_does_not_end_the_process() -> None:
    page = b"<div>" * 100_000 + b"deep" + b"</div>" * 100_000
    with pytest.raises(DocumentProblem):
        read_html(page)


def test_archives_are_read_in_place_and_their_names_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "up.zip"
    names = ["b/two.md", "../../etc/one.md", "__MACOSX/b/._two.md", "b/.hidden.md"]
    path.write_bytes(make_zip(dict.fromkeys(names, b"# T\n\ntext")))
    found = members(path, "up.zip")
    assert [one.name for one in found] == ["etc/one.md", "b/two.md"]
    assert found[0].parsed().blocks[1].text == "text"
    assert list(tmp_path.iterdir()) == [path]


def test_a_document_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "up.zip"
    path.write_bytes(make_zip({"bomb.txt": bytes(30 << 20), "fine.txt": b"text"}))
    bomb, fine = members(path, "up.zip")
    with raises(DocumentProblem, code="document_too_large"):
        bomb.parsed()
    assert fine.parsed().blocks == (Block("text"),)
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with raises(DocumentProblem, code="archive_too_large"):
        members(path, "up.zip")


def test_an_upload_that_is_no_archive_or_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "up.zip"
    path.write_bytes(b"nothing")
    with raises(DocumentProblem, code="archive_broken"):
        members(path, "up.zip")
    path.write_bytes(make_zip({".hidden": b"x"}))
    with raises(DocumentProblem, code="archive_empty"):
        members(path, "up.zip")


GOOD = '{"pairs": [{"question": "What cleans a seal?", "answer": "A brush."}]}'


@pytest.mark.parametrize(
    ("answer", "kept", "reason"),
    [
        (GOOD, 1, None),
        (f"```json\n{GOOD}\n```", 1, None),
        ('[{"question": "What cleans it?", "answer": "A brush."}]', 1, None),
        (f"Sure! {GOOD}", 0, "not JSON"),
        ('{"pairs": []}', 0, "no list"),
        ('{"pairs": [{"question": "Q?", "answer": ""}]}', 0, "empty"),
        ('{"pairs": [{"question": "Q?"}]}', 0, "exactly the fields"),
        ('{"pairs": [{"question": "Q?", "answer": "A", "note": "n"}]}', 0, "exactly the fields"),
        ('{"pairs": [{"question": 1, "answer": "A"}]}', 0, "not text"),
        ('{"pairs": [{"question": "What does the passage say?", "answer": "A"}]}', 0, "refers to"),
        (GOOD.replace("]}", ', {"question": "what cleans a seal?", "answer": "B"}]}'), 1, "repeats"),
        ("[" * 10_000, 0, "not JSON"),
    ],
)
def test_answers_are_read_strictly_and_rejected_with_a_reason(
    answer: str, kept: int, reason: str | None
) -> None:
    pairs, rejected = parse(answer, 2)
    assert len(pairs) == kept
    assert [reason in one.reason for one in rejected] == ([True] if reason else []), rejected


def test_more_pairs_than_asked_for_are_rejected() -> None:
    many = ", ".join(f'{{"question": "Q{n}?", "answer": "A"}}' for n in range(5))
    pairs, rejected = parse(f'{{"pairs": [{many}]}}', 2)
    assert (len(pairs), len(rejected)) == (2, 3)


def test_the_prompt_holds_the_passage_and_its_heading() -> None:
    system, user = prompt("Use water.", 2, "Pumps › Cleaning")
    assert "exactly 2" in system["content"]
    assert user["content"] == "Section: Pumps › Cleaning\n\n<passage>\nUse water.\n</passage>"


def test_word_documents_are_checked_before_they_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docx, "MOST_BYTES", 100)
    with raises(DocumentProblem, code="document_too_large"):
        read_docx(make_docx((0, "text")))


def test_an_answer_with_a_million_wrong_pairs_is_not_kept_a_million_times() -> None:
    kept, rejected = parse(json.dumps({"pairs": [0] * 300_000}), 1)
    assert not kept
    assert len(rejected) == 2 * MOST_PAIRS + 1
    assert rejected[-1].reason == "The answer has 299,980 more pairs, which are left out."
