"""A job's files on this machine: its run directory, its model, and how much of it may be seen."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import structlog

from gpubloom.server.settings import Settings
from gpubloom.storage import StorageError, Store
from gpubloom.storage.layout import JobLayout

log = structlog.get_logger("bloom")


def run_directory(settings: Settings, job_id: UUID) -> Path:
    """Where the run of a job lies. The name is the server's own: nothing of a request is in it."""
    return settings.home / "runs" / str(job_id)


@dataclass(frozen=True)
class FoundFile:
    """A file of a model or of a script's folder, by its name inside it."""

    name: str
    path: Path
    size: int

    def open(self) -> BinaryIO:
        return self.path.open("rb")


def model_files(settings: Settings, job_id: UUID) -> list[FoundFile]:
    """The files of a finished model, sorted; empty when there is none."""
    folder = run_directory(settings, job_id) / "model"
    if not folder.is_dir():
        return []
    return [
        FoundFile(path.relative_to(folder).as_posix(), path, path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        # Links could lead out of the folder.
        if path.is_file() and not path.is_symlink()
    ]


def has_model(settings: Settings, job_id: UUID) -> bool:
    """Whether a training has its finished model."""
    return (run_directory(settings, job_id) / "model" / "config.json").is_file()


def has_files(settings: Settings, job_id: UUID) -> bool:
    """Whether a job made files to download; not every form of a model has a config.json."""
    folder = run_directory(settings, job_id) / "model"
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))


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
