"""The card in a real Chromium, opened as a file. No page may see an error or ask anybody for anything."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from gpubloom.traincard.card.page import STATIC
from tests.browser.conftest import DESKTOP, chromium

__all__ = ["chromium"]

OpenCard = Callable[..., Page]


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (STATIC / "card.js").is_file():
        pytest.skip("the card's page is not built (make ui)")


@pytest.fixture
def open_card(chromium: Browser, tmp_path: Path) -> Iterator[OpenCard]:
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(
        html: str, size: tuple[int, int] = DESKTOP, scheme: str = "dark", fragment: str = ""
    ) -> Page:
        path = tmp_path / f"card-{len(contexts)}.html"
        path.write_text(html, encoding="utf-8")
        context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="light" if scheme == "light" else "dark",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "data:")) else complaints.append(request.url)
            ),
        )
        page.goto(f"{path.as_uri()}{fragment}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
