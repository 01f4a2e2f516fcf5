"""The run directory of a task, and its copy in the flow's datastore.

With a local datastore the run directory lies in it. With any other, it is a temporary folder whose files are
copied to `<flow>/<run>/<step>/<task>/traincard/` by the datastore's own client, with its own credentials: a
retry on another machine goes on from there, and the nodes of a `@parallel` step see each other's ranks.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

FOLDER = "traincard"
_LOCAL = {"local", "spin"}
# A growing file is sent anew as a whole, so a large one is sent when it has grown by a quarter: all sending
# together is then a few times the file, however long the run.
_SMALL_BYTES = 1 << 20
_GROWTH = 1.25


def task_path(flow_name: str, run_id: str, step_name: str, task_id: str) -> str:
    return f"{flow_name}/{run_id}/{step_name}/{task_id}"


def open_task_files(flow_datastore: Any, path: str, *, retried: bool, shared: bool) -> "TaskFiles":
    """The files of a task. `retried`: there were attempts before; `shared`: other nodes write as well."""
    storage = flow_datastore._storage_impl
    if storage.TYPE in _LOCAL:
        return TaskFiles(Path(storage.datastore_root) / path)
    copy = DatastoreCopy(Path(tempfile.mkdtemp(prefix="traincard-")), storage, path, shared=shared)
    if retried or shared:
        copy.fetch()
    return copy


class TaskFiles:
    """A run directory inside the local datastore."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir.absolute()

    def exchange(self, *, all_of_it: bool = False) -> None:
        """Brings the datastore up to date, and in what others have put there."""

    def remove(self) -> None:
        """Deletes what was only here for a while."""


class DatastoreCopy(TaskFiles):
    """A run directory in a temporary folder, and its copy."""

    def __init__(self, run_dir: Path, storage: Any, path: str, *, shared: bool) -> None:
        super().__init__(run_dir)
        # Looking for others' files costs a process with most datastores; where there are none, nobody looks.
        self._shared = shared
        self._storage = storage
        self._root = f"{path}/{FOLDER}"
        self._sent: dict[str, tuple[int, int]] = {}
        self._fetched: dict[str, int] = {}

    def exchange(self, *, all_of_it: bool = False) -> None:
        self._send(all_of_it=all_of_it)
        if self._shared:
            self.fetch()

    def remove(self) -> None:
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def fetch(self) -> None:
        """Takes in files that others wrote: earlier attempts, other nodes."""
        wanted = {}
        for path in self._listed(self._root):
            name = path.removeprefix(f"{self._root}/")
            if name in self._sent:
                continue
            size = self._storage.size_file(path)
            if size is not None and size != self._fetched.get(name):
                wanted[path] = (name, size)
        if not wanted:
            return
        with self._storage.load_bytes(list(wanted)) as loaded:
            for path, local, _ in loaded:
                if local is not None:
                    name, size = wanted[path]
                    self._take(name, Path(local))
                    self._fetched[name] = size

    def _take(self, name: str, source: Path) -> None:
        target = self.run_dir / FOLDER / name
        if not target.resolve().is_relative_to(self.run_dir.resolve()):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        # A reader sees the old file or the new one.
        temporary = target.with_name(f".{target.name}.fetched")
        shutil.copyfile(source, temporary)
        temporary.replace(target)

    def _listed(self, folder: str) -> Iterator[str]:
        for found in self._storage.list_content([folder]):
            if found.is_file:
                yield found.path
            else:
                yield from self._listed(found.path.rstrip("/"))

    def _send(self, *, all_of_it: bool) -> None:
        folder = self.run_dir / FOLDER
        changed = []
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if not path.is_file() or is_passing(path.name) or self._is_others(name, path):
                continue
            state = path.stat()
            if self._is_due(name, (state.st_size, state.st_mtime_ns), all_of_it):
                changed.append((name, path))
        for name, path in changed:
            data = path.read_bytes()
            self._storage.save_bytes([(f"{self._root}/{name}", BytesIO(data))], overwrite=True)
            self._sent[name] = (len(data), path.stat().st_mtime_ns)
            self._fetched.pop(name, None)

    def _is_others(self, name: str, path: Path) -> bool:
        """Whether a file is still what was fetched; a tail that this process went on with is ours."""
        return name in self._fetched and path.stat().st_size == self._fetched[name]

    def _is_due(self, name: str, state: tuple[int, int], all_of_it: bool) -> bool:
        sent = self._sent.get(name)
        if sent == state:
            return False
        return all_of_it or sent is None or state[0] < _SMALL_BYTES or state[0] >= sent[0] * _GROWTH


def is_passing(name: str) -> bool:
    """Locks have no meaning on other machines, and temporary files are about to be renamed."""
    return name.startswith((".", "lock")) or name.endswith(".lock")


def use_run_directory(run_dir: Path, attempt: int) -> None:
    """Lets every Reporter of this task, in this process and those it starts, find its directory."""
    os.environ["BLOOM_RUN_DIR"] = str(run_dir)
    os.environ["BLOOM_ATTEMPT"] = str(attempt)
