"""The runs of a folder with the ids that the web app knows them by.

An id is made from the path of the run, so that an address stays the same. A request names an id, never a
path: what is not in the list of runs cannot be read.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5

from gpubloom.runs.folder import RunFolder, curve_of
from gpubloom.runs.overlay import MOST_RUNS, RunCurve
from gpubloom.runs.table import Run
from gpubloom.server.jobs.reported_state import KILLED, reported_status
from gpubloom.server.jobs.run_watch import RunReadings
from gpubloom.server.problems import NotFound
from gpubloom.traincard import Reading

# For an overlay of many runs, and for the page of one, which can be zoomed.
_OVERLAY_BUCKETS = 500
_PAGE_BUCKETS = 4_000
_MOST_PAGES = 4

Result = TypeVar("Result")


class FolderRuns:
    """All runs below one folder. Every call looks at the folder again; for a thread."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._runs = RunFolder(folder, cache)
        self.folder = self._runs.folder
        self._namespace = uuid5(NAMESPACE_URL, self.folder.as_uri())
        self._found: dict[UUID, tuple[Run, Path]] = {}
        self._lock = threading.Lock()
        self._overlays = RunReadings(
            most=MOST_RUNS, open_run=lambda path: Reading(path, most_buckets=_OVERLAY_BUCKETS)
        )
        self.pages = RunReadings(
            most=_MOST_PAGES, open_run=partial(Reading.of_page, most_buckets=_PAGE_BUCKETS)
        )

    def runs(self) -> list[Run]:
        """Newest first."""
        with self._lock:
            found = {}
            for run in self._runs.runs():
                path = self.folder if run.id == "." else self.folder / run.id
                named = self._named(run)
                found[UUID(named.id)] = (named, path)
            self._found = found
            return [run for run, _ in found.values()]

    def get(self, run_id: UUID) -> tuple[Run, Path]:
        """One run as it is now, and its directory."""
        _, path = self._known(run_id)
        try:
            return self._named(self._runs.run(path)), path
        except (OSError, ValueError):
            raise NotFound("This run cannot be read. Its files were removed or changed.") from None

    def chosen(self, ids: Sequence[UUID]) -> list[Run]:
        """Some runs in the order of their ids."""
        self.runs()
        return [self._known(run_id)[0] for run_id in ids]

    def path(self, run_id: UUID) -> Path:
        """The directory of a run."""
        return self._known(run_id)[1]

    def read(self, run_id: UUID, use: Callable[[Reading], Result]) -> Result:
        """Read what is new of a run, and use the reading."""
        try:
            return self.pages.read(self.path(run_id), use)
        except (OSError, ValueError):
            raise NotFound("This run cannot be read. Its files were removed or changed.") from None

    def curves(self, ids: Sequence[UUID], series: str, *, tokens: bool) -> dict[str, RunCurve]:
        """One metric of some runs, by id; runs that do not report it are left out."""
        found = {}
        for run in self.chosen(ids):
            curve = self._curve(run, series, tokens=tokens)
            if curve is not None:
                found[run.id] = curve
        return found

    def _curve(self, run: Run, series: str, *, tokens: bool) -> RunCurve | None:
        try:
            return self._overlays.read(
                self.path(UUID(run.id)), lambda reading: curve_of(reading, run, series, tokens=tokens)
            )
        except (OSError, ValueError):
            return None

    def set_labels(self, run_id: UUID, *, tags: list[str] | None, notes: str | None) -> Run:
        """Change tags and notes, in `labels.json` of the run directory."""
        relative = self.path(run_id).relative_to(self.folder).as_posix()
        if self._runs.set_labels(relative, tags=tags, notes=notes) is None:
            raise NotFound("This run does not exist any more.")
        return self.get(run_id)[0]

    def project_id(self, project: str) -> UUID:
        """The id of the folder that a run lies in; the web app calls it a project."""
        return uuid5(self._namespace, f"project {project}")

    def _known(self, run_id: UUID) -> tuple[Run, Path]:
        if run_id not in self._found:
            self.runs()
        try:
            return self._found[run_id]
        except KeyError:
            raise NotFound("This run does not exist.") from None

    def _named(self, run: Run) -> Run:
        """As a server lists it: with an id, and in the states that it knows."""
        return replace(
            run,
            id=str(uuid5(self._namespace, f"run {run.id}")),
            project_id=str(self.project_id(run.project)),
            status=reported_status(run.status),
            error=KILLED if run.status == "killed" else run.error,
        )
