"""Measures in about a second what a plan otherwise assumes: link, products, memory, host optimizer.

Figures are kept per machine in the user's cache, since they do not change from run to run. `main` prints the
machine as JSON, which is how `bloom plan --measure` gets it without importing torch.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.plan import Calibration, Hardware, detect_hardware

# Another way of measuring makes old figures worthless.
_VERSION = 3
_SECONDS_EACH = 0.12
_COPY_BYTES = 256 * 2**20
_PRODUCT_SIZE = {"cuda": 8_192, "cpu": 1_024}
_ADAM_ELEMENTS = 1 << 26
_CPU = torch.device("cpu")


def calibrated(hardware: Hardware, device: torch.device, *, threads: int, fresh: bool = False) -> Hardware:
    """The machine with what was measured on it; measures when there is nothing in the cache."""
    kept = _cache_file(hardware, device, threads)
    if kept is not None and not fresh:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return _with(hardware, json.loads(kept.read_text(encoding="utf-8")))
    measured = measure(device, threads=threads)
    if kept is not None:
        # A cache that cannot be written costs a second at the next start, nothing else.
        with contextlib.suppress(OSError):
            write_whole(kept, json.dumps(measured) + "\n")
    return _with(hardware, measured)


def measure(device: torch.device, *, threads: int) -> dict[str, float]:
    """Fields of Calibration, and cpu_flops on a machine that trains on its CPU."""
    adam = HostAdam(threads, pinned=device.type == "cuda")
    # On a machine that has just started, threads are not awake at once.
    alone = {"host_adam_bytes_per_s": adam.bytes / min(_seconds(adam.update, _CPU) for _ in range(3))}
    if device.type == "cpu":
        return alone | {"cpu_flops": _product_rate(device, torch.float32)}
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    with torch.cuda.device(device):
        link = Link(device)
        measured = alone | {
            "link_h2d": _COPY_BYTES / _seconds(link.send, device),
            "link_d2h": _COPY_BYTES / _seconds(link.fetch, device),
            "link_duplex": _COPY_BYTES / _seconds(link.both, device),
            **_together(adam, link, device),
            "matrix_flops": _product_rate(device, dtype),
            "device_memory_bytes_per_s": _memory_rate(device),
        }
        # What was measured with is not the run's to hold.
        del link
        torch.cuda.empty_cache()
        return measured


def _with(hardware: Hardware, measured: dict[str, float]) -> Hardware:
    fields = dict(measured)
    cpu_flops = fields.pop("cpu_flops", hardware.cpu_flops)
    return hardware.model_copy(update={"calibration": Calibration(**fields), "cpu_flops": cpu_flops})


class Link:
    """Copies between host and device, on a stream for each way."""

    def __init__(self, device: torch.device) -> None:
        self._hosts = [host_buffer(_COPY_BYTES, torch.uint8, pinned=True) for _ in range(2)]
        self._there = [torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2)]
        self._lanes = [torch.cuda.Stream(device) for _ in range(2)]  # type: ignore[no-untyped-call]

    def send(self) -> None:
        with torch.cuda.stream(self._lanes[0]):
            self._there[0].copy_(self._hosts[0], non_blocking=True)

    def fetch(self) -> None:
        with torch.cuda.stream(self._lanes[1]):
            self._hosts[1].copy_(self._there[1], non_blocking=True)

    def both(self) -> None:
        self.send()
        self.fetch()


class HostAdam:
    """Updates of the kernel that trains, in memory like a run's: pages of another size give half the rate."""

    bytes = 28 * _ADAM_ELEMENTS

    def __init__(self, threads: int, *, pinned: bool) -> None:
        self._optimizer = HostAdamW(threads)
        self._states = [host_buffer(_ADAM_ELEMENTS, torch.float32, pinned=pinned) for _ in range(3)]
        self._copies = [host_buffer(_ADAM_ELEMENTS, torch.bfloat16, pinned=pinned) for _ in range(2)]
        self._step = AdamWStep(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, updates=1)

    def update(self) -> None:
        master, first, second = self._states
        gradient, copy = self._copies
        self._optimizer.update(master, first, second, gradient, copy, self._step, 1.0)


def _together(adam: HostAdam, link: Link, device: torch.device) -> dict[str, float]:
    """Both ways of the link and the optimizer at once share the host's memory, as in a streamed step."""
    over, updates = threading.Event(), 0

    def update() -> None:
        nonlocal updates
        while not over.is_set():
            adam.update()
            updates += 1

    update_thread = threading.Thread(target=update, name="calibrate-adam")
    started = time.perf_counter()
    update_thread.start()
    each_way = _COPY_BYTES / _seconds(link.both, device, at_least=3 * _SECONDS_EACH)
    over.set()
    update_thread.join()
    updating = updates * adam.bytes / (time.perf_counter() - started)
    return {"link_during_adam": each_way, "host_memory_bytes_per_s": updating + 2 * each_way}


def _product_rate(device: torch.device, dtype: torch.dtype) -> float:
    size = _PRODUCT_SIZE[device.type]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=dtype)
    return 2 * size**3 / _seconds(lambda: torch.mm(left, right, out=out), device)


def _memory_rate(device: torch.device) -> float:
    source, target = (torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    return 2 * _COPY_BYTES / _seconds(lambda: target.copy_(source), device)


def _seconds(work: Callable[[], object], device: torch.device, *, at_least: float = _SECONDS_EACH) -> float:
    """Of one call, on average over a tenth of a second; the first call warms up and is not counted."""
    work()
    _wait(device)
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < at_least:
        # Several at a time, so that a GPU is not kept waiting by the clock.
        for _ in range(4 if device.type == "cuda" else 1):
            work()
            calls += 1
        _wait(device)
    return passed / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _cache_file(hardware: Hardware, device: torch.device, threads: int) -> Path | None:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    parts = [_VERSION, hardware.name, name, device.index or 0, hardware.cpu_cores, threads, torch.__version__]
    key = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]
    folder = cache_folder()
    return None if folder is None else folder / f"machine-{key}.json"


def cache_folder() -> Path | None:
    """Where figures of this machine are kept; None where nothing can be."""
    root = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else Path.home() / ".cache") / "gpubloom"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder


def write_whole(file: Path, text: str) -> None:
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def main() -> None:
    """This machine, measured now."""
    hardware = detect_hardware()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measured = calibrated(hardware, device, threads=hardware.cpu_cores, fresh=True)
    sys.stdout.write(measured.model_dump_json() + "\n")
