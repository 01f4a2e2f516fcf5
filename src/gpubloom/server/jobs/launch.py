"""Decides, before anything is queued, whether a job can run: config, data, memory, this machine or an offer.

A job that cannot is refused with the reason. Nothing is ever moved to lesser hardware in silence. Offers of
rented machines come from `rentals`, which stands above; `TakesOffers` is what a job needs of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Protocol, cast
from uuid import UUID

import anyio.to_thread
from fastapi import Depends, Request
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gpubloom.datasets.remote_data import is_remote
from gpubloom.errors import code_of
from gpubloom.offers import RentalLimits, default_limits
from gpubloom.plan import (
    CountedData,
    DoesNotFit,
    EpochData,
    Hardware,
    NearestFit,
    Needs,
    Plan,
    TrainConfig,
    demo_fields,
    detect_hardware,
    estimate_tokens,
    find_files,
    nearest_fits,
    needs_of,
    plan_on,
    preset_for,
    processes_on,
)
from gpubloom.plan.backends import available_backends
from gpubloom.plan.data_files import find_tokenizer_files
from gpubloom.plan.families import read_decoder
from gpubloom.plan.hardware import GIBIBYTE, Gpu, kind_of, peak_flops
from gpubloom.plan.model_config import folder_context_length
from gpubloom.plan.speedups import with_speedup
from gpubloom.server.accounts.principal import Principal
from gpubloom.server.db.clock import database_time
from gpubloom.server.jobs.inputs import NO_INPUTS, Inputs
from gpubloom.server.jobs.new_job_schemas import FailoverPreference, OfferTaken
from gpubloom.server.jobs.tables import TrainingJob, Worker
from gpubloom.server.problems import InvalidInput, invalid_fields
from gpubloom.server.projects.data_paths import (
    DataPathRefused,
    check_address,
    check_data_files,
    check_data_path,
    dataset_of,
)
from gpubloom.server.projects.schemas import Architecture, ProjectIn
from gpubloom.server.projects.tables import Project
from gpubloom.server.settings import Settings

WORKER_SEEN_WITHIN = timedelta(seconds=60)
_GIGABYTE = 1_000_000_000
# The share of the advertised memory of a machine or GPU that a program can use.
_USABLE = 0.93
# The field that a person corrects, by the code of the planner's refusal.
_FIELDS = {"context_too_long": "config.model.context_length"}


@dataclass(frozen=True)
class Launch:
    """A job that can run: its full config, where it fits, and what to expect."""

    config: TrainConfig
    plan: Plan
    machine: str
    gpus: int


@dataclass(frozen=True)
class Prediction:
    """What a job would need on a machine that may not be connected: its plan, or what is short."""

    machine: str
    plan: Plan | None
    reason: str | None = None
    needs: Needs | None = None
    options: tuple[NearestFit, ...] = ()


class CannotRun(InvalidInput):
    """No machine of this server can run the job. `needs` and `options`: what is short, and what would fit."""

    code = "cannot_run_here"
    needs: Needs | None = None
    options: tuple[NearestFit, ...] = ()


@dataclass(frozen=True)
class ProjectDefaults:
    """Defaults of a project for fields that the config of a job does not set."""

    data_path: str | None = None
    dataset_id: UUID | None = None
    architecture: Architecture | None = None
    model_size: float | None = None

    @classmethod
    def of(cls, project: Project | ProjectIn | None) -> "ProjectDefaults":
        if project is None:
            return cls()
        path = project.training_data_path
        dataset_id = dataset_of(path)
        return cls(
            data_path=None if dataset_id else path,
            dataset_id=dataset_id,
            architecture=project.model_architecture,
            model_size=project.model_size,
        )

    def with_preset(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config with the preset of the project's size, unless it names a model or the sizes of one."""
        model = config.get("model") or {}
        if self.model_size is None or not isinstance(model, dict):
            return config
        if any(model.get(name) is not None for name in _NAMES_A_MODEL):
            return config
        if self.architecture == "custom" and model.get("architecture") is None:
            return config
        return {**config, "model": {**model, "preset": preset_for(self.model_size)}}


NO_PROJECT = ProjectDefaults()
# Fields that may also hold an address, from which a job fetches its data.
_ADDRESSES = {"config.data.train_path", "config.data.eval_path"}
# Fields of a config that say which model is meant.
_NAMES_A_MODEL = ("preset", "path", "hidden_size", "layers")


