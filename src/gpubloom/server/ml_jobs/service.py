"""Create a job from a user's folder: the row, the files, and the checks before either."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.datasets.downloading import FetchProblem
from gpubloom.datasets.named import known
from gpubloom.datasets.remote_data import is_remote, name_of
from gpubloom.errors import code_of
from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.scripts import Requirements
from gpubloom.scripts.task import ScriptTask, script_task
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.audit import record
from gpubloom.server.jobs import service as jobs
from gpubloom.server.jobs.files import run_directory, write_files
from gpubloom.server.jobs.launch import TakesOffers
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.ml_jobs.folder import Folder
from gpubloom.server.ml_jobs.placement import Placement
from gpubloom.server.ml_jobs.schemas import NewMlJob
from gpubloom.server.problems import Forbidden, InvalidInput
from gpubloom.server.projects.data_paths import DataPathRefused, check_address
from gpubloom.server.projects.service import get_project, visible_to
from gpubloom.server.projects.tables import Project
from gpubloom.server.secrets.service import names_for
from gpubloom.server.settings import Settings
from gpubloom.server.storage.service import count_files, require_room

_PROJECT = "Scripts"


@dataclass(frozen=True)
class SandboxChoice:
    """How a script runs on this server's machine. `confirmed`: an admin runs it without a sandbox."""

    sandboxed: bool = True
    confirmed: bool = False


async def choose_sandbox(body: NewMlJob, principal: Principal, placement: Placement) -> SandboxChoice:
    """Refuses what only admins may do here, and scripts where no sandbox can be built."""
    if placement.offer is not None:
        return SandboxChoice()
    is_admin = "admin" in principal.scopes
    if body.network and not is_admin:
        raise Forbidden(
            "Only admins can give a script network access on the server's machine, because the script "
            "can then reach everything that the machine can reach. Upload the data with the script, "
            "use a named dataset, or rent a machine.",
            code="network_for_admins",
        )
    reason = await anyio.to_thread.run_sync(why_no_sandbox)
    if reason is None:
        return SandboxChoice()
    if is_admin and body.confirmed:
        return SandboxChoice(sandboxed=False, confirmed=True)
    confirming = "Confirm" if is_admin else "An admin can confirm"
    raise Forbidden(
        f"Scripts run on the server's machine only inside a sandbox. {reason} {confirming} to run this "
        "script without a sandbox; it then has all rights of the server.",
        code="no_sandbox",
    )


def task_of(body: NewMlJob, folder: Folder, found: Requirements, sandbox_choice: SandboxChoice) -> ScriptTask:
    """What the job's row keeps. InvalidInput: which field cannot be."""
    _check_datasets(body.datasets)
    saves = found.checkpoints.value if found.checkpoints is not None else None
    packages = [each.value for each in found.packages] if body.packages is None else body.packages
    fields = {
        "entry": folder.entry,
        "arguments": body.arguments,
        "packages": packages,
        "environment": body.environment,
        "network": body.network,
        "sandboxed": sandbox_choice.sandboxed,
        "datasets": body.datasets,
        "hub_models": found.hub_models,
        "hub_datasets": [
            (each.name,) if each.config is None else (each.name, each.config) for each in found.hub_datasets
        ],
        "total_steps": _steps(found),
        "resumes": saves is not None and saves.resumes_with is not None,
        "resume_arguments": () if saves is None else saves.resume_arguments,
        "checkpoint_folder": None if saves is None else _inside(saves.folder),
    }
    try:
        return script_task(fields)
    except ValueError as problem:
        raise InvalidInput(str(problem), code=code_of(problem)) from None


def _check_datasets(datasets: Sequence[str]) -> None:
    """InvalidInput: one is not known, no address of data, or lies where another one does."""
    names: set[str] = set()
    for dataset in datasets:
        try:
            if "://" in dataset:
                check_address(dataset)
            else:
                known(dataset)
        except (FetchProblem, DataPathRefused) as problem:
            raise InvalidInput.for_field("datasets", str(problem), code=problem.code) from None
        name = name_of(dataset) if is_remote(dataset) else dataset
        if name in names:
            raise InvalidInput.for_field(
                "datasets",
                f"Two datasets would lie in data/{name}. Remove one, or name its folder above.",
                code="duplicate_dataset",
            )
        names.add(name)


def _steps(found: Requirements) -> int | None:
    """Guesses are no use: a wrong time left is worse than none."""
    steps = found.iterations
    return None if steps is None or steps.confidence == "assumed" else max(1, round(steps.value))


def _inside(folder: str | None) -> str | None:
    """Where a script saves, if that is below its own folder."""
    if folder is None or folder.startswith(("/", "~")) or ".." in folder.split("/"):
        return None
    return folder.removeprefix("./").strip("/") or None


async def project_of(session: AsyncSession, principal: Principal, project_id: UUID | None) -> Project:
    """The project that was named, or the one that holds scripts; that is made with the first of them."""
    if project_id is not None:
        return await get_project(session, principal, project_id)
    statement = visible_to(principal).where(Project.name == _PROJECT).order_by(Project.created_at).limit(1)
    if (project := await session.scalar(statement)) is not None:
        return project
    # Scripts of all kinds come here: there is no one model whose size could be said.
    project = Project(id=uuid4(), user_id=principal.id, name=_PROJECT, description="Script jobs.")
    session.add(project)
    await session.flush()
    return project


async def create(
    session: AsyncSession,
    principal: Principal,
    settings: Settings,
    body: NewMlJob,
    folder: Folder,
    task: ScriptTask,
    placement: Placement,
    sandbox_choice: SandboxChoice,
    offer_service: TakesOffers,
) -> TrainingJob:
    """The row and the files. Files first: a worker may take the job as soon as the row is there."""
    project = await project_of(session, principal, body.project_id)
    job = TrainingJob(
        id=uuid4(),
        project_id=project.id,
        user_id=principal.id,
        name=body.name or folder.entry,
        kind="script",
        config=task.model_dump(mode="json"),
        target=placement.target,
        offer=placement.offer,
        gpus=placement.gpus,
        budget=body.budget,
        max_hours=body.max_hours,
        machine=_machine(settings),
        secrets=await names_for(session, principal, project.id, body.secrets),
        failover=None
        if placement.offer is None
        else await offer_service.alternatives(
            session, principal, placement.offer, body.failover, body.failover_by, body.budget
        ),
    )
    run_dir = run_directory(settings, job.id)
    size = sum(map(len, folder.files.values()))
    await require_room(session, principal, settings, size)
    try:
        await anyio.to_thread.run_sync(write_files, run_dir, folder.files)
        await jobs.queue_job(session, principal, job, settings)
        # Counted from now on; a worker measures later what the job makes of it.
        await count_files(session, job.id, principal.id, size)
    except BaseException:
        shutil.rmtree(run_dir, ignore_errors=True)
        raise
    if sandbox_choice.confirmed or task.network:
        record(
            session,
            principal.actor,
            "script.confirmed",
            f"training_job:{job.id}",
            job.project_id,
            sandboxed=task.sandboxed,
            network=task.network,
        )
    return job


def _machine(settings: Settings) -> str | None:
    """The machine whose workers find the files; its name appears with its first worker."""
    try:
        return (settings.home / "machine").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
