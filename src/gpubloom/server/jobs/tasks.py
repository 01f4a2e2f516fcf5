"""Tasks for a trained model: evaluate it, export it. Their JSON, their routes, and queueing them.

The playground queues its serve jobs through `create_task` as well.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

from anyio import to_thread
from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.errors import InputError, code_of
from gpubloom.json_files import read_json
from gpubloom.plan import limits
from gpubloom.plan.config import BackendName
from gpubloom.plan.gguf_support import why_no_gguf
from gpubloom.plan.tasks import (
    EvaluationSettings,
    ExportFormName,
    ExportSettings,
    RepositoryName,
    Task,
    task_from,
)
from gpubloom.server.accounts.hub_tokens import open_hub_token
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, Principal
from gpubloom.server.db.database import ReadSession, WriteSession
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs import service
from gpubloom.server.jobs.files import has_model, run_directory
from gpubloom.server.jobs.launch import live_machines
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.states import MAX_ATTEMPTS, name_of
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.problems import Conflict, InvalidInput, NotFound
from gpubloom.server.projects.data_paths import DataPathRefused, check_address
from gpubloom.server.projects.tables import Project
from gpubloom.server.schema import Flag, Line, Schema, Storable, Trimmed
from gpubloom.server.secrets.service import names_for
from gpubloom.server.settings import Settings
from gpubloom.traincard.safe_paths import is_folder_beneath

Prompt = Annotated[str, Field(min_length=1, max_length=limits.MAX_PROMPT_CHARACTERS), Storable]
Prompts = Annotated[list[Prompt], Field(max_length=limits.MAX_PROMPTS)]
OfCheckpoint = Annotated[
    UUID | None, Field(description="A checkpoint of the job. If empty: the finished model.")
]


class NewEvaluation(Schema, EvaluationSettings):
    """What to measure: perplexity on an eval split, answers to prompts, benchmarks."""

    checkpoint_id: OfCheckpoint = None
    data_path: Annotated[Line, Field(min_length=1, max_length=1_000)] | None = Field(
        None,
        description="Data to evaluate on: an https://, hf://, s3:// or gs:// address. If empty: the eval "
        "split of the job. Private data needs the secrets that trainings use.",
    )
    prompts: Prompts = Field(default_factory=list)
    lm_eval_tasks: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w.,:/-]+$")]],
        Field(max_length=50),
    ] = Field(default_factory=list)


class HubPush(Schema):
    """The Hugging Face repository to push to. Uses the token that is stored under Settings."""

    repository: Annotated[RepositoryName, Trimmed]
    private: Flag = True


class NewExport(Schema, ExportSettings):
    """The file format of the export."""

    checkpoint_id: OfCheckpoint = None
    average_with: Annotated[list[UUID], Field(max_length=limits.MAX_AVERAGED_CHECKPOINTS - 1)] = Field(
        default_factory=list,
        description="Other checkpoints of the job. The mean of checkpoint_id and these is exported.",
    )
    prompts: Prompts = Field(default_factory=list)
    hub: HubPush | None = None


class ExportForm(Schema):
    """A format of exports. If this model cannot be written in it, `reason` says why."""

    form: ExportFormName
    available: bool
    reason: str | None


class ExportForms(Schema):
    items: list[ExportForm]


class BackendOut(Schema):
    """A training backend. If it cannot run here, `reason` says why."""

    name: BackendName
    available: bool
    reason: str | None
    brings: str


class Backends(Schema):
    items: list[BackendOut]


@dataclass(frozen=True)
class Subject:
    """The model of a task: a finished training job, one of its checkpoints, or a stored model."""

    path: Path
    name: str
    project: Project
    parent: TrainingJob | None = None
    checkpoint_id: UUID | None = None
    model_id: UUID | None = None


async def subject_of(
    session: AsyncSession,
    principal: Principal,
    settings: Settings,
    job_id: UUID,
    checkpoint_id: UUID | None,
) -> Subject:
    """A training job and one of its checkpoints. Raises when there is no model yet."""
    job, project = await service.get_job(session, principal, job_id)
    if job.kind != "train":
        raise Conflict(
            f"Only training jobs have a model. This job is of kind {name_of(job.kind)}.",
            code="not_a_training",
        )
    run_dir = run_directory(settings, job.id)
    if checkpoint_id is None:
        if job.status != "completed" or not has_model(settings, job.id):
            raise Conflict(
                f"The job is {job.status} and has no finished model yet. Choose one of its "
                "checkpoints, or wait until the job ends.",
                code="no_model_yet",
            )
        return Subject(run_dir, job.name, project, parent=job)
    checkpoint = await session.scalar(
        select(Checkpoint).where(Checkpoint.id == checkpoint_id, Checkpoint.job_id == job.id)
    )
    if checkpoint is None:
        raise NotFound("This job has no such checkpoint.", code="checkpoint_not_found")
    # By its name in the run's own folder: what a run says about paths is not believed.
    folder = Path(checkpoint.path).name
    if checkpoint.removed or not is_folder_beneath(run_dir, f"checkpoints/{folder}"):
        raise Conflict(
            f"The checkpoint of step {checkpoint.step:,} was removed. Choose a newer checkpoint.",
            code="checkpoint_removed",
        )
    name = f"{job.name[:100]}, step {checkpoint.step:,}"
    return Subject(run_dir / "checkpoints" / folder, name, project, parent=job, checkpoint_id=checkpoint.id)


async def create_task(
    session: AsyncSession,
    principal: Principal,
    subject: Subject,
    fields: dict[str, Any],
    settings: Settings,
    *,
    secrets: list[str] | None = None,
) -> TrainingJob:
    """Queue a task; `fields` are those of its kind in `gpubloom.plan.tasks`. `secrets`: by name."""
    gpus = await _gpus_for(session, subject)
    task = read_task({**fields, "model": str(subject.path), "device": "cuda" if gpus else "cpu"})
    assert task.kind != "find_learning_rate", "it trains, so it is planned like a training"
    job = TrainingJob(
        id=uuid4(),
        project_id=subject.project.id,
        user_id=principal.id,
        name=subject.name,
        kind=task.kind,
        config=task.model_dump(mode="json"),
        parent_id=None if subject.parent is None else subject.parent.id,
        checkpoint_id=subject.checkpoint_id,
        dataset_id=None if subject.parent is None else subject.parent.dataset_id,
        model_id=subject.model_id if subject.parent is None else subject.parent.model_id,
        # Only this machine has the files.
        machine=None if subject.parent is None else subject.parent.machine,
        gpus=gpus,
        secrets=secrets,
        max_attempts=MAX_ATTEMPTS[task.kind],
    )
    return await service.queue_job(session, principal, job, settings)


def read_task(fields: dict[str, Any]) -> Task:
    """The task; a sentence when its fields do not fit together."""
    try:
        return task_from(fields)
    except ValueError as problem:
        raise InvalidInput(str(problem), code=code_of(problem)) from problem


async def _gpus_for(session: AsyncSession, subject: Subject) -> int:
    """1 if the training used a GPU or all machines have GPUs; else 0: the side slot of the CPU."""
    if subject.parent is not None and subject.parent.gpus > 0:
        return 1
    machines = [hardware for hardware, _ in await live_machines(session)]
    return 1 if machines and all(machine.gpus for machine in machines) else 0


router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.post("/evaluations", status_code=201)
async def evaluate(
    job_id: UUID,
    body: NewEvaluation,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    creation: CurrentCreation,
) -> JobOut:
    """Evaluate a trained model and compare it with its base model. The new job holds the result."""
    if (made_id := await creation.find_made(session)) is not None:
        return await job_out(session, settings, *await service.get_job(session, principal, made_id))
    subject = await subject_of(session, principal, settings, job_id, body.checkpoint_id)
    fields = {"kind": "evaluate", "fetches_data": False, **body.model_dump(exclude={"checkpoint_id"})}
    secrets = None
    if body.data_path is not None:
        try:
            check_address(body.data_path)
        except DataPathRefused as refusal:
            raise InvalidInput.for_field("data_path", str(refusal), code=refusal.code) from refusal
        secrets = await names_for(session, principal, subject.project.id, None)
    job = await create_task(session, principal, subject, fields, settings, secrets=secrets)
    await creation.remember(session, job.id)
    return await job_out(session, settings, job, subject.project)


@router.get("/export-forms")
async def list_export_forms(
    job_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    checkpoint_id: UUID | None = None,
) -> ExportForms:
    """The formats in which a trained model can be exported, with the reason where one cannot."""
    subject = await subject_of(session, principal, settings, job_id, checkpoint_id)
    reasons = {
        "merged": None,
        "adapter": _why_no_adapter(subject),
        "gguf": await to_thread.run_sync(_why_no_gguf, subject),
    }
    return ExportForms(
        items=[
            ExportForm(form=form, available=reason is None, reason=reason) for form, reason in reasons.items()
        ]
    )


def _why_no_adapter(subject: Subject) -> str | None:
    method = None if subject.parent is None else subject.parent.config.get("method")
    return "The run trained all weights, so it has no adapter." if method == "full" else None


def _why_no_gguf(subject: Subject) -> str | None:
    try:
        config = _model_config(subject)
        # A model whose config cannot be read is judged by the export itself.
        return None if config.get("model_type") is None else why_no_gguf(config)
    except InputError as problem:
        return str(problem)


def _model_config(subject: Subject) -> dict[str, Any]:
    """The config.json of the trained model: beside its weights, or that of the base model of an adapter."""
    started_from = {} if subject.parent is None else subject.parent.config.get("model") or {}
    folders = [subject.path / "model", subject.path]
    if started_from.get("path"):
        folders.append(Path(started_from["path"]))
    for folder in folders:
        try:
            config = read_json(folder / "config.json")
        except InputError:
            continue
        if "model_type" in config:
            return config
    return {}


@router.post("/exports", status_code=201)
async def export(
    job_id: UUID,
    body: NewExport,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    creation: CurrentCreation,
) -> JobOut:
    """Export a trained model, or the mean of several checkpoints. The new job holds the files to download."""
    if (made_id := await creation.find_made(session)) is not None:
        return await job_out(session, settings, *await service.get_job(session, principal, made_id))
    _must_be_different(body)
    subject = await subject_of(session, principal, settings, job_id, body.checkpoint_id)
    others: list[str] = []
    if body.average_with:
        for checkpoint_id in body.average_with:
            other = await subject_of(session, principal, settings, job_id, checkpoint_id)
            others.append(str(other.path))
        assert subject.parent is not None, "a checkpoint belongs to a job"
        name = f"{subject.parent.name[:90]}, mean of {len(others) + 1} checkpoints"
        subject = replace(subject, name=name)
    # Only whether there is one: the worker writes it into the task's folder, just before that begins.
    if body.hub is not None and await open_hub_token(session, settings, principal.id) is None:
        raise Conflict(
            "No Hugging Face token is stored. Add a token under Settings first.",
            code="no_hub_token",
        )
    if body.form == "gguf" and (reason := await to_thread.run_sync(_why_no_gguf, subject)) is not None:
        raise Conflict(reason, code="unsupported_by_gguf")
    fields = {
        "kind": "export",
        "name": subject.name,
        **body.model_dump(exclude={"checkpoint_id"}),
        "average_with": others,
    }
    job = await create_task(session, principal, subject, fields, settings)
    await creation.remember(session, job.id)
    return await job_out(session, settings, job, subject.project)


def _must_be_different(body: NewExport) -> None:
    if body.average_with and body.checkpoint_id is None:
        raise InvalidInput.for_field(
            "checkpoint_id",
            "Only checkpoints can be averaged: send one in checkpoint_id and the others in average_with.",
            code="too_few_checkpoints",
        )
    if len({body.checkpoint_id, *body.average_with}) <= len(body.average_with):
        raise InvalidInput.for_field(
            "average_with", "A checkpoint is named twice: name each one once.", code="same_checkpoint_twice"
        )
