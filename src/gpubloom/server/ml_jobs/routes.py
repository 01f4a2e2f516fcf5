"""The HTTP routes of script jobs.

A folder may have megabytes: it is decoded in a thread, once the caller is known. A confined process reads it.
"""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from pydantic import ValidationError

from gpubloom.providers import registry
from gpubloom.scripts import Requirements
from gpubloom.scripts.task import ScriptTask
from gpubloom.scripts.templates import templates
from gpubloom.server.accounts.principal import CurrentPrincipal, CurrentSettings
from gpubloom.server.db.database import CurrentDatabase, ReadSession
from gpubloom.server.idempotency import CurrentCreation
from gpubloom.server.jobs.files import read_uploaded, run_directory
from gpubloom.server.jobs.launch import CurrentOfferService, limits_for, live_machines
from gpubloom.server.jobs.logs import read_output
from gpubloom.server.jobs.new_job_schemas import OfferTaken
from gpubloom.server.jobs.service import get_job
from gpubloom.server.jobs.summary import read_summary
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.ml_jobs import service
from gpubloom.server.ml_jobs.folder import (
    Folder,
    as_folder_file,
    as_script,
    read_folder,
    read_requirements,
)
from gpubloom.server.ml_jobs.placement import Placement, PlacementRequest, apply_overrides, decide
from gpubloom.server.ml_jobs.schemas import (
    FOLDERS,
    MlJobStatus,
    NewMlJob,
    Progress,
    Quote,
    StartedMlJob,
    TemplateOut,
    Templates,
    UploadedFiles,
)
from gpubloom.server.ml_jobs.service import SandboxChoice
from gpubloom.server.problems import InvalidInput, MalformedRequest, invalid_fields
from gpubloom.server.rentals.price_book import CurrentPrices
from gpubloom.server.rentals.schemas import CapabilityOut, LimitsOut
from gpubloom.server.rentals.store_choice import no_store
from gpubloom.server.schema import Span
from gpubloom.server.scripts.reading import CurrentScriptReader
from gpubloom.server.storage.schemas import StoreOut

router = APIRouter(prefix="/ml-jobs", tags=["script jobs"])

