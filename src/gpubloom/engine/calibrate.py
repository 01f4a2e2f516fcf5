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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.optimizer.encoding import Flat
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.plan import Calibration, Hardware, ModelShape, OptimizerConfig, costs, detect_hardware
from gpubloom.plan.optimizer_config import OptimizerState
from gpubloom.plan.placement import resident
from gpubloom.traincard.atomic_write import replace_file

# Another way of measuring makes old figures worthless.
_VERSION = 9
_SECONDS_EACH = 0.12
_COPY_BYTES = 256 * 2**20
_PRODUCT_SIZE = 8_192
_ADAM_ELEMENTS = {"cuda": 1 << 26, "cpu": 1 << 22}
# Updates beside which the link copies as much as it can.
_UPDATES = 2
# Of the models that a CPU is measured with: positions of a row, and steps.
_LENGTH = 64
_WARM_UP, _FEWEST_STEPS, _MOST_STEPS = 3, 7, 30
# However few steps that are: while threads wait for each other, one of a millisecond may take half a second.
_LONGEST_SECONDS_EACH = 0.3
# A machine is quiet if threads wait for a processor for less than this part of their time.
_QUIET = 0.03
_CPU = torch.device("cpu")


def calibrated(hardware: Hardware, device: torch.device, *, threads: int, fresh: bool = False) -> Hardware:
    """The machine with what was measured on it; measures when there is nothing in the cache."""
    found = None if fresh else kept(hardware, device, threads=threads)
    if found is not None:
        return found
    measured, file = measure(device, threads=threads), _cache_file(hardware, device, threads)
    if file is not None:
        # A cache that cannot be written costs a second at the next start, nothing else.
        with contextlib.suppress(OSError):
            replace_file(file, json.dumps(measured) + "\n")
    return _with(hardware, measured)


def kept(hardware: Hardware, device: torch.device, *, threads: int) -> Hardware | None:
    """The machine with what was measured on it before."""
    file = _cache_file(hardware, device, threads)
    with contextlib.suppress(OSError, ValueError, TypeError):
        return None if file is None else _with(hardware, json.loads(file.read_text(encoding="utf-8")))
    return None


