"""The HTTP routes that start a training job: machines, backends, the plan, the launch."""

from dataclasses import replace
from typing import Any

import anyio.to_thread
from fastapi import APIRouter
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncSession

import gpubloom
from gpubloom.plan import Hardware, TrainConfig, run_files
from gpubloom.plan.backends import available_backends
from gpubloom.plan.tasks import FindLearningRateTask
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings, Principal
from gpubloom.server.db.database import CurrentDatabase, Database, ReadSession
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs import service
from gpubloom.server.jobs.inputs import Inputs, find_inputs
from gpubloom.server.jobs.launch import (
    NO_PROJECT,
    CannotRun,
    CurrentOfferService,
    Launch,
    ProjectDefaults,
    TakesOffers,
    check_backend,
    check_files,
    decide,
    defaults_for,
    fill_in,
    hardware_of,
    live_machines,
    predict_on_requested,
    read_config,
    with_estimate,
)
from gpubloom.server.jobs.new_job_schemas import Finder, MachinePlan, NewJob, PlanAnswer, PlanRequest
from gpubloom.server.jobs.preflight import counted_data
from gpubloom.server.jobs.present import job_out
from gpubloom.server.jobs.schemas import Machine, Machines, QueuedJob, Script
from gpubloom.server.jobs.tasks import BackendOut, Backends
from gpubloom.server.problems import InvalidInput, invalid_fields
from gpubloom.server.projects.service import create_project, get_project
from gpubloom.server.secrets.service import names_for
from gpubloom.server.settings import Settings

router = APIRouter(tags=["jobs"])


@router.get("/machines")
async def list_machines(session: ReadSession) -> Machines:
    """List the machines that have a running worker, and their GPUs."""
    return Machines(
        items=[
            Machine(
                name=hardware.name,
                gpus=[gpu.name for gpu in hardware.gpus],
                gpu_memory_bytes=[gpu.memory_bytes for gpu in hardware.gpus],
                cpu_cores=hardware.cpu_cores,
                host_memory_bytes=hardware.host_memory_bytes,
                last_seen_at=seen,
            )
            for hardware, seen in await live_machines(session)
        ]
    )


@router.get("/backends")
async def list_backends() -> Backends:
    """List the training backends. If a backend cannot run here, `reason` says what to install."""
    found = await anyio.to_thread.run_sync(available_backends)
    return Backends(
        items=[
            BackendOut(name=each.name, available=each.available, reason=each.reason, brings=each.brings)
            for each in found
        ]
    )


