"""Which processes a run has on this machine."""

import pytest

from gpubloom.engine.parallel import process_layout
from gpubloom.plan import Hardware, TrainConfig

FOUR = Hardware.parse("4x A100 80GB, 512 GB host, 32 cores")


@pytest.fixture
def two_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which CUDA_VISIBLE_DEVICES shows two GPUs."""
    monkeypatch.setattr(process_layout, "detect_hardware", lambda: FOUR)
    monkeypatch.setattr(process_layout, "uses_gpu", lambda device: device != "cpu")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)


@pytest.mark.usefixtures("two_of_four")
def test_every_gpu_that_may_be_used_has_a_process_and_the_log_says_so() -> None:
    found = process_layout.choose_layout(TrainConfig())
    assert found.processes == 2
    assert found.reason == "2 of 2 GPUs, a process each"
    assert process_layout.choose_layout(TrainConfig(device="cuda:0")).processes == 1


@pytest.mark.usefixtures("two_of_four")
def test_more_processes_than_visible_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="has 2 GPUs: each process needs one of its own"):
        process_layout.choose_layout(TrainConfig(processes=4))
