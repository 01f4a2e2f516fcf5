"""The engine on a CPU beside a nanoGPT-style loop of the same size, with SDPA, fused AdamW and equal threads.

    python bench/cpu_step.py [--size small] [--rows 16] [--threads 2] [--rounds 10] [--kinds nano engine ...]

`nano` is that loop (nano_loop.py), `same` the same loop around the engine's own architecture, `eager` the
engine as it begins, `engine` the engine once its layers are compiled; all in fp32. `-bf16` are the same in
bf16, which the engine takes by itself where the CPU has instructions for it and layers are wide; the loop's
is torch's autocast. `nano-compiled`, not by default, is the loop through torch.compile. All are in one
process and take turns, one step each, in an order that is turned every round, so that other work on the
machine meets all alike. Printed are medians of a step and of the ratio to `nano` within a round; processor
time does not count what other processes took.
"""

import argparse
import json
import os
import statistics
import time
from typing import Any, Protocol

# Threads that spin while they wait would be counted as work, and keep others from theirs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from nano_loop import BETAS, CLIP, DECAY, NanoModel, PlainLoop

from gpubloom.engine.data import Loader
from gpubloom.engine.data.rows import Windows
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.model import Model
from gpubloom.engine.models.transformer import TransformerLM
from gpubloom.plan import TrainConfig

VOCABULARY = 257
KINDS = ("nano", "nano-bf16", "same", "eager", "engine", "eager-bf16", "engine-bf16")
WARM_STEPS = 3


class Contender(Protocol):
    """Something that trains."""

    @property
    def parameters(self) -> int: ...

    def step(self) -> float: ...


class EngineLoop:
    """What the trainer does in a step: rows of the loader, executor, update."""

    def __init__(self, config: TrainConfig, text: np.ndarray[Any, Any]) -> None:
        model = Model.open(config, vocab_size=VOCABULARY)
        self.said: list[str] = []
        self.executor = move_to_devices(config, model, say=self.said.append).executor
        self.parameters = model.shape.parameters
        self._loader = Loader(
            Windows(text, config.context_length),
            batch_size=config.batch_size,
            accumulation=config.accumulation,
            seed=0,
        )
        self._batches = self._loader.rest_of_epoch()
        self.loading = 0.0

    def step(self) -> float:
        began = time.perf_counter()
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self._loader.rest_of_epoch()
            batch = next(self._batches)
        self.loading += time.perf_counter() - began
        loss = float(self.executor.forward_backward(batch))
        self.executor.optimizer_step(1e-3)
        return loss


def make(kind: str, given: argparse.Namespace, text: np.ndarray[Any, Any]) -> Contender:
    """One of the contenders, ready to train."""
    config = TrainConfig.model_validate(
        {
            "device": "cpu",
            "batch_size": given.rows,
            "model": {"preset": given.size},
            "compile": "on" if kind.startswith("engine") else "off",
            "precision": "bf16" if kind.endswith("bf16") else "fp32",
            "optimizer": {"beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": DECAY, "clip_norm": CLIP},
        }
    )
    if kind.startswith(("eager", "engine")):
        loop = EngineLoop(config, text)
        while kind.startswith("engine") and not any("compiled from" in said for said in loop.said):
            loop.step()
            assert not any("not compiled" in said for said in loop.said), loop.said
        return loop
    shape = config.model.shape(VOCABULARY)
    model: torch.nn.Module
    if kind == "same":
        model = TransformerLM.create(shape, 0)
    else:
        model = NanoModel(VOCABULARY, shape.hidden_size, shape.layers, shape.heads, shape.context_length)
    if kind == "nano-compiled":
        model.compile()
    return PlainLoop(model, text, given.rows, shape.context_length, bf16=kind == "nano-bf16")


def measure(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Seconds of each contender's steps, and how many times as fast as the first it is."""
    # Text that can be learned a little; no loss is compared here.
    text = np.random.default_rng(0).integers(0, 200, 200_000).astype(np.uint16)
    contenders: dict[str, Contender] = {}
    started: dict[str, float] = {}
    for kind in given.kinds:
        began = time.perf_counter()
        contenders[kind] = make(kind, given, text)
        for _ in range(WARM_STEPS):
            contenders[kind].step()
        started[kind] = time.perf_counter() - began
        if isinstance(contender := contenders[kind], EngineLoop):
            contender.loading = 0.0
    wall_seconds: dict[str, list[float]] = {kind: [] for kind in given.kinds}
    own: dict[str, list[float]] = {kind: [] for kind in given.kinds}
    for number in range(given.rounds):
        turn = number % len(given.kinds)
        for kind in (*given.kinds[turn:], *given.kinds[:turn]):
            before, used = time.perf_counter(), time.process_time()
            contenders[kind].step()
            wall_seconds[kind].append(time.perf_counter() - before)
            own[kind].append(time.process_time() - used)
    first = given.kinds[0]
    found = {}
    for kind in given.kinds:
        length = given.rows * _length(given)
        found[kind] = {
            "parameters": contenders[kind].parameters,
            "step_ms": 1e3 * statistics.median(wall_seconds[kind]),
            "fastest_ms": 1e3 * min(wall_seconds[kind]),
            "cpu_ms": 1e3 * statistics.median(own[kind]),
            "tokens_per_second": length / statistics.median(wall_seconds[kind]),
            "times": _times(wall_seconds[first], wall_seconds[kind]),
            "times_cpu": _times(own[first], own[kind]),
            "times_fastest": min(wall_seconds[first]) / min(wall_seconds[kind]),
            "start_s": started[kind],
        }
        if isinstance(contender := contenders[kind], EngineLoop):
            found[kind]["loader_percent"] = 100 * contender.loading / sum(wall_seconds[kind])
    return found


def _times(first: list[float], other: list[float]) -> float:
    return statistics.median(one / two for one, two in zip(first, other, strict=True))


def _length(given: argparse.Namespace) -> int:
    config = TrainConfig.model_validate({"model": {"preset": given.size}})
    return config.context_length


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--size", default="small", help="a preset")
    arguments.add_argument("--rows", type=int, default=16)
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument(
        "--kinds",
        nargs="+",
        default=list(KINDS),
        choices=[*KINDS, "nano-compiled"],
    )
    arguments.add_argument("--json", action="store_true", help="one line for programs")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    found = measure(given)
    if given.json:
        print(json.dumps(found))
        return
    load = os.getloadavg()[0]
    print(f"{given.size}, {given.rows} rows of {_length(given)}, {given.threads} threads, load {load:.0f}")
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    print(f"{'':<15}" + "".join(f"{name:>19}" for name in names))
    for kind, row in found.items():
        print(f"{kind:<15}" + "".join(f"{row[name]:>19,.2f}" if name in row else " " * 19 for name in names))


if __name__ == "__main__":
    main()
