"""Prepare the run directory of a job for an attempt, and read what the attempt left. Plain file work.

A job is a training, a script or a task; `prepare_attempt` returns what the agent runs for any of them. What
they read is brought by `inputs.py`. The files of a script lie in `work` since the job was made, and what the
script saves there is what it resumes from.

An earlier attempt may have left anything in the directory, links included: nothing is read or written through
one (`traincard.safe_paths`).
"""

import os
import shutil
import stat
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import gpubloom
from gpubloom.agent import AgentFiles
from gpubloom.agent.progress.files import Saved, find_saved
from gpubloom.agent.spec import JobSpec
from gpubloom.plan import Plan, TrainConfig, run_files
from gpubloom.plan.backends import interpreter_for
from gpubloom.plan.tasks import (
    RESULT_FILE,
    SERVE_FILE,
    SOCKET_FILE,
    TASK_SCRIPT,
    TOKEN_FILE,
    task_files,
    task_from,
)
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.scripts.task import NEWEST_CHECKPOINT, WORK_FOLDER, ScriptTask, script_task
from gpubloom.server.jobs.files import folder_files, read_brought, was_brought
from gpubloom.server.jobs.logs import read_output
from gpubloom.server.jobs.states import Kind
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.schema import storable
from gpubloom.traincard import ControlFile
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.number_encoding import finite_or_none, plain
from gpubloom.traincard.safe_paths import (
    is_file_beneath,
    look_beneath,
    read_json_beneath,
    remove_beneath,
    walk_beneath,
)
from gpubloom.traincard.sync.apply import has_received
from gpubloom.worker.confinement import REPORT_FOLDERS, Confinement
from gpubloom.worker.inputs import Fetching, bring_datasets, bring_inputs, remove_inputs

# Lines that the agent itself adds to the output.
_AGENT_NOTE = "[bloom-agent]"
LARGEST_RESULT_BYTES = 4 << 20


@dataclass(frozen=True)
class AttemptResources:
    """What the worker gives an attempt besides its row.

    `hub_token`: for a task that pushes to a hub. The secrets in `fetching` go to the agent on this machine
    through a file that it removes; to a rented instance they travel with its start address
    (`SentBundle.address_with`).
    """

    reservation: Reservation
    confinement: Confinement
    hub_token: str | None = None
    fetching: Fetching = field(default_factory=Fetching)


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


def prepare_script(run_dir: Path, job: TrainingJob, given: AttemptResources) -> JobSpec:
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
    bring_datasets(run_dir, job, given.confinement.home, given.fetching)
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
        # With its folder: Python would take the file -c.py for an option.
        command=(sys.executable, f"./{task.entry}", *task.arguments, *added),
        environment=dict(task.environment),
        time_limit_seconds=limit if job.target == "local" else None,
        folder=WORK_FOLDER,
        note=note,
        total_steps=task.total_steps,
    )
    if job.target == "local" and (task.sandboxed or came_from_remote):
        return given.confinement.of_a_script(spec, job, given.reservation, network=task.network)
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
        _write_secret(run_dir / TOKEN_FILE, hub_token)
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
        run_dir / TOKEN_FILE,
        run_dir / SERVE_FILE,
        run_dir / SOCKET_FILE,
        AgentFiles(run_dir).secrets,
    ):
        path.unlink(missing_ok=True)


def read_result(run_dir: Path) -> dict[str, Any] | None:
    """The result of the task, without what a database cannot store; None if there is none."""
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


def prepare_attempt(run_dir: Path, job: TrainingJob, given: AttemptResources) -> JobSpec:
    """Makes the run directory ready. ProviderError with a sentence: the job cannot run here."""
    secrets = given.fetching.secrets
    spec = replace(_prepared(run_dir, job, given), secrets=tuple(sorted(secrets)))
    if secrets and job.target == "local":
        AgentFiles(run_dir).write_secrets(secrets)
    return spec


def _prepared(run_dir: Path, job: TrainingJob, given: AttemptResources) -> JobSpec:
    if job.target == "local":
        remove_inputs(run_dir)
    if job.kind == "script":
        return prepare_script(run_dir, job, given)
    if job.kind == "train":
        _bring_checkpoint(run_dir, job)
        prepare_run(run_dir, bring_inputs(run_dir, job, given.fetching), job.plan, job.attempt)
    else:
        prepare_task(run_dir, bring_inputs(run_dir, job, given.fetching), given.hub_token)
    resumes = job.attempt > 1 or job.branch is not None
    command = command_of(job.kind, job.config, resumes=resumes)
    spec = JobSpec(job_id=str(job.id), run_dir=run_dir, attempt=job.attempt, command=command)
    if job.target != "local":
        return spec
    return given.confinement.of_a_training(spec, job, given.reservation, network=given.hub_token is not None)


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
