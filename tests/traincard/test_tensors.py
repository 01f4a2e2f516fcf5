"""Tensors: read without making the training thread wait, and never wrong."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpubloom.traincard import Reporter
from tests.traincard.conftest import events_of

torch = pytest.importorskip("torch")


def test_a_tensor_on_the_host_is_recorded_as_it_was_when_reported(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        total = torch.tensor(1.5, requires_grad=True)
        reporter.metric("loss", total, 1)
        reporter.metrics({"a": total * 2, "b": torch.tensor(3), "c": 4.0}, step=1)
        with torch.no_grad():
            total.zero_()
    assert events_of(run_dir, "metric")[0].fields["values"] == {"loss": 1.5, "a": 3.0, "b": 3, "c": 4.0}


class _CudaDevice:
    type = "cuda"


_CUDA = _CudaDevice()


class _Device:
    """A CUDA device as torch documents it: work is queued, events say when it is done."""

    def __init__(self) -> None:
        self.done = False
        device = self

        class Event:
            def record(self, stream: object) -> None:
                self.stream = stream

            def query(self) -> bool:
                return device.done

        @contextmanager
        def stream(own: object) -> Iterator[None]:
            yield

        self.cuda = SimpleNamespace(
            Event=Event,
            current_stream=lambda device: SimpleNamespace(cuda_stream=0),
            default_stream=lambda device: "default",
            stream=stream,
        )

    def tensor(self, value: float) -> Any:
        device = self

        class Tensor:
            is_cuda = True
            device = _CUDA
            _version = 0

            def detach(self) -> "Tensor":
                return self

            def item(self) -> float:
                assert device.done, "this would have waited for the device"
                return value

        return Tensor()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> _Device:
    made = _Device()
    monkeypatch.setattr(torch, "cuda", made.cuda)
    monkeypatch.setattr("gpubloom.traincard.number_encoding._own_stream", lambda cuda, device: "own")
    return made


def test_a_value_still_being_computed_is_written_later_and_holds_nothing_up(
    run_dir: Path, device: _Device
) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", device.tensor(1.5), 1)
        reporter.phase("eval")
        reporter.on_sigterm()
        assert [event.kind for event in events_of(run_dir)] == ["start", "phase", "end"]
        device.done = True
        assert reporter.flush()
        assert events_of(run_dir, "metric")[0].fields["values"] == {"loss": 1.5}


@pytest.mark.parametrize("call", ["flush", "close"])
def test_flush_and_close_wait_for_the_last_value_of_a_device(
    run_dir: Path, device: _Device, call: str
) -> None:
    reporter = Reporter(run_dir, telemetry_seconds=0)
    reporter.metric("loss", device.tensor(1.5), 1)
    timer = threading.Timer(0.2, lambda: setattr(device, "done", True))
    timer.start()
    getattr(reporter, call)()
    timer.join()
    written = events_of(run_dir, "metric")
    reporter.close()
    assert [event.fields["values"] for event in written] == [{"loss": 1.5}]


@pytest.mark.long
def test_a_device_that_hangs_does_not_keep_the_end_from_being_recorded(
    run_dir: Path, device: _Device
) -> None:
    reporter = Reporter(run_dir, telemetry_seconds=0)
    reporter.metric("loss", device.tensor(1.5), 1)
    reporter.on_exception(RuntimeError("NCCL watchdog timeout"))
    reporter.close()
    assert [event.kind for event in events_of(run_dir)] == ["start", "error", "end", "dropped"]
    assert "device" in events_of(run_dir, "dropped")[0].fields["reason"]


def test_a_tensor_changed_in_place_before_it_was_read_is_refused_not_recorded_wrong(
    run_dir: Path, device: _Device, caplog: pytest.LogCaptureFixture
) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        total = device.tensor(1.5)
        reporter.metric("loss", total, 1)
        total._version += 1
        device.done = True
    assert not events_of(run_dir, "metric")
    assert "clone()" in caplog.text


cuda_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda_only
@pytest.mark.parametrize("side_stream", [False, True])
def test_values_of_a_busy_gpu_are_right_and_nobody_waits_for_them(run_dir: Path, side_stream: bool) -> None:
    big = torch.randn(8192, 8192, device="cuda")
    stream = torch.cuda.Stream() if side_stream else torch.cuda.default_stream()
    with Reporter(run_dir, telemetry_seconds=0) as reporter, torch.cuda.stream(stream):
        torch.cuda.synchronize()
        slowest = 0.0
        for step in range(50):
            for _ in range(5):
                big = torch.nn.functional.normalize(big @ big)
            loss = (big * 0).sum() + step
            begin = time.perf_counter()
            reporter.metric("loss", loss, step)
            slowest = max(slowest, time.perf_counter() - begin)
        queued = time.perf_counter()
        torch.cuda.synchronize()
        busy = time.perf_counter() - queued
    values = [(event.step, event.fields["values"]["loss"]) for event in events_of(run_dir, "metric")]
    assert values == [(step, float(step)) for step in range(50)]
    assert slowest < busy / 2


@cuda_only
def test_the_end_is_recorded_while_the_gpu_is_still_busy(run_dir: Path) -> None:
    reporter = Reporter(run_dir, telemetry_seconds=0)
    # Once before: loading a kernel for the first time waits for the device by itself.
    loss = torch.ones((), device="cuda") * 1
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    torch.cuda._sleep(6_000_000_000)
    idle = torch.cuda.Event()
    idle.record()
    reporter.metric("loss", loss * 1, 1)
    reporter.on_exception(RuntimeError("NCCL watchdog timeout"))
    assert not idle.query(), "the end was recorded only when the GPU was idle"
    assert [event.kind for event in events_of(run_dir)] == ["start", "error", "end"]
    torch.cuda.synchronize()
    reporter.close()
    assert events_of(run_dir, "metric")[0].fields["values"] == {"loss": 1.0}


@cuda_only
def test_a_tensor_on_the_gpu_changed_in_place_is_refused(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        total = torch.ones((), device="cuda")
        reporter.metric("loss", total, 1)
        total.zero_()
        torch.cuda.synchronize()
    assert not events_of(run_dir, "metric")
