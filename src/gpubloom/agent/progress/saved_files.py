"""Checkpoints that a script wrote by itself: files and folders that look like one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpubloom.agent.progress.walking import files_below

_ENDINGS = {
    *(".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".h5", ".hdf5", ".keras", ".npz", ".msgpack", ".pkl"),
    *(".joblib", ".distcp", ".gguf", ".onnx"),
}
# Data that was prepared for training has such names as well; it lies in folders of these names.
_DATA_FOLDERS = {"data", "datasets", "cache"}
# checkpoint-500, step_1000, epoch=3: one checkpoint of several files.
_FOLDER = re.compile(
    r"^(?P<what>checkpoint|ckpt|step|epoch|iter|global_step)[-_=]?(?P<number>\d+)$", re.IGNORECASE
)


@dataclass(frozen=True)
class Saved:
    """One checkpoint, a file or a folder; `modified` is in seconds since 1970, `step` what its name says."""

    path: Path
    size: int
    modified: float
    step: int | None = None


def find_saved(folder: Path, since: float = 0.0) -> list[Saved]:
    """What was written at or after a moment, oldest first."""
    found: dict[Path, Saved] = {}
    for path, facts in files_below(folder, without=_DATA_FOLDERS):
        if path.suffix.lower() not in _ENDINGS or facts.st_mtime < since:
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
        if match := _FOLDER.match(folder.name):
            is_step = match["what"].lower() not in {"epoch"}
            return folder, int(match["number"]) if is_step else None
    return path, None


class SavedFiles:
    """Tells of each checkpoint once it has settled, and again when it was written anew."""

    def __init__(self, folder: Path, since: float) -> None:
        self._folder = folder
        self._since = since
        self._seen: dict[Path, tuple[int, float]] = {}
        self._told: dict[Path, tuple[int, float]] = {}

    def look(self, *, ended: bool) -> Iterator[Saved]:
        """`ended`: nobody writes any more, so everything has settled."""
        for saved in find_saved(self._folder, self._since):
            state = (saved.size, saved.modified)
            settled = ended or self._seen.get(saved.path) == state
            self._seen[saved.path] = state
            if settled and self._told.get(saved.path) != state:
                self._told[saved.path] = state
                yield saved
