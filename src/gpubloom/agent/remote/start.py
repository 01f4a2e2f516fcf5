"""What an instance is told (`Start`), and how the job's files get there: downloaded once and checked."""

import hashlib
import json
import logging
import os
import shutil
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from gpubloom.agent.files import AgentFiles
from gpubloom.agent.remote.link import DamagedError, Link, Unavailable
from gpubloom.agent.spec import JobSpec
from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.retry import RetryPolicy, retry
from gpubloom.traincard.sync.files import is_inside

logger = logging.getLogger("bloom-agent")

VERSION = 1
# A folder of files that came with the image, each named by its SHA-256.
FILES_VARIABLE = "BLOOM_FILES"
# The addresses of a bundle live for a day.
_FETCH_RETRIES = RetryPolicy(first_pause=1.0, longest_pause=30.0, max_seconds=24 * 3600.0)
_CALLS_WHEN_DAMAGED = 3


@dataclass(frozen=True)
class StoredFile:
    """One file of the bundle. `role`: run (a file of the run directory), job (job.json), wheel or agent."""

    role: str
    path: str
    sha256: str
    address: str
    executable: bool = False


@dataclass(frozen=True)
class Start:
    """All that an instance needs to begin. Times in seconds.

    `every`: how often the uploader looks for news; `beat`: after which it sends a batch without any;
    `deliver`: how long it stays after the end to send the rest; `obey`: how long a script that reads
    control.json has to act on it before it gets a signal.
    """

    job_id: str
    attempt: int
    mailbox: str
    files: Sequence[StoredFile]
    every: float = 3.0
    beat: float = 30.0
    deliver: float = 3600.0
    obey: float = 60.0
    part_bytes: int = 16 << 20
    # Where the agent reports the start of the job (`start_report`), by PUT.
    report: str = ""
    v: int = VERSION

    def to_json(self) -> str:
        content = {**vars(self), "files": [vars(file) for file in self.files]}
        return json.dumps(content, indent=1)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """ValueError when it is not one."""
        try:
            found = cls(**{**content, "files": [StoredFile(**file) for file in content["files"]]})
        except (KeyError, TypeError) as problem:
            raise InputError(
                "invalid_start_file", f"start.json does not describe a job: {problem}."
            ) from problem
        if found.v > VERSION:
            raise InputError(
                "newer_version",
                f"start.json has version {found.v}, but this agent reads only up to version {VERSION}.",
            )
        return found


@dataclass(frozen=True)
class Folders:
    """Where things are on an instance."""

    base: Path

    @property
    def run(self) -> Path:
        return self.base / "run"

    @property
    def site(self) -> Path:
        """Where the wheel is unpacked; on the training's PYTHONPATH."""
        return self.base / "site"

    @property
    def post(self) -> Path:
        return self.base / "post"


def prepare(start: Start, folders: Folders, link: Link) -> dict[str, str]:
    """Create the run directory, unless an earlier start did; returns its files with their hashes.

    Unavailable or Rejected: the bucket cannot be read. DamagedError: an object is not what was stored.
    """
    known = {file.path: file.sha256 for file in start.files if file.role == "run"}
    is_there = folders.base / "prepared.json"
    if is_there.exists():
        return known
    folders.run.mkdir(parents=True, exist_ok=True)
    files = AgentFiles(folders.run)
    files.create_folder()
    environment: dict[str, str] = {}
    job: dict[str, Any] | None = None
    for file in start.files:
        if file.role == "run":
            _fetch(link, file, _inside(folders.run, file.path))
        elif file.role == "job":
            target = folders.base / "job.json"
            _fetch(link, file, target)
            job = read_json_object(target)
        elif file.role == "wheel":
            target = folders.base / PurePosixPath(file.path).name
            _fetch(link, file, target)
            with zipfile.ZipFile(target) as wheel:
                wheel.extractall(folders.site)
            environment["PYTHONPATH"] = str(folders.site)
    if job is None:
        raise InputError("job_not_found", "The uploaded job has no job.json. Submit the job again.")
    spec = JobSpec.from_json({**job, "run_dir": str(folders.run.absolute())})
    if before := spec.environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join([*environment.values(), before])
    given = folders.base / AgentFiles(folders.base).secrets.name
    if given.exists():
        given.replace(files.secrets)
    files.write_job(replace(spec, environment={**spec.environment, **environment}))
    replace_file(is_there, "{}")
    return known


def _is_here(file: StoredFile, target: Path) -> bool:
    """Copy a file that came with the image, if it is what was stored."""
    folder = os.environ.get(FILES_VARIABLE)
    if not folder:
        return False
    try:
        with Path(folder, file.sha256).open("rb") as source:
            if hashlib.file_digest(source, "sha256").hexdigest() != file.sha256:
                return False
        shutil.copyfile(Path(folder, file.sha256), target)
    except OSError:
        return False
    return True


def _fetch(link: Link, file: StoredFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_here(file, target):
        if file.executable:
            target.chmod(0o755)
        return
    damaged = 0

    def is_transient(problem: Exception) -> bool:
        nonlocal damaged
        damaged += isinstance(problem, DamagedError)
        return isinstance(problem, Unavailable | DamagedError) and damaged < _CALLS_WHEN_DAMAGED

    def wait(problem: Exception, pause: float) -> None:
        logger.warning("Could not download %s: %s. Trying again.", file.path, problem)
        time.sleep(pause)

    retry(
        lambda: link.fetch(file.address, target, file.sha256),
        _FETCH_RETRIES,
        is_transient=is_transient,
        wait=wait,
    )
    if file.executable:
        target.chmod(0o755)


def _inside(folder: Path, name: str) -> Path:
    if not is_inside(name):
        raise InputError(
            "path_outside_folder",
            f"The uploaded job contains the path {name!r}, which is outside the run directory.",
        )
    return folder / name
