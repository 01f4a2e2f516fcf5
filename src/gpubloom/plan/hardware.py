"""A machine as the planner sees it: detected here, or described by hand for a machine one does not have.

Detection asks the operating system and the driver, never torch, so that the service tower can plan.
"""

import os
import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

# What one CPU core could do at best in fp32; replaced by a measurement when there is one.
ASSUMED_FLOPS_PER_CORE = 100e9
# Dense matrix products in the precision of training, by a part of the GPU's name, from data sheets.
PEAK_GPU_FLOPS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "A10G": 70e12,
    "A10": 125e12,
    "L4": 121e12,
    "V100": 125e12,
    "T4": 65e12,
    "RTX 5090": 209e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "RTX 3060": 26e12,
}
# The same for a GPU of unknown kind; low on purpose, so that a plan is rarely too hopeful.
ASSUMED_GPU_FLOPS = 50e12


class _Described(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Described):
    """One accelerator."""

    name: str
    memory_bytes: int = Field(gt=0)
    flops: float = Field(ASSUMED_GPU_FLOPS, gt=0, description="Peak, in the precision of training.")
    bf16: bool = True


class Hardware(_Described):
    """One machine."""

    name: str = "this machine"
    host_memory_bytes: int = Field(gt=0)
    cpu_cores: int = Field(gt=0)
    cpu_flops: float | None = Field(None, gt=0, description="All cores together; assumed when missing.")
    gpus: tuple[Gpu, ...] = ()

    @property
    def assumed_cpu_flops(self) -> float:
        return self.cpu_flops or self.cpu_cores * ASSUMED_FLOPS_PER_CORE


def detect_hardware() -> Hardware:
    """This machine, as far as it can be seen without touching the GPU."""
    return Hardware(
        name=platform.node() or "this machine",
        host_memory_bytes=_host_memory_bytes(),
        cpu_cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        gpus=_gpus(),
    )


def peak_flops(name: str) -> float:
    """What a GPU of this name does at best; a cautious figure for one that is not known."""
    # Longer names first: an A100 is no A10.
    for part in sorted(PEAK_GPU_FLOPS, key=len, reverse=True):
        if part.casefold() in name.casefold():
            return PEAK_GPU_FLOPS[part]
    return ASSUMED_GPU_FLOPS


def _host_memory_bytes() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # In a container the machine's memory is not ours to use; the control group's limit is.
    limit = Path("/sys/fs/cgroup/memory.max")
    try:
        text = limit.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(text)) if text.isdigit() else physical


def _gpus() -> tuple[Gpu, ...]:
    try:
        import pynvml
    except ModuleNotFoundError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, _minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total
            name = pynvml.nvmlDeviceGetName(handle)
            found.append(
                Gpu(name=str(name), memory_bytes=int(memory), flops=peak_flops(str(name)), bf16=major >= 8)
            )
        return tuple(found)
    finally:
        pynvml.nvmlShutdown()
