"""How fast a checkpoint is written and read, beside plain safetensors.

    python bench/checkpoint.py [--layers 8] [--hidden 1024] [--device cpu] [--state host] [--folder /tmp]

Ours streams weights and both moments from the blocks to shards with sha256 and fsync, within a memory budget;
plain is safetensors' save_file of the same tensors plus fsync, without checksums and from memory that already
holds them. Both take turns. Then steps are trained while a checkpoint is written, beside steps without one,
and what was written is compared with the state at the moment of the call. One JSON line for each budget.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks.snapshot import PARTS, Part
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.engine.shards.shard_files import (
    SHARD_BYTES,
    ShardFolder,
    Sharding,
    moment_stretches,
    shard,
    weight_stretches,
    write_shards,
)
from gpubloom.plan import ModelShape, OptimizerConfig
from gpubloom.plan.placement import BlockPlacement, Placement

VOCABULARY = 32_000
CONTEXT = 128
REPEATS = 3


def make_executor(given: argparse.Namespace) -> BlockExecutor:
    shape = ModelShape(
        vocab_size=VOCABULARY,
        hidden_size=given.hidden,
        layers=given.layers,
        heads=given.hidden // 64,
        kv_heads=given.hidden // 64,
        ffn_size=4 * given.hidden,
        context_length=CONTEXT,
        tie_embeddings=False,
    )
    block_placement = BlockPlacement(
        state=given.state, weights="device" if given.state == "device" else "stream"
    )
    placement = Placement(
        embedding=block_placement, layers=(block_placement,) * given.layers, head=block_placement
    )
    executor = BlockExecutor(
        LlamaBlocks(shape),
        RandomLlama(shape, 0),
        placement,
        OptimizerConfig(),
        choose_compute(given.device, "auto"),
        ExecutorOptions(threads=max(1, len(os.sched_getaffinity(0)) - 1)),
    )
    for store in executor.stores:
        # Pages that were never touched would be read for free.
        store.first.normal_(std=1e-4)
        store.second.uniform_(0, 1e-8)
    return executor


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def train_step(executor: BlockExecutor) -> None:
    rows = torch.randint(0, VOCABULARY, (1, 1, CONTEXT + 1))
    float(executor.forward_backward(Batch(rows[..., :-1], rows[..., 1:])))
    executor.optimizer_step(1e-5)


def measure_training(
    executor: BlockExecutor, folder: Path, budget: int, shardings: list[Sharding]
) -> dict[str, object]:
    """How long steps take alone and while a checkpoint is written, and whether that one is exact."""
    alone = [seconds(lambda: train_step(executor)) for _ in range(6)][2:]
    snapshot = executor.snapshot(budget)
    executor.settle()
    expected = {
        (block, part): getattr(store, part).cpu().clone()
        for block, store in enumerate(executor.stores)
        for part in PARTS
    }
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_shards, folder, snapshot, shardings)
        meanwhile = []
        while not writing.done() or not meanwhile:
            meanwhile.append(seconds(lambda: train_step(executor)))
    writing.result()
    return {
        "step_milliseconds": round(1_000 * statistics.median(alone), 1),
        "step_while_writing_milliseconds": round(1_000 * statistics.median(meanwhile), 1),
        "longest_step_while_writing_milliseconds": round(1_000 * max(meanwhile), 1),
        "steps_while_writing": len(meanwhile),
        "exact": all(_is_exact(folder, each, expected) for each in shardings),
    }


def _is_exact(folder: Path, sharding: Sharding, expected: dict[tuple[int, Part], Tensor]) -> bool:
    for each in sharding.shards:
        tensors = safetensors.torch.load_file(folder / each.file)
        for stretch in each.stretches:
            state = expected[stretch.block, stretch.part][stretch.start : stretch.start + stretch.length]
            if not torch.equal(tensors[stretch.name].flatten(), state):
                return False
    return True


def measure(executor: BlockExecutor, folder: Path, budget: float, shard_bytes: int) -> None:
    model = executor.model
    weights, moments = weight_stretches(model), moment_stretches(model)
    shardings = [shard(weights, "model", shard_bytes), shard(moments, "optimizer", shard_bytes)]
    total = sum(each.total_bytes for each in shardings)
    ours, plain = folder / "ours", folder / "plain"
    written: dict[str, str] = {}
    held_up: list[float] = []
    peaks: list[int] = []

    def write() -> None:
        begin = time.perf_counter()
        snapshot = executor.snapshot(int(budget * total))
        held_up.append(time.perf_counter() - begin)
        written.update(write_shards(ours, snapshot, shardings))
        peaks.append(snapshot.peak_bytes)

    def read() -> None:
        shards = ShardFolder(ours, written, "")
        for stem, stretches in (("model", weights), ("optimizer", moments)):
            shards.read(stem, stretches, lambda each: getattr(executor.stores[each.block], each.part))

    def save_file() -> None:
        for sharding in shardings:
            for each in sharding.shards:
                tensors = {
                    stretch.name: getattr(executor.stores[stretch.block], stretch.part)[
                        stretch.start : stretch.start + stretch.length
                    ].view(stretch.shape)
                    for stretch in each.stretches
                }
                safetensors.torch.save_file(tensors, plain / each.file)
                with (plain / each.file).open("rb") as file:
                    os.fsync(file.fileno())

    times = []
    for _ in range(REPEATS):
        for each in (ours, plain):
            shutil.rmtree(each, ignore_errors=True)
            each.mkdir()
        times.append((seconds(write), seconds(save_file), seconds(read)))
    write_s, plain_s, read_s = (statistics.median(column) for column in zip(*times, strict=True))
    line = {
        "device": str(executor.device.torch),
        "state": executor.placement.embedding.state,
        "gigabytes": round(total / 1e9, 2),
        "budget": budget,
        "peak_extra_gigabytes": round(max(peaks) / 1e9, 3),
        "write_gigabytes_per_second": round(total / write_s / 1e9, 2),
        "save_file_gigabytes_per_second": round(total / plain_s / 1e9, 2),
        "times_save_file": round(plain_s / write_s, 2),
        "read_gigabytes_per_second": round(total / read_s / 1e9, 2),
        "start_milliseconds": round(1_000 * max(held_up), 2),
        **measure_training(executor, ours, int(budget * total), shardings),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--layers", type=int, default=8)
    arguments.add_argument("--hidden", type=int, default=1024)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--state", choices=("device", "host", "link"), default="host")
    arguments.add_argument("--shard-bytes", type=int, default=SHARD_BYTES)
    arguments.add_argument("--budgets", type=float, nargs="+", default=[1.0, 0.1], help="of the state")
    arguments.add_argument("--folder", type=Path, default=None, help="where to write; needs twice the size")
    given = arguments.parse_args()
    executor = make_executor(given)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for budget in given.budgets:
            measure(executor, Path(folder), budget, given.shard_bytes)


if __name__ == "__main__":
    main()
