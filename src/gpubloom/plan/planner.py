"""plan(): does a run fit, where does each tensor live, how fast is it, what limits it. Pure arithmetic.

Reads one file at most: the config.json of a model folder. Figures that rest on an assumption say so. A Plan
explains itself in words; `processes_on` and `plan_on` say how many processes train a run on a machine and
what each of them has of it.
"""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gpubloom.errors import InputError
from gpubloom.plan import costs
from gpubloom.plan.compiling import compiled_from_step
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.hardware import Hardware
from gpubloom.plan.launches import with_few_launches, with_launches
from gpubloom.plan.memory import Bytes, device_bytes, host_bytes, residency_of
from gpubloom.plan.placement import BlockPlacement, Placement
from gpubloom.plan.refusal import DoesNotFit, refuse
from gpubloom.plan.request import PlanRequest, Precision
from gpubloom.plan.search import placement, search, search_twice
from gpubloom.plan.sharded import (
    may_shard,
    search_sharded,
    sharded_bytes,
    sharded_phases,
    sharded_sentence,
)
from gpubloom.plan.speedups import Speedup
from gpubloom.plan.steps import CountedData, EpochData, steps_of
from gpubloom.plan.timing import SECOND_BACKWARD, Lanes, bottleneck, phases
from gpubloom.plan.workload import Work

_HELP = {
    "the GPU": "The GPU computes all the time.",
    "the CPU": "The CPU computes all the time.",
    "the CPU-GPU link": "The GPU waits for transfers between host and GPU; a larger batch hides this wait.",
    "the host optimizer": "The GPU waits for the optimizer on the CPU; a larger batch hides this wait.",
    "kernel launches": "The GPU waits for the CPU to start its kernels; a larger batch hides this wait.",
    "host memory bandwidth": "The GPU waits because the optimizer and the transfers share the bandwidth of "
    "host memory; a larger batch hides this wait.",
}


def placement_sentence(placement: Placement, work: Work) -> str:
    """Where the layers are stored, in one sentence or two."""
    device = "GPU" if work.on_gpu else "CPU"
    groups: dict[str, int] = {}
    for layer in placement.layers:
        where = _where(layer, work, device)
        groups[where] = groups.get(where, 0) + 1
    if len(groups) == 1:
        parts = [f"all {len(placement.layers)} layers: {next(iter(groups))}"]
    else:
        parts = [f"{count} {'layer' if count == 1 else 'layers'}: {where}" for where, count in groups.items()]
    kept = sum(layer.keep for layer in placement.layers)
    kept_text = {
        0: "all layers recompute their activations in the backward pass",
        len(placement.layers): "",
    }.get(
        kept,
        f"the last {kept} layers keep their activations, the others recompute them"
        if kept > 1
        else "the last layer keeps its activations, the others recompute them",
    )
    text = "; ".join([*parts, *filter(None, [kept_text])])
    extras = []
    if placement.embedding.state != "device":
        extras.append("The CPU updates the embedding and the head.")
    if placement.offload_inputs:
        extras.append("Layer inputs are offloaded to host memory.")
    if placement.share_gradients:
        extras.append("Gradients reuse the host memory of the compute copies.")
    if placement.gradients_twice:
        extras.append(
            f"The last {placement.gradients_twice} layers compute their gradients twice, for the gradient "
            "norm and for the update, so host memory need not hold them."
        )
    return " ".join([text[0].upper() + text[1:] + ".", *extras])


def advice(limited_by: str, placement: Placement, work: Work) -> tuple[str, ...]:
    """What limits the run and what would help, most important first."""
    found = [_HELP[limited_by]]
    recomputed = sum(not layer.keep for layer in placement.layers)
    if recomputed and limited_by in {"the GPU", "the CPU"}:
        found.append(
            f"{recomputed} of {work.count} layers recompute their activations to save memory; "
            "more memory or a smaller batch avoids this."
        )
    if placement.share_gradients:
        found.append("Host memory is nearly full.")
    return tuple(found)