def read_config(
    raw: dict[str, Any],
    settings: Settings,
    *,
    name: str,
    project: ProjectDefaults = NO_PROJECT,
    inputs: Inputs = NO_INPUTS,
) -> TrainConfig:
    """The validated config, with data from where this server may read; raises with one sentence per field.

    What it does not say is what the project says. Without any data it is the demo, with whatever the config
    says on top.
    """
    wanted = inputs.put_into({**TrainConfig.own_names(raw), "name": _slug(name)})
    wanted, data_path = project.with_preset(wanted), project.data_path
    data = wanted.get("data")
    named = isinstance(data, dict) and data.get("train_path")
    if data_path is not None and not named:
        wanted["data"] = {**(data if isinstance(data, dict) else {}), "train_path": data_path}
    demo = demo_fields(wanted)
    if data_path is None and not named and isinstance(data, dict | None):
        wanted = {**demo, **wanted, "data": {**(data or {}), **demo["data"]}}
    config = _validated(wanted)
    if config.checkpoint.directory is not None:
        raise InvalidInput.for_field(
            "config.checkpoint.directory",
            "Leave checkpoint.directory empty. Jobs on a server keep their checkpoints in the run directory.",
            code="not_on_a_server",
        )

    if config.cluster is not None:
        raise InvalidInput.for_field(
            "config.cluster",
            "Jobs on a server run on the server's machines or on connected providers. To train on a "
            "cluster, use `bloom train --ray`.",
            code="not_on_a_server",
        )

    def readable(field: str, path: str | None) -> str | None:
        if path is None or inputs.include(path):
            return path
        return _readable(f"config.{field}", path, settings)

    # Before the data: a model's own tokenizer lies in its folder, and the folder is what somebody named.
    model = {"path": readable("model.path", config.model.path)}
    tokenizer = config.data.tokenizer
    data_paths = {
        # Anybody may train on the demo's data, also by naming it, as a job does that is started again.
        "train_path": config.data.train_path
        if config.data.train_path == demo["data"]["train_path"]
        else readable("data.train_path", config.data.train_path),
        "eval_path": readable("data.eval_path", config.data.eval_path),
        "mix": [
            each.model_copy(update={"path": readable(f"data.mix.{number}.path", each.path)})
            for number, each in enumerate(config.data.mix)
        ],
        "tokenizer": tokenizer.model_copy(update={"path": readable("data.tokenizer.path", tokenizer.path)}),
    }
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data_paths),
            "model": config.model.model_copy(update=model),
        }
    )


async def fill_in(config: TrainConfig) -> TrainConfig:
    """The config with what the engine would decide by method and model: rate and length of a row."""
    update: dict[str, Any] = {"learning_rate": config.peak_learning_rate}
    model = config.model
    if model.path is not None and model.context_length is None:
        try:
            positions = (await anyio.to_thread.run_sync(read_decoder, Path(model.path))).max_positions
        except (ValueError, OSError):
            # The plan reports what is wrong with the folder.
            return config.model_copy(update=update)
        update["model"] = model.model_copy(update={"context_length": folder_context_length(positions)})
    return config.model_copy(update=update)


def defaults_for(config: TrainConfig, requested: dict[str, Any]) -> dict[str, Any]:
    """What the job would use for every field that was not requested; without the server's own paths."""
    fields = config.model_dump(mode="json", exclude={"version", "name"})
    fields["model"]["context_length"] = config.context_length
    for part, names in {"data": ("train_path", "eval_path", "mix", "tokenizer"), "model": ("path",)}.items():
        for name in names:
            fields[part].pop(name)
    return _not_in(fields, TrainConfig.own_names(requested))


