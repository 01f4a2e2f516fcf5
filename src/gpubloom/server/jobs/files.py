"""A job's files on this machine: its run directory, its model, and the files of a script job.

A script writes whatever it likes into its folder, links included. So nothing here follows a link, at no step
of a path: what is outside of the folder stays outside, also when a folder is swapped for a link meanwhile.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import structlog

from gpubloom.scripts.task import WORK_FOLDER, checked_path
from gpubloom.server.settings import Settings
from gpubloom.storage import StorageError, Store
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.safe_paths import is_file_beneath, is_folder_beneath, open_beneath

log = structlog.get_logger("bloom")

_MODEL = "model"

MOST_ARTIFACTS = 5_000
_BROUGHT_FILE = "brought.json"
# Made anew by every run, and read by nobody.
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

    @property
    def path(self) -> Path:
        return self.run_dir / self.folder / self.name

    def open(self) -> BinaryIO:
        return os.fdopen(open_beneath(self.run_dir, f"{self.folder}/{self.name}"), "rb")


def model_files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    """The files of a finished model, sorted; empty when there is none."""
    run_dir = run_directory(settings, job_id)
    if not is_folder_beneath(run_dir, _MODEL):
        return []
    found = []
    for directory, _, names in os.walk(run_dir / _MODEL):
        for path in (Path(directory, name) for name in names):
            facts = path.lstat()
            # Links could lead out of the folder.
            if stat.S_ISREG(facts.st_mode):
                name = path.relative_to(run_dir / _MODEL).as_posix()
                found.append(FoundFile(run_dir, _MODEL, name, facts.st_size))
    return sorted(found, key=lambda file: file.path)


def has_model(settings: Settings, job_id: UUID) -> bool:
    """Whether a training has its finished model."""
    return is_file_beneath(run_directory(settings, job_id), f"{_MODEL}/config.json")


def has_files(settings: Settings, job_id: UUID) -> bool:
    """Whether a job made files to download; not every form of a model has a config.json."""
    return bool(model_files(settings, job_id))


def remove_transport(settings: Settings, job_id: UUID) -> None:
    """Remove what a job on rented machines left in the bucket; while that is away, it stays there."""
    if settings.storage is None:
        return
    try:
        Store(settings.storage).delete_folder(JobLayout(str(job_id), 1).folder)
    except StorageError as problem:
        log.warning(
            "could not delete the files of a deleted job from the bucket",
            job=str(job_id),
            reason=str(problem),
        )


def remove_run(run_dir: Path) -> None:
    """Remove a run's files; what cannot be removed is left for the operator."""
    shutil.rmtree(run_dir, ignore_errors=True)


def write_files(run_dir: Path, files: Mapping[str, bytes]) -> None:
    """Puts the files of a new job where its attempts will run, and writes down what they were."""
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
    """Writes down how files are that no script made."""
    brought = dict(read_brought(run_dir))
    for path in paths:
        facts = path.lstat()
        brought[path.relative_to(run_dir / WORK_FOLDER).as_posix()] = (facts.st_size, facts.st_mtime_ns)
    replace_file(run_dir / _BROUGHT_FILE, json.dumps(brought) + "\n", durable=True)


def read_brought(run_dir: Path) -> Brought:
    """Empty where nothing is written down."""
    try:
        content = read_json_object(run_dir / _BROUGHT_FILE) or {}
    except ValueError:
        return {}
    return {name: (int(facts[0]), int(facts[1])) for name, facts in content.items()}


def was_brought(brought: Brought, run_dir: Path, path: Path) -> bool:
    """Whether a file is still as its owner brought it."""
    name = path.relative_to(run_dir / WORK_FOLDER).as_posix()
    if name not in brought:
        return False
    facts = path.lstat()
    return (facts.st_size, facts.st_mtime_ns) == brought[name]


def artifacts(run_dir: Path) -> list[FoundFile]:
    """The files that the script wrote or changed, by name, up to a limit."""
    work = run_dir / WORK_FOLDER
    brought = read_brought(run_dir)
    found: list[FoundFile] = []
    for directory, folders, names in os.walk(work):
        folders[:] = sorted(name for name in folders if _is_shown(name))
        for path in (Path(directory, name) for name in sorted(names) if _is_shown(name)):
            try:
                facts = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode) and not was_brought(brought, run_dir, path):
                name = path.relative_to(work).as_posix()
                found.append(FoundFile(run_dir, WORK_FOLDER, name, facts.st_size))
        if len(found) >= MOST_ARTIFACTS:
            break
    return sorted(found[:MOST_ARTIFACTS], key=lambda file: file.name)


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _NOT_SHOWN and name.isprintable()


def read_text(run_dir: Path, name: str, most: int) -> str:
    """The beginning of a text file in the work folder. OSError: it is not there, or no plain file."""
    with os.fdopen(open_beneath(run_dir, f"{WORK_FOLDER}/{checked_path(name)}"), "rb") as file:
        return file.read(most).decode("utf-8", "replace").replace("\0", "")