@router.post("/plan")
async def plan_job(
    body: PlanRequest, principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> PlanAnswer:
    """Estimate memory use and speed, and check whether the job fits. Nothing is started."""
    project = await project_defaults(body, principal, database)
    defaults = None
    try:
        config, machines, inputs = await configure(
            body, principal, database, settings, name="plan", project=project
        )
        defaults = defaults_for(config, body.config)
        launch = await decide(
            machines,
            config,
            gpu_type=body.gpu_type,
            host_memory=body.host_memory,
            home=settings.home,
            counted=await counted_data(settings, config, inputs),
        )
    except InvalidInput as refusal:
        found = refusal if isinstance(refusal, CannotRun) else None
        return PlanAnswer(
            fits=False,
            code=refusal.errors[0].code if refusal.errors else refusal.code,
            reason=refusal.detail,
            plan=None,
            machine=None,
            needs=found.needs if found else None,
            options=list(found.options) if found else [],
            requested_machine=await _on_requested_machine(
                refusal, body, project, principal, database, settings
            ),
            defaults=defaults,
        )
    return PlanAnswer(
        fits=True,
        reason=None,
        plan=launch.plan,
        machine=launch.machine,
        defaults=defaults,
    )


# Why a job cannot start here although its memory can be planned.
_STILL_PLANNED = {"gpu_not_found", "not_enough_host_memory", "path_not_local", "examples_need_tokenizer"}


async def _on_requested_machine(
    refusal: InvalidInput,
    body: PlanRequest,
    project: ProjectDefaults,
    principal: Principal,
    database: Database,
    settings: Settings,
) -> MachinePlan | None:
    """The plan on the machine that was asked for; the data does not count, as it may not be here."""
    if not refusal.errors or refusal.errors[0].code not in _STILL_PLANNED:
        return None
    asked = body.model_copy(
        update={"config": _without_data(body.config), "dataset_id": None, "eval_dataset_id": None, "mix": []}
    )
    model_only = replace(project, data_path=None, dataset_id=None)
    try:
        config, machines, _ = await configure(
            asked, principal, database, settings, name="plan", project=model_only
        )
    except InvalidInput:
        return None
    found = await anyio.to_thread.run_sync(
        lambda: predict_on_requested(machines, config, gpu_type=body.gpu_type, host_memory=body.host_memory)
    )
    return None if found is None else MachinePlan.model_validate(found)


def _without_data(config: dict[str, Any]) -> dict[str, Any]:
    fields = TrainConfig.own_names(config)
    data = fields.get("data")
    if isinstance(data, dict):
        fields["data"] = {name: data[name] for name in ("tokenizer",) if name in data}
    return fields


@router.post("/plan/script")
async def plan_script(
    body: PlanRequest, principal: CurrentPrincipal, database: CurrentDatabase, settings: CurrentSettings
) -> Script:
    """Return the script that a job with this config would run, and its requirements. Nothing is started."""
    project = await project_defaults(body, principal, database)
    name = str(body.config.get("name") or "Training")[:120]
    launch = await _decide(body, principal, database, settings, name=name, project=project)
    files = run_files(launch.config, launch.plan, gpubloom.__version__)
    return Script(
        script=files["train.py"], requirements=files["requirements.txt"], config=files["config.json"]
    )


async def project_defaults(body: PlanRequest, principal: Principal, database: Database) -> ProjectDefaults:
    if body.project_id is None:
        return NO_PROJECT
    async with database.read() as session:
        return ProjectDefaults.of(await get_project(session, principal, body.project_id))


async def _decide(
    body: PlanRequest,
    principal: Principal,
    database: Database,
    settings: Settings,
    *,
    name: str,
    project: ProjectDefaults,
    offer: dict[str, Any] | None = None,
) -> Launch:
    config, machines, inputs = await configure(
        body, principal, database, settings, name=name, project=project, offer=offer
    )
    # Measurements of this machine do not apply to a rented one.
    home = settings.home if offer is None else None
    return await decide(
        machines,
        config,
        gpu_type=body.gpu_type,
        host_memory=body.host_memory,
        home=home,
        counted=await counted_data(settings, config, inputs),
    )


async def configure(
    body: PlanRequest,
    principal: Principal,
    database: Database,
    settings: Settings,
    *,
    name: str,
    project: ProjectDefaults,
    offer: dict[str, Any] | None = None,
) -> tuple[TrainConfig, list[Hardware], Inputs]:
    """The whole config of a request, the machines that may run it, and what it was given by id."""
    async with database.read() as session:
        inputs = await _inputs(session, body, project, principal, settings)
        machines = [hardware for hardware, _ in await live_machines(session)]
    config = read_config(body.config, settings, name=name, project=project, inputs=inputs)
    if offer is None:
        await check_backend(config)
    else:
        machines = [hardware_of(offer)]
    await check_files(config, settings, inputs)
    return await fill_in(config), machines, inputs


async def _inputs(
    session: AsyncSession,
    body: PlanRequest,
    project: ProjectDefaults,
    principal: Principal,
    settings: Settings,
) -> Inputs:
    """The dataset and the model of the job; the dataset is the project's unless the job has other data."""
    dataset_id = body.dataset_id
    if dataset_id is None and not _names_data(body.config):
        dataset_id = project.dataset_id
    return await find_inputs(
        session,
        principal,
        settings,
        dataset_id=dataset_id,
        model_id=body.model_id,
        eval_dataset_id=body.eval_dataset_id,
        mix=[(each.dataset_id, each.weight) for each in body.mix],
    )


def _names_data(config: dict[str, Any]) -> bool:
    data = TrainConfig.own_names(config).get("data")
    return isinstance(data, dict) and bool(data.get("train_path"))


@router.post("/jobs", status_code=201)
async def create_job(
    body: NewJob,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    offer_service: CurrentOfferService,
    creation: CurrentCreation,
) -> QueuedJob:
    """Queue a job for an existing project, or for a new project that is created together with the job."""
    if (body.project_id is None) == (body.project is None):
        raise InvalidInput.for_field(
            "project_id",
            "Send exactly one of project_id and project.",
            code="contradictory_fields",
        )
    if body.finder is not None and body.kind != "find_learning_rate":
        raise InvalidInput.for_field(
            "finder", "Send the field finder only if kind is find_learning_rate.", code="contradictory_fields"
        )
    defaults = (
        ProjectDefaults.of(body.project)
        if body.project
        else await project_defaults(body, principal, database)
    )
    name = (
        body.name or str(body.config.get("name") or (body.project.name if body.project else "Training"))[:120]
    )
    offer = await _take(body, principal, database, offer_service)
    launch = await _decide(body, principal, database, settings, name=name, project=defaults, offer=offer)
    taken = None if offer is None else with_estimate(offer, launch.plan.seconds)
    finder = _finder(body.finder or Finder(), launch) if body.kind == "find_learning_rate" else None
    async with database.write() as session:
        if (made_id := await creation.find_made(session)) is not None:
            earlier = await service.get_job(session, principal, made_id)
            return QueuedJob(**dict(await job_out(session, settings, *earlier)), ignored=body.ignored)
        if body.project is not None:
            project = await create_project(session, principal, body.project, settings)
        else:
            assert body.project_id is not None
            project = await get_project(session, principal, body.project_id)
        job = await service.create_job(
            session,
            principal,
            project,
            launch,
            # Checked again: they may have been deleted while the job was planned.
            await _inputs(session, body, defaults, principal, settings),
            name=name,
            gpu_type=body.gpu_type,
            host_memory=body.host_memory,
            max_attempts=body.max_attempts,
            finder=finder,
            offer=taken,
            budget=body.budget,
            max_hours=body.max_hours,
            requested_config=TrainConfig.own_names(body.config),
            secrets=await names_for(session, principal, project.id, body.secrets),
            failover=None
            if taken is None
            else await offer_service.alternatives(
                session, principal, taken, body.failover, body.failover_by, body.budget
            ),
            settings=settings,
        )
        await creation.remember(session, job.id)
        made = await job_out(session, settings, job, project)
        return QueuedJob(**dict(made), ignored=body.ignored)


async def _take(
    body: NewJob, principal: Principal, database: Database, offer_service: TakesOffers
) -> dict[str, Any] | None:
    """The rented offer of the job, if it has one."""
    if body.offer is None:
        return None
    if body.kind != "train":
        raise InvalidInput.for_field(
            "offer",
            "The learning-rate finder runs on the server's machines only. Remove the offer.",
            code="not_for_this_kind",
        )
    if body.gpu_type is not None or body.host_memory is not None:
        raise InvalidInput.for_field(
            "offer",
            "The offer already sets the GPU. Leave gpu_type and host_memory empty.",
            code="contradictory_fields",
        )
    async with database.read() as session:
        return await offer_service.take(session, principal, body.offer)


def _finder(wanted: Finder, launch: Launch) -> FindLearningRateTask:
    try:
        return FindLearningRateTask(
            train=launch.config, lowest=wanted.lowest, highest=wanted.highest, steps=wanted.steps
        )
    except ValidationError as error:
        raise invalid_fields(error.errors(), inside="finder") from error
