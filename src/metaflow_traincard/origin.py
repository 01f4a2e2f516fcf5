"""After `resume`: the story of the task that a resumed run repeats, taken over into the new task.

Metaflow gives a resumed run new ids, so its tasks have run directories of their own. The files of the
origin's task are copied into it before anything is reported: its attempts come first, and the new one is a
restart. Tasks of a foreach are told apart by their place in it, which every task notes beside its events.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubloom.traincard.layout import RunFiles
from metaflow_traincard.task_files import FOLDER, TaskFiles, is_passing

_NOTE = "metaflow.json"
_SEGMENT = re.compile(r"segments/a(\d+)\.")
_LEFT_BEHIND = frozenset({_NOTE, "control.json", "metrics.prom"})


def foreach_index(flow: Any) -> list[int]:
    """Which task of its step this is; empty outside of a foreach."""
    return [int(frame.index) for frame in getattr(flow, "_foreach_stack", None) or []]


def note_foreach_index(files: TaskFiles, index: list[int]) -> None:
    """Lets a later `resume` find this task."""
    folder = files.run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _NOTE).write_text(json.dumps({"v": 1, "foreach_index": index}), encoding="utf-8")


class Origin:
    """The task of the origin run that this one repeats."""

    def __init__(self, storage: Any, path: str) -> None:
        self._storage = storage
        self._path = path
        self._root = f"{path}/{FOLDER}"
        self._names = [found.removeprefix(f"{self._root}/") for found in _listed(storage, self._root)]

    @property
    def attempts(self) -> int:
        """How many attempts it had, those that it took over itself included."""
        sealed = [int(found[1]) for name in self._names if (found := _SEGMENT.match(name))]
        with self._storage.load_bytes([f"{self._root}/latest.json"]) as loaded:
            for _, local, _ in loaded:
                with contextlib.suppress(ValueError, OSError, TypeError, AttributeError):
                    sealed.append(int(json.loads(Path(local).read_text(encoding="utf-8")).get("attempt")))
        return max(sealed, default=0)

    def take_over(self, files: TaskFiles) -> None:
        """Copies the story into an empty run directory."""
        wanted = {
            f"{self._root}/{name}": name
            for name in self._names
            if name not in _LEFT_BEHIND and not is_passing(name.rpartition("/")[2])
        }
        with self._storage.load_bytes(list(wanted)) as loaded:
            for path, local, _ in loaded:
                if local is None:
                    continue
                target = files.run_dir / FOLDER / wanted[path]
                if target.resolve().is_relative_to(files.run_dir.resolve()):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(local, target)
        self._seal(files)
        if self._storage.TYPE in {"local", "spin"}:
            _link_tree(
                Path(self._storage.datastore_root) / self._path / "checkpoints", files.run_dir / "checkpoints"
            )

    @staticmethod
    def _seal(files: TaskFiles) -> None:
        """A tail that was open is complete now; a Reporter of the new attempt begins its own."""
        from gpubloom.traincard.stream import parse_start

        run = RunFiles(files.run_dir)
        for tail in run.tails():
            with tail.open("rb") as file:
                found = parse_start(file.readline(1 << 20))
            if found is not None:
                run.segments.mkdir(parents=True, exist_ok=True)
                tail.rename(run.segment(found[0]))


def find_origin(storage: Any, step_path: str, index: list[int]) -> Origin | None:
    """The task at `index` in a step of the origin run (`<flow>/<run>/<step>`); None: it reported nothing."""
    tasks = [found.path.rstrip("/") for found in storage.list_content([step_path]) if not found.is_file]
    notes = {f"{task}/{FOLDER}/{_NOTE}": task for task in tasks}
    if not notes:
        return None
    with storage.load_bytes(list(notes)) as loaded:
        for path, local, _ in loaded:
            if local is None:
                continue
            with contextlib.suppress(ValueError, OSError, AttributeError):
                if json.loads(Path(local).read_text(encoding="utf-8")).get("foreach_index") == index:
                    return Origin(storage, notes[path])
    return None


def _listed(storage: Any, folder: str) -> Iterator[str]:
    for found in storage.list_content([folder]):
        if found.is_file:
            yield found.path
        else:
            yield from _listed(storage, found.path.rstrip("/"))


def _link_tree(source: Path, target: Path) -> None:
    """The same files under another name: checkpoints do not change, and a copy may not fit on the disk."""
    for file in source.rglob("*") if source.is_dir() else ():
        if file.is_file() and not file.is_symlink():
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                os.link(file, copy)
