"""The machine as it is: known values are plausible, unknown ones absent."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpubloom.traincard import Reporter
from gpubloom.traincard.nvml import load_nvml
from gpubloom.traincard.telemetry import Gpus, Machine, Telemetry
from tests.traincard.conftest import events_of
from tests.waiting import wait_until

_EXPECTED = {"cpu/utilization", "ram/used", "ram/total", "process/ram", "disk/used", "disk/total"}


@pytest.mark.parametrize("with_psutil", [True, False])
def test_cpu_memory_and_disk_are_plausible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_psutil: bool
) -> None:
    if with_psutil:
        pytest.importorskip("psutil")
    elif not Path("/proc/stat").exists():
        pytest.skip("this machine has no /proc")
    else:
        monkeypatch.setitem(sys.modules, "psutil", None)
    machine = Machine(tmp_path)
    assert "cpu/utilization" not in machine.look()
    # The kernel counts CPU time in ticks: the first look that comes a tick later knows the use.
    while not (values := machine.look()).keys() >= _EXPECTED:
        time.sleep(0.01)
    assert 0 <= values["cpu/utilization"] <= 100
    assert 0 < values["ram/used"] < values["ram/total"]
    assert 1e6 < values["process/ram"] < values["ram/total"]
    assert values["network/received"] >= 0
    assert values["network/sent"] >= 0


def test_psutil_and_proc_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psutil")
    if not Path("/proc/stat").exists():
        pytest.skip("this machine has no /proc")
    one = Machine(tmp_path).look()
    monkeypatch.setitem(sys.modules, "psutil", None)
    other = Machine(tmp_path).look()
    assert one["ram/total"] == other["ram/total"]
    assert one["process/ram"] == pytest.approx(other["process/ram"], rel=0.1)


def test_a_machine_without_gpus_says_nothing_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("gpubloom.traincard.nvml._LIBRARIES", ("libnothing.so.0",))
    gpus = Gpus({})
    assert (gpus.facts(), gpus.look()) == ({}, {})


def _nvml(cards: int) -> SimpleNamespace:
    """Answers as NVML is documented to; the second card is passively cooled and hides its power."""

    class NVMLError(Exception):
        pass

    def refuse_on_second(value: int):  # type: ignore[no-untyped-def]
        def read(handle: int) -> int:
            if handle == 1:
                raise NVMLError("Not Supported")
            return value

        return read

    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: cards,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}abc",
        nvmlDeviceGetName=lambda handle: b"Card %d" % handle,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=50 + handle),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=100, total=1000),
        nvmlDeviceGetTemperature=lambda handle, sensor: 60,
        nvmlDeviceGetFanSpeed=refuse_on_second(30),
        nvmlDeviceGetPowerUsage=refuse_on_second(123_456),
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetClockInfo=lambda handle, which: {1: 1500, 2: 2600}[which],
        nvmlDeviceGetMaxClockInfo=lambda handle, which: {1: 1980, 2: 2619}[which],
        nvmlDeviceGetTemperatureThreshold=lambda handle, which: {1: 87}[which],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x40 if handle == 1 else 0x04,
    )


def test_what_a_gpu_does_not_tell_is_absent_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(2))
    values = Gpus({}).look()
    assert values["gpu/0/power"] == 123.5
    assert values["gpu/1/utilization"] == 51
    assert "gpu/1/fan" not in values
    assert "gpu/1/power" not in values


def test_clocks_and_why_a_gpu_is_slow_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(2))
    gpus = Gpus({})
    values = gpus.look()
    assert (values["gpu/0/clock"], values["gpu/0/memory_clock"]) == (1500, 2600)
    assert (values["gpu/0/slowed_by_heat"], values["gpu/0/slowed_by_power"]) == (0, 1)
    assert (values["gpu/1/slowed_by_heat"], values["gpu/1/slowed_by_power"]) == (1, 0)
    assert gpus.facts()["gpu/1/clock_max"] == 1980
    assert gpus.facts()["gpu/1/temperature_limit"] == 87
    assert gpus.facts()["gpu/1/power_limit"] == 700


def test_an_old_library_without_some_functions_tells_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    old = _nvml(1)
    del old.nvmlDeviceGetClockInfo, old.nvmlDeviceGetCurrentClocksThrottleReasons
    monkeypatch.setitem(sys.modules, "pynvml", old)
    values = Gpus({}).look()
    assert values["gpu/0/temperature"] == 60
    assert "gpu/0/clock" not in values
    assert "gpu/0/slowed_by_heat" not in values


def test_the_drivers_own_library_says_what_pynvml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    try:
        load_nvml()
    except ImportError:
        pytest.skip("this machine has no NVIDIA driver")
    through_pynvml = Gpus({})
    monkeypatch.setitem(sys.modules, "pynvml", None)
    direct = Gpus({})
    assert direct.facts() == through_pynvml.facts() != {}
    one, other = direct.look(), through_pynvml.look()
    assert one.keys() == other.keys()
    assert one["gpu/0/memory_total"] == other["gpu/0/memory_total"]
    assert one["gpu/0/temperature"] == pytest.approx(other["gpu/0/temperature"], abs=5)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ["Card 1"]),
        ("2,0", ["Card 2", "Card 0"]),
        ("GPU-2abc", ["Card 2"]),
        ("", []),
        (None, ["Card 0", "Card 1", "Card 2"]),
    ],
)
def test_only_the_gpus_of_this_process_are_shown(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml(3))
    gpus = Gpus({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert [value for name, value in gpus.facts().items() if name.endswith("name")] == names


def test_the_reporter_records_the_machine_by_itself(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0.1):
        wait_until(lambda: events_of(run_dir, "system"))
    assert events_of(run_dir, "system")[-1].fields["values"].keys() >= _EXPECTED


@pytest.mark.parametrize(("local_rank", "watchers"), [("0", 1), ("1", 0)])
def test_one_rank_per_machine_records_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, local_rank: str, watchers: int
) -> None:
    started: list[Telemetry] = []
    monkeypatch.setattr(Telemetry, "start", lambda self: started.append(self))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with Reporter(run_dir, telemetry_seconds=0.05):
        assert len(started) == watchers


def test_where_the_disks_are_hidden_the_traffic_of_the_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(self: Machine) -> tuple[int, int]:
        raise PermissionError("a sandbox hides them")

    monkeypatch.setattr(Machine, "_bytes_of_disks", hidden)
    if not Path("/proc/self/io").exists():
        pytest.skip("this machine counts no traffic of processes")
    machine = Machine(tmp_path)
    machine.look()
    found = machine.look()
    assert {"disk/read", "disk/written"} <= found.keys()
    assert min(found["disk/read"], found["disk/written"]) >= 0
