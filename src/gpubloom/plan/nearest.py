"""The nearest settings with which a run fits that does not fit as it is.

Some change the config and keep the machine; others keep the config and name the machine that it takes. Each
is planned like any run, so what is offered here does fit. `refusal` names only the nearest change; a person
who chooses wants to see what each kind of change costs.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field, JsonValue

from gpubloom.plan import costs
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.hardware import GIBIBYTE, Gpu, Hardware
from gpubloom.plan.model_config import ModelConfig
from gpubloom.plan.planner import Memory, Plan, Result, plan_on, processes_on, share_of
from gpubloom.plan.refusal import Changes, DoesNotFit, can_run, changed, fitting_changes
from gpubloom.plan.request import PlanRequest, shape_of
from gpubloom.plan.sizes import SMALLEST, ladder_shape, size_name
from gpubloom.plan.steps import EpochData

# The largest single GPU that is commonly rented: the machine to ask for when this one is too small.
_LARGE_GPU = "H200"
_GPU_COUNTS = (2, 4, 8)
_MOST_SETTINGS = 5
# Beyond this no machine is sold.
_MOST_HOST_GB = 8_192
# Slower than this nobody trains: a CPU with the memory of a large GPU server is no help.
_SLOWEST = 10.0


class NearestFit(Result):
    """One change with which the run fits, and its plan."""

    title: str = Field(description="The change in words.")
    changes: dict[str, JsonValue] = Field(
        {}, description="The config fields to change, by path, with their new values."
    )
    gpu_type: str | None = Field(None, description="The GPU of the machine, if another machine is needed.")
    gpus: int | None = Field(None, description="The number of GPUs, if another machine is needed.")
    host_memory: int | None = Field(
        None, description="The host memory in GB, if a machine with more of it is needed."
    )
    machine: str = Field(description="The machine of the plan.")
    plan: Plan


class Needs(Result):
    """The least memory that a run needs that does not fit, by kind, and the limits of the machine."""

    gpu: Memory | None
    host: Memory


def needs_of(refusal: DoesNotFit) -> Needs:
    """What fits, what does not, and by how much."""
    gpu = None
    if refusal.gpu is not None:
        gpu = Memory(**refusal.gpu.needed._asdict(), limit_bytes=refusal.gpu.limit)
    return Needs(gpu=gpu, host=Memory(**refusal.host.needed._asdict(), limit_bytes=refusal.host.limit))


def nearest_fits(
    config: TrainConfig,
    hardware: Hardware,
    *,
    tokens_per_epoch: EpochData = None,
    shape: DecoderShape | None = None,
    at_most: int = 8,
) -> tuple[NearestFit, ...]:
    """The changes that make a run fit, the smallest first; none if it fits, or nothing helps."""
    try:
        plan_on(hardware, config, shape=shape)
    except DoesNotFit as refusal:
        found = _FitSearch(hardware, config, refusal, tokens_per_epoch, shape)
        return tuple(itertools.islice(found.fits(), at_most))
    return ()


class _FitSearch:
    """A run that was refused, and what could be changed about it."""

    def __init__(
        self,
        hardware: Hardware,
        config: TrainConfig,
        refusal: DoesNotFit,
        tokens: EpochData,
        shape: DecoderShape | None,
    ) -> None:
        self._hardware, self._config, self._refusal = hardware, config, refusal
        self._tokens, self._shape = tokens, shape

    def fits(self) -> Iterator[NearestFit]:
        settings = list(self._settings())
        # Adapters are another kind of training: they come after the machines that train the whole model.
        yield from (each for each in settings if "method" not in each.changes)
        machines = (self._more_host_memory, self._more_gpus, self._large_machine)
        for machine in machines if self._hardware.gpus else reversed(machines):
            if (fit := machine()) is not None:
                yield fit
        yield from (each for each in settings if "method" in each.changes)
        if (smaller := self._smaller_model()) is not None:
            yield smaller

    def _settings(self) -> Iterator[NearestFit]:
        """Other settings of the same model on the same machine.

        Of changes that differ in numbers only the first counts: a batch of 4 makes one of 2 pointless. The
        same for a change that does more than an earlier one.
        """
        processes = processes_on(self._hardware, self._config, shape=self._shape)
        config = self._config
        if processes > 1:
            config = config.model_copy(update={"processes": processes})
        share = share_of(self._hardware, 1 if config.cluster else processes)
        asked = PlanRequest.of(config, share, self._shape)
        found: list[Changes] = []
        for changes in fitting_changes(asked):
            # The largest smaller model is found among all sizes.
            if "model.preset" in changes or any(_kinds(changes) >= _kinds(each) for each in found):
                continue
            if (fit := self._fit(changes)) is not None:
                found.append(changes)
                yield fit
                if len(found) == _MOST_SETTINGS:
                    return

    def _more_host_memory(self) -> NearestFit | None:
        gpu = self._refusal.gpu
        if self._config.memory.host_budget_gb is not None or (gpu and gpu.needed.total > gpu.limit):
            return None
        host = _host_gb(self._refusal)
        return self._on_machine(self._hardware.gpus, host, f"{host:,} GB of host memory")

    def _more_gpus(self) -> NearestFit | None:
        there = self._hardware.gpus
        if not there or self._config.executor == "block":
            return None
        for count in _GPU_COUNTS:
            if count > len(there):
                found = self._on_machine(there[:1] * count, None, f"{count} × {there[0].name}")
                if found is not None:
                    return found
        return None

    def _large_machine(self) -> NearestFit | None:
        """One large GPU, with the host memory that it takes."""
        if any(_LARGE_GPU in gpu.name for gpu in self._hardware.gpus) or self._config.device == "cpu":
            return None
        host = max(64, _gib(self._hardware.host_memory_bytes))
        gpus = Hardware.parse(f"{_LARGE_GPU}, 1 GB host").gpus
        for _ in range(2):
            machine = _machine(self._hardware, gpus, host)
            try:
                plan = plan_on(machine, self._config, tokens_per_epoch=self._tokens, shape=self._shape)
            except DoesNotFit as refusal:
                host = _host_gb(refusal)
                continue
            except ValueError:
                return None
            return NearestFit(
                title=f"One {_LARGE_GPU} with {host:,} GB of host memory",
                gpu_type=_LARGE_GPU,
                gpus=1,
                host_memory=host,
                machine=machine.name,
                plan=plan,
            )
        return None

    def _smaller_model(self) -> NearestFit | None:
        """The largest model of the ladder that fits with everything else as it is."""
        model = self._config.model
        if model != ModelConfig(preset=model.preset, context_length=model.context_length):
            return None
        shape = self._shape or shape_of(self._config)
        low, high = SMALLEST, shape.parameters / 1e9
        while high / low > 1.01:
            middle = _rounded((low * high) ** 0.5)
            if not low < middle < high:
                break
            if _can_run(self._hardware, *self._of_size(middle)):
                low = middle
            else:
                high = middle
        config, shape_there = self._of_size(low)
        plan = self._plan(self._hardware, config, shape_there)
        if plan is None:
            return None
        changes: Changes = {"model.preset": config.model.preset}
        if config.model.context_length != model.context_length:
            changes["model.context_length"] = config.model.context_length
        title = f"A model of {config.model.preset.upper()} parameters"
        return NearestFit(title=title, changes=changes, machine=self._hardware.name, plan=plan)

    def _of_size(self, billions: float) -> tuple[TrainConfig, DecoderShape | None]:
        name = size_name(billions)
        smaller = self._config.model.model_copy(update={"preset": name})
        config = self._config.model_copy(update={"model": smaller})
        if config.context_length != self._config.context_length:
            # Rows stay as long as they were.
            length = self._config.context_length
            kept = smaller.model_copy(update={"context_length": length})
            config = config.model_copy(update={"model": kept})
        if self._shape is None:
            return config, None
        return config, ladder_shape(billions * 1e9, self._shape.vocab_size).decoder()

    def _fit(self, changes: Changes, shape: DecoderShape | None = None) -> NearestFit | None:
        config = changed(self._config, changes)
        if config is None:
            return None
        plan = self._plan(self._hardware, config, shape or self._shape)
        if plan is None:
            return None
        said = {path: value for path, value in changes.items() if _value(self._config, path) != value}
        return NearestFit(title=describe(said), changes=said, machine=self._hardware.name, plan=plan)

    def _on_machine(self, gpus: tuple[Gpu, ...], host: int | None, title: str) -> NearestFit | None:
        if host is not None and host > _MOST_HOST_GB:
            return None
        machine = _machine(self._hardware, gpus, host or _gib(self._hardware.host_memory_bytes))
        plan = self._plan(machine, self._config, self._shape)
        if plan is None or plan.tokens_per_second < _SLOWEST:
            return None
        return NearestFit(
            title=title,
            gpu_type=gpus[0].name if gpus else None,
            gpus=len(gpus) or None,
            host_memory=host,
            machine=machine.name,
            plan=plan,
        )

    def _plan(self, machine: Hardware, config: TrainConfig, shape: DecoderShape | None) -> Plan | None:
        if not _can_run(machine, config, shape):
            return None
        try:
            return plan_on(machine, config, tokens_per_epoch=self._tokens, shape=shape)
        except ValueError:
            return None


def describe(changes: Changes) -> str:
    """Changes of a config in the words of its forms."""
    return " and ".join(_one(path, value) for path, value in changes.items())


def _one(path: str, value: Any) -> str:
    if path == "model.preset":
        return f"A model of {str(value).upper()} parameters"
    model: type[BaseModel] = TrainConfig
    *parts, name = path.split(".")
    for part in parts:
        model = model.model_fields[part].annotation  # type: ignore[assignment]
    field = model.model_fields[name]
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    choices: Any = extra.get("choices") or ()
    label = next((each["label"] for each in choices if each["value"] == value), None)
    text = label or (f"{value:g}" if isinstance(value, float) else f"{value}")
    return f"{field.title or path}: {text}"


def _can_run(machine: Hardware, config: TrainConfig, shape: DecoderShape | None) -> bool:
    """Whether `plan_on` would find anything: with all GPUs or fewer of them, unless their number is set."""
    counts = [config.said_processes]
    if config.processes == "auto" and config.device != "cpu" and config.backend == "engine":
        counts = [*range(len(machine.gpus), 1, -1), 1]
    return any(
        can_run(config.model_copy(update={"processes": count}), share_of(machine, count), shape)
        for count in counts
    )


def _kinds(changes: Changes) -> set[tuple[str, str | None]]:
    return {(name, value if isinstance(value, str) else None) for name, value in changes.items()}


def _value(config: TrainConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _machine(like: Hardware, gpus: tuple[Gpu, ...], host: int) -> Hardware:
    count = f"{len(gpus)}x " if len(gpus) > 1 else ""
    name = f"{count}{gpus[0].name}, {host} GB host" if gpus else f"{host} GB host"
    return like.model_copy(
        update={
            "name": name,
            "gpus": gpus,
            "host_memory_bytes": host * GIBIBYTE,
            # Machines with a GPU usually have at least 16 cores for it.
            "cpu_cores": max(like.cpu_cores, 16 * len(gpus)),
        }
    )


def _host_gb(refusal: DoesNotFit) -> int:
    """Host memory as it is sold that would do."""
    needed = _gib(refusal.host.needed.total + costs.HOST_RESERVE_AT_MOST_BYTES)
    step = 16 if needed <= 128 else 64 if needed <= 1_024 else 128
    return -(-needed // step) * step


def _gib(count: int) -> int:
    return -(-count // GIBIBYTE)


def _rounded(billions: float) -> float:
    return float(f"{billions:.3g}")
