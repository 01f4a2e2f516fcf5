"""Says no in one sentence, with the nearest setting that fits."""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from gpubloom.errors import InputError
from gpubloom.plan import costs
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.hardware import Hardware
from gpubloom.plan.memory import Bytes
from gpubloom.plan.model_config import ModelConfig
from gpubloom.plan.optimizer_config import OptimizerConfig, OptimizerState
from gpubloom.plan.request import PlanRequest
from gpubloom.plan.search import Need, least_need, possible, search_twice
from gpubloom.plan.shapes import PRESETS
from gpubloom.plan.sharded import least_sharded, may_shard, search_sharded

# Field by its path to its new value.
Changes = dict[str, Any]

# Shorter rows than this are not worth training on.
_SHORTEST_ROW = 128


class LeastMemory(NamedTuple):
    """What a run needs of one memory at least, and what there is of it in bytes."""

    needed: Bytes
    limit: int


class DoesNotFit(InputError):
    """A run that the machine cannot hold; `nearest` is the same run with the change that makes it fit.

    `gpu` and `host`: what it needs of each memory at least; None for the GPU of a run on the CPU.
    """

    def __init__(
        self, sentence: str, nearest: TrainConfig | None, *, gpu: LeastMemory | None, host: LeastMemory
    ) -> None:
        super().__init__("does_not_fit", sentence)
        self.nearest = nearest
        self.gpu = gpu
        self.host = host


def refuse(asked: PlanRequest) -> DoesNotFit:
    """What is short, by how much, and what would fit."""
    need = least_need(asked.timed, asked.limits, asked.config.memory.mode)
    sharded = asked.config.executor == "sharded"
    sentence = _shortage_of_each(asked) if sharded else _shortage(asked, need)
    gpu, host = _memories(asked, need)
    for changes in fitting_changes(asked, need):
        more = _machine(asked, need) if "method" in changes else ""
        words = f"{sentence}. This run would fit with {_words(changes)}{more}."
        return DoesNotFit(words, changed(asked.config, changes), gpu=gpu, host=host)
    weights = need.weights + need.gradients + need.optimizer
    return DoesNotFit(
        f"{sentence}, including {_gigabytes(weights)} for weights and optimizer state. "
        f"Choose a smaller model{_machine(asked, need)}.",
        None,
        gpu=gpu,
        host=host,
    )


def _memories(asked: PlanRequest, need: Need) -> tuple[LeastMemory | None, LeastMemory]:
    """GPU and host; of a sharded run those of each process."""
    on_device, on_host = need.on_device, need.on_host
    if asked.config.executor == "sharded":
        on_device, on_host = least_sharded(asked)
        if asked.gpu is None:
            on_host = on_device.plus(on_host)
    host = LeastMemory(on_host, asked.limits.host)
    return None if asked.gpu is None else LeastMemory(on_device, asked.limits.device), host


def fitting_changes(asked: PlanRequest, need: Need | None = None) -> Iterator[Changes]:
    """Changes with which the run fits, from the smallest to the largest."""
    need = need or least_need(asked.timed, asked.limits, asked.config.memory.mode)
    for changes in _changes(asked, need):
        nearest = changed(asked.config, changes)
        if nearest is not None and _fits(asked, nearest):
            yield changes


def _shortage(asked: PlanRequest, need: Need) -> str:
    if asked.gpu is None:
        where, has = f"The host memory of {asked.hardware.name}", asked.hardware.host_memory_bytes
        if asked.limits.host < has * 0.9:
            where, has = "The host memory limit", asked.limits.host
        return f"{where} is {_gigabytes(has)}, but this run on the CPU needs {_gigabytes(need.host)}"
    if need.device > asked.limits.device:
        budget = asked.config.memory.gpu_budget_gb
        limited = budget is not None and need.device > budget * 1e9
        where = "The GPU memory limit is" if limited else f"The usable memory of {asked.gpu.name} is"
        return (
            f"{where} {_gigabytes(asked.limits.device)}, but this run needs {_gigabytes(need.device)} of GPU "
            "memory"
        )
    return (
        f"The usable host memory is {_gigabytes(asked.limits.host)}, "
        f"but this run needs {_gigabytes(need.host)}"
    )


def _shortage_of_each(asked: PlanRequest) -> str:
    device, _ = least_sharded(asked)
    limit = asked.limits.host if asked.gpu is None else asked.limits.device
    devices = asked.config.said_processes
    return (
        f"Sharded across {devices} process{'' if devices == 1 else 'es'}, this run needs "
        f"{_gigabytes(device.total)} of memory per process, but each process can use {_gigabytes(limit)}"
    )


