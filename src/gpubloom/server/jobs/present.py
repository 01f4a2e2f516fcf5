"""A job's row as JSON."""

from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.server.jobs import service
from gpubloom.server.jobs.files import has_model
from gpubloom.server.jobs.schemas import JobOut
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings


async def job_out(session: AsyncSession, settings: Settings, job: TrainingJob, project: Project) -> JobOut:
    """What its owner sees of a job."""
    return JobOut(
        id=job.id,
        project_id=job.project_id,
        project_name=project.name,
        user_id=job.user_id,
        name=job.name,
        status=job.status,
        config=job.config,
        plan=job.plan,
        gpu_type=job.gpu_type,
        host_memory=job.host_memory,
        want=job.want,
        settings=job.settings,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        summary=job.summary,
        position=job.position,
        queue_position=await service.queue_position(session, job),
        has_model=job.status == "completed" and has_model(settings, job.id),
        error_code=job.error_code,
        error_message=job.error_message,
        start_time=job.start_time,
        end_time=job.end_time,
        created_at=job.created_at,
        updated_at=job.updated_at,
    )
