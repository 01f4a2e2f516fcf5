"""Which processes a run has on this machine. `auto`: as many as were measured to be fastest, once."""

from pathlib import Path

import pytest

from gpubloom.engine.parallel import process_layout
from gpubloom.engine.parallel.process_layout import choose_layout
from gpubloom.plan import Hardware, TrainConfig
from tests.engine.parallel.rig import finish, started, train, write_text_run
from tests.engine.runs import read_events, read_losses
from tests.errors import raises

FOUR = Hardware.parse("4x A100 80GB, 512 GB host, 32 cores")

SMALL = {"device": "cpu", "processes": "auto", "batch_size": 8}


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
    assert found.reason == "2 of 2 GPUs, one process per GPU"
    assert process_layout.choose_layout(TrainConfig(device="cuda:0")).processes == 1


@pytest.mark.usefixtures("two_of_four")
def test_more_processes_than_visible_gpus_are_refused() -> None:
    with raises(ValueError, code="more_processes_than_gpus", match="2 GPUs"):
        process_layout.choose_layout(TrainConfig(processes=4))


def test_candidates_divide_threads_and_rows() -> None:
    assert process_layout.candidates(8, 12) == [(1, 8), (2, 4), (4, 2)]
    assert process_layout.candidates(2, 3) == [(1, 2)]
    assert process_layout.candidates(1, 32) == [(1, 1)]


def test_more_processes_must_be_worth_their_memory() -> None:
    choices = [(1, 4), (2, 2), (4, 1)]
    assert process_layout.choose({"1 x 4": 100, "2 x 2": 103, "4 x 1": 104}, choices).processes == 1
    found = process_layout.choose({"1 x 4": 100, "2 x 2": 130, "4 x 1": 133}, choices)
    assert (found.processes, found.threads) == (2, 2)
    assert found.reason == (
        "2 processes x 2 threads, measured (1 x 4: 100 tokens/s, 2 x 2: 130 tokens/s, 4 x 1: 133 tokens/s)"
    )
    # One that could not be measured is not chosen.
    assert process_layout.choose({"2 x 2": 10}, choices).processes == 2


def test_a_measurement_is_remembered_for_the_machine_and_the_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured: list[TrainConfig] = []

    def measure(config: TrainConfig, choices: list[tuple[int, int]]) -> dict[str, float]:
        measured.append(config)
        return {"1 x 2": 100.0, "2 x 1": 150.0}

    monkeypatch.setattr(process_layout, "measure", measure)
    config = TrainConfig.model_validate(SMALL)
    assert process_layout.fastest(config, threads=2).processes == 2
    again = process_layout.fastest(config, threads=2)
    assert again.processes == 2
    assert "measured earlier on this machine" in again.reason
    assert len(measured) == 1
    larger = TrainConfig.model_validate({**SMALL, "model": {"preset": "small"}})
    process_layout.fastest(larger, threads=2)
    assert len(measured) == 2


def test_one_process_is_not_measured() -> None:
    assert choose_layout(TrainConfig(device="cpu")).processes == 1
    assert choose_layout(TrainConfig(device="cpu", processes=3)).processes == 3


@pytest.mark.long
def test_the_candidates_really_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Threads that spin while they wait take the cores of other tests.
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    config = TrainConfig.model_validate(
        {**SMALL, "model": {"preset": "nano", "context_length": 32}, "data": {"train_path": "unread.txt"}}
    )
    rates = process_layout.measure(config, process_layout.candidates(2, 8))
    assert set(rates) == {"1 x 2", "2 x 1"}
    assert all(rate > 0 for rate in rates.values())


@pytest.mark.long
def test_a_run_with_measured_processes_trains_as_one_process_does(tmp_path: Path, text: Path) -> None:
    alone = write_text_run(tmp_path / "alone", text, batch_size=8)
    auto = write_text_run(tmp_path / "auto", text, batch_size=8, processes="auto")
    train(alone)
    with started(
        [auto / "train.py"], {"OMP_NUM_THREADS": "2", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ) as process:
        finish(process)
    expected, losses = read_losses(alone), read_losses(auto)
    assert list(losses) == list(expected)
    assert list(losses.values()) == pytest.approx(list(expected.values()), rel=1e-5)
    facts = {name: value for event in read_events(auto, "describe") for name, value in event["facts"].items()}
    assert facts["processes"] in {1, 2}
    assert "1 x 2: " in facts["processes_reason"]
    assert facts["global_batch_size"] == 8
