"""The script's own TensorBoard files, read as they grow."""

import io
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from gpubloom.agent.progress.numbers import metric_name
from gpubloom.agent.progress.walking import files_below, open_plain
from gpubloom.traincard.interop.event_files import Scalars, read_scalars

# So much of them is read in one go: checksums in Python are slow.
_MOST_FILES = 20
_BYTES_PER_LOOK = 1 << 19
# Pictures and graphs lie between the scalars.
_LARGEST_RECORD = 1 << 16
_HEAD = 12
_FOOT = 4
_NOT_THERE = {"checkpoints", "data"}
_TRAINER_STEP = re.compile(r"^(?:hp_metric|epoch)$")


class EventFiles:
    """Event files under the run directory that this attempt writes."""

    def __init__(self, folder: Path, since: float) -> None:
        self._folder = folder
        self._since = since
        self._offsets: dict[Path, int] = {}

    def look(self) -> Iterator[Scalars]:
        """Scalars that came since the last look, by TrainCard's names."""
        for path in self._find():
            yield from self._read(path)

    def _find(self) -> list[Path]:
        for path, facts in files_below(self._folder, without=_NOT_THERE):
            # Those of earlier attempts stay as they are.
            is_new = "tfevents" in path.name and path not in self._offsets and facts.st_mtime >= self._since
            if is_new and len(self._offsets) < _MOST_FILES:
                self._offsets[path] = 0
        return list(self._offsets)

    def _read(self, path: Path) -> Iterator[Scalars]:
        with os.fdopen(open_plain(path), "rb") as file:
            budget = _BYTES_PER_LOOK
            while budget > 0:
                begin = self._offsets[path]
                file.seek(begin)
                head = file.read(_HEAD)
                if len(head) < _HEAD:
                    return
                length = struct.unpack_from("<Q", head)[0]
                end = begin + _HEAD + length + _FOOT
                if end > os.fstat(file.fileno()).st_size:
                    return
                if length <= _LARGEST_RECORD:
                    record = head + file.read(length + _FOOT)
                    budget -= len(record)
                    yield from (_named(scalars) for scalars in read_scalars(io.BytesIO(record)))
                else:
                    budget -= _HEAD
                self._offsets[path] = end


def _named(scalars: Scalars) -> Scalars:
    values = {
        metric_name(tag): value for tag, value in scalars.values.items() if not _TRAINER_STEP.match(tag)
    }
    return Scalars(scalars.time, scalars.step, values)
