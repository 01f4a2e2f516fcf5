"""What was measured on a machine is used by later plans on that machine, and on no other."""

from pathlib import Path

import pytest

from gpubloom.plan import Calibration, Hardware, TrainConfig, machine_file, plan
from gpubloom.plan.machine_file import MACHINES_FILE, measured_hardware, store_measured

HERE = Hardware(name="here", host_memory_bytes=16 << 30, cpu_cores=2)
MEASURED = HERE.model_copy(
    update={"cpu_flops": 250e9, "calibration": Calibration(cpu_layer_seconds=2e-3, cpu_value_seconds=3e-9)}
)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_file, "detect_hardware", lambda: HERE)


def test_a_measured_machine_is_planned_without_assumed_speeds(tmp_path: Path) -> None:
    config = TrainConfig.model_validate({"model": {"preset": "nano"}, "device": "cpu"})
    assumed = plan(config, measured_hardware(tmp_path))
    assert "bloom plan --measure" in assumed.assumptions[0]
    store_measured(tmp_path, MEASURED)
    assert measured_hardware(tmp_path) == MEASURED
    assert plan(config, measured_hardware(tmp_path)).assumptions == ()


def test_the_newest_measurement_counts_and_other_machines_keep_theirs(tmp_path: Path) -> None:
    other = MEASURED.model_copy(update={"name": "there", "cpu_flops": 1e9})
    for each in (MEASURED.model_copy(update={"cpu_flops": 1e9}), other, MEASURED):
        store_measured(tmp_path, each)
    assert measured_hardware(tmp_path) == MEASURED
    assert (tmp_path / MACHINES_FILE).read_text().count('"machine"') == 2


@pytest.mark.parametrize("changed", [{"name": "there"}, {"cpu_cores": 4}])
def test_figures_of_another_machine_are_not_used(tmp_path: Path, changed: dict[str, object]) -> None:
    store_measured(tmp_path, MEASURED.model_copy(update=changed))
    assert measured_hardware(tmp_path) == HERE


@pytest.mark.parametrize("content", ["{", "[]", '{"v": 0, "machines": []}', '{"v": 1, "machines": [{}]}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / MACHINES_FILE).write_text(content)
    assert measured_hardware(tmp_path) == HERE
    store_measured(tmp_path, MEASURED)
    assert measured_hardware(tmp_path) == MEASURED
