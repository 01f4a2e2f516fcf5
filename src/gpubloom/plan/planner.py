"""plan(): does it fit, how much memory of which kind, how long. Pure arithmetic over config and machine.

First version: everything resident on one device. Figures that rest on an assumption say so.
"""

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gpubloom.plan.config import TrainConfig
from gpubloom.plan.hardware import Gpu, Hardware
from gpubloom.plan.shapes import ModelShape

# A process with torch loaded, before any model; on a GPU its context and workspaces.
_HOST_OVERHEAD_BYTES = 500_000_000
_GPU_OVERHEAD_BYTES = 800_000_000
# The part of the peak that training reaches; measured with the tiny preset on two cores, and usual on GPUs.
_UTILIZATION = 0.4


Precision = Literal["fp32", "bf16", "fp16"]


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True)


class Memory(_Result):
    """Peak bytes by kind, all on the training device."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    overhead: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.overhead


class Plan(_Result):
    """The answer, stored with the run as plan.json."""

    version: Literal[1] = 1
    device: str
    placement: Literal["resident"] = "resident"
    precision: Precision
    precision_reason: str
    parameters: int
    memory: Memory
    memory_total_bytes: int
    memory_limit_bytes: int
    tokens_per_step: int
    tokens_per_second: float
    steps: int | None
    seconds: float | None
    assumptions: tuple[str, ...]


def plan(config: TrainConfig, hardware: Hardware, *, tokens_per_epoch: int | None = None) -> Plan:
    """Predicts a resident run; raises ValueError naming the limit when it cannot fit."""
    gpu = _chosen_gpu(config, hardware)
    precision, reason = choose_precision(config.precision, gpu)
    shape = config.model.shape(_vocab_size(config))
    memory = predict_memory(shape, config.batch_size, precision, on_gpu=gpu is not None)
    limit = gpu.memory_bytes if gpu else hardware.host_memory_bytes
    where = gpu.name if gpu else f"{hardware.name} (CPU)"
    if memory.total > limit:
        raise ValueError(_refusal(config, shape, memory, limit, where, precision, gpu))

    flops = gpu.flops if gpu else hardware.assumed_cpu_flops
    tokens_per_second = flops * _UTILIZATION / shape.flops_per_token
    tokens_per_step = config.batch_size * config.accumulation * shape.context_length
    steps = count_steps(config, shape.context_length, tokens_per_epoch)
    return Plan(
        device="cpu" if gpu is None else "cuda",
        precision=precision,
        precision_reason=reason,
        parameters=shape.parameters,
        memory=memory,
        memory_total_bytes=memory.total,
        memory_limit_bytes=limit,
        tokens_per_step=tokens_per_step,
        tokens_per_second=tokens_per_second,
        steps=steps,
        seconds=None if steps is None else steps * tokens_per_step / tokens_per_second,
        assumptions=_assumptions(gpu, hardware, tokens_per_epoch),
    )


def choose_precision(wanted: str, gpu: Gpu | None) -> tuple[Precision, str]:
    """The precision of computing, and why."""
    if wanted == "fp32":
        return "fp32", "fp32: asked for"
    if wanted == "bf16":
        return "bf16", "bf16: asked for"
    if wanted == "fp16":
        return "fp16", "fp16: asked for"
    if gpu is None:
        return "fp32", "fp32: a CPU computes it exactly and about as fast"
    if gpu.bf16:
        return "bf16", f"bf16: {gpu.name} supports it"
    return "fp32", f"fp32: {gpu.name} has no bf16"


def predict_memory(shape: ModelShape, batch_size: int, precision: str, *, on_gpu: bool) -> Memory:
    """Peak bytes of one micro-batch with nothing recomputed."""
    compute_bytes = 4 if precision == "fp32" else 2
    # Autocast keeps a second copy of each weight in the precision of computing.
    weight_bytes = 4 if precision == "fp32" else 4 + compute_bytes
    rows = batch_size * shape.context_length
    kv_size = shape.kv_heads * shape.head_size
    saved_per_layer = 8 * shape.hidden_size + 4 * kv_size + 4 * shape.ffn_size
    activations = rows * (shape.layers * saved_per_layer + 4 * shape.hidden_size) * compute_bytes
    logits = rows * shape.vocab_size * (compute_bytes + 3 * 4)
    return Memory(
        weights=shape.parameters * weight_bytes,
        gradients=shape.parameters * 4,
        optimizer=shape.parameters * 8,
        activations=activations + logits,
        overhead=_GPU_OVERHEAD_BYTES if on_gpu else _HOST_OVERHEAD_BYTES,
    )


def count_steps(config: TrainConfig, context_length: int, tokens_per_epoch: int | None) -> int | None:
    """Optimizer steps of the whole run, as the loader counts them; None when the data is not known."""
    if tokens_per_epoch is None:
        return config.max_steps
    windows = max(1, (tokens_per_epoch - 1) // context_length)
    steps = config.epochs * math.ceil(windows / (config.batch_size * config.accumulation))
    return min(steps, config.max_steps or steps)


def _vocab_size(config: TrainConfig) -> int:
    # A tokenizer file is not opened here: its size hardly moves a plan, and planning reads no files.
    return 257 if config.data.tokenizer.kind == "bytes" else config.data.tokenizer.vocab_size


def _chosen_gpu(config: TrainConfig, hardware: Hardware) -> Gpu | None:
    if config.device == "cpu" or (config.device == "auto" and not hardware.gpus):
        return None
    index = int(config.device.partition(":")[2] or 0)
    if index >= len(hardware.gpus):
        raise ValueError(
            f"device {config.device} was asked for, but {hardware.name} has {len(hardware.gpus)} usable GPUs."
        )
    return hardware.gpus[index]


def _refusal(
    config: TrainConfig,
    shape: ModelShape,
    memory: Memory,
    limit: int,
    where: str,
    precision: str,
    gpu: Gpu | None,
) -> str:
    sentence = f"{where} has {_gigabytes(limit)} of memory, and this run needs {_gigabytes(memory.total)}"
    batch = config.batch_size // 2
    while batch:
        smaller = predict_memory(shape, batch, precision, on_gpu=gpu is not None)
        if smaller.total <= limit:
            return f"{sentence}; batch_size {batch} would fit."
        batch //= 2
    state = memory.weights + memory.gradients + memory.optimizer
    return f"{sentence}, {_gigabytes(state)} of it for weights and optimizer state: choose a smaller model."


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def _assumptions(gpu: Gpu | None, hardware: Hardware, tokens_per_epoch: int | None) -> tuple[str, ...]:
    speed = (
        f"{gpu.flops / 1e12:.0f} TFLOP/s for {gpu.name}"
        if gpu
        else f"{hardware.assumed_cpu_flops / 1e9:.0f} GFLOP/s for {hardware.cpu_cores} CPU cores"
    )
    known = () if tokens_per_epoch is None else (f"{tokens_per_epoch:,} training tokens, from file sizes",)
    return (speed, *known)
