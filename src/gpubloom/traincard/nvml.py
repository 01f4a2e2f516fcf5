"""NVML, NVIDIA's management library: opened here for telemetry, planning and the local provider.

pynvml is used where it is installed, and otherwise the driver's own library through ctypes, under the same
names. The library belongs to the driver: where a GPU can be used, it is there. Standard library only.
"""

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
_TEXT_BYTES = 96


@contextlib.contextmanager
def opened_nvml() -> Iterator[Any]:
    """NVML in the shape of pynvml, initialised until the block ends; None without a driver."""
    try:
        nvml = find_nvml()
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def find_nvml() -> Any:
    """pynvml, or the driver's library in its shape; ImportError when this machine has neither."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return load_nvml()


def choose_visible(every: Sequence[str], visible: str | None) -> tuple[str, ...]:
    """The UUIDs that CUDA_VISIBLE_DEVICES leaves, by CUDA's rule.

    Its entries are numbers or beginnings of UUIDs; the first entry that names no GPU ends the list.
    """
    if visible is None:
        return tuple(every)
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal() and int(entry) < len(every):
            chosen.append(every[int(entry)])
            continue
        matching = [name for name in every if entry and name.startswith(entry)]
        if len(matching) != 1:
            break
        chosen += matching
    return tuple(chosen)


def as_text(value: str | bytes) -> str:
    """Old versions of pynvml answer with bytes."""
    return value.decode() if isinstance(value, bytes) else value


class NVMLError(Exception):
    """The driver refused; the number is NVML's."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def load_nvml() -> Any:
    """The library, in the shape of pynvml; ImportError when this machine has none."""
    for name in _LIBRARIES:
        try:
            return _functions(ctypes.CDLL(name))
        except OSError:
            continue
    raise ImportError("this machine has no NVIDIA driver", name="pynvml")


def _functions(library: ctypes.CDLL) -> SimpleNamespace:
    def call(name: str, *arguments: Any) -> None:
        try:
            function = getattr(library, name)
        except AttributeError:
            raise NVMLError(f"this NVIDIA driver has no function {name}") from None
        if (code := function(*arguments)) != 0:
            raise NVMLError(code)

    def number(name: str, *, of: Any = ctypes.c_uint) -> Callable[..., Any]:
        def read(handle: ctypes.c_void_p, *more: int) -> Any:
            value = of()
            call(name, handle, *more, ctypes.byref(value))
            return value.value if hasattr(value, "value") else value

        return read

    def text(name: str) -> Callable[[ctypes.c_void_p], str]:
        def read(handle: ctypes.c_void_p) -> str:
            buffer = ctypes.create_string_buffer(_TEXT_BYTES)
            call(name, handle, buffer, ctypes.c_uint(_TEXT_BYTES))
            return buffer.value.decode(errors="replace")

        return read

    def count() -> int:
        value = ctypes.c_uint()
        call("nvmlDeviceGetCount_v2", ctypes.byref(value))
        return value.value

    def handle_of(index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def handle_by_uuid(uuid: bytes) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid), ctypes.byref(handle))
        return handle

    def compute_capability(handle: ctypes.c_void_p) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        name = "nvmlDeviceGetCudaComputeCapability"
        call(name, handle, ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: call("nvmlInit_v2"),
        nvmlShutdown=lambda: call("nvmlShutdown"),
        nvmlDeviceGetCount=count,
        nvmlDeviceGetHandleByIndex=handle_of,
        nvmlDeviceGetHandleByUUID=handle_by_uuid,
        nvmlDeviceGetMinorNumber=number("nvmlDeviceGetMinorNumber"),
        nvmlDeviceGetCudaComputeCapability=compute_capability,
        nvmlDeviceGetUUID=text("nvmlDeviceGetUUID"),
        nvmlDeviceGetName=text("nvmlDeviceGetName"),
        nvmlDeviceGetUtilizationRates=number("nvmlDeviceGetUtilizationRates", of=_Utilization),
        nvmlDeviceGetMemoryInfo=number("nvmlDeviceGetMemoryInfo", of=_Memory),
        nvmlDeviceGetTemperature=number("nvmlDeviceGetTemperature"),
        nvmlDeviceGetTemperatureThreshold=number("nvmlDeviceGetTemperatureThreshold"),
        nvmlDeviceGetFanSpeed=number("nvmlDeviceGetFanSpeed"),
        nvmlDeviceGetPowerUsage=number("nvmlDeviceGetPowerUsage"),
        nvmlDeviceGetEnforcedPowerLimit=number("nvmlDeviceGetEnforcedPowerLimit"),
        nvmlDeviceGetClockInfo=number("nvmlDeviceGetClockInfo"),
        nvmlDeviceGetMaxClockInfo=number("nvmlDeviceGetMaxClockInfo"),
        nvmlDeviceGetCurrentClocksThrottleReasons=number(
            "nvmlDeviceGetCurrentClocksThrottleReasons", of=ctypes.c_ulonglong
        ),
    )
