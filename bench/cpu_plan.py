"""Are steps of small models on a CPU predicted?

    python bench/cpu_plan.py [--precision bf16]

Calibrates as `bloom plan --measure` does, then takes steps of six models. Use a quiet machine, or real-time
priority (`chrt -f 1 python bench/cpu_plan.py`): the fastest step counts, but threads that wait for each other
on a busy machine have no fast step.
"""

import argparse
import os
import time
from typing import cast

import torch

from gpubloom.engine import calibrate
from gpubloom.engine.data import Batch
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.engine.executors import KeepsBlocks
from gpubloom.engine.model import Model
from gpubloom.plan import TrainConfig, detect_hardware, plan

RUNS = (
    ("nano", 32, 64),
    ("nano", 4, 64),
    ("tiny", 8, 128),
    ("tiny", 32, 128),
    ("small", 4, 128),
    ("small", 8, 256),
)
VOCABULARY = 257
SECONDS = 1.0
FEWEST = 8


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    precision = arguments.parse_args().precision
    began = time.perf_counter()
    threads = torch.get_num_threads()
    hardware = calibrate.calibrated(detect_hardware(), torch.device("cpu"), threads=threads, fresh=True)
    seconds = time.perf_counter() - began
    print(f"calibrated in {seconds:.1f} s; {threads} threads, load {os.getloadavg()[0]:.1f}, {precision}")
    for preset, rows, length in RUNS:
        config = TrainConfig.model_validate(
            {
                "model": {"preset": preset, "context_length": length},
                "batch_size": rows,
                "device": "cpu",
                "precision": precision,
            }
        )
        predicted, measured = plan(config, hardware).step_seconds, _fastest(config)
        print(
            f"{preset:<6}{rows:>4} × {length:<5}{measured * 1e3:>9.1f} ms, predicted {predicted * 1e3:.1f} "
            f"({predicted / measured - 1:+.0%})"
        )


def _fastest(config: TrainConfig) -> float:
    on_devices = move_to_devices(config, Model.open(config, vocab_size=VOCABULARY))
    executor = cast(KeepsBlocks, on_devices.executor)
    tokens = torch.randint(0, VOCABULARY, (1, config.batch_size, config.context_length + 1))
    batch = Batch(tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous())
    found: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(found) < FEWEST or time.perf_counter() < until:
        began = time.perf_counter()
        float(executor.forward_backward(batch))
        executor.optimizer_step(1e-3)
        executor.settle()
        found.append(time.perf_counter() - began)
    executor.close()
    return min(found)


if __name__ == "__main__":
    main()
