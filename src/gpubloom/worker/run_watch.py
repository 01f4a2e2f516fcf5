"""What is wrong with a run that a worker follows: TrainCard's own findings, looked for every few seconds."""

import time
from pathlib import Path
from typing import Any

from gpubloom.traincard import Reading, diagnose

LOOK_EVERY_SECONDS = 5.0
# The worker draws nothing: curves only as fine as Reading needs them to be.
_BUCKETS = 64
_OF_ENDED_RUNS = frozenset({"diverging"})


class RunWatch:
    """One run. Reads it beside the worker's own cursor, because findings need what came before that."""

    def __init__(self, run_dir: Path) -> None:
        self._reading = Reading(run_dir, most_buckets=_BUCKETS)
        self._looked = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._looked >= LOOK_EVERY_SECONDS

    def look(self, *, ended: bool = False) -> list[dict[str, Any]]:
        """The findings now, as JSON; of a run that has ended only those that still mean something."""
        self._looked = time.monotonic()
        self._reading.update()
        found = diagnose(self._reading)
        return [finding.as_dict() for finding in found if not ended or finding.kind in _OF_ENDED_RUNS]
