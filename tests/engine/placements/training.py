"""A tiny model trained under one placement after the other, and the bits that come out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor, ExecutorOptions
from gpubloom.engine.executors.blocks.snapshot import PARTS
from gpubloom.engine.hardware import Compute
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, Weights, WeightSource
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.engine.models.weight_sources import RandomWeights
from gpubloom.plan import ModelShape, OptimizerConfig
from gpubloom.plan.placement import BlockPlacement, Placement
from tests.engine.models.families import VOCABULARY, model_of

STEPS, ROWS, LENGTH = 20, 2, 16
# Below every norm that these models have: each step is clipped.
CLIP_NORM = 0.05
OPTIMIZER = OptimizerConfig(weight_decay=0.1, clip_norm=CLIP_NORM)
# Less than a micro-batch has, and no divisor of it.
CHUNK = 20

DEVICE = BlockPlacement()
KEPT = BlockPlacement(keep=True)
CAST = BlockPlacement(weights="cast")
HOST = BlockPlacement(state="host", weights="stream")
LINK = BlockPlacement(state="link", weights="stream")
# In host memory, but at hand on the device for the whole step.
FILLED = BlockPlacement(state="host")
FILLED_KEPT = BlockPlacement(state="host", keep=True)
LINK_KEPT = BlockPlacement(state="link", keep=True)


def cycled(*layers: BlockPlacement, ends: BlockPlacement = DEVICE, **more: Any) -> Any:
    """Makes placements whose layers take these places in turn, for a model of any depth."""

    def of(model: BlockModel) -> Placement:
        count = sum(spec.kind not in {"embedding", "head"} for spec in model.blocks)
        return Placement(
            embedding=ends,
            layers=tuple(layers[index % len(layers)] for index in range(count)),
            head=None if model.tied else ends,
            loss_chunk_tokens=CHUNK,
            **more,
        )

    return of


PLACEMENTS = {
    "resident, kept": cycled(KEPT),
    "resident, computed again": cycled(DEVICE),
    "inputs in host memory": cycled(DEVICE, offload_inputs=True),
    "streamed": cycled(HOST),
    "streamed through two slots, ends in host memory": cycled(HOST, ends=FILLED, slots=2),
    "streamed whole": cycled(HOST, ends=HOST, slots=4, offload_inputs=True),
    "link": cycled(LINK, slots=2),
    "link with its ends": cycled(LINK, ends=LINK),
    "weights at hand, states in host memory": cycled(FILLED, FILLED_KEPT),
    "cast": cycled(CAST, slots=2),
    "gradients of the last layers twice": cycled(HOST, gradients_twice=2),
    "the same with inputs and ends in host memory": cycled(
        HOST, ends=FILLED, slots=2, offload_inputs=True, gradients_twice=2
    ),
    "mixed": cycled(HOST, LINK, KEPT, slots=2, ends=FILLED),
    "mixed otherwise": cycled(LINK_KEPT, CAST, HOST, ends=BlockPlacement(state="link")),
}
REFERENCE = "resident, kept"
# Between them they hold every kind of place.
FEW = ("streamed whole", "mixed")


def shape(*, tied: bool, vocabulary: int = VOCABULARY) -> ModelShape:
    return ModelShape(
        vocab_size=vocabulary,
        hidden_size=16,
        layers=3,
        heads=4,
        kv_heads=2,
        ffn_size=24,
        context_length=LENGTH,
        tie_embeddings=tied,
    )


def compute(precision: Any = "fp32") -> Compute:
    return Compute(torch.device("cpu"), precision, "chosen by the test")


@dataclass(frozen=True)
class Trained:
    """A model that is trained: what it is and where it begins."""

    model: BlockModel
    # Makes a source anew for every executor: a source may be used up.
    source: Callable[[], WeightSource]
    precision: str = "fp32"
    accumulation: int = 1
    quantized: bool = False
    compiled: bool = False
    optimizer: OptimizerConfig = field(default_factory=lambda: OPTIMIZER)

    @classmethod
    def own(cls, *, tied: bool, **more: Any) -> "Trained":
        return cls(LlamaBlocks(shape(tied=tied)), lambda: RandomLlama(shape(tied=tied), seed=3), **more)

    @classmethod
    def family(cls, name: str, **more: Any) -> "Trained":
        if name.startswith("own"):
            return cls.own(tied=name.endswith("tied"), **more)
        return cls(model_of(name), lambda: RandomWeights(model_of(name), seed=3), **more)

    def executor(self, placement: Placement | str) -> BlockExecutor:
        if isinstance(placement, str):
            placement = PLACEMENTS[placement](self.model)
        return BlockExecutor(
            self.model,
            self.source(),
            placement,
            self.optimizer,
            compute(self.precision),
            ExecutorOptions(accumulation=self.accumulation, quantized=self.quantized, compiled=self.compiled),
        )

    def outcome(self, placement: Placement | str, steps: int = STEPS) -> "Outcome":
        return run(self.executor(placement), steps, accumulation=self.accumulation)


class FromTensors:
    """First weights that somebody else made, by their names in a model folder."""

    def __init__(self, model: BlockModel, tensors: Mapping[str, Tensor]) -> None:
        self._model = model
        self._tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        for spec in (*block.trained, *block.frozen):
            tensors[spec.name].copy_(self._tensors[self._model.parameter_name(block, spec)])


@dataclass(frozen=True)
class Outcome:
    """Everything that could differ after some steps."""

    losses: list[float]
    norms: list[float]
    state: list[Tensor]

    @property
    def learnt(self) -> bool:
        return sum(self.losses[-5:]) < sum(self.losses[:5])

    def assert_same(self, other: "Outcome", what: object) -> None:
        assert self.losses == other.losses, f"{what}: other losses"
        assert self.norms == other.norms, f"{what}: other norms"
        for index, (one, two) in enumerate(zip(self.state, other.state, strict=True)):
            assert torch.equal(one, two), f"{what}: other state ({PARTS[index % 3]} of block {index // 3})"


def batch_of(step: int, *, accumulation: int = 1, rows: int = ROWS, vocabulary: int = VOCABULARY) -> Batch:
    """Step n always sees the same rows, of a language with a rule in it: there is something to learn."""
    generator = torch.Generator().manual_seed(step)
    first_AB = torch.randint(0, vocabulary, (accumulation, rows), generator=generator)
    stride_AB = torch.randint(1, 4, (accumulation, rows), generator=generator)
    positions_T = torch.arange(LENGTH + 1)
    rows_ABT = (first_AB[..., None] + stride_AB[..., None] * positions_T) % vocabulary
    return Batch(rows_ABT[..., :-1].contiguous(), rows_ABT[..., 1:].contiguous())


def learning_rate(step: int) -> float:
    # At 3e-3 seven layers of Gemma 3 are chaotic: two plain PyTorch loops that differ in their micro-batches
    # already drift further apart than the tests allow.
    return 1e-3 * (0.55 + 0.45 * math.cos(math.pi * step / STEPS))


def train(
    executor: BlockExecutor, steps: Sequence[int], accumulation: int = 1
) -> tuple[list[float], list[float]]:
    losses, norms = [], []
    for step in steps:
        losses.append(float(executor.forward_backward(batch_of(step, accumulation=accumulation))))
        norms.append(float(executor.optimizer_step(learning_rate(step))))
    return losses, norms


def state_of(executor: BlockExecutor) -> list[Tensor]:
    executor.settle()
    return [getattr(store, part).clone() for store in executor.stores for part in PARTS]


def run(executor: BlockExecutor, steps: int = STEPS, accumulation: int = 1) -> Outcome:
    losses, norms = train(executor, range(steps), accumulation)
    return Outcome(losses, norms, state_of(executor))
