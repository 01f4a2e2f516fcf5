"""What is measured on a machine, and that it is measured once."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpubloom.engine import calibrate
from gpubloom.plan import Calibration, Hardware, TrainConfig, costs, plan
from gpubloom.plan.optimizer_config import OptimizerState

CPU = torch.device("cpu")
MACHINE = Hardware(name="here", host_memory_bytes=8 * 2**30, cpu_cores=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "_SECONDS_EACH", 0.01)
    monkeypatch.setitem(calibrate._ADAM_ELEMENTS, "cpu", 1 << 16)
    return tmp_path / "gpubloom"


@pytest.mark.long
def test_a_cpu_is_measured_in_products_and_optimizer_bytes() -> None:
    measured = calibrate.calibrated(MACHINE, CPU, threads=1)
    assert measured.cpu_flops is not None
    assert measured.cpu_flops > 1e8
    assert measured.calibration.host_adam_bytes_per_s is not None
    assert measured.calibration.host_adam_bytes_per_s > 1e7
    assert measured.calibration.cpu_value_seconds is not None
    assert measured.calibration.cpu_layer_seconds is not None
    assert measured.calibration.link_h2d is None


MADE_OF = (8e-4, 1.3e-3, 1e-11, 2e-9)  # seconds per step, layer, operation, value


def steps_made_of_figures(probe: calibrate._Probe, clock: Callable[[], float]) -> float:
    """Twice as long by the clock as in processor time."""
    seconds = sum(each * count for each, count in zip(MADE_OF, probe.terms(), strict=True))
    return seconds * (2 if clock is time.perf_counter else 1)


def test_a_quiet_cpu_is_measured_by_the_clock_with_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_step_seconds", steps_made_of_figures)
    monkeypatch.setattr(calibrate, "_waiting_for_processor", lambda: 1.5)
    found = calibrate.measure(CPU, threads=2)
    assert found["cpu_step_seconds"] == pytest.approx(2 * MADE_OF[0])
    assert found["cpu_layer_seconds"] == pytest.approx(2 * MADE_OF[1])
    assert found["cpu_flops"] == pytest.approx(1 / (2 * MADE_OF[2]) / costs.CPU_EFFICIENCY)
    assert found["cpu_value_seconds"] == pytest.approx(2 * MADE_OF[3])


@pytest.mark.parametrize("waiting", [iter((0.0, 3.0)).__next__, lambda: None], ids=["busy", "unknown"])
def test_a_busy_cpu_is_measured_by_the_processor_time_of_one_thread(
    monkeypatch: pytest.MonkeyPatch, waiting: Callable[[], float | None]
) -> None:
    monkeypatch.setattr(calibrate, "_step_seconds", steps_made_of_figures)
    monkeypatch.setattr(calibrate, "_waiting_for_processor", waiting)
    found = calibrate.measure(CPU, threads=2)
    assert found["cpu_step_seconds"] == pytest.approx(MADE_OF[0])
    assert found["cpu_layer_seconds"] == pytest.approx(MADE_OF[1] * costs.CPU_LAYER_WITH_THREADS)
    assert found["cpu_flops"] == pytest.approx(2 / MADE_OF[2] / costs.CPU_EFFICIENCY)
    assert found["cpu_value_seconds"] == pytest.approx(MADE_OF[3] * costs.CPU_VALUE_WITH_THREADS)


class Steps:
    """A clock that only steps move. Steps with several threads take `together`; after `busy_from` of them the
    threads wait for a processor all the time."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, alone: float, together: float, busy_from: int
    ) -> None:
        self.now, self.waited, self.threads = 0.0, 0.0, 2
        self.taken = {1: 0, 2: 0}
        self._seconds, self._busy_from = {1: alone, 2: together}, busy_from
        clock = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        executor = SimpleNamespace(
            forward_backward=self._take,
            optimizer_step=lambda _: None,
            settle=lambda: None,
            close=lambda: None,
        )
        monkeypatch.setattr(calibrate, "time", clock)
        monkeypatch.setattr(calibrate, "_SECONDS_EACH", 0.12)
        monkeypatch.setattr(calibrate, "_waiting_for_processor", lambda: self.waited)
        monkeypatch.setattr("gpubloom.engine.executors.blocks.BlockExecutor", lambda *_: executor)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.threads)
        monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(self, "threads", count))

    def _take(self, _: object) -> None:
        seconds = self._seconds[self.threads]
        self.now += seconds
        self.taken[self.threads] += 1
        if self.threads > 1 and self.taken[2] > self._busy_from:
            self.waited += seconds


def test_on_a_busy_cpu_the_first_probe_with_several_threads_is_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(monkeypatch, alone=0.02, together=0.5, busy_from=0)
    calibrate._training_rates(2)
    # One to load what all use, then of four probes the fewest steps.
    assert steps.taken == {1: 1 + 4 * 10, 2: 1}
    assert steps.threads == 2


def test_a_cpu_that_becomes_busy_is_noticed_after_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, alone=0.02, together=0.02, busy_from=15)
    calibrate._training_rates(2)
    assert steps.taken == {1: 1 + 4 * 10, 2: 2 * 10}


def test_a_quiet_cpu_takes_the_fewest_steps_of_each_probe_with_several_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(monkeypatch, alone=0.02, together=0.02, busy_from=1_000)
    calibrate._training_rates(2)
    assert steps.taken == {1: 1, 2: 4 * 10}


