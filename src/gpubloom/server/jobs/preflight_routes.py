"""The HTTP route of the pre-flight."""

import anyio.to_thread
from fastapi import APIRouter

from gpubloom.plan import Hardware, TrainConfig, detect_hardware, few_steps, processes_on, steps_of
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.datasets.schemas import PreflightOut
from gpubloom.server.db.database import CurrentDatabase
from gpubloom.server.jobs.launch_routes import configure, project_defaults
from gpubloom.server.jobs.new_job_schemas import PlanRequest
from gpubloom.server.jobs.preflight import run_preflight
from gpubloom.server.storage.service import Readers

router = APIRouter(tags=["jobs"])


@router.post("/preflight")
async def preflight_job(
    body: PlanRequest,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    readers: Readers,
) -> PreflightOut:
    """Render the dataset with the model and count rows, tokens and steps of the job. Nothing is started."""
    project = await project_defaults(body, principal, database)
    config, machines, inputs = await configure(
        body, principal, database, settings, name="preflight", project=project
    )
    async with readers:
        found = await run_preflight(settings, config, inputs)
    processes = await anyio.to_thread.run_sync(_processes, config, machines)
    steps = steps_of(config, found["train"]["sequences"], processes)
    few = few_steps(steps)
    findings = [*found["findings"], *([] if few is None else [few.as_dict()])]
    return PreflightOut.model_validate({**found, "steps": steps, "findings": findings})


def _processes(config: TrainConfig, machines: list[Hardware]) -> int:
    """As the plan counts them; what does not fit anywhere is the plan's to say."""
    try:
        return processes_on(machines[0] if machines else detect_hardware(), config)
    except ValueError:
        return config.said_processes
