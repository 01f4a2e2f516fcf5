"""Where the card of a run is written; what the card shows is in tests/traincard_card."""

import os
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter
from gpubloom.traincard.card import page, write_card


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "render_content", lambda content: "the page")
    Reporter(tmp_path / "run", announce=False).close()
    return tmp_path / "run"


def test_a_pipe_gets_the_card_and_stays_a_pipe(run: Path) -> None:
    os.mkfifo(pipe := run.parent / "pipe")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_card(run, pipe)
    assert os.read(reading, 100) == b"the page"
    assert pipe.is_fifo()
    os.close(reading)


def test_a_link_stays_a_link_to_the_file_with_the_card(run: Path) -> None:
    (link := run.parent / "link.html").symlink_to("linked.html")
    write_card(run, link)
    assert (run.parent / "linked.html").read_text() == "the page"
    assert link.is_symlink()
