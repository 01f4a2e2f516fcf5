"""Bring what a job reads into its run directory: linked from this machine, or fetched from an address.

The data and the model of a training on a rented instance are linked into `inputs`, so that they are uploaded
with the run directory; what comes back from the instance is never written to them (`traincard.sync.apply`).
Data with an address is fetched here for jobs on this machine, which have no network, and for scripts
everywhere: a script finds it in its own folder. A training on a rented instance fetches it there.
"""

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpubloom.datasets.downloading import FetchProblem
from gpubloom.datasets.named import prepare_named
from gpubloom.datasets.remote_data import fetch_data, is_remote, name_of
from gpubloom.errors import InputError
from gpubloom.plan import find_files
from gpubloom.providers.base import ProviderError
from gpubloom.scripts.task import WORK_FOLDER, script_task
from gpubloom.server.jobs.files import note_brought
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard.safe_paths import look_beneath, parent_beneath, remove_beneath

INPUTS = "inputs"
_DATA_FOLDER = "data"


@dataclass(frozen=True)
class Fetching:
    """What data with an address is fetched with: the job's secrets, as many bytes as there is room for, and
    only while the attempt is wanted."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    room: int = 0
    is_wanted: Callable[[], bool] = lambda: True

    def with_less_room(self, size: int) -> "Fetching":
        return replace(self, room=self.room - size)


def bring_inputs(run_dir: Path, job: TrainingJob, fetching: Fetching) -> dict[str, Any]:
    """The config of a training or a task with paths that its process can read. ProviderError."""
    if job.target == "local":
        try:
            return fetch_inputs(run_dir, job.config, fetching)
        except FetchProblem as problem:
            raise ProviderError(problem.code, f"The data could not be fetched: {problem}") from problem
    if job.kind != "train":
        return job.config
    try:
        return stage_inputs(run_dir, job.config)
    except (ValueError, OSError) as problem:
        # With its cause: a fault of this machine's disk is not the job's.
        raise ProviderError(
            "inputs_not_packaged", f"The inputs of the training cannot be packaged: {problem}"
        ) from problem


def stage_inputs(run_dir: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The config with paths that hold wherever the run directory lies. ValueError, OSError: a file is gone.

    The same config gives the same result, so a later attempt finds everything in place.
    """
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    tokenizer = dict(data.get("tokenizer") or {})
    if model.get("path"):
        if tokenizer.get("path") and Path(tokenizer["path"]).is_relative_to(model["path"]):
            inside = Path(tokenizer["path"]).relative_to(model["path"])
            tokenizer["path"] = str(Path(INPUTS, "model", inside))
        model["path"] = _bring(run_dir, "model", str(model["path"]))
    if tokenizer.get("path") and not str(tokenizer["path"]).startswith(f"{INPUTS}/"):
        tokenizer["path"] = _bring(run_dir, "tokenizer", str(tokenizer["path"]))
    for name in ("train_path", "eval_path"):
        # What has an address, the machine fetches itself.
        if data.get(name) and not is_remote(str(data[name])):
            data[name] = _bring(run_dir, name.removesuffix("_path"), str(data[name]))
    if data.get("mix"):
        data["mix"] = [
            {**each, "path": _bring(run_dir, f"mix-{number}", str(each["path"]))}
            for number, each in enumerate(data["mix"], 1)
        ]
    if tokenizer:
        data["tokenizer"] = tokenizer
    return {**config, "data": data, **({"model": model} if model else {})}


def _bring(run_dir: Path, name: str, path: str) -> str:
    """A file, folder or pattern under `inputs/<name>`; its path from the run directory."""
    files = find_files(path)
    if not files:
        raise InputError("data_empty", f"There are no files at {path}.")
    is_file = Path(path).expanduser().is_file()
    top = files[0].parent if is_file else _top_of(files, path)
    link_name = Path(INPUTS, name)
    for file in files:
        _link(file, run_dir, (link_name / file.relative_to(top)).as_posix())
    return str(link_name / files[0].name) if is_file else str(link_name)


def _top_of(files: list[Path], path: str) -> Path:
    folder = Path(path).expanduser()
    return folder if folder.is_dir() else Path(os.path.commonpath([file.parent for file in files]))


