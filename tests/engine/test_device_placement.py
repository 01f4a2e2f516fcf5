"""From config and model to an executor: what is compiled, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpubloom.engine import Model, calibrate
from gpubloom.engine.device_placement import _with_speeds, move_to_devices
from gpubloom.engine.hardware import visible
from gpubloom.engine.host_memory import PinningRefused
from gpubloom.plan import Gpu, Hardware, TrainConfig
from tests.errors import raises

MACHINE = Hardware.parse("H200, 125 GB host, 16 cores")


@pytest.mark.parametrize("seen", [["H100"], [], ["H100", "RTX 3090"]])
def test_a_plan_is_made_for_the_gpus_that_torch_sees(
    monkeypatch: pytest.MonkeyPatch, seen: list[str]
) -> None:
    machine = MACHINE.model_copy(update={"gpus": tuple(gpu(name) for name in ("RTX 3090", "H100"))})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(seen))
    monkeypatch.setattr(torch.cuda, "get_device_name", seen.__getitem__)
    assert [gpu.name for gpu in visible(machine).gpus] == seen


def gpu(name: str) -> Gpu:
    return Hardware.parse(f"{name}, 64 GB host").gpus[0]


@pytest.mark.parametrize(("gpu_budget_gb", "measured"), [(None, False), (1.0, True)])
def test_a_new_machine_is_measured_only_for_a_model_that_is_not_whole_on_its_gpu(
    make_config: Callable[..., TrainConfig],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gpu_budget_gb: float | None,
    measured: bool,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "H200")
    rates = {"host_adam_bytes_per_s": 5e10, "matrix_flops": 5e14}
    monkeypatch.setattr(calibrate, "measure", lambda *_, **__: rates)
    config = make_config(
        model={"preset": "350m"}, device="cuda", precision="bf16", memory={"gpu_budget_gb": gpu_budget_gb}
    )
    model = Model.open(config, vocab_size=257)
    device = torch.device("cuda")
    first = _with_speeds(config, MACHINE, model, device, 15)
    assert (first.calibration.matrix_flops is not None) == measured
    # What was measured before is always used.
    calibrate.calibrated(MACHINE, device, threads=15)
    assert _with_speeds(config, MACHINE, model, device, 15).calibration.matrix_flops == 5e14


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_adapters_for_a_model_that_learned_nothing_are_refused(
    make_config: Callable[..., TrainConfig], method: str
) -> None:
    with raises(ValueError, code="adapters_need_model", match=method):
        Model.open(make_config(method=method), vocab_size=257)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "gpu_out_of_memory"),
        (PinningRefused("4,096 bytes could not be pinned: raise ulimit -l."), "pinning_refused"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_refused_in_a_sentence(
    make_config: Callable[..., TrainConfig],
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    code: str,
) -> None:
    def fails(*_: object) -> None:
        raise problem

    monkeypatch.setattr("gpubloom.engine.device_placement.BlockExecutor", fails)
    config = make_config()
    with raises(ValueError, code=code):
        move_to_devices(config, Model.open(config, vocab_size=257))
