"""Divided executors of a small model, saved and continued."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine import Model
from gpubloom.engine.checkpoint import Progress, list_checkpoints, read_checkpoint, start_save
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.hardware import Compute
from gpubloom.engine.parallel import ALONE, Group
from gpubloom.plan import OptimizerConfig
from gpubloom.plan.placement import resident
from tests.engine.checkpoint.placements import LAYERS, SHAPE, folder_of, make_model
from tests.engine.placements.training import batch_of
from tests.engine.sharded.cases import share

ROWS = 6


def make(kind: Any, group: Group = ALONE, model: Model | None = None) -> Any:
    model = model or make_model()
    compute = Compute(torch.device("cpu"), "fp32", "chosen by the test")
    return kind(
        model.blocks,
        model.source,
        resident(LAYERS, tied=False),
        OptimizerConfig(),
        compute,
        ExecutorOptions(group=group),
    )


def train(executor: Any, steps: range, group: Group = ALONE) -> list[float]:
    losses = []
    for step in steps:
        losses.append(
            float(
                executor.forward_backward(
                    share(batch_of(step, rows=ROWS, vocabulary=SHAPE.vocab_size), group)
                )
            )
        )
        executor.optimizer_step(1e-2)
    return losses


def save(folder: Path, executor: Any, step: int) -> Path:
    progress = Progress(
        step=step,
        updates=executor.updates,
        tokens_seen=0,
        loader={},
        data_fingerprint="",
        metrics={},
        loss_scale={},
    )
    saving = start_save(folder, folder_of(make_model()), executor, progress)
    saving.finish()
    return saving.path


def restore(path: Path, executor: Any) -> None:
    read_checkpoint(path, folder_of(make_model())).restore(executor)


def go_on(folder: Path, steps: range, out: Path, group: Group) -> None:
    """As one process of a group: continues from the newest checkpoint if there is one, trains, and saves."""
    executor = make(ShardedExecutor, group)
    if found := list_checkpoints(folder):
        restore(found[-1], executor)
    losses = train(executor, steps, group)
    save(folder, executor, steps.stop)
    if group.leads:
        out.write_text(json.dumps(losses), encoding="utf-8")


def state_of(executor: BlockExecutor | ShardedExecutor) -> dict[str, Tensor]:
    """Masters and moments by block, tensor and part; only whole for one process."""
    found = {}
    if isinstance(executor, ShardedExecutor):
        for tensor in executor.tensors:
            for part in ("master", "first", "second"):
                found[f"{tensor.block} {tensor.spec.name} {part}"] = getattr(tensor, part).clone()
        return found
    executor.settle()
    for block, store in enumerate(executor.stores):
        for part in ("master", "first", "second"):
            for name, tensor in store.trained.named(getattr(store, part)).items():
                found[f"{block} {name} {part}"] = tensor.clone()
    return found


def hashed(state: dict[str, Tensor]) -> dict[str, str]:
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in state.items()}
