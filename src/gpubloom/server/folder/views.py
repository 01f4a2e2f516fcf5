"""Saved views of the run list, in a small file of the folder: whoever opens the folder has them, too."""

import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pydantic import ValidationError

from gpubloom.server.clock import now
from gpubloom.server.problems import Conflict, NotFound
from gpubloom.server.runs.schemas import MOST_VIEWS, ViewIn, ViewOut, Views
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.safe_paths import read_json_beneath

# A name with a dot: no run directory is looked for there, and a list of files stays as it was.
VIEWS_FILE = ".bloom-views.json"


class FolderViews:
    """The views of one folder. Every call reads the file again: another `bloom ui` may have changed it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def read(self) -> Views:
        """Oldest first: they keep their places. What cannot be read is left out."""
        try:
            stored = read_json_beneath(self._folder, VIEWS_FILE) or {}
        except (OSError, ValueError):
            stored = {}
        found = []
        items: Any = stored.get("items")
        for each in items if isinstance(items, list) else []:
            try:
                found.append(ViewOut.model_validate(each))
            except ValidationError:
                continue
        return Views(items=found[:MOST_VIEWS])

    def create(self, body: ViewIn) -> ViewOut:
        with self._lock:
            items = self.read().items
            if len(items) >= MOST_VIEWS:
                raise Conflict(
                    f"You already have {MOST_VIEWS} views. Delete one first.", code="too_many_views"
                )
            return self._put(items, uuid4(), body)

    def change(self, view_id: UUID, body: ViewIn) -> ViewOut:
        with self._lock:
            items = self.read().items
            if all(view.id != view_id for view in items):
                raise NotFound("This view does not exist.")
            return self._put(items, view_id, body)

    def delete(self, view_id: UUID) -> None:
        with self._lock:
            items = self.read().items
            if all(view.id != view_id for view in items):
                raise NotFound("This view does not exist.")
            self._write([view for view in items if view.id != view_id])

    def _put(self, items: list[ViewOut], view_id: UUID, body: ViewIn) -> ViewOut:
        if any(view.name == body.name and view.id != view_id for view in items):
            raise Conflict(f"You already have a view {body.name}. Choose another name.", code="view_exists")
        made = ViewOut(id=view_id, updated_at=now(), **body.model_dump())
        known = any(view.id == view_id for view in items)
        self._write([made if view.id == view_id else view for view in items] + ([] if known else [made]))
        return made

    def _write(self, items: list[ViewOut]) -> None:
        content = Views(items=items).model_dump(mode="json")
        try:
            replace_file(self._folder / VIEWS_FILE, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        except OSError as problem:
            raise Conflict(
                f"The view cannot be saved in this folder ({problem.strerror}).", code="cannot_write"
            ) from problem
