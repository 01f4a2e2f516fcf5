"""Executors on a GPU, batches to train them with, and fingerprints of what they learnt."""

import gc
import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks.snapshot import PARTS
from gpubloom.engine.hardware import choose_compute
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.plan import ModelShape, OptimizerConfig
from gpubloom.plan.placement import BlockPlacement, Placement

OPTIMIZER = OptimizerConfig(weight_decay=0.1, clip_norm=0.5)
# So few of the vocabulary occur that the loss falls from the first steps on.
_WORDS = 64
DEVICE = BlockPlacement()
KEPT = BlockPlacement(keep=True)
CAST = BlockPlacement(weights="cast")
HOST = BlockPlacement(state="host", weights="stream")
LINK = BlockPlacement(state="link", weights="stream")
FILLED_KEPT = BlockPlacement(state="host", keep=True)


def shape(**changes: Any) -> ModelShape:
    sizes = {
        "vocab_size": 8_192,
        "hidden_size": 512,
        "layers": 6,
        "heads": 8,
        "kv_heads": 4,
        "ffn_size": 1_408,
        "context_length": 256,
        "tie_embeddings": False,
    }
    return ModelShape(**{**sizes, **changes})


# Every head has keys of its own: sums over shared ones need not come in the same order each time.
SMALL = shape(hidden_size=256, layers=8, kv_heads=8, ffn_size=704, vocab_size=2_048, context_length=128)


def placement(*layers: BlockPlacement, of: ModelShape = SMALL, **more: Any) -> Placement:
    """Layers take these places in turn."""
    ends = more.pop("ends", DEVICE)
    return Placement(
        embedding=ends,
        layers=tuple(layers[index % len(layers)] for index in range(of.layers)),
        head=None if of.tie_embeddings else ends,
        **more,
    )


PLACEMENTS = {
    "resident, kept": placement(KEPT),
    "resident, recorded": placement(KEPT, cuda_graph=True),
    "resident, computed again": placement(DEVICE),
    "cast": placement(CAST, slots=2),
    "streamed through two slots": placement(HOST, slots=2),
    "streamed whole": placement(HOST, ends=HOST, slots=4),
    "gradients over weights": placement(HOST, share_gradients=True),
    "link": placement(LINK, slots=2),
    "mixed": placement(HOST, LINK, CAST, FILLED_KEPT, slots=3, ends=BlockPlacement(state="link")),
    "inputs in host memory": placement(HOST, DEVICE, offload_inputs=True),
    "gradients computed twice": placement(HOST, slots=2, gradients_twice=3),
}


@contextmanager
def executor_of(
    of: ModelShape,
    placement: Placement,
    *,
    precision: Any = "bf16",
    accumulation: int = 1,
    compiled: bool = False,
    optimizer: OptimizerConfig = OPTIMIZER,
    device: str = "cuda",
) -> Iterator[BlockExecutor]:
    executor = BlockExecutor(
        LlamaBlocks(of),
        RandomLlama(of, seed=1),
        placement,
        optimizer,
        choose_compute(device, precision),
        ExecutorOptions(
            accumulation=accumulation,
            compiled=compiled,
            threads=min(8, len(os.sched_getaffinity(0))),
            # Such as why a step could not be recorded.
            say=print,
        ),
    )
    with released(executor):
        yield executor


@contextmanager
def released(executor: BlockExecutor) -> Iterator[None]:
    """What a test took from the GPU and from pinned memory is given back before the next one."""
    try:
        yield
    finally:
        executor.close()
        torch.cuda.synchronize()
        del executor
        gc.collect()
        torch.cuda.empty_cache()


def batch_of(step: int, of: ModelShape, *, rows: int = 8, accumulation: int = 1) -> Batch:
    """Rows with a rule in them; the same for a step however they are cut into micro-batches."""
    generator = torch.Generator().manual_seed(step)
    first_R1 = torch.randint(0, _WORDS, (rows, 1), generator=generator)
    stride_R1 = torch.randint(1, 5, (rows, 1), generator=generator)
    rows_RT = (first_R1 + stride_R1 * torch.arange(of.context_length + 1)) % _WORDS
    rows_ABT = rows_RT.view(accumulation, rows // accumulation, -1)
    return Batch(rows_ABT[..., :-1].contiguous(), rows_ABT[..., 1:].contiguous())


def learning_rate(step: int) -> float:
    return 3e-4 * min(1.0, (step + 1) / 10)


def train(
    executor: BlockExecutor, of: ModelShape, steps: Sequence[int], accumulation: int = 1
) -> list[float]:
    losses = []
    for step in steps:
        losses.append(executor.forward_backward(batch_of(step, of, accumulation=accumulation)))
        executor.optimizer_step(learning_rate(step))
    return [float(loss) for loss in losses]


def digests(executor: BlockExecutor) -> list[str]:
    """A fingerprint of every part of every block's state."""
    executor.settle()
    torch.cuda.synchronize()

    def digest(tensor: Tensor) -> str:
        return hashlib.blake2b(tensor.cpu().numpy().data).hexdigest()

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(digest, (getattr(store, part) for store in executor.stores for part in PARTS)))
