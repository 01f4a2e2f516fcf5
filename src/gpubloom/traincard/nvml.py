"""NVIDIA's management library through ctypes, for training environments without pynvml.

Answers to the same names as pynvml, as far as telemetry asks. The library belongs to the driver: where a GPU
can be used, it is there.
"""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
_TEXT_BYTES = 96


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
            raise NVMLError(f"this driver has no {name}") from None
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

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: call("nvmlInit_v2"),
        nvmlDeviceGetCount=count,
        nvmlDeviceGetHandleByIndex=handle_of,
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