def measure(device: torch.device, *, threads: int) -> dict[str, float]:
    """Fields of Calibration, and cpu_flops on a machine that trains on its CPU."""
    # First, while no other thread of this process has anything to do: idle ones spin for a while.
    training = _training_rates(threads) if device.type == "cpu" else {}
    adam = HostAdam(threads, pinned=device.type == "cuda", elements=_ADAM_ELEMENTS[device.type])
    # On a machine that has just started, threads are not awake at once.
    alone = {"host_adam_bytes_per_s": adam.rate("fp32", repeats=3)}
    if device.type == "cpu":
        return alone | training
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    with torch.cuda.device(device):
        link = Link(device)
        measured = alone | {
            "link_h2d": _COPY_BYTES / _seconds(link.send, device),
            "link_d2h": _COPY_BYTES / _seconds(link.fetch, device),
            "link_duplex": _COPY_BYTES / _seconds(link.both, device),
            **_together(adam, link, device),
            # Arithmetic on encodings, not memory, limits these.
            "host_adam_bf16_bytes_per_s": adam.rate("bf16"),
            "host_adam_8bit_bytes_per_s": adam.rate("8bit"),
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

    def __init__(self, threads: int, *, pinned: bool, elements: int) -> None:
        self._elements = elements
        self._optimizer = HostAdamW(threads)
        # Moments in fewer bits are held in the same memory.
        self._moments = [host_buffer(elements, torch.float32, pinned=pinned) for _ in range(2)]
        halves = (
            host_buffer(length, dtype, pinned=pinned) for length, dtype in Flat.lengths("split", elements)
        )
        self._master = Flat("split", tuple(halves))
        self._gradient = host_buffer(elements, torch.bfloat16, pinned=pinned)
        self._step = AdamWStep(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, updates=1)

    def bytes(self, state: OptimizerState) -> int:
        """Read and written by an update, as a plan counts them."""
        return costs.UPDATE_BYTES * self._elements + 2 * sum(flat.nbytes for flat in self._flats(state))

    def rate(self, state: OptimizerState, *, repeats: int = 1) -> float:
        """Bytes per second; the best of some measurements."""
        return self.bytes(state) / min(_seconds(lambda: self.update(state), _CPU) for _ in range(repeats))

    def update(self, state: OptimizerState = "fp32") -> None:
        first, second = self._flats(state)
        self._optimizer.update_packed(self._master, first, second, self._gradient, None, self._step, 1.0, 0)

    def _flats(self, state: OptimizerState) -> list[Flat]:
        flats = []
        for moment, roots in zip(self._moments, (False, True), strict=True):
            held, begin = [], 0
            for length, dtype in Flat.lengths(state, self._elements):
                end = begin + length * dtype.itemsize
                held.append(moment.view(torch.uint8)[begin:end].view(dtype))
                begin = end
            flats.append(Flat(state, tuple(held), roots=roots))
        return flats


def _together(adam: HostAdam, link: Link, device: torch.device) -> dict[str, float]:
    """The link while the optimizer never pauses; what both move when they begin and end together.

    That is as in a streamed step, where the CPU and the link update layers side by side. The host's memory
    moves a tenth more then than where the link has to take from the optimizer what it can get.
    """
    over = threading.Event()
    update_seconds = _UPDATES * _seconds(adam.update, _CPU)

    def update() -> None:
        while not over.is_set():
            adam.update()

    def update_some() -> None:
        for _ in range(_UPDATES):
            adam.update()

    def step() -> None:
        updating = pool.submit(update_some)
        for _ in range(copies):
            link.both()
        _wait(device)
        updating.result()

    with ThreadPoolExecutor(1, thread_name_prefix="calibrate-adam") as pool:
        updating = pool.submit(update)
        try:
            each_way = _COPY_BYTES / _seconds(link.both, device, at_least=3 * _SECONDS_EACH)
        finally:
            # The pool waits for its thread, whatever happened.
            over.set()
        updating.result()
        copies = max(1, round(update_seconds * each_way / _COPY_BYTES))
        seconds = _seconds(step, _CPU, at_least=2 * _SECONDS_EACH)
    moved = _UPDATES * adam.bytes("fp32") + 2 * copies * _COPY_BYTES
    return {"link_during_adam": each_way, "host_memory_bytes_per_s": moved / seconds}


@dataclass(frozen=True)
class _Probe:
    """A small model whose steps are measured."""

    width: int
    layers: int
    rows: int

    @property
    def shape(self) -> ModelShape:
        return ModelShape(
            vocab_size=257,
            hidden_size=self.width,
            layers=self.layers,
            heads=4,
            kv_heads=4,
            ffn_size=3 * self.width,
            context_length=_LENGTH,
            tie_embeddings=True,
        )

    def terms(self) -> list[float]:
        """What a step of it is made of: steps, layers, operations, values. As in plan/workload.py."""
        width, ffn, tokens = self.width, self.shape.ffn_size, self.rows * _LENGTH
        weights = self.layers * (4 * width * width + 3 * width * ffn) + self.shape.vocab_size * width
        attention = self.layers * 14 * width * _LENGTH / 2
        hidden = costs.WORKING_HIDDEN + costs.WORKING_KV
        values = self.layers * (hidden * width + costs.WORKING_FFN_GATED * ffn)
        values += costs.CPU_LOGIT_VALUES * self.shape.vocab_size
        return [1.0, float(self.layers), tokens * (6 * weights + attention), tokens * values]


# Two of which nothing counts but Python, one that is mostly small operations, one that is mostly products.
_PROBES = (_Probe(64, 1, 1), _Probe(64, 3, 1), _Probe(64, 2, 16), _Probe(256, 1, 8))
_LEAST = (1e-5, 1e-5, 1e-13, 1e-11)


def _training_rates(threads: int) -> dict[str, float]:
    """How fast this CPU trains, from steps of the probes.

    On a quiet machine steps are timed as they are trained: with all threads, by the clock. Where others use
    the processors too, threads that wait for each other take many times as long, so there the processor time
    of steps with one thread counts, which other processes do not change. What several threads gain and cost
    is then a constant.
    """
    with _one_thread(), _steps_of(_PROBES[1]) as step_once:
        # The first step of a process loads what all others use.
        step_once()
    if (seconds := _seconds_if_quiet(threads)) is not None:
        return _rates(*_solved(seconds))
    with _one_thread():
        seconds = [_step_seconds(probe, time.process_time) for probe in _PROBES]
    step, layer, operation, value = _solved(seconds)
    if threads > 1:
        layer *= costs.CPU_LAYER_WITH_THREADS
        value *= costs.CPU_VALUE_WITH_THREADS
    return _rates(step, layer, operation / threads, value)


def _seconds_if_quiet(threads: int) -> list[float] | None:
    """Of steps of the probes; None as soon as threads wait for a processor, or where nobody knows."""
    waited, began, seconds = _waiting_for_processor(), time.perf_counter(), list[float]()
    if waited is None:
        return None
    for probe in _PROBES:
        seconds.append(_step_seconds(probe, time.perf_counter))
        # The probes that are left may yet take their time without waiting.
        whole = time.perf_counter() - began + (len(_PROBES) - len(seconds)) * _SECONDS_EACH
        if (_waiting_for_processor() or 0.0) - waited >= _QUIET * whole * threads:
            return None
    return seconds


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    used = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(used)


def _solved(seconds: Sequence[float]) -> list[float]:
    """What a step, a layer, an operation and a value cost, if the probes take so long."""
    terms = torch.tensor([probe.terms() for probe in _PROBES], dtype=torch.float64)
    # Columns of one size each: operations are a billion times as many as layers.
    scale = terms.abs().amax(0)
    found = torch.linalg.solve(terms / scale, torch.tensor(seconds, dtype=torch.float64)) / scale
    return [max(least, each) for least, each in zip(_LEAST, found.tolist(), strict=True)]


def _rates(step: float, layer: float, operation: float, value: float) -> dict[str, float]:
    return {
        "cpu_flops": 1 / operation / costs.CPU_EFFICIENCY,
        "cpu_layer_seconds": layer,
        "cpu_step_seconds": step,
        "cpu_value_seconds": value,
    }


def _waiting_for_processor() -> float | None:
    """Seconds that threads of this process were ready to run and had no processor; None: nobody knows."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in Path("/proc/self/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[1])
        return total / 1e9
    return None


def _step_seconds(probe: _Probe, clock: Callable[[], float]) -> float:
    """The fastest of some steps."""
    with _steps_of(probe) as step:
        return _fastest(step, clock)


def _fastest(step: Callable[[], None], clock: Callable[[], float]) -> float:
    end, until, seconds = time.perf_counter() + _LONGEST_SECONDS_EACH, 0.0, list[float]()
    for number in range(_WARM_UP + _MOST_STEPS):
        if number == _WARM_UP:
            until = clock() + _SECONDS_EACH
        began = clock()
        step()
        now = clock()
        seconds.append(now - began)
        if time.perf_counter() >= end or (now > until and number + 1 >= _WARM_UP + _FEWEST_STEPS):
            break
    # Until memory that is freed after a step is found again in the next one, steps take longer.
    return min(seconds[_WARM_UP:] or seconds)


@contextlib.contextmanager
def _steps_of(probe: _Probe) -> Iterator[Callable[[], None]]:
    # Loaded here: runs on a GPU measure without them.
    from gpubloom.engine.data import Batch
    from gpubloom.engine.executors.blocks import BlockExecutor
    from gpubloom.engine.hardware import Compute
    from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama

    executor = BlockExecutor(
        LlamaBlocks(probe.shape),
        RandomLlama(probe.shape, 0),
        resident(probe.layers, tied=True),
        OptimizerConfig(),
        Compute(_CPU, "fp32", "for measuring"),
    )
    tokens = torch.zeros(1, probe.rows, _LENGTH, dtype=torch.int64)

    def step() -> None:
        executor.forward_backward(Batch(tokens, tokens))
        executor.optimizer_step(1e-3)
        executor.settle()

    try:
        yield step
    finally:
        executor.close()


def _product_rate(device: torch.device, dtype: torch.dtype) -> float:
    size = _PRODUCT_SIZE
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


def main() -> None:
    """This machine, measured now."""
    hardware = detect_hardware()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    measured = calibrated(hardware, device, threads=hardware.cpu_cores, fresh=True)
    sys.stdout.write(measured.model_dump_json() + "\n")
