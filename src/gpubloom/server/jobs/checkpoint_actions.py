"""What people do with one checkpoint: go back to it, branch from it, download it, delete it.

A run resumes from the newest checkpoint in its folder. Going back to an older one therefore deletes those
after it. A branch is a new job: its worker copies the checkpoint into the new run directory and resumes
there, so the first run stays as it is.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated
from uuid import UUID, uuid4

import anyio
import anyio.to_thread
import structlog
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.plan import TrainConfig, limits
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.accounts.shares import HOLDS_DOWNLOAD
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession, WriteSession
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs import service
from gpubloom.server.jobs.adapter_base import with_named_base
from gpubloom.server.jobs.download_routes import RECORDED, Range, archive_of
from gpubloom.server.jobs.events import lock_job
from gpubloom.server.jobs.files import folder_files, run_directory
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.states import ACTIVE
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.jobs.tasks import subject_of
from gpubloom.server.problems import Conflict
from gpubloom.server.schema import Line, Number, Schema, Whole
from gpubloom.server.settings import Settings
from gpubloom.traincard.safe_paths import look_beneath, move_beneath, remove_beneath

router = APIRouter(prefix="/jobs/{job_id}/checkpoints/{checkpoint_id}", tags=["jobs"])
log = structlog.get_logger("bloom")

# How the folder begins into which a removal takes checkpoints.
_ASIDE = ".removed-"


class NewBranch(Schema):
    """A new job that continues from a checkpoint. Fields that are left out are those of the first job."""

    name: Annotated[Line, Field(min_length=1, max_length=120)] | None = None
    learning_rate: Annotated[Number, Field(gt=0, le=limits.MAX_LEARNING_RATE, allow_inf_nan=False)] | None = (
        None
    )
    weight_decay: Annotated[Number, Field(ge=0, le=limits.MAX_WEIGHT_DECAY, allow_inf_nan=False)] | None = (
        None
    )
    epochs: (
        Annotated[
            Whole, Field(ge=1, le=limits.MAX_EPOCHS, description="Total number, including those trained.")
        ]
        | None
    ) = None
    max_steps: (
        Annotated[
            Whole, Field(ge=1, le=limits.MAX_STEPS, description="Total number, including those trained.")
        ]
        | None
    ) = None


@router.get("/archive", response_class=StreamingResponse, dependencies=[HOLDS_DOWNLOAD, RECORDED])
async def download_checkpoint(
    job_id: UUID,
    checkpoint_id: UUID,
    principal: CurrentPrincipal,
    session: ReadSession,
    settings: CurrentSettings,
    database: CurrentDatabase,
    range_: Range = None,
) -> StreamingResponse:
    """Download a checkpoint as one tar archive. A Range header continues an interrupted download."""
    found = await subject_of(session, principal, settings, job_id, checkpoint_id)
    run_dir = run_directory(settings, job_id)
    files = await anyio.to_thread.run_sync(folder_files, run_dir, f"checkpoints/{found.path.name}")
    name = f"{found.path.name}-{str(job_id)[:8]}"
    return archive_of(await with_named_base(database, principal.id, files), name, range_)


@router.delete("", status_code=204)
async def delete_checkpoint(
    job_id: UUID,
    checkpoint_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> None:
    """Delete a checkpoint and its files. A job that runs keeps its checkpoints itself."""
    async with _removal(settings, job_id) as removal, database.write() as session:
        job, _ = await service.lock_own_job(session, principal, job_id)
        _require_not_running(job)
        # 404 unless the checkpoint is one of this job and still there.
        await subject_of(session, principal, settings, job_id, checkpoint_id)
        await removal.of(session, [await session.get_one(Checkpoint, checkpoint_id)])
        await service.record_change(session, principal, job, "training_job.checkpoint_deleted")


@router.post("/resume")
async def resume_from_checkpoint(
    job_id: UUID,
    checkpoint_id: UUID,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
) -> JobOut:
    """Resume a job from one of its checkpoints. Checkpoints of later steps are deleted."""
    async with _removal(settings, job_id) as removal, database.write() as session:
        job, _ = await service.lock_own_job(session, principal, job_id)
        _require_not_running(job)
        # 404 unless the checkpoint is one of this job and still there.
        await subject_of(session, principal, settings, job_id, checkpoint_id)
        chosen = await session.get_one(Checkpoint, checkpoint_id)
        later = [each for each in await service.list_checkpoints(session, job.id) if each.step > chosen.step]
        resumed, project = await service.request_action(session, principal, job_id, "resume", settings)
        await removal.of(session, later)
        resumed.newest_checkpoint = chosen.step
        return await job_out(session, settings, resumed, project)


@router.post("/branch", status_code=201)
async def branch(
    job_id: UUID,
    checkpoint_id: UUID,
    body: NewBranch,
    principal: CurrentPrincipal,
    session: WriteSession,
    settings: CurrentSettings,
    creation: CurrentCreation,
) -> JobOut:
    """Start a new job that continues from a checkpoint, with changed settings. The first job stays."""
    if (made_id := await creation.find_made(session)) is not None:
        return await job_out(session, settings, *await service.get_job(session, principal, made_id))
    found = await subject_of(session, principal, settings, job_id, checkpoint_id)
    checkpoint = await session.get_one(Checkpoint, checkpoint_id)
    first = found.parent
    assert first is not None, "a checkpoint belongs to a job"
    changes = body.model_dump(exclude={"name"}, exclude_none=True)
    config = _branch_config(first, changes, checkpoint.step)
    job = TrainingJob(
        id=uuid4(),
        project_id=first.project_id,
        user_id=principal.id,
        name=body.name or f"{first.name[:90]}, from step {checkpoint.step:,}",
        config=config,
        requested_config={**(first.requested_config or {}), **changes},
        plan=first.plan,
        dataset_id=first.dataset_id,
        eval_dataset_id=first.eval_dataset_id,
        model_id=first.model_id,
        # Data at a remote address may need these secrets.
        secrets=first.secrets,
        # Only this machine has the checkpoint.
        machine=first.machine,
        gpu_type=first.gpu_type if first.target == "local" else None,
        gpus=first.gpus,
        host_memory=first.host_memory,
        branch={"job_id": str(first.id), "checkpoint": found.path.name, "step": checkpoint.step},
    )
    await service.queue_job(session, principal, job, settings)
    await creation.remember(session, job.id)
    return await job_out(session, settings, job, found.project)


def _branch_config(first: TrainingJob, changes: dict[str, float | int], step: int) -> dict[str, object]:
    if "epochs" in changes and "max_steps" not in changes:
        changes = {**changes, "max_steps": None}  # type: ignore[dict-item]
    config = {**first.config, **changes}
    if (most := config.get("max_steps")) is not None and most <= step:
        raise Conflict(
            f"The checkpoint has already trained {step:,} steps. Send a larger number of steps.",
            code="already_trained",
        )
    return TrainConfig.model_validate(config).model_dump(mode="json")


def _require_not_running(job: TrainingJob) -> None:
    if job.status in ACTIVE or job.status == "queued":
        raise Conflict(
            f"The job is {job.status}. Pause the job first, then change its checkpoints.", code="wrong_state"
        )


class _Removal:
    """Checkpoints that are removed: their folders are renamed in the transaction, which takes a moment, and
    deleted after it. Deleting gigabytes takes longer than anybody else should wait for the database."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._aside = run_dir, f"{_ASIDE}{uuid4().hex}"
        self._taken: list[str] = []

    async def of(self, session: AsyncSession, gone: list[Checkpoint]) -> None:
        """Marks rows as removed and takes their folders away, by their names in the run's own folder."""
        for checkpoint in gone:
            checkpoint.removed, checkpoint.best = True, False
        await session.flush()
        await anyio.to_thread.run_sync(self._take, [Path(checkpoint.path).name for checkpoint in gone])

    def _take(self, names: list[str]) -> None:
        for name in names:
            # A path that a run reported is not trusted. A folder that is already gone is fine.
            with suppress(FileNotFoundError, ValueError):
                move_beneath(self._run_dir, f"checkpoints/{name}", f"{self._aside}/{name}")
                self._taken.append(name)

    def put_back(self) -> None:
        for name in self._taken:
            move_beneath(self._run_dir, f"{self._aside}/{name}", f"checkpoints/{name}")
        self._taken.clear()
        self.finish()

    def finish(self) -> None:
        remove_beneath(self._run_dir, self._aside, folder=True)


