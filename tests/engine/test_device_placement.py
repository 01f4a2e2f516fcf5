"""From config and model to an executor: what is compiled, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpubloom.engine import Model
from gpubloom.engine.device_placement import _planned_on_gpu, move_to_devices
from gpubloom.engine.hardware import visible
from gpubloom.engine.host_memory import PinningRefused
from gpubloom.engine.parallel import ALONE
from gpubloom.plan import Gpu, Hardware, TrainConfig, plan
from tests.errors import raises

MACHINE = Hardware.parse("H200, 125 GB host, 16 cores")


def on_gpu(config: TrainConfig, steps: int | None, run_dir: Path | None = None) -> tuple[TrainConfig, int]:
    """The config that a run on a GPU would be trained by, and its first compiled step."""
    model = Model.open(config, vocab_size=257)
    chosen, found, first = _planned_on_gpu(config, MACHINE, model, steps, ALONE, run_dir, can_compile=True)
    assert found == plan(chosen, MACHINE, shape=model.shape)
    return chosen, first


def test_a_short_run_on_a_gpu_is_not_compiled(make_config: Callable[..., TrainConfig]) -> None:
    chosen, first = on_gpu(make_config(device="auto"), 20)
    assert (chosen.compile, first) == ("off", 0)


def test_a_long_run_on_a_gpu_begins_uncompiled(make_config: Callable[..., TrainConfig]) -> None:
    config = make_config(device="auto", model={"preset": "125m", "context_length": 1_024})
    chosen, first = on_gpu(config, 100_000)
    assert chosen.compile == "off", "its first steps must fit into memory"
    assert first > 1


def test_a_run_of_unknown_length_is_compiled_before_its_first_step(
    make_config: Callable[..., TrainConfig],
) -> None:
    chosen, first = on_gpu(make_config(device="auto"), None)
    assert (chosen.compile, first) == ("auto", 1)


def test_a_resumed_run_keeps_the_first_compiled_step_of_its_first_attempt(
    make_config: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    config = make_config(device="auto", model={"preset": "125m", "context_length": 1_024})
    _, first = on_gpu(config, 100_000, tmp_path)
    assert first > 1
    assert on_gpu(config, 20, tmp_path)[1] == first
    (tmp_path / "plan.json").write_text('{"compiled_from_step": 0}')
    assert on_gpu(config, 100_000, tmp_path)[1] == 0


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
