"""One process of several on one device: python -m tests.engine.gpu_member OUT EXECUTOR BACKEND DEVICE

EXECUTOR is `block` or `sharded`. Rank and size come from torchrun's variables. Leaves the losses of some
steps in OUT.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.engine.parallel import Group
from tests.engine.on_gpu import KEPT, OPTIMIZER, SMALL, batch_of, learning_rate, placement
from tests.engine.sharded.cases import share

STEPS = 6


def losses(executor_name: str, device: str, group: Group) -> list[float]:
    kind = {"block": BlockExecutor, "sharded": ShardedExecutor}[executor_name]
    executor = kind(
        LlamaBlocks(SMALL),
        RandomLlama(SMALL, seed=1),
        placement(KEPT),
        OPTIMIZER,
        choose_compute(device, "fp32"),
        ExecutorOptions(group=group),
    )
    found = []
    for step in range(STEPS):
        found.append(float(executor.forward_backward(share(batch_of(step, SMALL), group))))
        executor.optimizer_step(learning_rate(step))
    executor.close()
    return found


def main() -> None:
    out, executor_name, backend, device = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    found = losses(executor_name, device, Group(rank, size, rank, size))
    Path(out, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
