"""Where the parts of a model live, and what is computed again instead of kept.

A block is an embedding, a decoder layer or a head. Its *state* is the FP32 master copy of its weights with
both Adam moments; its *weights* are the copy in the precision of computing; in LoRA and QLoRA the weights
are the frozen base and the state belongs to the adapters. No placement changes the mathematics.

As JSON, layers of equal placement are one entry: {"layers": "0-11,13", "state": "device", ...}.
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

StateDevice = Literal["device", "host", "link"]
WeightDevice = Literal["device", "cast", "stream"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class BlockPlacement(_Value):
    """Where one block (embedding, layer or head) is stored.

    state: `device`: on the GPU and updated there; `host`: in host memory, updated by the CPU; `link`: in host
    memory, and copied to the GPU and back for the update.
    weights: `device`: in their own buffer (filled once per step when the state is not on the device);
    `cast`: cast from the device's master copy before each use; `stream`: in host memory, copied into a
    shared buffer before each use.
    keep: true keeps the activations for the backward pass; false keeps only the block's input and recomputes
    the rest. A block that keeps its activations has its weights on the device until the backward pass.
    """

    state: StateDevice = "device"
    weights: WeightDevice = "device"
    keep: bool = False

    @model_validator(mode="after")
    def _cast_weights_have_a_master_and_no_device(self) -> "BlockPlacement":
        if self.weights == "cast" and (self.state != "device" or self.keep):
            raise PydanticCustomError(
                "invalid_placement",
                "weights 'cast' needs state 'device' and keep false",
            )
        return self


class Placement(_Value):
    """Where all blocks of one model are stored."""

    embedding: BlockPlacement
    layers: tuple[BlockPlacement, ...]
    # None when the head shares the embedding's weights and with them its block.
    head: BlockPlacement | None
    slots: int = Field(4, ge=2, description="Number of device buffers for streamed weights.")
    offload_inputs: bool = Field(False, description="Inputs of recomputed layers are stored in host memory.")
    loss_chunk_tokens: int = Field(
        2_048, ge=1, description="Number of tokens whose logits are in memory at the same time."
    )
    share_gradients: bool = Field(
        False,
        description="The gradient of a host block reuses the memory of its compute copy, which the step no "
        "longer needs. For fp16 only: in bf16 that copy is a half of the master.",
    )
    gradients_twice: int = Field(
        0,
        ge=0,
        description="Number of layers at the end that compute their gradient for the norm and again for the "
        "update, so that host memory need not hold it. Their state is in host memory, and their activations "
        "are recomputed.",
    )
    cuda_graph: bool = Field(
        False,
        description="The kernels of a step are recorded once and started together. Needs every block on the "
        "device.",
    )

    def blocks(self) -> Iterator[BlockPlacement]:
        """In forward order, each block once."""
        yield self.embedding
        yield from self.layers
        if self.head is not None:
            yield self.head

    @field_serializer("layers", when_used="json")
    def _grouped(self, layers: tuple[BlockPlacement, ...]) -> list[dict[str, JsonValue]]:
        groups: dict[BlockPlacement, list[int]] = {}
        for index, layer in enumerate(layers):
            groups.setdefault(layer, []).append(index)
        return [
            {"layers": written_ranges(indices), **layer.model_dump()} for layer, indices in groups.items()
        ]

    @field_validator("layers", mode="before")
    @classmethod
    def _ungrouped(cls, layers: object) -> object:
        grouped = isinstance(layers, list | tuple) and layers and isinstance(layers[0], dict)
        if not grouped or "layers" not in layers[0]:  # type: ignore[index]
            return layers
        found: dict[int, BlockPlacement] = {}
        for group in layers:  # type: ignore[attr-defined]
            block_placement = BlockPlacement.model_validate({k: v for k, v in group.items() if k != "layers"})
            found.update(dict.fromkeys(read_ranges(group["layers"]), block_placement))
        if sorted(found) != list(range(len(found))):
            raise PydanticCustomError(
                "invalid_placement", "the groups must contain each layer once, starting at 0"
            )
        return tuple(found[index] for index in range(len(found)))


def resident(layers: int, *, tied: bool, keep: bool = True) -> Placement:
    """Everything on the device."""
    ends, layer = BlockPlacement(), BlockPlacement(keep=keep)
    return Placement(embedding=ends, layers=(layer,) * layers, head=None if tied else ends)


def streamed(layers: int, *, tied: bool) -> Placement:
    """Decoder layers pass through the device; embedding and head stay there."""
    ends, layer = BlockPlacement(), BlockPlacement(state="host", weights="stream")
    return Placement(embedding=ends, layers=(layer,) * layers, head=None if tied else ends)


def written_ranges(indices: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2,5"."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def read_ranges(text: str) -> list[int]:
    """The inverse of written_ranges."""
    found: list[int] = []
    for span in text.split(","):
        first, _, last = span.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found
