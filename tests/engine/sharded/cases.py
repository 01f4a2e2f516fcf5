"""Models that are trained whole by the block executor and divided by the sharded one."""

from typing import Any

from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.sharded import ShardedExecutor
from gpubloom.engine.models.lora import LoraSettings, LoraWeights, with_lora
from gpubloom.engine.parallel import ALONE, Group
from tests.engine.placements.training import (
    DEVICE,
    KEPT,
    OPTIMIZER,
    Trained,
    batch_of,
    compute,
    cycled,
    learning_rate,
)

STEPS, ROWS = 20, 6


def adapted(name: str, dropout: float, accumulation: int = 1) -> Trained:
    base = Trained.family(name)
    model = with_lora(base.model, LoraSettings(rank=4, alpha=8, dropout=dropout), seed=5)
    return Trained(
        model,
        lambda: LoraWeights(model, base.source(), seed=4),
        optimizer=OPTIMIZER,
        accumulation=accumulation,
    )


QUICK = {
    "own": lambda: Trained.own(tied=False),
    "own, tied, adapters with dropout, accumulating": lambda: adapted("own tied", 0.1, accumulation=2),
}
CASES = QUICK | {
    "own, tied, accumulating": lambda: Trained.own(tied=True, accumulation=2),
    "gpt2, accumulating": lambda: Trained.family("gpt2", accumulation=2),
    "adapters": lambda: adapted("llama", 0.0, accumulation=2),
    "adapters with dropout": lambda: adapted("llama", 0.1),
}


def executor_of(kind: Any, trained: Trained, group: Group = ALONE) -> Any:
    """A BlockExecutor or a ShardedExecutor of the same model; some layers keep their activations."""
    options = ExecutorOptions(accumulation=trained.accumulation, group=group)
    placement = cycled(KEPT, DEVICE)(trained.model)
    return kind(
        trained.model, trained.source(), placement, trained.optimizer, compute(trained.precision), options
    )


def share(batch: Batch, group: Group) -> Batch:
    """The rows of one process, as the loader gives them out."""

    def own(tensor_ABT: Tensor) -> Tensor:
        rows = tensor_ABT.shape[1] // group.size
        return tensor_ABT[:, group.rank * rows : (group.rank + 1) * rows].contiguous()

    return Batch(own(batch.tokens_ABT), own(batch.targets_ABT))


def train(
    executor: BlockExecutor | ShardedExecutor, trained: Trained, group: Group = ALONE, steps: int = STEPS
) -> dict[str, Any]:
    """Losses and norms of some steps, and what an evaluation and a sample say afterwards."""
    losses, norms = [], []
    for step in range(steps):
        batch = share(batch_of(step, accumulation=trained.accumulation, rows=ROWS), group)
        losses.append(float(executor.forward_backward(batch)))
        norms.append(float(executor.optimizer_step(learning_rate(step))))
    batch = batch_of(99, rows=ROWS)
    loss, correct = executor.evaluate(batch)
    logits = executor.next_logits(batch.tokens_ABT[0, :1], 5)
    return {
        "losses": losses,
        "norms": norms,
        "evaluated": float(loss),
        "correct": int(correct),
        "logits": logits[0, :8].tolist(),
    }
