"""A machine as the planner sees it: detected here, or described by hand for a machine one does not have.

Detection asks the operating system and the driver, never torch, so that the service tower can plan.
"""

import os
import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

# What one CPU core could do at best in fp32; replaced by a measurement when there is one.
ASSUMED_FLOPS_PER_CORE = 100e9
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
            found.append(Gpu(name=str(name), memory_bytes=int(memory), bf16=major >= 8))
        return tuple(found)
    finally:
        pynvml.nvmlShutdown()
