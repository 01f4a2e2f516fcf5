"""What was measured on this machine (by `bloom plan --measure` or an idle worker), for later plans.

One machine per entry in BLOOM_HOME/machines.json. A home folder may be shared by several machines, and a
container may get other cores or GPUs at its next start: figures count only for a machine that looks the same.
"""

import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gpubloom.plan.hardware import Calibration, Hardware, detect_hardware
from gpubloom.traincard.atomic_write import read_json_object, replace_file

MACHINES_FILE = "machines.json"
_MOST = 50
# Another way of measuring, or another meaning of a figure, makes old ones worthless.
_VERSION = 1


class _Measured(BaseModel):
    """How fast one machine is."""

    model_config = ConfigDict(frozen=True)

    machine: str
    cpu_cores: int
    gpus: tuple[str, ...]
    cpu_flops: float | None
    calibration: Calibration

    @classmethod
    def of(cls, hardware: Hardware) -> "_Measured":
        return cls(
            machine=hardware.name,
            cpu_cores=hardware.cpu_cores,
            gpus=tuple(gpu.name for gpu in hardware.gpus),
            cpu_flops=hardware.cpu_flops,
            calibration=hardware.calibration,
        )

    def is_of(self, hardware: Hardware) -> bool:
        there = (hardware.name, hardware.cpu_cores, tuple(gpu.name for gpu in hardware.gpus))
        return (self.machine, self.cpu_cores, self.gpus) == there


class _File(BaseModel):
    v: int = _VERSION
    machines: list[_Measured]


def measuring_command() -> tuple[str, ...]:
    """Measures this machine and prints it as JSON: a process of its own, since plans know no torch."""
    return (sys.executable, "-c", "from gpubloom.engine.calibrate import main; main()")


def store_measured(home: Path, hardware: Hardware) -> Path:
    """Keeps the figures of a machine; earlier ones of the same machine are replaced."""
    kept = [each for each in _read(home) if not each.is_of(hardware)]
    entries = [*kept, _Measured.of(hardware)][-_MOST:]
    home.mkdir(parents=True, exist_ok=True)
    replace_file(home / MACHINES_FILE, _File(machines=entries).model_dump_json(indent=2) + "\n")
    return home / MACHINES_FILE


def measured_hardware(home: Path) -> Hardware:
    """This machine with what was measured on it, if anything was."""
    return with_measured(detect_hardware(), home)


def with_measured(hardware: Hardware, home: Path) -> Hardware:
    for each in _read(home):
        if each.is_of(hardware):
            return hardware.model_copy(update={"cpu_flops": each.cpu_flops, "calibration": each.calibration})
    return hardware


def _read(home: Path) -> list[_Measured]:
    """A file that cannot be read, or of another version, holds none."""
    try:
        stored = read_json_object(home / MACHINES_FILE) or {}
        return _File.model_validate(stored).machines if stored.get("v") == _VERSION else []
    except (OSError, ValueError):
        return []
