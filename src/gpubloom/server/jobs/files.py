"""A job's files on this machine: its run directory, its model, and the files of a script job.

A script writes whatever it likes into its folder, links included. So nothing here follows a link, at no step
of a path: what is outside of the folder stays outside, also when a folder is swapped for a link meanwhile.
"""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from uuid import UUID

from gpubloom.scripts.task import WORK_FOLDER, checked_path
from gpubloom.server.settings import Settings
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.safe_paths import (
    is_file_beneath,
    open_beneath,
    open_plain,
    read_json_beneath,
    walk_beneath,
)

_MODEL = "model"
# How the folder of a deleted run is named until all of it is gone.
_DELETED = ".deleted-"

MOST_ARTIFACTS = 5_000
# A model of a trillion parameters has some hundreds.
MOST_MODEL_FILES = 20_000
_BROUGHT_FILE = "brought.json"
# Not a result of the script: the bytecode cache of Python, and a folder of the file system.
_NOT_SHOWN = {"__pycache__", "lost+found"}
# Path to size and time of change, as they were when the job was made.
Brought = Mapping[str, tuple[int, int]]


def run_directory(settings: Settings, job_id: UUID) -> Path:
    """The run directory of a job. The server chooses its name; nothing comes from a request."""
    return settings.home / "runs" / str(job_id)


@dataclass(frozen=True)
class FoundFile:
    """A file of a model or of a script's folder, by its name inside it.

    Opened without following a link anywhere below the run directory, which a job fills as it likes.
    """

    run_dir: Path
    folder: str
    name: str
    size: int
    modified_ns: int

    @property
    def path(self) -> Path:
        return self.run_dir / self.folder / self.name

    def open(self) -> BufferedReader:
        return os.fdopen(open_beneath(self.run_dir, f"{self.folder}/{self.name}"), "rb")


def model_files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    """The files of a finished model, sorted; empty when there is none."""
    found = _files_of(run_directory(settings, job_id), _MODEL)
    return sorted(islice(found, MOST_MODEL_FILES), key=lambda file: file.path)


def folder_files(run_dir: Path, folder: str) -> list[FoundFile]:
    """The files of a folder in a run directory, sorted, such as those of a checkpoint."""
    return sorted(islice(_files_of(run_dir, folder), MOST_MODEL_FILES), key=lambda file: file.path)


def _files_of(
    run_dir: Path, folder: str, shown: Callable[[str], bool] = lambda name: True
) -> Iterator[FoundFile]:
    """The plain files of a folder. A name that cannot be printed cannot be part of an answer, either."""
    for path, facts in walk_beneath(run_dir, folder, into=shown):
        if not shown(path.rpartition("/")[2]):
            continue
        if stat.S_ISREG(facts.st_mode) and path.isprintable():
            yield FoundFile(
                run_dir, folder, path.removeprefix(f"{folder}/"), facts.st_size, facts.st_mtime_ns
            )


def has_model(settings: Settings, job_id: UUID) -> bool:
    """Whether a training has its finished model."""
    return is_file_beneath(run_directory(settings, job_id), f"{_MODEL}/config.json")


def has_files(settings: Settings, job_id: UUID) -> bool:
    """Whether a job made files to download; not every form of a model has a config.json."""
    return bool(model_files(settings, job_id))


def remove_run(run_dir: Path) -> None:
    """Remove a run's files, from a name that says so: the server may be killed long before the end.

    What cannot be removed is left for the operator.
    """
    aside = run_dir.with_name(f"{_DELETED}{run_dir.name}")
    with suppress(OSError):
        run_dir.rename(aside)
        run_dir = aside
    remove_tree(run_dir)


def finish_removed_runs(settings: Settings) -> None:
    """Remove what a killed server has left of deleted runs."""
    for path in (settings.home / "runs").glob(f"{_DELETED}*"):
        remove_tree(path)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a job wrote, as far as possible; a link in its place is left alone."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        # A script nested its folders deeper than Python can follow.
        subprocess.run(["rm", "-rf", "--", folder], check=False)  # noqa: S607 - a path of our own


def write_files(run_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a new job into its work folder, and record their sizes and times."""
    work = run_dir / WORK_FOLDER
    work.mkdir(parents=True)
    written = []
    for name, content in files.items():
        path = work / checked_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written.append(path)
    note_brought(run_dir, written)


def note_brought(run_dir: Path, paths: Iterable[Path]) -> None:
    """Record size and time of the files that the owner uploaded."""
    brought = dict(read_brought(run_dir))
    for path in paths:
        facts = path.lstat()
        brought[path.relative_to(run_dir / WORK_FOLDER).as_posix()] = (facts.st_size, facts.st_mtime_ns)
    replace_file(run_dir / _BROUGHT_FILE, json.dumps(brought) + "\n", durable=True)


def read_brought(run_dir: Path) -> Brought:
    """Read the record of uploaded files; empty if there is none."""
    try:
        content = read_json_beneath(run_dir, _BROUGHT_FILE) or {}
        return {name: (int(facts[0]), int(facts[1])) for name, facts in content.items()}
    except (ValueError, TypeError, LookupError):
        return {}


def was_brought(brought: Brought, run_dir: Path, path: Path) -> bool:
    """Whether a file is unchanged since its owner uploaded it."""
    name = path.relative_to(run_dir / WORK_FOLDER).as_posix()
    if name not in brought:
        return False
    facts = path.lstat()
    return (facts.st_size, facts.st_mtime_ns) == brought[name]


def read_uploaded(run_dir: Path, most: int) -> tuple[dict[str, bytes], list[str]]:
    """The files that are still as their owner uploaded them, and the names of the others.

    A rented machine may have rewritten the record: no more than `most` bytes are read.
    """
    files: dict[str, bytes] = {}
    changed: list[str] = []
    for name, facts in sorted(read_brought(run_dir).items()):
        content = _read_unchanged(run_dir, name, facts) if facts[0] <= most else None
        if content is None:
            changed.append(name)
        else:
            files[name] = content
            most -= len(content)
    return files, changed


def _read_unchanged(run_dir: Path, name: str, facts: tuple[int, int]) -> bytes | None:
    try:
        file = open_plain(run_dir, f"{WORK_FOLDER}/{checked_path(name)}")
    except ValueError:
        return None
    if file is None:
        return None
    with file:
        found = os.fstat(file.fileno())
        return file.read(facts[0]) if (found.st_size, found.st_mtime_ns) == facts else None


def artifacts(run_dir: Path) -> list[FoundFile]:
    """The files that the script wrote or changed, by name, up to a limit."""
    brought = read_brought(run_dir)
    found = (
        file
        for file in _files_of(run_dir, WORK_FOLDER, _is_shown)
        if brought.get(file.name) != (file.size, file.modified_ns)
    )
    return sorted(islice(found, MOST_ARTIFACTS), key=lambda file: file.name)


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_SHOWN


def read_text(run_dir: Path, name: str, most: int) -> str:
    """The beginning of a text file in the work folder. OSError: it is not there, or no plain file."""
    with os.fdopen(open_beneath(run_dir, f"{WORK_FOLDER}/{checked_path(name)}"), "rb") as file:
        return file.read(most).decode("utf-8", "replace").replace("\0", "")
