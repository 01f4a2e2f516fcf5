"""NVIDIA's management library through ctypes, for training environments without pynvml.

Answers to the same names as pynvml, as far as telemetry asks. The library belongs to the driver: where a GPU
can be used, it is there.

The NVIDIA GPUs that this process may use, numbered as its framework numbers them.
"""

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
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


# NVML's numbers for what is asked; pynvml has names for them, different ones in different versions.
_CORE_TEMPERATURE, _SLOWDOWN_TEMPERATURE = 0, 1
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWED_BY_HEAT = 0x20 | 0x40
_SLOWED_BY_POWER = 0x04 | 0x80


class Gpus:
    """Looks at GPUs through pynvml, or through the driver's library itself where pynvml is not installed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            self._nvml = _load()
            self._nvml.nvmlInit()
            every = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
            self._handles = self._visible(every, environment.get("CUDA_VISIBLE_DEVICES"))
        except ImportError:
            return
        except Exception as problem:  # NVMLError only exists once the library is there
            if not isinstance(problem, self._nvml.NVMLError):
                raise

    def _visible(self, every: list[Any], wanted: str | None) -> list[Any]:
        if wanted is None:
            return every
        uuids = [_text(self._nvml.nvmlDeviceGetUUID(handle)) for handle in every]
        return [every[index] for index in visible_devices(uuids, wanted)]

    def facts(self) -> dict[str, str | float]:
        """What does not change while a run lasts, for `describe`: names, highest clocks, limits."""
        nvml = self._nvml
        found: dict[str, str | float] = {}
        for number, handle in enumerate(self._handles):
            readings: dict[str, Callable[[Any], str | float]] = {
                "name": lambda card: _text(nvml.nvmlDeviceGetName(card)),
                "clock_max": lambda card: nvml.nvmlDeviceGetMaxClockInfo(card, _SM_CLOCK),
                "temperature_limit": lambda card: nvml.nvmlDeviceGetTemperatureThreshold(
                    card, _SLOWDOWN_TEMPERATURE
                ),
                "power_limit": lambda card: nvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1000,
            }
            found.update(self._told(number, handle, readings))
        return found

    def look(self) -> dict[str, float]:
        """What changes: use, memory, temperature, fan, power, clocks."""
        nvml = self._nvml
        values: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            readings: dict[str, Callable[[Any], float]] = {
                "utilization": lambda card: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
                "memory_used": lambda card: nvml.nvmlDeviceGetMemoryInfo(card).used,
                "memory_total": lambda card: nvml.nvmlDeviceGetMemoryInfo(card).total,
                "temperature": lambda card: nvml.nvmlDeviceGetTemperature(card, _CORE_TEMPERATURE),
                "fan": lambda card: nvml.nvmlDeviceGetFanSpeed(card),
                "power": lambda card: round(nvml.nvmlDeviceGetPowerUsage(card) / 1000, 1),
                "clock": lambda card: nvml.nvmlDeviceGetClockInfo(card, _SM_CLOCK),
                "memory_clock": lambda card: nvml.nvmlDeviceGetClockInfo(card, _MEMORY_CLOCK),
                "slowed_by_heat": lambda card: self._slowed(card, _SLOWED_BY_HEAT),
                "slowed_by_power": lambda card: self._slowed(card, _SLOWED_BY_POWER),
            }
            values.update(self._told(number, handle, readings))
        return values

    def _told(self, number: int, handle: Any, readings: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
        found = {}
        for name, read in readings.items():
            # Cards differ in what they tell: a passively cooled one has no fan, a laptop's may hide its
            # power. Old versions of pynvml lack functions.
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                found[f"gpu/{number}/{name}"] = read(handle)
        return found

    def _slowed(self, handle: Any, reasons: int) -> float:
        return float(bool(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & reasons))


def _load() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return load_nvml()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def visible_devices(uuids: Sequence[str], visible: str | None) -> list[int]:
    """The indices of the GPUs that CUDA shows for a value of CUDA_VISIBLE_DEVICES; None: all of them.

    An entry is an index or the beginning of a UUID. CUDA ignores everything after the first invalid entry.
    """
    if visible is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal() and int(entry) < len(uuids):
            chosen.append(int(entry))
            continue
        matching = [index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(matching) != 1:
            break
        chosen += matching
    return chosen