def _where(layer: BlockPlacement, work: Work, device: str) -> str:
    if not work.full:
        text = f"frozen on the {device}" if layer.weights == "device" else "frozen, streamed from host memory"
        return text + (" in 4 bits" if work.method == "qlora" else "")
    if layer.state == "device":
        return f"weights and optimizer state on the {device}"
    updated = "updated by the CPU" if layer.state == "host" else "updated by the GPU"
    sent = "copied to the GPU once per step" if layer.weights == "device" else "streamed from host memory"
    return f"{sent}, {updated}"


class Result(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Memory(Result):
    """Peak bytes of one memory by kind, and its limit in bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    overhead: int
    limit_bytes: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.overhead


class Phase(Result):
    """One phase of a step: its duration, and how long compute, link and host are busy in it."""

    name: str
    seconds: float
    compute: float
    link: float
    host: float


class Plan(Result):
    """The predicted memory, placement and time of a run, stored with the run as plan.json."""

    version: Literal[1] = 1
    device: str
    # Whether every process has the whole model, or it is sharded among them.
    executor: Literal["block", "sharded"] = "block"
    # None in plans of earlier versions, which were all resident.
    placement: Placement | None = None
    placement_text: str = "All tensors stay on the training device."
    precision: Precision
    precision_reason: str
    parameters: int
    trained_parameters: int = 0
    # Of the training device; on a CPU that is the host's memory.
    memory: Memory
    memory_total_bytes: int
    memory_limit_bytes: int
    gpu: Memory | None = None
    # What torch reserves on the GPU; the driver's context comes on top and is in the total.
    gpu_reserved_bytes: int | None = None
    host: Memory | None = None
    tokens_per_step: int
    tokens_per_second: float
    step_seconds: float = 0.0
    phases: tuple[Phase, ...] = ()
    limited_by: str = ""
    limits: tuple[str, ...] = ()
    steps: int | None
    seconds: float | None
    compiled_from_step: int | None = Field(
        None,
        description="The first step that runs with compiled layers; 0: none does. None: the run decides that "
        "where it starts. A resumed run keeps it.",
    )
    assumptions: tuple[str, ...]
    speedup: Speedup | None = Field(
        None, description="How much faster than PEFT such a run was, if it was measured on this machine."
    )

    @field_validator("placement", mode="before")
    @classmethod
    def _of_an_earlier_version(cls, given: object) -> object:
        return None if isinstance(given, str) else given


def plan(
    config: TrainConfig,
    hardware: Hardware,
    *,
    tokens_per_epoch: EpochData = None,
    shape: DecoderShape | None = None,
) -> Plan:
    """Predicts a run; DoesNotFit (a ValueError) names what is short and the nearest setting that fits.

    `shape` stands for the config's model, for models that one does not have. `hardware` is what one of the
    config's processes has; a model that does not fit there may still be sharded among them.
    """
    asked = PlanRequest.of(config, hardware, shape)
    if config.executor != "sharded":
        found = search(asked.timed, asked.limits, config.memory.mode)
        if found is None and config.memory.gradients == "twice":
            found = search_twice(asked.timed, asked.limits, config.memory.mode)
        if found is not None:
            chosen = with_few_launches(asked, placement(asked.timed.work, found))
            return _answer(asked, chosen, tokens_per_epoch)
    if may_shard(config) and (sharded := search_sharded(asked)) is not None:
        return _sharded_answer(asked, sharded, tokens_per_epoch)
    raise refuse(asked)


def predict(
    config: TrainConfig, hardware: Hardware, placement: Placement, *, shape: DecoderShape | None = None
) -> Plan:
    """The same for a placement that somebody else chose, whether it fits or not."""
    return _answer(PlanRequest.of(config, hardware, shape), placement, None)


def count_steps(config: TrainConfig, context_length: int, data: EpochData) -> int | None:
    """Optimizer steps of the whole run, as the loader counts them; None when the data is not known."""
    if data is None:
        return config.max_steps
    if isinstance(data, CountedData):
        if data.context_length == context_length:
            return steps_of(config, data.sequences)
        data = data.tokens
    windows = max(1, (data - 1) // context_length)
    steps = config.epochs * math.ceil(
        windows / (config.batch_size * config.accumulation * config.said_processes)
    )
    return min(steps, config.max_steps or steps)


def _answer(asked: PlanRequest, placement: Placement, tokens_per_epoch: EpochData) -> Plan:
    timed, gpu, limits = asked.timed, asked.gpu, asked.limits
    work = timed.work
    at = residency_of(placement, work, timed.recompute)
    on_device, on_host = device_bytes(work, timed.sums, at), host_bytes(work, at)
    if gpu is None:
        host = device = _memory(on_device.plus(on_host), limits.host)
    else:
        host, device = _memory(on_host, limits.host), _memory(on_device, limits.device)
    found = with_launches(phases(timed, at), work, at)
    step = sum(phase.seconds for phase in found)
    limited_by = bottleneck(found, on_gpu=gpu is not None)
    steps = count_steps(asked.config, work.length, tokens_per_epoch)
    return Plan(
        device="cpu" if gpu is None else "cuda",
        placement=placement,
        placement_text=placement_sentence(placement, work),
        precision=asked.precision,
        precision_reason=asked.precision_reason,
        parameters=work.shape.parameters,
        trained_parameters=work.trained_parameters,
        memory=device,
        memory_total_bytes=device.total,
        memory_limit_bytes=device.limit_bytes,
        gpu=device if gpu is not None else None,
        gpu_reserved_bytes=device.total - costs.GPU_CONTEXT_BYTES if gpu is not None else None,
        host=host,
        tokens_per_step=work.step_tokens * asked.config.said_processes,
        tokens_per_second=work.step_tokens * asked.config.said_processes / step,
        step_seconds=step,
        phases=tuple(_phase(lanes) for lanes in found),
        limited_by=limited_by,
        limits=(*advice(limited_by, placement, work), *_cost_of_twice(found, placement)),
        steps=steps,
        seconds=None if steps is None else steps * step,
        compiled_from_step=compiled_from_step(asked.config, step, on_gpu=gpu is not None),
        assumptions=_assumptions(asked, tokens_per_epoch),
    )


def _cost_of_twice(found: tuple[Lanes, ...], placement: Placement) -> tuple[str, ...]:
    # The updates of this phase would be done in the forward pass otherwise.
    again = sum(phase.compute for phase in found if phase.name == SECOND_BACKWARD)
    if not again:
        return ()
    step = sum(phase.seconds for phase in found)
    return (
        f"Computing the gradients of {placement.gradients_twice} layers twice takes {again:.2f} s of each "
        f"step ({again / step:.0%}); more host memory or a smaller optimizer.state avoids this.",
    )


def _sharded_answer(asked: PlanRequest, placement: Placement, tokens_per_epoch: EpochData) -> Plan:
    """The answer for a whole model in one process, with what differs when it is sharded."""
    on_device, on_host = sharded_bytes(asked, placement)
    found = sharded_phases(asked, placement)
    step = sum(phase.seconds for phase in found)
    limited_by = bottleneck(found, on_gpu=asked.gpu is not None)
    whole = _answer(asked, placement, tokens_per_epoch)
    device = _memory(on_device, asked.limits.host if asked.gpu is None else asked.limits.device)
    return whole.model_copy(
        update={
            "executor": "sharded",
            "compiled_from_step": None,
            "placement_text": sharded_sentence(asked, placement),
            "memory": device,
            "memory_total_bytes": device.total,
            "memory_limit_bytes": device.limit_bytes,
            "gpu": None if asked.gpu is None else device,
            "gpu_reserved_bytes": None if asked.gpu is None else device.total - costs.GPU_CONTEXT_BYTES,
            "host": device if asked.gpu is None else _memory(on_host, asked.limits.host),
            "tokens_per_second": whole.tokens_per_step / step,
            "step_seconds": step,
            "phases": tuple(_phase(lanes) for lanes in found),
            "limited_by": "the link between devices" if limited_by == "the CPU-GPU link" else limited_by,
            "limits": (
                (
                    "The devices wait for weights and gradients of other devices; a larger batch hides this "
                    "wait.",
                )
                if limited_by == "the CPU-GPU link"
                else advice(limited_by, placement, asked.timed.work)
            ),
            "seconds": None if whole.steps is None else whole.steps * step,
            "assumptions": (
                *whole.assumptions,
                *(("links between GPUs as fast as the CPU-GPU link",) if asked.gpu is not None else ()),
            ),
        }
    )


def _memory(found: Bytes, limit: int) -> Memory:
    return Memory(**found._asdict(), limit_bytes=limit)


def _phase(lanes: Lanes) -> Phase:
    return Phase(
        name=lanes.name, seconds=lanes.seconds, compute=lanes.compute, link=lanes.link, host=lanes.host
    )


def _assumptions(asked: PlanRequest, tokens_per_epoch: EpochData) -> tuple[str, ...]:
    known = [*asked.timed.rates.assumptions]
    if asked.config.backend != "engine":
        known.append(
            f"the same memory and time for {asked.config.backend} as for the engine with all tensors on the "
            "device"
        )
    there, used = len(asked.hardware.gpus), asked.config.said_processes
    if asked.gpu is not None and there > used:
        known.append(f"use of {used} of the {there} GPUs")
    if used > 1:
        known.append(f"little waiting among the {used} processes")
    if any(linear.copies > 1 for layer in asked.shape.layers for linear in layer.linears):
        known.append("equal load on all experts")
    if isinstance(tokens_per_epoch, CountedData):
        known.append(f"{tokens_per_epoch.tokens:,} training tokens, counted by the pre-flight")
    elif tokens_per_epoch is not None:
        known.append(f"{tokens_per_epoch:,} training tokens, estimated from file sizes")
    return tuple(known)


def processes_on(hardware: Hardware, config: TrainConfig, *, shape: DecoderShape | None = None) -> int:
    """One for each GPU unless somebody said otherwise; one on a CPU, where only a measurement knows better.

    Of a model that fits neither as copies nor divided among them there are fewer. ValueError when more GPUs
    were asked for than there are.
    """
    if config.cluster is not None:
        # Its nodes are not this machine; each is taken to be like it.
        return config.said_processes
    gpus = 0 if config.device == "cpu" else len(hardware.gpus)
    if isinstance(config.processes, int):
        if gpus and config.processes > gpus:
            raise InputError(
                "more_processes_than_gpus",
                f"processes is {config.processes}, but {hardware.name} has {gpus} "
                f"GPU{'' if gpus == 1 else 's'}: each process needs its own GPU.",
            )
        return config.processes
    if gpus < 2 or ":" in config.device or config.backend != "engine":
        return 1
    for count in range(gpus, 1, -1):
        try:
            asked = config.model_copy(update={"processes": count})
            plan(asked, share_of(hardware, count), shape=shape)
        except DoesNotFit:
            continue
        return count
    return 1


def plan_on(
    hardware: Hardware,
    config: TrainConfig,
    *,
    tokens_per_epoch: EpochData = None,
    shape: DecoderShape | None = None,
) -> Plan:
    """The plan of a run with as many processes as it has on this machine; raises like `plan`."""
    processes = processes_on(hardware, config, shape=shape)
    if processes != config.said_processes:
        config = config.model_copy(update={"processes": processes})
    return plan(
        config,
        share_of(hardware, 1 if config.cluster else processes),
        tokens_per_epoch=tokens_per_epoch,
        shape=shape,
    )


def share_of(hardware: Hardware, processes: int) -> Hardware:
    """What one of several processes on a machine may take of its memory and cores."""
    if processes == 1:
        return hardware
    return hardware.model_copy(
        update={
            "host_memory_bytes": hardware.host_memory_bytes // processes,
            "cpu_cores": max(1, hardware.cpu_cores // processes),
        }
    )
