"""A job's files on this machine: its run directory, its model, and how much of it may be seen."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import structlog

from gpubloom.server.settings import Settings
from gpubloom.storage import StorageError, Store
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.beneath import is_file_beneath, is_folder_beneath, open_beneath

log = structlog.get_logger("bloom")

_MODEL = "model"


def run_directory(settings: Settings, job_id: UUID) -> Path:
    """Where the run of a job lies. The name is the server's own: nothing of a request is in it."""
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
        log.warning("files of a deleted job stay in the bucket", job=str(job_id), reason=str(problem))


def remove_run(run_dir: Path) -> None:
    """Remove a run's files; what cannot be removed is left for the operator."""
    shutil.rmtree(run_dir, ignore_errors=True)