def _changes(asked: PlanRequest, need: Need) -> Iterator[Changes]:
    """Changes from the smallest to the largest."""
    config = asked.config
    if config.executor == "sharded":
        yield {"executor": "auto"}
    gpus = len(asked.hardware.gpus)
    if asked.gpu is not None and config.executor != "block" and config.said_processes < gpus:
        # With all GPUs the model may be sharded among more of them.
        yield {"processes": gpus}
    bases: list[Changes] = [{}]
    if config.memory.mode == "resident" and asked.gpu is not None:
        bases.append({"memory.mode": "auto"})
    for base in bases:
        if base:
            yield base
        if (batch := _largest_batch(asked, base)) is not None:
            yield {**base, "batch_size": batch}
        if not base:
            yield from _budgets(asked, need)
        if config.method == "full" and asked.gpu is not None and config.memory.gradients == "once":
            yield {**base, "memory.gradients": "twice"}
        yield from _smaller_states(asked, base)
        yield from ({**base, **shorter} for shorter in _shorter(config))
    if asked.brings_weights and config.method != "qlora":
        for method in ("lora", "qlora") if config.method == "full" else ("qlora",):
            frozen = {**bases[-1], "method": method}
            yield frozen
            yield {**frozen, "batch_size": 1}
            yield from ({**frozen, **shorter} for shorter in _shorter(config))
    if config.model == ModelConfig(preset=config.model.preset) and not asked.brings_weights:
        size = asked.shape.parameters
        smaller = [name for name, shape in PRESETS.items() if shape.parameters < size]
        yield from ({"model.preset": name} for name in reversed(smaller) if name != config.model.preset)


def _smaller_states(asked: PlanRequest, base: Changes) -> Iterator[Changes]:
    """Optimizers that keep less of each weight; of adapters there is hardly anything to keep."""
    config = asked.config
    if config.method != "full" or config.backend != "engine":
        return
    states = [{"optimizer.state": state} for state in smaller_states(config.optimizer)]
    for smaller in (*states, *smaller_optimizers(config.optimizer)):
        state = {**base, **smaller}
        yield state
        if (batch := _largest_batch(asked, state)) is not None:
            yield {**state, "batch_size": batch}


def smaller_states(optimizer: OptimizerConfig) -> tuple[str, ...]:
    """Number formats of AdamW's moments that take less memory, the most precise first."""
    states: tuple[str, ...] = get_args(OptimizerState)
    return states[states.index(optimizer.state) + 1 :] if optimizer.name == "adamw" else ()


def smaller_optimizers(optimizer: OptimizerConfig) -> Iterator[Changes]:
    """Muon's gradients wait on the GPU, AdamW's on the host."""
    names = {"muon": ("adamw", "adafactor"), "adamw": ("adafactor",), "adafactor": ()}
    for name in names[optimizer.name]:
        # What the other optimizer does not use must not be said.
        kept = {"weight_decay", "clip_norm"} | ({"beta1", "beta2", "eps"} if name == "adamw" else set())
        other = OptimizerConfig.model_validate({"name": name, **optimizer.model_dump(include=kept)})
        differs = {
            field for field in type(other).model_fields if getattr(other, field) != getattr(optimizer, field)
        }
        yield {f"optimizer.{field}": getattr(other, field) for field in ["name", *sorted(differs - {"name"})]}


def _shorter(config: TrainConfig) -> Iterator[Changes]:
    length = config.context_length // 2
    while length >= _SHORTEST_ROW:
        yield {"model.context_length": length, "batch_size": 1}
        length //= 2


def _budgets(asked: PlanRequest, need: Need) -> Iterator[Changes]:
    memory, raised = asked.config.memory, {}
    if memory.gpu_budget_gb is not None and need.device > asked.limits.device:
        raised["memory.gpu_budget_gb"] = _rounded_up(need.device)
    if memory.host_budget_gb is not None and need.host > asked.limits.host:
        raised["memory.host_budget_gb"] = _rounded_up(need.host)
    if raised:
        yield raised


def _largest_batch(asked: PlanRequest, base: Changes) -> int | None:
    config = changed(asked.config, base)
    low, high = 0, asked.config.batch_size - 1
    while low < high and config is not None:
        middle = (low + high + 1) // 2
        if _fits(asked, config.model_copy(update={"batch_size": middle})):
            low = middle
        else:
            high = middle - 1
    return low or None


def _words(changes: Changes) -> str:
    first, *more = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in changes.items()
    ]
    return f"{first} and {' and '.join(more)}" if more else first


def _fits(asked: PlanRequest, config: TrainConfig) -> bool:
    return can_run(config, asked.hardware, asked.shape if asked.brings_weights else None)


def can_run(config: TrainConfig, hardware: Hardware, shape: DecoderShape | None) -> bool:
    """Whether there is a plan, without looking for the fastest."""
    try:
        trial = PlanRequest.of(config, hardware, shape)
    except ValueError:
        return False
    mode = config.memory.mode
    if config.executor != "sharded":
        if possible(trial.timed, trial.limits, mode):
            return True
        if config.memory.gradients == "twice" and search_twice(trial.timed, trial.limits, mode) is not None:
            return True
    return may_shard(config) and search_sharded(trial) is not None


def changed(config: TrainConfig, changes: Changes) -> TrainConfig | None:
    """The config with these values; None where they are not valid together."""
    fields = config.model_dump()
    for name, value in changes.items():
        part, _, field = name.rpartition(".")
        (fields[part] if part else fields)[field] = value
    try:
        return TrainConfig.model_validate(fields)
    except ValueError:
        return None


def _machine(asked: PlanRequest, need: Need) -> str:
    """The machine that would do, when it is the host's memory that is short."""
    if asked.gpu is None or need.device > asked.limits.device:
        return ""
    host = need.host + costs.HOST_RESERVE_AT_MOST_BYTES
    return f", or a machine with {-(-host // 2**30):,} GiB of host memory"


def _rounded_up(count: int) -> float:
    return -(-count // 100_000_000) / 10


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
