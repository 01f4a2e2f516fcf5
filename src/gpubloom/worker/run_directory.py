"""Prepare the run directory of a job for an attempt, and read what the attempt left. Plain file work.

A job is a training, a script or a task; `prepare_attempt` returns what the agent runs for any of them. The
data and the model of a training on a rented instance are linked into `inputs`, so that they are uploaded
with the run directory; what comes back from the instance is never written to them (`traincard.sync.apply`).
The files of a script lie in `work` since the job was made, and what the script saves there is what it
resumes from.

An earlier attempt may have left anything in the directory, links included: nothing is read or written through
one (`traincard.safe_paths`).
"""

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import gpubloom
from gpubloom.agent import AgentFiles
from gpubloom.agent.progress.files import Saved, find_saved
from gpubloom.agent.spec import JobSpec
from gpubloom.datasets.downloading import FetchProblem
from gpubloom.datasets.named import prepare_named
from gpubloom.datasets.remote_data import fetch_data, is_remote
from gpubloom.errors import InputError
from gpubloom.plan import Plan, TrainConfig, find_files, run_files
from gpubloom.plan.backends import interpreter_for
from gpubloom.plan.tasks import RESULT_FILE, TASK_SCRIPT, task_files, task_from
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.scripts.task import NEWEST_CHECKPOINT, WORK_FOLDER, ScriptTask, script_task
from gpubloom.server.jobs.files import folder_files, note_brought, read_brought, was_brought
from gpubloom.server.jobs.logs import read_output
from gpubloom.server.jobs.states import Kind
from gpubloom.server.jobs.summary import storable
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.playground.endpoint import SERVE_FILE, SOCKET_FILE
from gpubloom.traincard import ControlFile
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.number_encoding import finite_or_none, plain
from gpubloom.traincard.safe_paths import (
    is_file_beneath,
    look_beneath,
    parent_beneath,
    read_json_beneath,
    remove_beneath,
    walk_beneath,
)
from gpubloom.traincard.sync.apply import has_received
from gpubloom.worker.confinement import REPORT_FOLDERS, Confinement

INPUTS = "inputs"
# Lines of the agent's own in the output.
_AGENT_NOTE = "[bloom-agent]"
_DATA_FOLDER = "data"
LARGEST_RESULT_BYTES = 4 << 20
_TOKEN_FILE = "hub-token"  # noqa: S105 - a file's name


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


def _remove_inputs(run_dir: Path) -> None:
    """They are links to the originals, which a training on this machine must not be able to change."""
    remove_beneath(run_dir, INPUTS, folder=True)


def prepare_run(run_dir: Path, config: dict[str, Any], plan: dict[str, Any], attempt: int) -> None:
    """Write what was asked for, whatever an earlier attempt left. Called while nothing of the run lives.

    A job that was extended asks for more than its directory says: what was asked before is kept beside it,
    and the finished model makes room for the one to come.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    asked = TrainConfig.model_validate(config)
    existing = run_dir / "config.json"
    if _holds_another(existing, asked):
        shutil.rmtree(run_dir / "model", ignore_errors=True)
        existing.replace(run_dir / f"config.before-{attempt}.json")
    for name, text in run_files(asked, Plan.model_validate(plan), gpubloom.__version__).items():
        # Renamed into place: a link of that name is replaced, not written through.
        replace_file(run_dir / name, text, durable=True)
    # A paused run was told to pause; this attempt is told to run before it can look.
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")


def _holds_another(path: Path, asked: TrainConfig) -> bool:
    if not is_file_beneath(path.parent, path.name):
        return False
    try:
        return TrainConfig.read(path) != asked
    except (OSError, ValueError):
        # There is none yet, or one that nobody wrote as it is.
        return False


def last_output_line(run_dir: Path) -> str | None:
    """The last log line of a process that reported no error."""
    lines = read_output(run_dir, after=None, most_lines=50).lines
    own = [line for line in lines if line.strip() and not line.startswith(_AGENT_NOTE)]
    return own[-1] if own else None


def write_control(run_dir: Path, want: str, settings: dict[str, Any], saves: int) -> None:
    """Bring control.json to what the job's row asks for; does nothing when it already says so."""
    control = ControlFile(run_dir)
    now = control.read()
    if any(now.set.get(name) != value for name, value in settings.items()):
        control.set(settings)
    for _ in range(max(0, saves - now.save)):
        control.save()
    if want in {"run", "pause", "cancel"} and now.want != want:
        control.want(want)  # type: ignore[arg-type]


