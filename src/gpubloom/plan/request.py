"""What is asked of which machine, in numbers: the work of a step, the machine's rates and its memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import costs
from gpubloom.plan.config import TrainConfig
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import read_decoder
from gpubloom.plan.hardware import Gpu, Hardware, assumed_kind, rates_of
from gpubloom.plan.rope import must_reach, scaled_settings
from gpubloom.plan.search import MemoryLimits
from gpubloom.plan.workload import Timed, Work

Precision = Literal["fp32", "bf16", "fp16", "fp8"]


@dataclass(frozen=True)
class PlanRequest:
    """A config on a machine."""

    config: TrainConfig
    hardware: Hardware
    shape: DecoderShape
    gpu: Gpu | None
    precision: Precision
    precision_reason: str
    timed: Timed
    limits: MemoryLimits
    # Whether there are weights to adapt, or a size to judge, beside the presets.
    brings_weights: bool

    @classmethod
    def of(cls, config: TrainConfig, hardware: Hardware, shape: DecoderShape | None) -> "PlanRequest":
        brings_weights = shape is not None or config.model.path is not None
        shape = shape or shape_of(config)
        gpu = _chosen_gpu(config, hardware)
        precision, reason = choose_precision(config.precision, gpu, hardware, shape)
        rates = rates_of(hardware, gpu, precision, config.optimizer.state)
        timed = Timed(_work(config, shape, gpu, precision), rates)
        limits = _limits(config, hardware, gpu)
        return cls(config, hardware, shape, gpu, precision, reason, timed, limits, brings_weights)


def shape_of(config: TrainConfig) -> DecoderShape:
    """The shape of the model that a config asks for; reads the config.json of a model folder."""
    if config.model.path is None:
        return config.model.shape(_vocab_size(config)).decoder()
    shape = read_decoder(Path(config.model.path))
    model = config.model.model_copy(update={"context_length": config.context_length})
    must_reach(model, shape.max_positions, is_table=shape.positions_end)
    # Says what is wrong with a scaling before a run is started with it.
    scaled_settings(read_json(Path(config.model.path) / "config.json"), model)
    return shape


def choose_precision(
    wanted: str, gpu: Gpu | None, hardware: Hardware, shape: DecoderShape
) -> tuple[Precision, str]:
    """The precision of computing, and why."""
    match wanted:
        case "fp32" | "bf16" | "fp16":
            return wanted, f"{wanted}: set in the config"
        case "fp8":
            if gpu is None or not assumed_kind(gpu.name).fp8:
                raise refused_fp8("a CPU" if gpu is None else gpu.name)
            return "fp8", "fp8: set in the config"
    if gpu is None:
        if hardware.cpu_bf16 and shape.hidden_size >= costs.CPU_BF16_WIDTH:
            return "bf16", "bf16: this CPU has bf16 instructions; master weights stay in fp32"
        return "fp32", "fp32: on this CPU, lower precision is not faster"
    if gpu.bf16:
        return "bf16", f"bf16: {gpu.name} supports it"
    return "fp16", f"fp16 with loss scaling: {gpu.name} does not support bf16"


def refused_fp8(device: str) -> InputError:
    return InputError(
        "precision_not_supported",
        "Precision fp8 needs a GPU of the Ada or Hopper generation (such as RTX 4090 or H100) or newer, and "
        f"this run would use {device}: use precision auto.",
    )


def _work(config: TrainConfig, shape: DecoderShape, gpu: Gpu | None, precision: Precision) -> Work:
    work = Work(
        shape=shape,
        rows=config.batch_size,
        length=config.context_length,
        accumulation=config.accumulation,
        compute_bytes=4 if precision == "fp32" else 2,
        method=config.method,
        rank=config.lora.rank,
        targets=config.lora.targets,
        on_gpu=gpu is not None,
        compiled=config.compile == "on" or (config.compile == "auto" and gpu is not None),
        dropout=config.lora.dropout > 0,
        packed=config.data.kind == "examples" and config.data.packing,
        optimizer=config.optimizer.name,
        optimizer_state=config.optimizer.state,
        bf16=precision in ("bf16", "fp8"),
    )
    if not work.full and not max(work.trained):
        known = sorted({linear.name for layer in shape.layers for linear in layer.linears})
        raise InputError(
            "unknown_lora_target",
            f"lora.targets contains no linear layer of this model; use all-linear, or some of "
            f"{', '.join(known)}.",
        )
    return work


def _limits(config: TrainConfig, hardware: Hardware, gpu: Gpu | None) -> MemoryLimits:
    """Bytes that the run may use: what is asked for, within what there is."""
    host = hardware.host_memory_bytes
    host -= min(int(host * costs.HOST_RESERVE_FRACTION), costs.HOST_RESERVE_AT_MOST_BYTES)
    device = host if gpu is None else int(gpu.memory_bytes * costs.USABLE_GPU_FRACTION)
    if gpu is not None and config.memory.gpu_budget_gb is not None:
        device = min(device, int(config.memory.gpu_budget_gb * costs.GIGABYTE))
    if config.memory.host_budget_gb is not None:
        host = min(host, int(config.memory.host_budget_gb * costs.GIGABYTE))
    return MemoryLimits(device=device, host=host)


def _vocab_size(config: TrainConfig) -> int:
    # A tokenizer file is not opened here: its size hardly moves a plan.
    return 257 if config.data.tokenizer.kind == "bytes" else config.data.tokenizer.vocab_size


def _chosen_gpu(config: TrainConfig, hardware: Hardware) -> Gpu | None:
    if config.device == "cpu" or (config.device == "auto" and not hardware.gpus):
        return None
    index = int(config.device.partition(":")[2] or 0)
    if index >= len(hardware.gpus):
        raise InputError(
            "device_not_found",
            f"The config asks for device {config.device}, but the number of usable GPUs of "
            f"{hardware.name} is {len(hardware.gpus)}.",
        )
    return hardware.gpus[index]
