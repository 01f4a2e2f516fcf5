"""Makes a script's run directory ready for an attempt: its data, how it goes on, and the walls around it.

The person's files lie in `work` since the job was made. What the script saves there is what it goes on from.
"""

import sys
from pathlib import Path

from gpubloom.agent.progress.saved_files import Saved, find_saved
from gpubloom.agent.spec import JobSpec
from gpubloom.datasets.downloading import FetchProblem
from gpubloom.datasets.named import prepare_named
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.providers.local.devices import CPU, CPU_SIDE_SLOT
from gpubloom.providers.local.sandbox import Limits, Sandbox, why_no_sandbox
from gpubloom.scripts.task import NEWEST_CHECKPOINT, WORK_FOLDER, ScriptTask, script_task
from gpubloom.server.jobs.script_files import note_brought, read_brought, was_brought
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.storage.applying import has_received
from gpubloom.traincard import ControlFile

# Hidden, so that a cache in it does not travel when the job goes on elsewhere.
_HOME_FOLDER = ".home"
_DATA_FOLDER = "data"


def prepare_script(run_dir: Path, home: Path, job: TrainingJob, reservation: Reservation) -> JobSpec:
    """What an agent runs, here or elsewhere. ProviderError with a sentence: it cannot run here.

    Called while nothing of the run lives. `home` is BLOOM_HOME, which no script may see.
    """
    task = script_task(job.config)
    work = run_dir / WORK_FOLDER
    if not (work / task.entry).is_file():
        raise ProviderError(f"{task.entry} is not in the job's folder on this machine. Submit the job again.")
    control = ControlFile(run_dir)
    if control.read().want != "run":
        control.want("run")
    _bring_datasets(run_dir, home, task)
    added, note = resume_words(run_dir, task, job.attempt)
    command: tuple[str, ...] = (sys.executable, task.entry, *task.arguments, *added)
    environment = dict(task.environment)
    limit = None if job.max_hours is None else job.max_hours * 3600
    came_from_remote = has_received(run_dir)
    if job.target == "local" and (task.sandboxed or came_from_remote):
        if reason := why_no_sandbox():
            raise ProviderError(f"The script cannot run here: {reason}")
        sandbox = Sandbox(
            work=work,
            home=run_dir / _HOME_FOLDER,
            hidden=home,
            limits=Limits.of_this_machine(run_dir, hours=job.max_hours),
            network=task.network,
            gpus=tuple(name for name in reservation.devices if name not in {CPU, CPU_SIDE_SLOT}),
        )
        sandbox.prepare()
        command = sandbox.command(command, environment)
        if not task.sandboxed:
            # An admin confirmed what its owner brought, not what a rented machine added to it.
            note = f"Runs in the sandbox: a rented machine has sent files into its folder. {note}".rstrip()
        # Out here they would act on the program that builds the wall.
        environment = {}
    return JobSpec(
        job_id=str(job.id),
        run_dir=run_dir,
        attempt=job.attempt,
        command=command,
        environment=environment,
        time_limit_seconds=limit if job.target == "local" else None,
        folder=WORK_FOLDER,
        note=note,
        total_steps=task.total_steps,
    )


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
            raise ProviderError(f"The dataset {name} could not be brought: {problem}") from problem
        note_brought(run_dir, prepared.files)


def resume_words(run_dir: Path, task: ScriptTask, attempt: int) -> tuple[tuple[str, ...], str]:
    """What to add to the command line so that the script goes on, and what the log should say about it."""
    if attempt == 1:
        return (), ""
    newest = newest_checkpoint(run_dir, task)
    if newest is None:
        return (), "The script has saved nothing yet, so it begins anew."
    if not task.resumes:
        return (), "The script cannot go on from what it saved, so it begins anew."
    name = newest.path.relative_to(run_dir / WORK_FOLDER).as_posix()
    words = tuple(word.replace(f"={NEWEST_CHECKPOINT}", f"={name}") for word in task.resume_arguments)
    missing = tuple(word for word in words if word not in task.arguments)
    if not missing:
        return (), f"The script goes on by itself from what it saved; the newest is {name}."
    return missing, f"Added to the command line, so that the script goes on from {name}: {' '.join(missing)}"


def newest_checkpoint(run_dir: Path, task: ScriptTask) -> Saved | None:
    """The newest one that the script wrote: in its own folder for that, where it has one, else anywhere."""
    work = run_dir / WORK_FOLDER
    brought = read_brought(run_dir)
    saved = [each for each in find_saved(work) if not was_brought(brought, run_dir, each.path)]
    if task.checkpoint_folder is not None:
        there = [each for each in saved if each.path.is_relative_to(work / task.checkpoint_folder)]
        saved = there or saved
    return saved[-1] if saved else None
