"""Hardware: a machine as the planner sees it (detected or described in words), and how fast its parts are.

Detection asks the operating system and the driver, never torch, so that the server can plan. GPUs of a
described machine are known by name, with figures from data sheets; their memory is what a program can use, a
little less than what is printed on the box. `rates_of` takes measured rates where there are any, and assumes
the rest.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpubloom.errors import InputError
from gpubloom.plan import costs
from gpubloom.plan.optimizer_config import OptimizerState

GIBIBYTE = 2**30
# A GPU of unknown kind; low on purpose, so that a plan is rarely too hopeful.
ASSUMED_GPU_FLOPS = 50e12

# What one CPU core could do at best in fp32; replaced by a measurement when there is one.
ASSUMED_FLOPS_PER_CORE = 100e9
_UNITS = {"gb": GIBIBYTE, "gib": GIBIBYTE, "tb": 1024 * GIBIBYTE, "tib": 1024 * GIBIBYTE}
_HOST = re.compile(
    r"(?P<size>\d+(\.\d+)?)\s*(?P<unit>[GT]i?B)\s*(host|ram|memory)?(\s+memory)?", re.IGNORECASE
)
_CORES = re.compile(r"(?P<count>[1-9]\d*)\s*(cpu\s+)?cores?", re.IGNORECASE)
_GPUS = re.compile(
    r"((?P<count>[1-9]\d?)\s*[x×]\s*)?(?P<name>.*?[A-Za-z].*?)(\s+(?P<size>\d+(\.\d+)?)\s*GB)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class GpuKind:
    """Usable GiB; dense BF16 (or FP16) peak; host link one way; memory bandwidth."""

    gibibytes: float
    flops: float
    link: float
    bandwidth: float
    bf16: bool = True
    fp8: bool = False


_PCIE3, _PCIE4, _PCIE5 = 12.5e9, 25e9, 55e9

GPU_KINDS: dict[str, GpuKind] = {
    "B200": GpuKind(178.0, 2250e12, _PCIE5, 8.0e12, fp8=True),
    "H200": GpuKind(139.7, 989e12, _PCIE5, 4.8e12, fp8=True),
    "H100": GpuKind(79.1, 989e12, _PCIE5, 3.35e12, fp8=True),
    "H100 PCIe": GpuKind(79.1, 756e12, _PCIE5, 2.0e12, fp8=True),
    "A100": GpuKind(79.1, 312e12, _PCIE4, 2.0e12),
    "L40S": GpuKind(44.4, 362e12, _PCIE4, 0.86e12, fp8=True),
    "L40": GpuKind(44.4, 181e12, _PCIE4, 0.86e12, fp8=True),
    "A10G": GpuKind(22.0, 70e12, _PCIE4, 0.6e12),
    "A10": GpuKind(22.0, 125e12, _PCIE4, 0.6e12),
    "L4": GpuKind(22.0, 121e12, _PCIE4, 0.3e12, fp8=True),
    "V100": GpuKind(15.7, 125e12, _PCIE3, 0.9e12, bf16=False),
    "T4": GpuKind(14.6, 65e12, _PCIE3, 0.32e12, bf16=False),
    "RTX A6000": GpuKind(47.4, 155e12, _PCIE4, 0.77e12),
    "RTX A4000": GpuKind(15.6, 77e12, _PCIE4, 0.45e12),
    "RTX 6000 Ada": GpuKind(47.4, 182e12, _PCIE4, 0.96e12, fp8=True),
    "RTX 5090": GpuKind(31.3, 209e12, _PCIE5, 1.79e12, fp8=True),
    "RTX 4090": GpuKind(23.5, 165e12, _PCIE4, 1.0e12, fp8=True),
    "RTX 4080": GpuKind(15.6, 97e12, _PCIE4, 0.72e12, fp8=True),
    "RTX 4070": GpuKind(11.6, 58e12, _PCIE4, 0.5e12, fp8=True),
    "RTX 4060": GpuKind(7.6, 30e12, _PCIE3, 0.27e12, fp8=True),
    "RTX 3090": GpuKind(23.6, 71e12, _PCIE4, 0.94e12),
    "RTX 3080": GpuKind(9.6, 60e12, _PCIE4, 0.76e12),
    "RTX 3070": GpuKind(7.6, 40e12, _PCIE4, 0.45e12),
    "RTX 3060": GpuKind(11.6, 26e12, _PCIE4, 0.36e12),
}
_UNKNOWN = GpuKind(0.0, ASSUMED_GPU_FLOPS, _PCIE3, 0.3e12, fp8=True)


def kind_of(name: str) -> GpuKind | None:
    """What is known of a GPU of this name."""
    # Longer names first: an A100 is no A10.
    for part in sorted(GPU_KINDS, key=len, reverse=True):
        if part.casefold() in name.casefold():
            return GPU_KINDS[part]
    return None


def assumed_kind(name: str) -> GpuKind:
    """The same, with cautious figures for one that is not known."""
    return kind_of(name) or _UNKNOWN


def peak_flops(name: str) -> float:
    return assumed_kind(name).flops


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Described):
    """One accelerator."""

    name: str
    memory_bytes: int = Field(gt=0)
    flops: float = Field(
        ASSUMED_GPU_FLOPS, gt=0, description="Peak operations per second in the training precision."
    )
    bf16: bool = True


class Calibration(_Described):
    """Speeds measured on the machine, in bytes and operations per second; missing ones are assumed."""

    link_h2d: float | None = Field(
        None, gt=0, description="Transfer speed from host to GPU, in one direction at a time."
    )
    link_d2h: float | None = Field(
        None, gt=0, description="Transfer speed from GPU to host, in one direction at a time."
    )
    link_duplex: float | None = Field(
        None, gt=0, description="Transfer speed per direction, with both directions at once."
    )
    matrix_flops: float | None = Field(
        None, gt=0, description="Speed of a large bf16 matrix product on the GPU."
    )
    device_memory_bytes_per_s: float | None = Field(None, gt=0)
    host_adam_bytes_per_s: float | None = Field(
        None, gt=0, description="Speed of the host optimizer with moments in FP32, in bytes that it moves."
    )
    host_adam_bf16_bytes_per_s: float | None = Field(
        None, gt=0, description="Speed of the host optimizer with moments in bf16."
    )
    host_adam_8bit_bytes_per_s: float | None = Field(
        None, gt=0, description="Speed of the host optimizer with moments in 8 bits."
    )
    link_during_adam: float | None = Field(
        None,
        gt=0,
        description="Transfer speed per direction, with both directions at once, while the host "
        "optimizer runs.",
    )
    host_memory_bytes_per_s: float | None = Field(
        None,
        gt=0,
        description="Total speed of the host optimizer and the transfers when both run at full speed.",
    )
    cpu_layer_seconds: float | None = Field(
        None, gt=0, description="What one layer of a step costs on a CPU, however small it is."
    )
    cpu_step_seconds: float | None = Field(
        None, gt=0, description="What a step costs on a CPU, however small the model is."
    )
    cpu_value_seconds: float | None = Field(
        None,
        gt=0,
        description="What one value of a layer's working set costs on a CPU beside the matrix products.",
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_the_former_name(cls, fields: Any) -> Any:
        """Descriptions written before version 0.2 say link_beside_adam."""
        if isinstance(fields, dict) and "link_beside_adam" in fields:
            fields = dict(fields)
            fields["link_during_adam"] = fields.pop("link_beside_adam")
        return fields


class Hardware(_Described):
    """One machine."""

    name: str = "this machine"
    host_memory_bytes: int = Field(gt=0)
    cpu_cores: int = Field(gt=0)
    cpu_flops: float | None = Field(
        None, gt=0, description="Operations per second of all cores together; assumed if missing."
    )
    cpu_bf16: bool = Field(False, description="Whether the CPU has instructions for bf16 matrix products.")
    gpus: tuple[Gpu, ...] = ()
    calibration: Calibration = Calibration()

    @property
    def assumed_cpu_flops(self) -> float:
        return self.cpu_flops or self.cpu_cores * ASSUMED_FLOPS_PER_CORE

    @classmethod
    def parse(cls, description: str) -> "Hardware":
        """A machine in words: "H200, 1536 GB host", "2x RTX 3060, 64 GB host, 8 cores", "32 GB host".

        Memory is counted as it is sold: a GB of a module or a card has 2^30 bytes.
        """
        gpus: tuple[Gpu, ...] = ()
        host: int | None = None
        cores: int | None = None
        for part in filter(None, (piece.strip() for piece in description.split(","))):
            if match := _HOST.fullmatch(part):
                host = int(float(match["size"]) * _UNITS[match["unit"].casefold()])
            elif match := _CORES.fullmatch(part):
                cores = int(match["count"])
            elif match := _GPUS.fullmatch(part):
                gpus += (_described_gpu(match["name"], match["size"], part),) * int(match["count"] or 1)
        if host is None:
            raise InputError(
                "machine_without_memory",
                f"The description {description!r} has no host memory: "
                "write it like 'H200, 1536 GB host' or '2x RTX 3060, 64 GB host, 8 cores'.",
            )
        # Machines with a GPU usually have at least 16 cores for it.
        return cls(
            name=description, host_memory_bytes=host, cpu_cores=cores or (16 if gpus else 8), gpus=gpus
        )


def detect_hardware() -> Hardware:
    """This machine, as far as it can be seen without touching the GPU."""
    return Hardware(
        name=platform.node() or "this machine",
        host_memory_bytes=_host_memory_bytes(),
        cpu_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        cpu_bf16=_cpu_has_bf16(),
        gpus=_gpus(),
    )


def _described_gpu(name: str, size: str | None, part: str) -> Gpu:
    kind = kind_of(name)
    if kind is None and size is None:
        raise InputError(
            "unknown_gpu",
            f"{part!r} is not a known GPU ({', '.join(GPU_KINDS)}); add its memory, such as 'My GPU 16 GB'.",
        )
    known = assumed_kind(name)
    # What the driver takes from the size on the box.
    memory = known.gibibytes * GIBIBYTE if size is None else float(size) * 0.985 * GIBIBYTE
    return Gpu(name=name, memory_bytes=int(memory), flops=known.flops, bf16=known.bf16)


def _host_memory_bytes() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # In a container the machine's memory is not ours to use; the control group's limit is.
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(text)) if text.isdigit() else physical


def _cpu_has_bf16() -> bool:
    # Only what was measured to be faster: ARM's processors name theirs otherwise.
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = re.search(r"^flags\s*:(.*)$", facts, re.MULTILINE)
    return flags is not None and not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags[1].split())


def _gpus() -> tuple[Gpu, ...]:
    # Loaded here: a plan for a described machine needs no TrainCard.
    from gpubloom.traincard.nvml import opened_nvml

    with opened_nvml() as nvml:
        if nvml is None:
            return ()
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            major, _minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
            name = nvml.nvmlDeviceGetName(handle)
            found.append(
                Gpu(name=str(name), memory_bytes=int(memory), flops=peak_flops(str(name)), bf16=major >= 8)
            )
        return tuple(found)


@dataclass(frozen=True)
class Rates:
    """Bytes and operations per second. A CPU that trains alone has no link."""

    matrix: float
    memory: float
    link_up: float
    link_down: float
    link_both: float
    # Each way, both at once, while the host optimizer works beside.
    link_during_updates: float
    host_adam: float
    # What link and host optimizer can move together.
    host_memory: float
    assumptions: tuple[str, ...]
    # On a CPU that trains: what a layer and a step cost, however small they are, and one value of a layer.
    cpu_layer: float = 0.0
    cpu_step: float = 0.0
    cpu_value: float = 0.0


def rates_of(
    hardware: Hardware, gpu: Gpu | None, precision: str, optimizer_state: OptimizerState = "fp32"
) -> Rates:
    """The rates that a plan rests on, and in words which of them are assumed."""
    measured = hardware.calibration
    cores = hardware.cpu_cores
    adam = measured.host_adam_bytes_per_s or min(
        cores * costs.ADAM_BYTES_PER_SECOND_PER_CORE, costs.ADAM_BYTES_PER_SECOND_AT_MOST
    )
    adam_of: dict[OptimizerState, float] = {
        "fp32": adam,
        "bf16": measured.host_adam_bf16_bytes_per_s or adam * costs.BF16_STATE_RATE,
        "8bit": measured.host_adam_8bit_bytes_per_s or adam * costs.EIGHT_BIT_STATE_RATE,
    }
    if gpu is None:
        fast = precision == "bf16" and hardware.cpu_bf16
        flops = hardware.assumed_cpu_flops * (costs.CPU_BF16_OVER_FP32 if fast else 1.0)
        speed = (
            f"{flops / 1e9:.0f} GFLOP/s for {cores} CPU cores, which were not measured: all times are rough "
            "(to measure, run: bloom plan --measure)"
        )
        layer, value = costs.CPU_LAYER_SECONDS, costs.CPU_VALUE_SECONDS
        if cores > 1:
            layer, value = layer * costs.CPU_LAYER_WITH_THREADS, value * costs.CPU_VALUE_WITH_THREADS
        return Rates(
            *(flops, adam, adam, adam, adam, adam, adam_of[optimizer_state], adam),
            assumptions=() if hardware.cpu_flops else (speed,),
            cpu_layer=measured.cpu_layer_seconds or layer,
            cpu_step=measured.cpu_step_seconds or costs.CPU_STEP_SECONDS,
            cpu_value=measured.cpu_value_seconds or value,
        )
    kind = assumed_kind(gpu.name)
    # A peak given by hand counts more than the data sheet's.
    matrix = measured.matrix_flops or gpu.flops * costs.MATRIX_OVER_PEAK
    if precision == "fp8":
        matrix *= costs.FP8_OVER_BF16
    up = measured.link_h2d or kind.link
    down = measured.link_d2h or kind.link
    both = measured.link_duplex or min(up, down) * costs.DUPLEX_OVER_ONE_WAY
    during_updates = min(both, measured.link_during_adam or both * costs.LINK_DURING_UPDATES)
    host_memory = max(adam, measured.host_memory_bytes_per_s or adam * costs.HOST_MEMORY_OVER_ADAM)
    memory = measured.device_memory_bytes_per_s or kind.bandwidth
    assumed = []
    if measured.matrix_flops is None:
        assumed.append(f"{matrix / 1e12:.0f} TFLOP/s for {gpu.name}")
    if measured.link_h2d is None:
        assumed.append(f"{up / 1e9:.0f} GB/s between host and GPU")
    if measured.host_adam_bytes_per_s is None:
        assumed.append(f"{adam / 1e9:.0f} GB/s for the optimizer on {cores} CPU cores")
    factor = costs.FP32_OVER_BF16 if precision == "fp32" else 1.0
    return Rates(
        *(matrix * factor, memory, up, down, both, during_updates, adam_of[optimizer_state], host_memory),
        assumptions=tuple(assumed),
    )
