"""Telemetry: CPU, memory, disk, network and GPUs of the machine, sampled in a thread of its own.

Uses psutil where it is installed and /proc otherwise; GPUs are read through NVML (nvml.py). What cannot be
known is absent, never zero.
"""

import contextlib
import importlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gpubloom.traincard.nvml import as_text, choose_visible, find_nvml

logger = logging.getLogger("gpubloom.traincard")

_SECTOR_BYTES = 512
# Traffic within the machine, or the same bytes once more on their way into a container.
_NOT_THE_NETWORK = ("lo", "veth", "docker", "br-", "virbr", "cni", "flannel")

# NVML's numbers for what is asked; pynvml has names for them, different ones in different versions.
_CORE_TEMPERATURE, _SLOWDOWN_TEMPERATURE = 0, 1
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWED_BY_HEAT = 0x20 | 0x40
_SLOWED_BY_POWER = 0x04 | 0x80


class Listener(Protocol):
    """Takes what telemetry finds; a Reporter is one."""

    @property
    def run_dir(self) -> Path: ...
    def system(self, values: Mapping[str, Any]) -> None: ...
    def describe(self, facts: Mapping[str, Any]) -> None: ...


class Telemetry:
    """Tells a listener about the machine every few seconds."""

    def __init__(self, listener: Listener, seconds: float) -> None:
        self._listener = listener
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traincard-telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        # Not joined: a driver call may hang, and nothing it would still say matters.
        self._stop.set()

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as problem:  # noqa: BLE001 - drivers fail in ways of their own; training does not care
            logger.warning("TrainCard no longer records the state of this machine: %r", problem)

    def _watch(self) -> None:
        machine = Machine(self._listener.run_dir)
        if facts := machine.gpus.facts():
            self._listener.describe(facts)
        machine.look()
        # Rates need two looks; the first comes soon, so that a short run has telemetry too.
        wait = min(1.0, self._seconds)
        while not self._stop.wait(wait):
            if values := machine.look():
                self._listener.system(values)
            wait = self._seconds