def prepare_script(
    run_dir: Path, job: TrainingJob, reservation: Reservation, confinement: Confinement
) -> JobSpec:
    """What an agent runs, here or on an instance. ProviderError with a sentence: it cannot run here.

    Called while nothing of the run lives.
    """
    task = script_task(job.config)
    if not is_file_beneath(run_dir, f"{WORK_FOLDER}/{task.entry}"):
        raise ProviderError(
            "entry_not_found",
            f"{task.entry} is not in the job's folder on this machine. Submit the job again.",
        )
    _remove_planted(run_dir)
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")
    _bring_datasets(run_dir, confinement.home, task)
    added, note = resume_words(run_dir, task, job.attempt)
    limit = None if job.max_hours is None else job.max_hours * 3600
    came_from_remote = has_received(run_dir)
    if came_from_remote and job.target == "local" and not task.sandboxed:
        # An admin confirmed what its owner brought, not what a rented machine added to it.
        note = (
            f"The script runs in a sandbox because a rented machine added files to its folder. {note}"
        ).rstrip()
    spec = JobSpec(
        job_id=str(job.id),
        run_dir=run_dir,
        attempt=job.attempt,
        command=(sys.executable, task.entry, *task.arguments, *added),
        environment=dict(task.environment),
        time_limit_seconds=limit if job.target == "local" else None,
        folder=WORK_FOLDER,
        note=note,
        total_steps=task.total_steps,
    )
    if job.target == "local" and (task.sandboxed or came_from_remote):
        return confinement.of_a_script(spec, job, reservation, network=task.network)
    return spec


def _remove_planted(run_dir: Path) -> None:
    """Removes what no Reporter writes, links above all. An earlier attempt whose Reporter could write there
    may have left them, to have the agent of this one write somewhere else."""
    for folder in REPORT_FOLDERS:
        facts = look_beneath(run_dir, folder)
        if facts is not None and not stat.S_ISDIR(facts.st_mode):
            remove_beneath(run_dir, folder)
        for path, found in walk_beneath(run_dir, folder):
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                remove_beneath(run_dir, path)


def _bring_datasets(run_dir: Path, home: Path, task: ScriptTask) -> None:
    """From the cache, or from where they lie in the world: the script itself may have no network."""
    folder = run_dir / WORK_FOLDER / _DATA_FOLDER
    for name in task.datasets:
        # An earlier attempt may have left a link in its place, to have us write where it cannot.
        for path in (folder, folder / name):
            if path.is_symlink():
                path.unlink()
        try:
            prepared = prepare_named(name, folder, home=home)
        except FetchProblem as problem:
            raise ProviderError(
                "dataset_not_fetched", f"The dataset {name} could not be downloaded: {problem}"
            ) from problem
        note_brought(run_dir, prepared.files)


def resume_words(run_dir: Path, task: ScriptTask, attempt: int) -> tuple[tuple[str, ...], str]:
    """The command-line arguments that make the script resume, and the matching line for the log."""
    if attempt == 1:
        return (), ""
    newest = newest_checkpoint(run_dir, task)
    if newest is None:
        return (), "The script has not saved a checkpoint yet, so it starts from the beginning."
    if not task.resumes:
        return (), "The script does not resume from checkpoints, so it starts from the beginning."
    name = newest.path.relative_to(run_dir / WORK_FOLDER).as_posix()
    words = tuple(word.replace(f"={NEWEST_CHECKPOINT}", f"={name}") for word in task.resume_arguments)
    missing = tuple(word for word in words if word not in task.arguments)
    if not missing:
        return (), f"The script resumes from its own checkpoint. The newest is {name}."
    return missing, f"Resuming from {name} with these added arguments: {' '.join(missing)}"


def newest_checkpoint(run_dir: Path, task: ScriptTask) -> Saved | None:
    """The newest one that the script wrote: in its own folder for that, where it has one, else anywhere."""
    work = run_dir / WORK_FOLDER
    brought = read_brought(run_dir)
    saved = [each for each in find_saved(work) if not was_brought(brought, run_dir, each.path)]
    if task.checkpoint_folder is not None:
        there = [each for each in saved if each.path.is_relative_to(work / task.checkpoint_folder)]
        saved = there or saved
    return saved[-1] if saved else None


def command_of(kind: Kind, config: dict[str, Any], *, resumes: bool) -> tuple[str, ...]:
    """What an agent runs in the job's directory."""
    if kind != "train":
        return (sys.executable, TASK_SCRIPT)
    python = interpreter_for(TrainConfig.model_validate(config)) or sys.executable
    return (python, "train.py", *(("--resume",) if resumes else ()))


def prepare_task(run_dir: Path, config: dict[str, Any], hub_token: str | None) -> None:
    """Write what was asked for, and leave nothing of an earlier attempt that could pass for this one's."""
    run_dir.mkdir(parents=True, exist_ok=True)
    remove_secrets(run_dir)
    (run_dir / RESULT_FILE).unlink(missing_ok=True)
    for name, text in task_files(task_from(config), gpubloom.__version__).items():
        replace_file(run_dir / name, text, durable=True)
    if hub_token is not None:
        _write_secret(run_dir / _TOKEN_FILE, hub_token)
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")