def _not_in(fields: dict[str, Any], requested: dict[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    for name, value in fields.items():
        said = requested.get(name)
        if said is None:
            rest[name] = value
        elif isinstance(said, dict) and isinstance(value, dict):
            rest[name] = _not_in(value, said)
    return rest


async def check_files(config: TrainConfig, settings: Settings, inputs: Inputs = NO_INPUTS) -> None:
    """Every file behind the config's paths must be one that people may read: folders can hold links."""
    demo = demo_fields()["data"]["train_path"]

    def check(field: str, path: str | None, find: Callable[[str], list[Path]] = find_files) -> None:
        if path is None or path == demo or inputs.include(path) or is_remote(path):
            return
        try:
            check_data_files(find(path), settings)
        except (ValueError, OSError) as error:
            raise InvalidInput.for_field(f"config.{field}", str(error), code=code_of(error)) from error

    await anyio.to_thread.run_sync(check, "data.train_path", config.data.train_path)
    await anyio.to_thread.run_sync(check, "data.eval_path", config.data.eval_path)
    for number, each in enumerate(config.data.mix):
        await anyio.to_thread.run_sync(check, f"data.mix.{number}.path", each.path)
    folder, tokenizer = config.model.path, config.data.tokenizer.path
    await anyio.to_thread.run_sync(check, "model.path", folder)
    # A model's own tokenizer is part of its folder, which may also lack one.
    if folder is None or tokenizer != str(Path(folder) / "tokenizer.json"):
        await anyio.to_thread.run_sync(check, "data.tokenizer.path", tokenizer, find_tokenizer_files)


async def check_backend(config: TrainConfig) -> None:
    """Refuses a trainer that cannot run on this machine, with what to do about it."""
    for backend in await anyio.to_thread.run_sync(available_backends):
        if backend.name == config.backend and not backend.available:
            raise CannotRun.for_field(
                "config.backend",
                backend.reason or "This backend cannot run on this machine.",
                code="backend_unavailable",
            )


def _validated(fields: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig.model_validate(fields)
    except ValidationError as error:
        raise invalid_fields(error.errors(), inside="config", model=TrainConfig) from error


def _readable(field: str, path: str, settings: Settings) -> str:
    """An absolute path that this server may read."""
    try:
        if "://" in path and field in _ADDRESSES:
            return check_address(path)
        if "://" in path:
            raise DataPathRefused(
                "path_not_local",
                "Jobs on the server's machines read local files only. Upload the file first.",
            )
        checked = check_data_path(path, settings)
    except DataPathRefused as refusal:
        raise InvalidInput.for_field(field, str(refusal), code=refusal.code) from refusal
    return checked if checked.startswith("/") else str(settings.uploads / checked)


def _slug(name: str) -> str:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:60]
    return slug or "train"


async def live_machines(session: AsyncSession) -> list[tuple[Hardware, datetime]]:
    """The machines whose workers were seen recently."""
    rows = await session.scalars(
        select(Worker).where(Worker.last_seen_at > database_time(-WORKER_SEEN_WITHIN)).order_by(Worker.name)
    )
    return [(Hardware.model_validate(row.hardware), row.last_seen_at) for row in rows]


async def decide(
    machines: list[Hardware],
    config: TrainConfig,
    *,
    gpu_type: str | None,
    host_memory: int | None,
    home: Path | None = None,
    counted: CountedData | None = None,
) -> Launch:
    """Where the job can run; raises CannotRun with the reason when nowhere. `home` may hold measurements;
    `counted` is what a pre-flight counted, in place of an estimate by file sizes."""
    # A worker registers a moment after the server starts; until then, plan for this machine.
    candidates = machines or [await anyio.to_thread.run_sync(detect_hardware)]
    if gpu_type is not None:
        candidates = _with_gpu(candidates, gpu_type)
    if host_memory is not None:
        largest = max(machine.host_memory_bytes for machine in candidates)
        needed = host_memory * GIBIBYTE * _USABLE
        candidates = [machine for machine in candidates if machine.host_memory_bytes >= needed]
        if not candidates:
            raise CannotRun.for_field(
                "host_memory",
                f"No machine of this server has {host_memory} GB of RAM. The largest has "
                f"{largest / _GIGABYTE:.0f} GB.",
                code="not_enough_host_memory",
            )
    try:
        tokens: EpochData = counted or await anyio.to_thread.run_sync(estimate_tokens, config.data)
    except (ValueError, OSError) as error:
        raise InvalidInput.for_field("config.data.train_path", str(error), code=code_of(error)) from error
    first: tuple[Hardware, ValueError] | None = None
    for machine in candidates:
        try:
            launch = _launch(_data_file(config, machine, gpu_type), machine, tokens)
            if home is None:
                return launch
            measured = await anyio.to_thread.run_sync(with_speedup, launch.plan, launch.config, machine, home)
            return replace(launch, plan=measured)
        except ValueError as refusal:
            first = first or (machine, refusal)
    assert first is not None, "there is always a machine to try"
    machine, reason = first
    code = code_of(reason)
    if code in _FIELDS:
        raise CannotRun.for_field(_FIELDS[code], str(reason), code=code) from reason
    refused = CannotRun(str(reason), code=code)
    if isinstance(reason, DoesNotFit):
        refused.needs = needs_of(reason)
        refused.options = nearest_fits(config, machine, tokens_per_epoch=tokens)
    raise refused


def predict_on_requested(
    machines: list[Hardware], config: TrainConfig, *, gpu_type: str | None, host_memory: int | None
) -> Prediction | None:
    """What the job would need on the machine that was asked for; None: the GPU is not known by name."""
    there = max(machines or [detect_hardware()], key=lambda each: each.host_memory_bytes)
    memory = host_memory or -(-there.host_memory_bytes // GIBIBYTE)
    count = config.processes if isinstance(config.processes, int) else 1
    try:
        machine = (
            Hardware.parse(f"{count}x {gpu_type}, {memory} GB host")
            if gpu_type is not None
            else there.model_copy(update={"host_memory_bytes": memory * GIBIBYTE})
        )
    except ValueError:
        return None
    name = f"{gpu_type or there.name}, {memory:,} GB host"
    machine = machine.model_copy(update={"name": f"{count} × {name}" if count > 1 else name})
    try:
        return Prediction(machine.name, plan_on(machine, config))
    except DoesNotFit as refusal:
        options = nearest_fits(config, machine)
        return Prediction(machine.name, None, str(refusal), needs_of(refusal), options)
    except ValueError as refusal:
        return Prediction(machine.name, None, str(refusal))


def _launch(config: TrainConfig, machine: Hardware, tokens: EpochData) -> Launch:
    processes = processes_on(machine, config)
    if config.device != "cpu":
        # Set in the config like the device, so that the job reserves as many GPUs as it uses.
        config = config.model_copy(update={"processes": processes})
    expected = plan_on(machine, config, tokens_per_epoch=tokens)
    return Launch(config, expected, machine.name, gpus=0 if expected.device == "cpu" else processes)


def _with_gpu(machines: list[Hardware], gpu_type: str) -> list[Hardware]:
    wanted = gpu_type.casefold()
    found = []
    for machine in machines:
        gpus = tuple(gpu for gpu in machine.gpus if wanted in gpu.name.casefold())
        if gpus:
            found.append(machine.model_copy(update={"gpus": gpus}))
    if not found:
        present = sorted({gpu.name for machine in machines for gpu in machine.gpus})
        reason = (
            f"This server has no GPU named {gpu_type}. Available: {', '.join(present)}."
            if present
            else "This server has no GPU. Leave the GPU type empty to train on the CPU."
        )
        raise CannotRun.for_field("gpu_type", reason, code="gpu_not_found")
    return found


def _data_file(config: TrainConfig, machine: Hardware, gpu_type: str | None) -> TrainConfig:
    if config.device != "auto":
        return config
    # Set in the config, so that the run does not choose another one when it starts.
    return config.model_copy(update={"device": "cuda" if machine.gpus or gpu_type else "cpu"})


# Of a host, per GPU; services say too little about it to know more.
_HOST_GIBIBYTES, _CORES = 32, 4
_SPREAD = {"low": 0.7, "likely": 1.0, "high": 1.6}


class TakesOffers(Protocol):
    """The interface of `rentals.offer_service`, which this package must not import."""

    async def take(
        self, session: AsyncSession, principal: Principal, offer: OfferTaken, *, starts: bool = True
    ) -> dict[str, Any]:
        """The offer that a job's row keeps. InvalidInput: this offer cannot be taken, and why.

        `starts`: False for a quote.
        """

    async def alternatives(
        self,
        session: AsyncSession,
        principal: Principal,
        offer: Mapping[str, Any],
        asked: Sequence[OfferTaken] | None,
        preference: FailoverPreference,
        budget: float | None,
    ) -> list[dict[str, Any]]:
        """Where a job goes when its offer has no machine. `asked`: the person's own order."""


def offer_service_of(request: Request) -> TakesOffers:
    return cast("TakesOffers", request.app.state.offer_service)


CurrentOfferService = Annotated[TakesOffers, Depends(offer_service_of)]


def hardware_of(offer: dict[str, Any]) -> Hardware:
    """The machine behind an offer, as the planner sees it."""
    name, count = str(offer["gpu"]), int(offer["gpus"])
    kind = kind_of(name)
    gpu = Gpu(
        name=name,
        memory_bytes=int(offer["memory_gb"] * GIBIBYTE * _USABLE),
        flops=peak_flops(name),
        bf16=kind is None or kind.bf16,
    )
    return Hardware(
        name=f"{offer['gpu']} at {offer['title']}",
        host_memory_bytes=_HOST_GIBIBYTES * count * GIBIBYTE,
        cpu_cores=_CORES * count,
        gpus=(gpu,) * count,
    )


def with_estimate(offer: dict[str, Any], seconds: float | None) -> dict[str, Any]:
    """The offer with the estimated cost of a training of this duration."""
    if seconds is None:
        return offer
    hours = seconds / 3600 + offer["start_up_seconds"] / 3600
    likely = {name: round(hours * spread * offer["hourly"], 4) for name, spread in _SPREAD.items()}
    return {**offer, "estimate": likely}


def limits_for(offer: Mapping[str, Any]) -> RentalLimits:
    """The default budget and time limit of a job that takes this offer."""
    estimate = offer.get("estimate") or {}
    return default_limits(float(offer.get("hourly") or 0.0), estimate.get("likely"))


def set_default_limits(job: TrainingJob) -> None:
    """A job on a rented machine never runs without a budget and a time limit."""
    if job.offer is None:
        return
    limits = limits_for(job.offer)
    job.budget = limits.budget if job.budget is None else job.budget
    job.max_hours = limits.max_hours if job.max_hours is None else job.max_hours
