"""Folders from a hub that are whole or absent: fetched under a hidden name, then renamed.

The hidden folder is named after the commit and stays when fetching stops, so that the next try continues
where this one ended. One process at a time fetches to a place.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import RemoteFile, RemoteRepository

# Bytes that are there, and bytes that there will be.
Progress = Callable[[int, int], None]
_PREFIX = ".fetching-"
# A disk that is full to the last byte stops everything else on the machine.
_LEFT_FREE = 64 << 20


def fetch_files(
    repository: RemoteRepository, files: Sequence[RemoteFile], target: Path, progress: Progress | None = None
) -> None:
    """Fetches files into a folder that appears when all of them are there and are what the hub has."""
    with fetching_folder(target, repository.commit) as folder:
        download_all(repository, files, folder, progress)
        folder.rename(target)


def download_all(
    repository: RemoteRepository, files: Sequence[RemoteFile], folder: Path, progress: Progress | None
) -> None:
    """All files into a folder, continuing with what is there; there must be room for the rest."""
    folder.mkdir(exist_ok=True)
    total = sum(file.size for file in files)
    here = sum(path.stat().st_size for file in files if (path := folder / file.path).is_file())
    must_have_room(folder, total - here, repository.id)
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    for file in files:
        repository.download(file, folder / file.path, count)


def must_have_room(folder: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if needed + _LEFT_FREE > free:
        raise HubProblem(
            "disk_full",
            f"{what} needs {needed / 1e9:,.2f} GB more, but {folder.parent} has {free / 1e9:,.2f} GB free: "
            "make room there.",
        )


@contextmanager
def fetching_folder(target: Path, commit: str) -> Iterator[Path]:
    """The hidden folder of a target; what another commit left there goes."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.parent / f"{_PREFIX}{target.name}-{commit[:12]}"
        with (target.parent / f"{_PREFIX}{target.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HubProblem(
                    "in_use", f"Another process is fetching {target} already: wait for it."
                ) from None
            for other in target.parent.glob(f"{_PREFIX}{target.name}-*"):
                if other != hidden and other.is_dir():
                    shutil.rmtree(other)
            hidden.mkdir(exist_ok=True)
            yield hidden
            Path(lock.name).unlink(missing_ok=True)
    except PermissionError as problem:
        raise HubProblem("refused", f"{target.parent} cannot be written to: {problem.strerror}.") from None
