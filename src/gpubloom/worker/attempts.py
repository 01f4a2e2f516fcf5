"""From a job's row to what an agent runs, whatever kind of job it is. Plain file work."""

from pathlib import Path
from typing import Any

from gpubloom.agent.spec import JobSpec
from gpubloom.providers.base import ProviderError, Reservation
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.worker.inputs import stage_inputs
from gpubloom.worker.run_files import prepare_run
from gpubloom.worker.script_files import prepare_script
from gpubloom.worker.task_files import command_of, prepare_task


def prepare_attempt(
    run_dir: Path, home: Path, job: TrainingJob, reservation: Reservation, hub_token: str | None
) -> JobSpec:
    """Makes the run directory ready. ProviderError with a sentence: the job cannot run here."""
    if job.kind == "script":
        return prepare_script(run_dir, home, job, reservation)
    if job.kind == "train":
        prepare_run(run_dir, _config(run_dir, job), job.plan, job.attempt)
    else:
        prepare_task(run_dir, job.config, hub_token)
    command = command_of(job.kind, job.config, job.attempt)
    return JobSpec(job_id=str(job.id), run_dir=run_dir, attempt=job.attempt, command=command)


def _config(run_dir: Path, job: TrainingJob) -> dict[str, Any]:
    if job.target == "local":
        return job.config
    try:
        return stage_inputs(run_dir, job.config)
    except (ValueError, OSError) as problem:
        # With its cause: a fault of this machine's disk is not the job's.
        raise ProviderError(f"What the training reads cannot be taken along: {problem}") from problem
