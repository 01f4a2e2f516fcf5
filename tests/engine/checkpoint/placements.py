"""Small executors on the CPU under every placement, and batches to train them with."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine import Model
from gpubloom.engine.checkpoint import Progress, read_checkpoint, start_save
from gpubloom.engine.data import Batch, Tokenizer
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks.snapshot import PARTS
from gpubloom.engine.hardware import Compute
from gpubloom.engine.llama_folder import hugging_face_config
from gpubloom.engine.model_folder import ModelFolder
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.plan import ModelShape, OptimizerConfig, TokenizerConfig
from gpubloom.plan.placement import BlockPlacement, Placement, resident, streamed

LAYERS = 3
SHAPE = ModelShape(
    vocab_size=96,
    hidden_size=32,
    layers=LAYERS,
    heads=2,
    kv_heads=2,
    ffn_size=64,
    context_length=16,
    tie_embeddings=False,
)

_HOST = BlockPlacement(state="host", weights="stream")
_LINK = BlockPlacement(state="link", weights="stream")
PLACEMENTS = {
    "resident": resident(LAYERS, tied=False),
    "streamed": streamed(LAYERS, tied=False),
    "link": Placement(
        embedding=BlockPlacement(state="link"), layers=(_LINK,) * LAYERS, head=BlockPlacement(state="link")
    ),
    "cast": Placement(
        embedding=BlockPlacement(), layers=(BlockPlacement(weights="cast"),) * LAYERS, head=BlockPlacement()
    ),
    # States on the device, weights in host memory: how adapters are trained.
    "base-streamed": Placement(
        embedding=BlockPlacement(),
        layers=(BlockPlacement(weights="stream"),) * LAYERS,
        head=BlockPlacement(weights="stream"),
    ),
    "mixed": Placement(
        embedding=BlockPlacement(state="host"),
        layers=(_LINK, BlockPlacement(keep=True), _HOST),
        head=BlockPlacement(),
    ),
}


def make_model() -> Model:
    return Model(
        blocks=LlamaBlocks(SHAPE),
        source=RandomLlama(SHAPE, seed=3),
        shape=SHAPE.decoder(),
        settings=hugging_face_config(SHAPE, None),
    )


def make_executor(
    placement: str, precision: str = "fp32", model: Model | None = None, *, quantized: bool = False
) -> BlockExecutor:
    model = model or make_model()
    return BlockExecutor(
        model.blocks,
        model.source,
        PLACEMENTS[placement],
        OptimizerConfig(),
        Compute(torch.device("cpu"), precision, "asked for"),  # type: ignore[arg-type]
        ExecutorOptions(quantized=quantized),
    )


def folder_of(model: Model, base: str | None = None) -> ModelFolder:
    tokenizer = Tokenizer.create(TokenizerConfig(), ())
    return ModelFolder(model, tokenizer, SHAPE.context_length, base)


def save(folder: Path, model: Model, executor: BlockExecutor, step: int, **options: Any) -> Path:
    """Saves and waits until it is saved."""
    progress = Progress(
        step=step,
        updates=executor.updates,
        tokens_seen=0,
        loader={},
        data_fingerprint="",
        metrics={},
        loss_scale=executor.loss_scale,
    )
    saving = start_save(folder, folder_of(model), executor, progress, **options)
    saving.finish()
    return saving.path


def restore(path: Path, model: Model, executor: BlockExecutor) -> None:
    read_checkpoint(path, folder_of(model)).restore(executor)


def train(executor: BlockExecutor, steps: int, first: int = 0) -> list[float]:
    """The losses of some steps; step n always sees the same batch."""
    losses = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(step)
        rows_ABT = torch.randint(0, SHAPE.vocab_size, (1, 2, SHAPE.context_length + 1), generator=generator)
        losses.append(float(executor.forward_backward(Batch(rows_ABT[..., :-1], rows_ABT[..., 1:]))))
        executor.optimizer_step(1e-2)
    return losses


def state_of(executor: BlockExecutor) -> list[Tensor]:
    executor.settle()
    return [getattr(store, part).clone() for store in executor.stores for part in PARTS]


def state_bytes(executor: BlockExecutor) -> int:
    return sum(getattr(store, part).nbytes for store in executor.stores for part in PARTS)


def same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))