_MOST_LINES = 100
_OFFER = tuple(OfferTaken.model_fields)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A description without references: it stands at one address only, so no other has to know its parts."""
    parts = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                rest = {name: item for name, item in value.items() if name != "$ref"}
                return inline({**parts[value["$ref"].rpartition("/")[2]], **rest})
            return {name: inline(item) for name, item in value.items()}
        return [inline(item) for item in value] if isinstance(value, list) else value

    described: dict[str, Any] = inline(schema)
    return described


_BODY = {
    "required": True,
    "content": {"application/json": {"schema": _inlined(NewMlJob.model_json_schema())}},
}


@router.get("/templates")
async def list_templates() -> Templates:
    """List template folders. Each one runs without changes."""
    return Templates(items=[TemplateOut.model_validate(template) for template in templates()])


@dataclass(frozen=True)
class Prepared:
    """A job that could be made: everything was checked, nothing was started."""

    body: NewMlJob
    folder: Folder
    found: Requirements
    placement: Placement
    sandbox_choice: SandboxChoice
    task: ScriptTask

    @property
    def reasons(self) -> list[str]:
        return [*self.placement.reasons, *self.folder.notes]

    @property
    def store(self) -> StoreOut | None:
        name = (self.placement.offer or {}).get("store")
        return None if name is None else StoreOut.named(name)

    def require_store(self) -> None:
        """InvalidInput: it can be quoted, but the machine could not exchange files with this server."""
        if self.placement.offer is not None and self.store is None:
            title = str(self.placement.offer["title"])
            raise InvalidInput.for_field("offer", no_store(title), code="no_store")


async def _prepare(
    request: Request,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    prices: CurrentPrices,
    offer_service: CurrentOfferService,
    reader: CurrentScriptReader,
) -> Prepared:
    body, sent = await anyio.to_thread.run_sync(_read, await request.body())
    folder = await as_script(sent, reader)
    found = apply_overrides(await read_requirements(folder, body.arguments, reader), body.requirements)
    async with database.read() as session:
        machines = [hardware for hardware, _ in await live_machines(session)]
        placement = await decide(
            session, PlacementRequest(body, found, principal, prices, offer_service, machines)
        )
    sandbox_choice = await service.choose_sandbox(body, principal, placement)
    return Prepared(
        body, folder, found, placement, sandbox_choice, service.task_of(body, folder, found, sandbox_choice)
    )


CheckedJob = Annotated[Prepared, Depends(_prepare)]


@router.post("/quote", openapi_extra={"requestBody": _BODY})
async def quote(prepared: CheckedJob) -> Quote:
    """Return where a job would run, why, and the cost. Nothing is started or stored."""
    offer, body = prepared.placement.offer, prepared.body
    limits = None if offer is None else limits_for(offer)
    spec = None if offer is None else await anyio.to_thread.run_sync(registry.provider_spec, offer["target"])
    return Quote(
        provider=prepared.placement.provider,
        offer=None
        if offer is None
        else OfferTaken.model_validate({name: offer.get(name) for name in _OFFER}),
        estimated_cost=Span.model_validate(prepared.placement.cost),
        limits=None
        if limits is None
        else LimitsOut(
            budget=limits.budget if body.budget is None else body.budget,
            max_hours=limits.max_hours if body.max_hours is None else body.max_hours,
        ),
        switch_off=None if spec is None else CapabilityOut.model_validate(spec.capabilities.switch_off),
        reasons=prepared.reasons,
        store=prepared.store,
        problem=None if offer is None or prepared.store is not None else no_store(str(offer["title"])),
        ignored=body.ignored,
    )


@router.post("", status_code=201, openapi_extra={"requestBody": _BODY})
async def submit(
    prepared: CheckedJob,
    principal: CurrentPrincipal,
    database: CurrentDatabase,
    settings: CurrentSettings,
    creation: CurrentCreation,
    offer_service: CurrentOfferService,
) -> StartedMlJob:
    """Queue a script on the given provider, or on the recommended one, and return the estimated cost."""
    prepared.require_store()
    async with database.write() as session:
        job_id = await creation.find_made(session)
        if job_id is None:
            job = await service.create(
                session,
                principal,
                settings,
                prepared.body,
                prepared.folder,
                prepared.task,
                prepared.placement,
                prepared.sandbox_choice,
                offer_service,
            )
            job_id = job.id
            await creation.remember(session, job_id)
        return StartedMlJob(
            job_id=job_id,
            provider=prepared.placement.provider,
            estimated_cost=Span.model_validate(prepared.placement.cost),
            status_url=f"/api/ml-jobs/{job_id}/status",
            reasons=prepared.reasons,
            ignored=prepared.body.ignored,
        )


def _read(content: bytes) -> tuple[NewMlJob, Folder]:
    try:
        body = NewMlJob.model_validate_json(content)
    except ValidationError as error:
        if any(item["type"] == "json_invalid" for item in error.errors(include_input=False)):
            raise MalformedRequest("The request body is not valid JSON.", code="malformed_json") from None
        raise invalid_fields(error.errors(include_input=False), model=NewMlJob) from None
    return body, read_folder(body)


@router.get("/{job_id}/files")
async def read_files(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> UploadedFiles:
    """Return the uploaded files of a script job, to edit them and submit them again."""
    job, _ = await get_job(session, principal, job_id)
    files, changed = await anyio.to_thread.run_sync(
        read_uploaded, run_directory(settings, job.id), max(FOLDERS.values())
    )
    return UploadedFiles(items=[as_folder_file(*file) for file in files.items()], changed=changed)


@router.get("/{job_id}/status")
async def read_status(
    job_id: UUID, principal: CurrentPrincipal, session: ReadSession, settings: CurrentSettings
) -> MlJobStatus:
    """Return the state of a script job, its newest output and its cost."""
    job, _ = await get_job(session, principal, job_id)
    output = await anyio.to_thread.run_sync(
        lambda: read_output(run_directory(settings, job.id), after=None, most_lines=_MOST_LINES)
    )
    return _status(job, output.lines)


def _status(job: TrainingJob, lines: list[str]) -> MlJobStatus:
    summary = read_summary(job.summary)
    estimate = None if summary.cost is None else summary.cost.estimated
    likely = ((job.offer or {}).get("estimate") or {}).get("likely") if estimate is None else estimate.likely
    loss = summary.values.get("train/loss")
    return MlJobStatus(
        id=job.id,
        provider=str((job.offer or {}).get("provider") or job.target),
        status=job.status,
        progress=Progress(
            step=summary.step,
            total_steps=summary.total_steps,
            epoch=summary.epoch,
            total_epochs=summary.epochs,
            loss=None if loss is None else loss.value,
            eta_seconds=summary.eta_seconds,
        ),
        logs=lines,
        cost_so_far=0.0 if summary.cost is None else summary.cost.so_far,
        estimated_total=0.0 if job.offer is None else likely,
        error=job.error_message,
    )
