"""What a script writes into its folder: TensorBoard event files, and files that look like checkpoints.

The folder may hold a dataset of a million files, so the search is limited in depth and in number.
"""

import io
import os
import re
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gpubloom.agent.progress.formats import metric_name
from gpubloom.traincard.interop.event_files import Scalars, read_scalars

_MOST_ENTRIES = 5_000
_DEEPEST = 5
# Ours, or never what a script saves.
_SKIPPED_FOLDERS = {"traincard", "agent", "logs", ".home", "node_modules", "__pycache__", ".git", ".venv"}
# So much of them is read in one go: checksums in Python are slow.
_MOST_FILES = 20
_BYTES_PER_LOOK = 1 << 19
# Pictures and graphs lie between the scalars.
_LARGEST_RECORD = 1 << 16
_HEAD = 12
_FOOT = 4
_WITHOUT_EVENTS = {"checkpoints", "data"}
_TRAINER_STEP = re.compile(r"^(?:hp_metric|epoch)$")
_ENDINGS = {
    *(".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".h5", ".hdf5", ".keras", ".npz", ".msgpack", ".pkl"),
    *(".joblib", ".distcp", ".gguf", ".onnx"),
}
# Data that was prepared for training has such names as well; it lies in folders of these names.
_DATA_FOLDERS = {"data", "datasets", "cache"}
# checkpoint-500, step_1000, epoch=3: one checkpoint of several files.
_CHECKPOINT_FOLDER = re.compile(
    r"^(?P<what>checkpoint|ckpt|step|epoch|iter|global_step)[-_=]?(?P<number>\d+)$", re.IGNORECASE
)


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[tuple[Path, os.stat_result]]:
    """Plain files, never through links: those could lead out of the folder."""
    seen = 0
    for directory, folders, names in os.walk(folder):
        depth = len(Path(directory).relative_to(folder).parts)
        folders[:] = sorted(
            name
            for name in folders
            if depth < _DEEPEST and name not in _SKIPPED_FOLDERS and name not in without
        )
        seen += len(names) + len(folders)
        for path in (Path(directory, name) for name in names):
            try:
                found = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield path, found
        if seen > _MOST_ENTRIES:
            return


# The files of a folder and when each was changed, in nanoseconds since 1970.
Files = Mapping[Path, int]


def files_now(folder: Path) -> Files:
    """What is there before a script starts. Compared with later changes instead of a moment: the clock of a
    rented machine may be corrected by hours while the script runs."""
    return {
        path: facts.st_mtime_ns
        # Each search has a limit of its own, which folders that it leaves out must not use up.
        for without in (_WITHOUT_EVENTS, _DATA_FOLDERS)
        for path, facts in files_below(folder, without)
    }


def open_plain(path: Path) -> int:
    """A descriptor to read from; OSError for a link, and no waiting for a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


class EventFiles:
    """Event files of this attempt under the run directory. `before`: what is there when it starts."""

    def __init__(self, folder: Path, before: Files) -> None:
        self._folder = folder
        self._before = before
        self._offsets: dict[Path, int] = {}

    def look(self) -> Iterator[Scalars]:
        """Scalars that came since the last look, by TrainCard's names."""
        for path in self._find():
            yield from self._read(path)

    def _find(self) -> list[Path]:
        for path, facts in files_below(self._folder, without=_WITHOUT_EVENTS):
            is_known = path in self._offsets or self._before.get(path) == facts.st_mtime_ns
            if "tfevents" in path.name and not is_known and len(self._offsets) < _MOST_FILES:
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


@dataclass(frozen=True)
class Saved:
    """One checkpoint, a file or a folder; `modified` is in seconds since 1970, `step` what its name says."""

    path: Path
    size: int
    modified: float
    step: int | None = None


def find_saved(folder: Path, known: Files = MappingProxyType({})) -> list[Saved]:
    """What is there, oldest first, without `known` files that have not changed."""
    found: dict[Path, Saved] = {}
    for path, facts in files_below(folder, without=_DATA_FOLDERS):
        if path.suffix.lower() not in _ENDINGS or known.get(path) == facts.st_mtime_ns:
            continue
        whole, step = _unit(path, folder)
        before = found.get(whole)
        found[whole] = Saved(
            path=whole,
            size=facts.st_size + (before.size if before else 0),
            modified=max(facts.st_mtime, before.modified if before else 0.0),
            step=step,
        )
    return sorted(found.values(), key=lambda saved: (saved.modified, saved.path))


def _unit(path: Path, top: Path) -> tuple[Path, int | None]:
    for folder in path.parents:
        if folder == top:
            break
        if match := _CHECKPOINT_FOLDER.match(folder.name):
            is_step = match["what"].lower() not in {"epoch"}
            return folder, int(match["number"]) if is_step else None
    return path, None


class SavedFiles:
    """Reports each checkpoint once it no longer changes, and again when it was rewritten."""

    def __init__(self, folder: Path, before: Files) -> None:
        self._folder = folder
        self._before = before
        self._seen: dict[Path, tuple[int, float]] = {}
        self._told: dict[Path, tuple[int, float]] = {}

    def look(self, *, ended: bool) -> Iterator[Saved]:
        """`ended`: no process writes any more, so every file is final."""
        for saved in find_saved(self._folder, self._before):
            state = (saved.size, saved.modified)
            settled = ended or self._seen.get(saved.path) == state
            self._seen[saved.path] = state
            if settled and self._told.get(saved.path) != state:
                self._told[saved.path] = state
                yield saved
