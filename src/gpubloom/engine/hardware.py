"""Where and in which precision this process computes, with the reason for each choice."""

import os
from dataclasses import dataclass
from typing import Literal

import torch

from gpubloom.errors import InputError
from gpubloom.plan import Hardware
from gpubloom.plan.request import Precision, refused_fp8

# Ada; Hopper is 9.0.
_FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class Compute:
    """A device and a precision. Weights are FP32 in any case."""

    device: torch.device
    precision: Precision
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """Of all that is not a product in fp8."""
        return {"fp32": torch.float32, "fp16": torch.float16}.get(self.precision, torch.bfloat16)


def uses_gpu(device: str) -> bool:
    """Whether the device that a config names is a GPU on this machine."""
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def choose_compute(device: str, precision: Literal["auto"] | Precision) -> Compute:
    """The compute a config asks for on this machine. A GPU that was asked for is never replaced by a CPU."""
    if device == "auto":
        device = "cuda" if uses_gpu(device) else "cpu"
    chosen = torch.device(device)
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(
            "device_not_found",
            f"The config asks for device {device}, but the number of GPUs that torch finds on this machine "
            f"is {torch.cuda.device_count()}.",
        )
    if chosen.type == "cuda":
        # Always by number: some of torch's calls take no other.
        chosen = torch.device("cuda", chosen.index or 0)
    if precision in ("fp32", "fp16"):
        return Compute(chosen, precision, f"{precision}: set in the config")
    if precision == "fp8":
        if chosen.type == "cpu" or torch.cuda.get_device_capability(chosen) < _FP8_CAPABILITY:
            raise refused_fp8("a CPU" if chosen.type == "cpu" else torch.cuda.get_device_name(chosen))
        return Compute(chosen, "fp8", "fp8: set in the config")
    if chosen.type == "cpu":
        if precision == "bf16":
            return Compute(chosen, "bf16", "bf16: set in the config")
        return Compute(chosen, "fp32", "fp32: the default on a CPU")
    name = torch.cuda.get_device_name(chosen)
    if torch.cuda.get_device_capability(chosen)[0] >= 8:
        return Compute(chosen, "bf16", f"bf16: {name} supports it")
    if precision == "bf16":
        raise InputError(
            "precision_not_supported",
            f"The config asks for precision bf16, but {name} does not support it: use precision fp16 or "
            "fp32.",
        )
    return Compute(chosen, "fp16", f"fp16 with loss scaling: {name} does not support bf16")


def use_deterministic_kernels() -> None:
    """From here on this process computes the same bits from the same inputs, on a GPU too.

    To be called before the first matrix product on a GPU: cuBLAS reads its setting when it starts. An
    operation that has no such kernel raises.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    # Only a program that reads what it never wrote would need it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # Flash and memory-efficient attention have a deterministic backward pass; cuDNN's has none.
    torch.backends.cuda.enable_cudnn_sdp(False)
    import torch._inductor.config as compiler

    # No kernel is chosen by its speed: neither by trying it now nor by what was tried in another run.
    compiler.deterministic = True
    compiler.autotune_local_cache = False
    compiler.autotune_remote_cache = False


def visible(hardware: Hardware) -> Hardware:
    """The machine with the GPUs that torch sees, in torch's order: CUDA_VISIBLE_DEVICES may hide some."""
    by_name = {gpu.name: gpu for gpu in hardware.gpus}
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if any(name not in by_name for name in names):
        return hardware
    return hardware.model_copy(update={"gpus": tuple(by_name[name] for name in names)})
