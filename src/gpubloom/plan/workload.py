"""One training step in numbers: how large each block is, what it keeps, how long it computes.

Everything the search needs of a layer is here, with running sums, so that a candidate costs the same to judge
for 8 layers and for 800.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeVar

from gpubloom.plan import costs
from gpubloom.plan.config import Method
from gpubloom.plan.decoder import DecoderShape, LayerShape, padded
from gpubloom.plan.families import OWN_LAYERS
from gpubloom.plan.hardware import Rates
from gpubloom.plan.optimizer_config import OptimizerName, OptimizerState

_FLOAT = 4
# Per value; in 8 bits, 64 values share one byte more.
_STATE_BYTES: Mapping[OptimizerState, float] = {"fp32": 4, "bf16": 2, "8bit": 1 + 1 / 64}
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Work:
    """What a step has to do, whatever the machine."""

    shape: DecoderShape
    rows: int
    length: int
    accumulation: int
    compute_bytes: int
    method: Method
    rank: int
    targets: str | tuple[str, ...]
    on_gpu: bool
    compiled: bool
    # Whether adapters see their inputs with dropout, and whether rows hold several documents.
    dropout: bool = False
    packed: bool = False
    optimizer: OptimizerName = "adamw"
    optimizer_state: OptimizerState = "fp32"
    # Computes in bf16: masters in host memory are two halves, of which one is the copy for computing.
    bf16: bool = False

    @cached_property
    def tokens(self) -> int:
        """Of one micro-batch."""
        return self.rows * self.length

    @cached_property
    def step_tokens(self) -> int:
        return self.tokens * self.accumulation

    @cached_property
    def full(self) -> bool:
        return self.method == "full"

    @cached_property
    def count(self) -> int:
        return len(self.shape.layers)

    @cached_property
    def input_bytes(self) -> int:
        """Inputs of one layer, all micro-batches."""
        return self.step_tokens * self.shape.hidden_size * self.compute_bytes

    @cached_property
    def ends(self) -> int:
        """Elements of embedding and head; a tied head counts once."""
        return padded(self.shape.embedding_block) + padded(self.shape.head_block)

    @property
    def trained_parameters(self) -> int:
        if self.full:
            return self.shape.parameters
        return sum(sum(layer.adapters(self.rank, self.targets)) for layer in self.shape.layers)

    @cached_property
    def trained(self) -> tuple[int, ...]:
        """Trained elements of each layer, as they lie in a flat buffer."""
        return self._each(
            lambda layer: padded(layer.tensors if self.full else layer.adapters(self.rank, self.targets))
        )

    @cached_property
    def moments(self) -> tuple[int, ...]:
        """Bytes of each layer's optimizer state beside its master."""
        return self._each(self._moment_bytes)

    @cached_property
    def ends_moments(self) -> int:
        """The same for embedding and head; their matrices are as wide as the model."""
        width = self.shape.hidden_size
        ends = (*self.shape.embedding_block, *self.shape.head_block)
        if self.optimizer != "adafactor":
            return int(2 * _STATE_BYTES[self.optimizer_state] * padded(ends))
        matrices = [length for length in ends if length > width]
        vectors = tuple(length for length in ends if length <= width)
        return _FLOAT * (padded(vectors) + sum(padded((length // width, width)) for length in matrices))

    @cached_property
    def host_copy(self) -> int:
        """Bytes per element of the copy for computing beside a master in host memory."""
        return 0 if self.bf16 or self.compute_bytes == 4 else self.compute_bytes

    @cached_property
    def needs_gpu_updates(self) -> bool:
        """Whether layers in host memory are updated on the GPU only: Muon multiplies matrices."""
        return self.optimizer == "muon" and self.on_gpu

    @cached_property
    def fuses_adapters(self) -> bool:
        """Whether SwiGLU and its adapters are one kernel (`engine/models/adapted_swiglu.py`)."""
        adapted = {
            linear.name.rpartition(".")[2]
            for linear in self.shape.layers[0].linears
            if linear.is_adapted(self.targets)
        }
        return (
            not self.full
            and self.on_gpu
            and self.bf16
            and not self.dropout
            and self.rank <= costs.HIGHEST_FUSED_RANK
            and self.shape.family in OWN_LAYERS
            and {"gate_proj", "up_proj", "down_proj"} <= adapted
        )

    @cached_property
    def update_buffers(self) -> int:
        """What an update on the device makes beside the state: Muon's copies of the largest matrix."""
        if self.optimizer != "muon":
            return 0
        return costs.MUON_BYTES * max(height * width for _, height, width in self._matrices())

    @cached_property
    def muon_products(self) -> float:
        """Operations of Muon's products, all layers together."""
        if self.optimizer != "muon":
            return 0.0
        return sum(
            costs.MUON_STEPS * count * (4.0 * small * small * large + 2.0 * small**3)
            for count, height, width in self._matrices()
            for small, large in [sorted((height, width))]
        )

    @cached_property
    def frozen(self) -> tuple[int, ...]:
        return self._each(lambda layer: 0 if self.full else padded(layer.tensors))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Bytes of each layer's weights for computing, as they lie or are transferred; without adapters."""
        return self._each(self._weight_bytes)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Bytes that each layer keeps of all micro-batches when nothing is computed again."""
        return self._each(lambda layer: self.step_tokens * self._saved_per_token(layer))

    @cached_property
    def working(self) -> int:
        """Bytes that the backward pass of one micro-batch works on, in the widest layer."""
        return self.tokens * max(self._each(self.working_per_token)) + self._packed_attention

    @cached_property
    def masks(self) -> int:
        """Bytes of the attention masks, needed if rows hold several documents; all micro-batches."""
        kinds = len({layer.window for layer in self.shape.layers})
        return kinds * self.step_tokens * self.length if self.packed else 0

    @cached_property
    def decoded(self) -> int:
        """The one buffer that 4-bit weights are decoded into."""
        return self.compute_bytes * max(self.frozen) if self.method == "qlora" else 0

    def _each(self, of: Callable[[LayerShape], int]) -> tuple[int, ...]:
        return tuple(_by_kind(self.shape.layers, of))

    def _matrices(self) -> list[tuple[int, int, int]]:
        """Trained matrices of all layers: how many, how high, how wide."""
        found = []
        for layer in self.shape.layers:
            for linear in layer.linears:
                if self.full:
                    found.append((linear.copies, linear.outputs, linear.inputs))
                elif linear.is_adapted(self.targets):
                    found += [(1, self.rank, linear.inputs), (1, linear.outputs, self.rank)]
        return found

    def _moment_bytes(self, layer: LayerShape) -> int:
        trained = layer.tensors if self.full else layer.adapters(self.rank, self.targets)
        match self.optimizer:
            case "adamw":
                return int(2 * _STATE_BYTES[self.optimizer_state] * padded(trained))
            case "muon":
                return _FLOAT * (padded(trained) + padded(self._vectors(layer)))
            case "adafactor":
                sides = self._sides(layer)
                return _FLOAT * (padded(sides) + padded(self._vectors(layer)))

    def _vectors(self, layer: LayerShape) -> tuple[int, ...]:
        if not self.full:
            return ()
        biases = tuple(linear.copies * linear.outputs for linear in layer.linears if linear.bias)
        return biases + layer.others

    def _sides(self, layer: LayerShape) -> tuple[int, ...]:
        """Rows and columns of the trained matrices of a layer."""
        if self.full:
            return tuple(
                linear.copies * side for linear in layer.linears for side in (linear.outputs, linear.inputs)
            )
        adapted = [linear for linear in layer.linears if linear.is_adapted(self.targets)]
        return tuple(
            side for linear in adapted for side in (self.rank, linear.inputs, linear.outputs, self.rank)
        )

    def _weight_bytes(self, layer: LayerShape) -> int:
        if self.method == "qlora":
            rest = padded(layer.tensors) - layer.matrix_weights
            return int(layer.matrix_weights * costs.NF4_BITS / 8) + rest * self.compute_bytes
        return padded(layer.tensors) * self.compute_bytes

    def _saved_per_token(self, layer: LayerShape) -> int:
        hidden, feed_forward = self.shape.hidden_size, (2 if layer.gated else 1) * layer.ffn_size
        elements = 2 * hidden + 2 * layer.query_size + 2 * layer.kv_size + feed_forward
        factor = 1.0 if self.compiled else costs.EAGER_OVER_COMPILED
        adapters = self._adapter_width(layer) + self._dropped(layer)
        return int(elements * self.compute_bytes * factor) + adapters

    def working_per_token(self, layer: LayerShape) -> int:
        hidden = max(self.shape.hidden_size, layer.query_size)
        ffn = costs.WORKING_FFN_GATED if layer.gated else costs.WORKING_FFN_PLAIN
        elements = costs.WORKING_HIDDEN * hidden + costs.WORKING_KV * layer.kv_size + ffn * layer.ffn_size
        return int(elements * self.compute_bytes) + self._adapter_width(layer) + self._dropped(layer)

    def _adapter_width(self, layer: LayerShape) -> int:
        if self.full:
            return 0
        return self.rank * self.compute_bytes * len(layer.adapters(1, self.targets)) // 2

    def beside_adapters(self, layer: LayerShape) -> int:
        """Bytes per token that adapters read and add to: inputs once, outputs twice."""
        if self.full:
            return 0
        adapted = [linear for linear in layer.linears if linear.is_adapted(self.targets)]
        return self.compute_bytes * sum(linear.inputs + 2 * linear.outputs for linear in adapted)

    def _dropped(self, layer: LayerShape) -> int:
        """Every adapter has its inputs to itself, and which of them were left out."""
        if not self.dropout:
            return 0
        inputs = sum(linear.inputs for linear in layer.linears if linear.is_adapted(self.targets))
        return inputs * (self.compute_bytes + 1)

    @property
    def _packed_attention(self) -> int:
        """What attention needs beside its inputs if rows hold several documents: masks or boundaries."""
        if not self.packed:
            return 0
        # Kernels add a mask to their scores, in the precision of computing.
        mask = 2 * self.compute_bytes * self.tokens * self.length
        if not self.on_gpu:
            return mask
        documents = self.tokens // self.length * most_documents_by_boundaries(self.length)
        positions = costs.BACKWARD_POSITIONS_PER_DOCUMENT * documents
        return max(mask, _FLOAT * positions * max(self._each(lambda layer: layer.query_size)))


@dataclass(frozen=True)
class Timed:
    """A Work on a machine: seconds per layer, and running sums over the layers."""

    work: Work
    rates: Rates

    @cached_property
    def forward(self) -> tuple[float, ...]:
        return self._seconds(forward=True, factor=1.0, dropped=False)

    @cached_property
    def backward(self) -> tuple[float, ...]:
        # Gradients of inputs, and of weights where they are trained.
        return self._seconds(forward=False, factor=2.0 if self.work.full else 1.0, dropped=False)

    @cached_property
    def recompute(self) -> tuple[float, ...]:
        return self._seconds(forward=True, factor=1.0, dropped=True)

    @cached_property
    def loss(self) -> float:
        """Head, forward and backward, of all micro-batches, at the usual chunk."""
        work, shape = self.work, self.work.shape
        products = (6 if work.full else 4) * shape.vocab_size * shape.hidden_size * work.step_tokens
        if not work.on_gpu:
            values = costs.CPU_LOGIT_VALUES * shape.vocab_size * work.step_tokens
            return products / (self.rates.matrix * costs.CPU_EFFICIENCY) + values * self.rates.cpu_value
        logits = shape.vocab_size * (2 * work.compute_bytes + 4) * work.step_tokens
        return products / self._matrix + costs.LOSS_PASSES * logits / self.rates.memory

    @cached_property
    def muon(self) -> float:
        """Muon's products, of all layers."""
        rate = self.rates.matrix * (costs.MATRIX_EFFICIENCY if self.work.on_gpu else costs.CPU_EFFICIENCY)
        return self.work.muon_products / rate

    @cached_property
    def sums(self) -> "Sums":
        work = self.work
        return Sums(
            trained=_running(work.trained),
            moments=_running(work.moments),
            weights=_running(work.weights),
            kept=_running(work.kept),
            recompute=_running(self.recompute),
            largest_trained=max(work.trained),
            largest_moments=max(work.moments),
            one_of_each_kind=sum(dict(zip(map(id, work.shape.layers), work.trained, strict=True)).values()),
            largest_weights=max(work.weights),
            forward_total=sum(self.forward),
            backward_total=sum(self.backward),
        )

    @cached_property
    def _matrix(self) -> float:
        tokens = self.work.tokens
        return self.rates.matrix * costs.MATRIX_EFFICIENCY * tokens / (tokens + costs.HALF_RATE_TOKENS)

    def _seconds(self, *, forward: bool, factor: float, dropped: bool) -> tuple[float, ...]:
        return tuple(
            _by_kind(
                self.work.shape.layers, lambda layer: self._layer_seconds(layer, forward, factor, dropped)
            )
        )

    def _layer_seconds(self, layer: LayerShape, forward: bool, factor: float, dropped: bool) -> float:
        work = self.work
        multiplied = layer.multiplied - (layer.last_projection if dropped and work.compiled else 0)
        adapters = 0 if work.full else sum(layer.adapters(work.rank, work.targets))
        products = 2 * (factor * multiplied + (adapters if forward else 2 * adapters)) * work.step_tokens
        # Flash attention's backward pass does five products where the forward pass does two.
        attention = 4 * layer.query_size * _seen(work.length, layer.window) * (1.0 if forward else 2.5)
        attention *= work.step_tokens
        if not work.on_gpu:
            # The backward pass has twice as many operations.
            part = (1 if forward else 2) / 3
            values = work.working_per_token(layer) / work.compute_bytes * work.step_tokens
            return (products + attention) / (self.rates.matrix * costs.CPU_EFFICIENCY) + part * (
                self.rates.cpu_layer * work.accumulation + self.rates.cpu_value * values
            )
        passes = costs.FORWARD_PASSES if forward else costs.BACKWARD_PASSES
        if not work.compiled:
            passes *= costs.EAGER_FUSED_PASSES if work.fuses_adapters else costs.EAGER_PASSES
        moved = passes * work.working_per_token(layer) * work.step_tokens
        if work.compiled:
            # Uncompiled, they are among the passes.
            adapted = costs.FUSED_ADAPTER_PASSES if work.fuses_adapters else costs.ADAPTER_PASSES
            moved += adapted[0 if forward else 1] * work.beside_adapters(layer) * work.step_tokens
        decoded = costs.NF4_DECODE_BYTES * layer.matrix_weights if work.method == "qlora" else 0.0
        starting = costs.LAYER_SECONDS if work.compiled else costs.EAGER_LAYER_SECONDS
        return (
            products / self._matrix
            + attention / (self.rates.matrix * costs.ATTENTION_EFFICIENCY)
            + (moved + decoded) / self.rates.memory
            + starting * work.accumulation
        )


@dataclass(frozen=True)
class Sums:
    """Running sums over the layers: entry i counts the first i of them."""

    trained: tuple[int, ...]
    moments: tuple[int, ...]
    weights: tuple[int, ...]
    kept: tuple[int, ...]
    recompute: tuple[float, ...]
    largest_trained: int
    largest_moments: int
    one_of_each_kind: int
    largest_weights: int
    forward_total: float
    backward_total: float


def most_documents_by_boundaries(length: int) -> int:
    """Up to so many documents in a packed row, a GPU attends by their boundaries; above, with masks."""
    return max(8, length // costs.SHORTEST_PACKED_DOCUMENT)


def _by_kind(layers: tuple[LayerShape, ...], of: Callable[[LayerShape], _Number]) -> Iterator[_Number]:
    """One value per layer, worked out once per kind; layers of one kind are one object."""
    known: dict[int, _Number] = {}
    for layer in layers:
        if id(layer) not in known:
            known[id(layer)] = of(layer)
        yield known[id(layer)]


def _running(values: tuple[_Number, ...]) -> tuple[_Number, ...]:
    return tuple(accumulate(values, initial=type(values[0])(0)))


def _seen(length: int, window: int | None) -> float:
    """Positions that a token attends to on average."""
    if window is None or window >= length:
        return length / 2
    return window - window * window / (2 * length)
