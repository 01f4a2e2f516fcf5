"""Where the parts of a model live, and what is computed again instead of kept.

A block is an embedding, a decoder layer or a head. Its *state* is the FP32 master copy of its weights with
both Adam moments; its *weights* are the copy in the precision of computing; in LoRA and QLoRA the weights
are the frozen base and the state belongs to the adapters. No placement changes the mathematics.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

StatePlace = Literal["device", "host", "link"]
WeightPlace = Literal["device", "cast", "stream"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class BlockPlacement(_Value):
    """One block.

    state: `device`: on the GPU and updated there; `host`: in host memory, updated by the CPU; `link`: in host
    memory, but sent through the GPU to be updated.
    weights: `device`: in a buffer of their own (filled once a step when the state is not on the device);
    `cast`: made anew from the device's master copy whenever they are used; `stream`: in host memory, sent
    into a shared slot before each use.
    keep: activations are kept for the backward pass; otherwise the block's input is, and the rest is computed
    again. A block that keeps has its weights on the device until the backward pass.
    """

    state: StatePlace = "device"
    weights: WeightPlace = "device"
    keep: bool = False


class Placement(_Value):
    """All blocks of one model."""

    embedding: BlockPlacement
    layers: tuple[BlockPlacement, ...]
    # None when the head shares the embedding's weights and with them its block.
    head: BlockPlacement | None
    slots: int = Field(4, ge=2, description="Device buffers that streamed weights pass through.")
    offload_inputs: bool = Field(False, description="Inputs of recomputed layers wait in host memory.")
    loss_chunk_tokens: int = Field(2_048, ge=1, description="Positions whose logits exist at a time.")

    def blocks(self) -> Iterator[BlockPlacement]:
        """In forward order, each block once."""
        yield self.embedding
        yield from self.layers
        if self.head is not None:
            yield self.head


def resident(layers: int, *, tied: bool, keep: bool = True) -> Placement:
    """Everything on the device."""
    ends, layer = BlockPlacement(), BlockPlacement(keep=keep)
    return Placement(embedding=ends, layers=(layer,) * layers, head=None if tied else ends)


def streamed(layers: int, *, tied: bool) -> Placement:
    """Decoder layers pass through the device; embedding and head stay there."""
    ends, layer = BlockPlacement(), BlockPlacement(state="host", weights="stream")
    return Placement(embedding=ends, layers=(layer,) * layers, head=None if tied else ends)