def _link(source: Path, run_dir: Path, target: str) -> None:
    real = source.resolve(strict=True)
    run_dir.mkdir(parents=True, exist_ok=True)
    with parent_beneath(run_dir, target, make=True) as (folder, name):
        try:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            if stat.S_ISREG(there.st_mode) and there.st_size == real.stat().st_size:
                return
            os.unlink(name, dir_fd=folder)
        try:
            os.link(real, name, dst_dir_fd=folder)
        except OSError:
            # Another disk.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            copy = os.open(name, flags, 0o644, dir_fd=folder)
            with os.fdopen(copy, "wb") as to, real.open("rb") as file:
                shutil.copyfileobj(file, to)


def remove_inputs(run_dir: Path) -> None:
    """They are links to the originals, which a training on this machine must not be able to change."""
    remove_beneath(run_dir, INPUTS, folder=True)


def fetch_inputs(run_dir: Path, config: dict[str, Any], fetching: Fetching) -> dict[str, Any]:
    """The config of a training or a task with files in place of addresses. They are fetched here: a job on
    this machine has no network. FetchProblem: an address gives no data, or more than there is room for."""
    if "train" in config:
        return {**config, "train": fetch_inputs(run_dir, config["train"], fetching)}
    folder, found = run_dir / INPUTS / _DATA_FOLDER, dict(config)
    if is_remote(config.get("data_path")):
        found["data_path"] = str(_fetch(str(config["data_path"]), folder, fetching)[0])
    data = dict(config.get("data") or {})
    remote = [name for name in ("train_path", "eval_path") if is_remote(data.get(name))]
    for name in remote:
        path, size = _fetch(str(data[name]), folder, fetching)
        fetching = fetching.with_less_room(size)
        data[name] = str(path.relative_to(run_dir))
    return {**found, "data": data} if remote else found


def _fetch(address: str, folder: Path, fetching: Fetching) -> tuple[Path, int]:
    """Where the data lies now, and its size."""
    found = fetch_data(
        address,
        folder,
        fetching.secrets,
        trusted=False,
        room=fetching.room,
        is_wanted=fetching.is_wanted,
    )
    return found, sum(file.stat().st_size for file in _files(found))


def _files(path: Path) -> list[Path]:
    return [file for file in (path, *path.rglob("*")) if file.is_file()]


def bring_datasets(run_dir: Path, job: TrainingJob, home: Path, fetching: Fetching) -> None:
    """Put the datasets of a script into `data` of its folder: the script itself may have no network."""
    folder = run_dir / WORK_FOLDER / _DATA_FOLDER
    for dataset in script_task(job.config).datasets:
        # An earlier attempt may have left a link in its place, to have us write where it cannot.
        for path in (folder, folder / dataset):
            if path.is_symlink():
                path.unlink()
        try:
            if is_remote(dataset):
                size = _bring_address(run_dir, dataset, fetching, again=job.attempt > 1)
                fetching = fetching.with_less_room(size)
            else:
                note_brought(run_dir, prepare_named(dataset, folder, home=home).files)
        except FetchProblem as problem:
            raise ProviderError(
                "dataset_not_fetched", f"The dataset {dataset} could not be downloaded: {problem}"
            ) from problem


def _bring_address(run_dir: Path, address: str, fetching: Fetching, *, again: bool) -> int:
    """Fetch data to `data/NAME` of a script; returns its size. `again`: an earlier attempt may have it."""
    target = f"{WORK_FOLDER}/{_DATA_FOLDER}/{name_of(address)}"
    there = look_beneath(run_dir, target)
    if again and there is not None and (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        return 0
    # Whatever an earlier attempt left there is not written through.
    remove_inputs(run_dir)
    found, size = _fetch(address, run_dir / INPUTS / _DATA_FOLDER, fetching)
    remove_beneath(run_dir, target, folder=True)
    with parent_beneath(run_dir, target, make=True) as (folder, name):
        # Renamed, so that it is there as a whole or not at all.
        os.rename(found, name, dst_dir_fd=folder)
    remove_inputs(run_dir)
    note_brought(run_dir, _files(run_dir / target))
    return size