def _write_secret(path: Path, secret: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(secret)


def remove_secrets(run_dir: Path) -> None:
    """Called while nothing of the task lives: what only a living process needs must not lie around."""
    for path in (
        run_dir / _TOKEN_FILE,
        run_dir / SERVE_FILE,
        run_dir / SOCKET_FILE,
        AgentFiles(run_dir).secrets,
    ):
        path.unlink(missing_ok=True)


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """The task's answer, fit for a database; None when there is none."""
    try:
        facts = look_beneath(run_dir, RESULT_FILE)
        if facts is not None and facts.st_size > LARGEST_RESULT_BYTES:
            return _only_noted(
                f"The result is {facts.st_size / 1e6:.1f} MB, too large for the database. It is in "
                f"{RESULT_FILE} in the run directory of the task."
            )
        content = read_json_beneath(run_dir, RESULT_FILE, most=LARGEST_RESULT_BYTES)
        if content is None:
            return None
        found: dict[str, Any] = plain(content, number=finite_or_none, text=storable)
    except (OSError, ValueError, RecursionError) as problem:
        return _only_noted(f"The result in {RESULT_FILE} cannot be read: {problem}")
    return found


def _only_noted(sentence: str) -> dict[str, Any]:
    return {"notes": [sentence]}


def prepare_attempt(
    run_dir: Path,
    job: TrainingJob,
    reservation: Reservation,
    hub_token: str | None,
    confinement: Confinement,
    secrets: Mapping[str, str],
    room: int,
) -> JobSpec:
    """Makes the run directory ready. ProviderError with a sentence: the job cannot run here.

    `room`: how many bytes of data may be fetched for it.

    `secrets` go to the agent on this machine through a file that it removes; to a rented instance they travel
    with its start address (`SentBundle.address_with`).
    """
    spec = replace(
        _prepared(run_dir, job, reservation, hub_token, confinement, secrets, room),
        secrets=tuple(sorted(secrets)),
    )
    if secrets and job.target == "local":
        AgentFiles(run_dir).write_secrets(secrets)
    return spec


def _prepared(
    run_dir: Path,
    job: TrainingJob,
    reservation: Reservation,
    hub_token: str | None,
    confinement: Confinement,
    secrets: Mapping[str, str],
    room: int,
) -> JobSpec:
    if job.target == "local":
        _remove_inputs(run_dir)
    if job.kind == "script":
        return prepare_script(run_dir, job, reservation, confinement)
    if job.kind == "train":
        _bring_checkpoint(run_dir, job)
        prepare_run(run_dir, _config(run_dir, job, secrets, room), job.plan, job.attempt)
    else:
        prepare_task(run_dir, job.config, hub_token)
    resumes = job.attempt > 1 or job.branch is not None
    command = command_of(job.kind, job.config, resumes=resumes)
    spec = JobSpec(job_id=str(job.id), run_dir=run_dir, attempt=job.attempt, command=command)
    if job.target != "local":
        return spec
    return confinement.of_a_training(spec, job, reservation, network=hub_token is not None)


def _bring_checkpoint(run_dir: Path, job: TrainingJob) -> None:
    """Copies the checkpoint that a branch begins with. It is whole or absent: the folder is renamed."""
    if job.branch is None or job.attempt > 1:
        return
    name = Path(str(job.branch["checkpoint"])).name
    source = run_dir.parent / str(UUID(str(job.branch["job_id"])))
    files = folder_files(source, f"checkpoints/{name}")
    if not files:
        raise ProviderError(
            "checkpoint_removed",
            f"The checkpoint of step {job.branch['step']:,} was deleted before the branch started. "
            "Choose another checkpoint.",
        )
    target = run_dir / "checkpoints" / name
    if target.exists():
        return
    partial = run_dir / "checkpoints" / f".{name}.copy"
    shutil.rmtree(partial, ignore_errors=True)
    for file in files:
        (partial / file.name).parent.mkdir(parents=True, exist_ok=True)
        with file.open() as original, (partial / file.name).open("wb") as copy:
            shutil.copyfileobj(original, copy, 1 << 20)
    partial.rename(target)


def fetch_inputs(
    run_dir: Path, config: dict[str, Any], secrets: Mapping[str, str], room: int
) -> dict[str, Any]:
    """The config with files in place of addresses. They are fetched here: a training on this machine has no
    network. FetchProblem: an address gives no data, or more than there is room for."""
    data = dict(config.get("data") or {})
    remote = {name: str(path) for name in ("train_path", "eval_path") if is_remote(path := data.get(name))}
    for name, address in remote.items():
        found = fetch_data(address, run_dir / INPUTS / "data", secrets, trusted=False, room=room)
        room -= sum(file.stat().st_size for file in (found, *found.rglob("*")) if file.is_file())
        data[name] = str(found.relative_to(run_dir))
    return {**config, "data": data} if remote else config


def _config(run_dir: Path, job: TrainingJob, secrets: Mapping[str, str], room: int) -> dict[str, Any]:
    if job.target == "local":
        try:
            return fetch_inputs(run_dir, job.config, secrets, room)
        except FetchProblem as problem:
            raise ProviderError(
                problem.code, f"The training data could not be fetched: {problem}"
            ) from problem
    try:
        return stage_inputs(run_dir, job.config)
    except (ValueError, OSError) as problem:
        # With its cause: a fault of this machine's disk is not the job's.
        raise ProviderError(
            "inputs_not_packaged", f"The inputs of the training cannot be packaged: {problem}"
        ) from problem