class Machine:
    """One look at CPU, memory, disk, network and GPUs; rates are since the look before."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.gpus = Gpus(os.environ)
        try:
            self._psutil: Any = importlib.import_module("psutil")
        except ImportError:
            self._psutil = None
        self._cpu_before: tuple[float, float] | None = None
        self._before: dict[str, tuple[float, tuple[int, ...]]] = {}

    def look(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for part in (self._cpu, self._memory, self._disk, self._disk_rates, self._network, self.gpus.look):
            with contextlib.suppress(OSError, ValueError, KeyError, IndexError, NotImplementedError):
                values.update(part())
        return values

    def _cpu(self) -> dict[str, float]:
        if self._psutil is not None:
            times = self._psutil.cpu_times()
            total, idle = sum(times), times.idle + getattr(times, "iowait", 0.0)
            # Linux counts guest time inside user time as well; counting it twice would hide idleness.
            total -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        else:
            fields = [float(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            total, idle = sum(fields), fields[3] + fields[4]
        before, self._cpu_before = self._cpu_before, (total, idle)
        if before is None or total <= before[0]:
            return {}
        busy = 1 - (idle - before[1]) / (total - before[0])
        return {"cpu/utilization": round(100 * min(1.0, max(0.0, busy)), 1)}

    def _memory(self) -> dict[str, float]:
        if self._psutil is not None:
            memory = self._psutil.virtual_memory()
            process = self._psutil.Process().memory_info().rss
            return {
                "ram/used": memory.total - memory.available,
                "ram/total": memory.total,
                "process/ram": process,
            }
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "ram/used": sizes["MemTotal"] - sizes["MemAvailable"],
            "ram/total": sizes["MemTotal"],
            "process/ram": pages * os.sysconf("SC_PAGE_SIZE"),
        }

    def _disk(self) -> dict[str, float]:
        usage = shutil.disk_usage(self._run_dir)
        return {"disk/used": usage.used, "disk/total": usage.total}

    def _disk_rates(self) -> dict[str, float]:
        return self._rates(("disk/read", "disk/written"), self._disk_bytes())

    def _network(self) -> dict[str, float]:
        return self._rates(("network/received", "network/sent"), self._network_bytes())

    def _rates(self, names: tuple[str, ...], counted: tuple[int, ...]) -> dict[str, float]:
        now = time.monotonic()
        before = self._before.get(names[0])
        self._before[names[0]] = (now, counted)
        if before is None or now <= before[0]:
            return {}
        seconds = now - before[0]
        return {
            name: round(max(0, after - earlier) / seconds)
            for name, after, earlier in zip(names, counted, before[1], strict=True)
        }

    def _network_bytes(self) -> tuple[int, int]:
        received = sent = 0
        if self._psutil is not None:
            for name, counters in self._psutil.net_io_counters(pernic=True).items():
                if not name.startswith(_NOT_THE_NETWORK):
                    received += counters.bytes_recv
                    sent += counters.bytes_sent
            return received, sent
        for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
            name, _, numbers = line.strip().partition(":")
            fields = numbers.split()
            if not name.startswith(_NOT_THE_NETWORK):
                received += int(fields[0])
                sent += int(fields[8])
        return received, sent

    def _disk_bytes(self) -> tuple[int, int]:
        try:
            return self._bytes_of_disks()
        except (OSError, ValueError, IndexError, NotImplementedError):
            # A sandbox hides the disks of the machine; what this process reads and writes is still counted.
            return _own_disk_bytes()

    def _bytes_of_disks(self) -> tuple[int, int]:
        if self._psutil is not None:
            counters = self._psutil.disk_io_counters()
            if counters is None:
                raise OSError("this machine does not count disk traffic")
            return counters.read_bytes, counters.write_bytes
        read = written = 0
        # Whole devices only: partitions and device mappers would count the same bytes again.
        repeats = ("loop", "ram", "dm-", "md", "zram")
        devices = {d.name for d in Path("/sys/block").iterdir() if not d.name.startswith(repeats)}
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if fields[2] in devices:
                read += int(fields[5]) * _SECTOR_BYTES
                written += int(fields[9]) * _SECTOR_BYTES
        return read, written


def _own_disk_bytes() -> tuple[int, int]:
    """What this process has read from disks and written to them."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


class Gpus:
    """The NVIDIA GPUs that this process may use, numbered as its framework numbers them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        try:
            self._nvml = find_nvml()
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
        by_uuid = {as_text(self._nvml.nvmlDeviceGetUUID(handle)): handle for handle in every}
        return [by_uuid[uuid] for uuid in choose_visible(tuple(by_uuid), wanted)]

    def facts(self) -> dict[str, str | float]:
        """What does not change while a run lasts, for `describe`: names, highest clocks, limits."""
        nvml = self._nvml
        found: dict[str, str | float] = {}
        for number, handle in enumerate(self._handles):
            readings: dict[str, Callable[[Any], str | float]] = {
                "name": lambda card: as_text(nvml.nvmlDeviceGetName(card)),
                "clock_max": lambda card: nvml.nvmlDeviceGetMaxClockInfo(card, _SM_CLOCK),
                "temperature_limit": lambda card: nvml.nvmlDeviceGetTemperatureThreshold(
                    card, _SLOWDOWN_TEMPERATURE
                ),
                "power_limit": lambda card: nvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1000,
            }
            found.update(self._readings_of(number, handle, readings))
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
            values.update(self._readings_of(number, handle, readings))
        return values

    def _readings_of(
        self, number: int, handle: Any, readings: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        found = {}
        for name, read in readings.items():
            # Cards differ in what they tell: a passively cooled one has no fan, a laptop's may hide its
            # power. Old versions of pynvml lack functions.
            with contextlib.suppress(self._nvml.NVMLError, AttributeError):
                found[f"gpu/{number}/{name}"] = read(handle)
        return found

    def _slowed(self, handle: Any, reasons: int) -> float:
        return float(bool(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & reasons))
