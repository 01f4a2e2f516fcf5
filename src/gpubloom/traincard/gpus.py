"""The NVIDIA GPUs that this process may use, numbered as its framework numbers them."""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gpubloom.traincard.nvml import load_nvml

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
        by_uuid = {_text(self._nvml.nvmlDeviceGetUUID(handle)): handle for handle in every}
        found = []
        for word in (word.strip() for word in wanted.split(",")):
            if word.isdecimal() and int(word) < len(every):
                found.append(every[int(word)])
            elif word:
                found.extend(handle for uuid, handle in by_uuid.items() if uuid.startswith(word))
        return found

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