@asynccontextmanager
async def _removal(settings: Settings, job_id: UUID) -> AsyncIterator[_Removal]:
    """Wraps the transaction: deletes the folders after a commit, restores them otherwise."""
    removal = _Removal(run_directory(settings, job_id))
    try:
        yield removal
    except BaseException:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(removal.put_back)
        raise
    await anyio.to_thread.run_sync(removal.finish)


async def finish_removals(database: Database, settings: Settings) -> None:
    """Finish what a server was killed in: checkpoints come back if their removal was not committed."""
    for run_dir in await anyio.to_thread.run_sync(_with_leftovers, settings.home / "runs"):
        try:
            async with database.write() as session:
                # Another server that is removing checkpoints of this job right now has it locked.
                if await lock_job(session, UUID(run_dir.name)) is None:
                    continue
                rows = await service.list_checkpoints(session, UUID(run_dir.name))
                kept = {Path(row.path).name for row in rows}
                await anyio.to_thread.run_sync(_put_back_kept, run_dir, kept)
            await anyio.to_thread.run_sync(_delete_leftovers, run_dir)
        except (OSError, ValueError) as problem:
            log.warning("could not finish removing checkpoints", run=run_dir.name, reason=str(problem))


def _with_leftovers(runs: Path) -> list[Path]:
    return sorted({path.parent for path in runs.glob(f"*/{_ASIDE}*")})


def _put_back_kept(run_dir: Path, kept: set[str]) -> None:
    for path in run_dir.glob(f"{_ASIDE}*/*"):
        at = f"checkpoints/{path.name}"
        if path.name in kept and look_beneath(run_dir, at) is None:
            move_beneath(run_dir, f"{path.parent.name}/{path.name}", at)


def _delete_leftovers(run_dir: Path) -> None:
    for path in run_dir.glob(f"{_ASIDE}*"):
        remove_beneath(run_dir, path.name, folder=True)
