"""NVML is opened where it is there and closed again; without it there are no GPUs."""

import sys
from types import ModuleType

import pytest

from gpubloom.plan import detect_hardware
from gpubloom.providers.local.devices import find_visible_gpus
from gpubloom.providers.local.sandbox import gpu_nodes
from gpubloom.traincard.nvml import opened_nvml


class _Nvml(ModuleType):
    """Two GPUs, or no driver."""

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self, *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.driver, self.open = driver, 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, name: bytes) -> int:
        if not name.startswith(b"GPU-"):
            raise self.NVMLError("not found")
        return int(name[4:])

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        return handle + 4

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> object:
        return type("Memory", (), {"total": 80 << 30})

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H100"


def test_everybody_asks_the_same_library_and_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = _Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert [gpu.name for gpu in detect_hardware().gpus] == ["NVIDIA H100"] * 2
    assert find_visible_gpus({}) == ("GPU-0", "GPU-1")
    assert gpu_nodes(["GPU-1"]) == ("nvidia5",)
    assert nvml.open == 0


def test_without_a_driver_or_the_package_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubloom.traincard.nvml._LIBRARIES", ("libnothing.so.0",))
    for module in (_Nvml(driver=False), None):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        with opened_nvml() as nvml:
            assert nvml is None
        assert find_visible_gpus({}) == ()
        assert detect_hardware().gpus == ()
