"""A run inside a notebook, live: Jupyter, Colab and marimo.

`reporter.show()` puts the card below its cell, and a thread renders it again while the run goes on, also
while another cell trains. Nothing is served: the page is data in the notebook, so no port has to be open.
"""

import html
import importlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpubloom.errors import shell_word
from gpubloom.traincard.card.page import render_card
from gpubloom.traincard.reading import Reading
from gpubloom.traincard.snapshot import snapshot

# A thousand lines would be most of the page, and it is sent again every few seconds.
_LOG_LINES = 200


class NotebookCard:
    """The card of a run. `is_over` says when the run has written its last event."""

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        points: int = 1000,
        height: int = 720,
        *,
        seconds: float = 4.0,
        is_over: Callable[[], bool] = lambda: True,
    ) -> None:
        self._reading = Reading(run_dir)
        self._run_dir = Path(run_dir)
        self._points = points
        self._height = height
        self._seconds = seconds
        self._is_over = is_over
        self._is_shown = False

    def __repr__(self) -> str:
        return (
            f"<card of {self._run_dir}; show it in a notebook, or write it to a file with: "
            f"bloom runs card {shell_word(self._run_dir)}>"
        )

    def show(self) -> None:
        """Puts the card below the cell that runs now, and keeps it up to date."""
        if (marimo := _running_marimo()) is not None:
            self._is_shown = True
            marimo.output.replace(marimo.Html(self._html()))
            # A thread of marimo's own kind belongs to the cell and may write its output.
            marimo.Thread(target=self._follow, args=(self._into_marimo(marimo),), daemon=True).start()
        elif _has_kernel():
            display: Any = importlib.import_module("IPython.display").display
            self._is_shown = True
            handle = display(self._bundle(self._html()), raw=True, display_id=True)

            def update(page: str) -> None:
                handle.update(self._bundle(page), raw=True)

            threading.Thread(target=self._follow, args=(update,), name="traincard-show", daemon=True).start()

    def _bundle(self, page: str) -> dict[str, str]:
        return {"text/html": page, "text/plain": repr(self)}

    def _repr_html_(self) -> str | None:
        return None if self._is_shown else self._html()

    def _ipython_display_(self) -> None:
        # As the last line of its cell it is there already.
        if not self._is_shown:
            self.show()
            if not self._is_shown:
                sys.stdout.write(f"{self!r}\n")

    @staticmethod
    def _into_marimo(marimo: Any) -> Callable[[str], None]:
        def update(page: str) -> None:
            if marimo.current_thread().should_exit:
                raise _CellIsGoneError
            marimo.output.replace(marimo.Html(page))

        return update

    def _follow(self, update: Callable[[str], None]) -> None:
        pause = threading.Event()
        over = False
        try:
            while not over:
                pause.wait(self._seconds)
                # Asked before reading: what comes last is then on the last page.
                over = self._is_over()
                if self._reading.update() or over:
                    update(self._html())
        except _CellIsGoneError:
            return

    def _html(self) -> str:
        self._reading.update()
        page = render_card(snapshot(self._reading, points=self._points, log_lines=_LOG_LINES))
        # The frame may run its script and nothing else: it can neither see nor change the notebook.
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="TrainCard" '
            f'style="width: 100%; height: {self._height}px; border: 0; border-radius: 12px"></iframe>'
        )


class _CellIsGoneError(Exception):
    """The cell was run again or deleted; its thread ends."""


def _running_marimo() -> Any:
    marimo = sys.modules.get("marimo")
    return marimo if marimo is not None and getattr(marimo, "running_in_notebook", bool)() else None


def _has_kernel() -> bool:
    """Whether a notebook shows what is displayed; IPython in a terminal shows text only."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
