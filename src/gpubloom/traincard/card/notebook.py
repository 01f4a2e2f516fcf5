"""The card in a notebook's output: the same page in a frame of its own."""

import html
import os
from pathlib import Path

from gpubloom.traincard.card.page import render_card


class NotebookCard:
    """Shows a run as it was when the cell ran; run the cell again to see it as it is."""

    def __init__(self, run_dir: str | os.PathLike[str], points: int = 1000, height: int = 720) -> None:
        self._run_dir = Path(run_dir)
        self._points = points
        self._height = height

    def __repr__(self) -> str:
        return (
            f"<card of {self._run_dir}; show it in a notebook, or write it with: bloom card {self._run_dir}>"
        )

    def _repr_html_(self) -> str:
        from gpubloom.traincard.snapshot import snapshot

        page = render_card(snapshot(self._run_dir, points=self._points))
        # The frame may run its script and nothing else: it can neither see nor change the notebook.
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="TrainCard" '
            f'style="width: 100%; height: {self._height}px; border: 0; border-radius: 12px"></iframe>'
        )
