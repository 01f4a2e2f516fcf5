"""The card type `train`, as Metaflow's card machinery knows it.

Metaflow calls these in a process of its own: `render` once when a step has finished, the other two only where
the card could not be written from within the step.
"""

import os
from pathlib import Path
from typing import Any

from metaflow.cards import MetaflowCard

_COMPONENTS = (
    "This card does not show components that were added with current.card.append. Add a @card next to "
    "@traincard and append to that card."
)
_ALONE = "Cards of type train need @traincard. Put @traincard on the step instead of @card."


class TrainCard(MetaflowCard):  # type: ignore[misc]
    """Draws the run directory of a task."""

    type = "train"
    # Without a card that takes components, `current.card[id]` would not exist.
    ALLOW_USER_COMPONENTS = True
    RUNTIME_UPDATABLE = True
    RELOAD_POLICY = MetaflowCard.RELOAD_POLICY_NEVER

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        components: list[Any] | None = None,
        graph: Any = None,
        flow: Any = None,
    ) -> None:
        self._has_components = bool(components)

    def render(self, task: Any) -> str:
        """The final page."""
        return self._page(task, self.runtime_data)

    def render_runtime(self, task: Any, data: Any) -> str:
        """The page of a running step."""
        return self._page(task, data)

    def refresh(self, task: Any, data: Any) -> dict[str, Any]:
        """The data of a page that is open."""
        return self._content(task, data)

    def _page(self, task: Any, data: Any) -> str:
        from gpubloom.traincard.card.page import render_content

        return render_content(self._content(task, data))

    def _content(self, task: Any, data: Any) -> dict[str, Any]:
        from gpubloom.traincard.card.content import run_content

        sent = (data or {}).get("user")
        run_dir = os.environ.get("BLOOM_RUN_DIR")
        if sent and not run_dir:
            return dict(sent)
        notes = tuple(
            sentence
            for sentence, holds in ((_COMPONENTS, self._has_components), (_ALONE, not run_dir))
            if holds
        )
        content = run_content(Path(run_dir or "."), name=task.pathspec, notes=notes)
        if run_dir:
            from metaflow_traincard.checkpoint_links import CheckpointLinks

            CheckpointLinks().add_to(content, Path(run_dir))
        return content


CARDS = [TrainCard]