@pytest.mark.parametrize("busy_from", [0, 1_000])
@pytest.mark.parametrize("alone", [0.0005, 0.005, 0.04, 0.2])
@pytest.mark.parametrize("together", [0.0005, 0.02, 0.1, 0.4])
def test_however_slow_its_steps_are_a_cpu_is_measured_in_three_seconds(
    monkeypatch: pytest.MonkeyPatch, alone: float, together: float, busy_from: int
) -> None:
    """By a clock that only steps move."""
    steps = Steps(monkeypatch, alone=alone, together=together, busy_from=busy_from)
    calibrate._training_rates(2)
    assert steps.now < 3


def test_a_plan_of_a_measured_model_takes_as_long_as_the_model_did() -> None:
    """What calibrating counts is what a plan counts."""
    probe = calibrate._PROBES[2]
    config = TrainConfig.model_validate(
        {
            "model": {"context_length": probe.shape.context_length},
            "batch_size": probe.rows,
            "device": "cpu",
            "precision": "fp32",
        }
    )
    rates = {"cpu_step_seconds": 8e-4, "cpu_layer_seconds": 1.3e-3, "cpu_value_seconds": 2e-9}
    machine = MACHINE.model_copy(
        update={
            "cpu_flops": 1e11 / costs.CPU_EFFICIENCY,
            # The update, which calibrating measures by itself.
            "calibration": Calibration(host_adam_bytes_per_s=1e15, **rates),
        }
    )
    counts = zip((8e-4, 1.3e-3, 1e-11, 2e-9), probe.terms(), strict=True)
    found = plan(config, machine, shape=probe.shape.decoder())
    assert found.step_seconds == pytest.approx(sum(each * count for each, count in counts), rel=0.02)


def test_a_machine_is_measured_once_and_again_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    first = calibrate.calibrated(MACHINE, CPU, threads=1)

    def refuse(*_: object, **__: object) -> dict[str, float]:
        raise AssertionError("measured again")

    monkeypatch.setattr(calibrate, "measure", refuse)
    assert calibrate.calibrated(MACHINE, CPU, threads=1) == first
    with pytest.raises(AssertionError, match="measured again"):
        calibrate.calibrated(MACHINE, CPU, threads=1, fresh=True)
    with pytest.raises(AssertionError, match="measured again"):
        calibrate.calibrated(MACHINE.model_copy(update={"name": "elsewhere"}), CPU, threads=1)


@pytest.mark.long
def test_a_damaged_or_missing_cache_costs_a_measurement_only(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate.calibrated(MACHINE, CPU, threads=1)
    (kept,) = cache.glob("machine-*.json")
    kept.write_text("{")
    assert calibrate.calibrated(MACHINE, CPU, threads=1).calibration.host_adam_bytes_per_s is not None
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    assert calibrate.calibrated(MACHINE, CPU, threads=1).calibration.host_adam_bytes_per_s is not None


@pytest.mark.parametrize(("state", "bytes_each"), [("fp32", 26), ("bf16", 18), ("8bit", 14 + 4 / 64)])
def test_updates_are_measured_in_the_bytes_that_a_plan_counts(
    state: OptimizerState, bytes_each: float
) -> None:
    elements = 1 << 12
    adam = calibrate.HostAdam(2, pinned=False, elements=elements)
    assert adam.bytes(state) == bytes_each * elements
    assert adam.rate(state) > 1e5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_measured_with_its_link() -> None:
    found = calibrate.calibrated(MACHINE, torch.device("cuda"), threads=2).calibration
    assert found.link_h2d is not None
    assert found.link_duplex is not None
    assert found.matrix_flops is not None
    assert 1e9 < found.link_duplex <= 1.1 * found.link_h2d
    assert found.matrix_flops > 1e12
    assert found.link_during_adam is not None
    assert found.host_memory_bytes_per_s is not None
    assert found.host_adam_bytes_per_s is not None
    assert found.host_adam_bf16_bytes_per_s is not None
    assert found.host_adam_8bit_bytes_per_s is not None
    # The link is slowed by the optimizer at most; together they move more than either alone.
    assert found.link_during_adam <= 1.1 * found.link_duplex
    assert found.host_memory_bytes_per_s > 0.9 * found.host_adam_bytes_per_s


class LinkOfSeconds:
    """A link whose copies take as long as told."""

    def __init__(self, seconds: float, fails_after: int = 10**9) -> None:
        self.copies = 0
        self._seconds, self._fails_after = seconds, fails_after

    def both(self) -> None:
        self.copies += 1
        if self.copies > self._fails_after:
            raise RuntimeError("the device is lost")
        time.sleep(self._seconds)


def together(link: LinkOfSeconds) -> dict[str, float]:
    adam = calibrate.HostAdam(1, pinned=False, elements=1 << 16)
    return calibrate._together(adam, link, CPU)  # type: ignore[arg-type]


def test_link_and_optimizer_are_measured_while_both_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the optimizer is: the link copies as often as fits into its updates."""
    an_update, a_copy, both = 0.5, 1e-3, 1.25
    clock = iter((an_update, a_copy, both))

    def seconds(work: Callable[[], object], *_: object, **__: object) -> float:
        work()
        return next(clock)

    monkeypatch.setattr(calibrate, "_seconds", seconds)
    link = LinkOfSeconds(0.0)
    found = together(link)
    copies = calibrate._UPDATES * an_update / a_copy
    assert link.copies == 1 + copies
    assert found["link_during_adam"] == calibrate._COPY_BYTES / a_copy
    updates = calibrate._UPDATES * calibrate.HostAdam(1, pinned=False, elements=1 << 16).bytes("fp32")
    assert found["host_memory_bytes_per_s"] == (updates + 2 * copies * calibrate._COPY_BYTES) / both


def test_a_link_that_fails_ends_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="device is lost"):
        together(LinkOfSeconds(1e-4, fails_after=2))
