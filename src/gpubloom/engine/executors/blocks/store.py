"""BlockStore: all tensors of one block, each where the placement wants it.

The tensors of a block lie end to end in one flat buffer (`Layout`). A block has a *state* (FP32 master, the
optimizer's moments, a gradient) for what is trained, and *heavy* weights: what computing needs
and what is transferred. In full training the heavy weights are the copy of the master in the precision of
computing (in fp32 the master itself); with adapters they are the frozen base. `make_stores` makes and fills
the stores of a model's blocks one after another.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gpubloom.engine.executors.blocks.device import Device
from gpubloom.engine.executors.blocks.functions import Bound
from gpubloom.engine.executors.step import ExecutorOptions
from gpubloom.engine.host_memory import host_buffer
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, Weights, WeightSource
from gpubloom.engine.models.layout import Layout
from gpubloom.engine.nf4 import FlatNf4, dequantize_flat, quantize
from gpubloom.engine.optimizer.encoding import Encoding, Flat, round_into
from gpubloom.engine.optimizer.moments import PARTS, MomentLayout, Part
from gpubloom.plan import OptimizerConfig
from gpubloom.plan.memory import PASSING_GRADIENTS
from gpubloom.plan.placement import BlockPlacement, Placement

Dequantize = Callable[[Tensor, Tensor, Sequence[int]], None]


class BlockStore:
    """One block. Tensors are flat; names are given by `trained` and `frozen`, the layouts."""

    def __init__(
        self,
        spec: BlockSpec,
        placement: BlockPlacement,
        device: Device,
        dtype: torch.dtype,
        *,
        optimizer: OptimizerConfig = OptimizerConfig(),  # noqa: B008 - frozen
        dequantize: Dequantize | None = None,
        share_gradient: bool = False,
        passing_gradient: Tensor | None = None,
    ) -> None:
        """With `dequantize`, frozen matrices are kept in four bits.

        With `share_gradient`, a gradient in host memory overwrites the weights there, which nobody needs
        between the backward pass and the update. `passing_gradient` is host memory that several blocks use
        for their gradients in turn.
        """
        assert not spec.frozen or placement.state == "device", "adapters are small and stay on the device"
        self.spec = spec
        self.placement = placement
        self.trained = Layout.of(spec.trained)
        self.frozen = Layout.of(spec.frozen)
        self.moments = MomentLayout.of(spec, optimizer.name)
        self._optimizer = optimizer
        self.dtype = dtype
        # Matrices are quantized, vectors are not: norms and biases are small and matter.
        lengths = [tensor.length for tensor in spec.frozen if len(tensor.shape) > 1]
        self._nf4 = FlatNf4.layout(lengths) if dequantize and lengths else None
        self._dequantize = dequantize or dequantize_flat
        self._device = device
        self._allocate_state()
        self._allocate_weights()
        shares = share_gradient and placement.state == "host" and dtype != torch.float32 and not self.is_split
        if passing_gradient is not None:
            self.gradient = passing_gradient[: self.trained.length]
        else:
            self.gradient = self.heavy_home.view(dtype) if shares else self._allocate_gradient()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.trained.names, *self.frozen.names)

    @property
    def has_adapters(self) -> bool:
        """Whether the heavy weights are a frozen base."""
        return bool(self.spec.frozen)

    @property
    def is_split(self) -> bool:
        """Whether the heavy weights are the upper half of the master."""
        on_host = self.placement.state != "device"
        return on_host and not self.has_adapters and self.dtype == torch.bfloat16

    @property
    def master(self) -> Tensor:
        """The values: the buffer itself where it is FP32, else a copy. So are the moments."""
        return self.state["master"].read()

    @property
    def first(self) -> Tensor:
        return self.state["first"].read()

    @property
    def second(self) -> Tensor:
        return self.state["second"].read()

    @property
    def state_tensors(self) -> list[Tensor]:
        """All that is held of the state, in a fixed order."""
        return [tensor for part in PARTS for tensor in self.state[part].tensors]

    @property
    def is_streamed(self) -> bool:
        return self.placement.weights == "stream"

    @property
    def is_cast(self) -> bool:
        """Whether the heavy weights exist only while they are used, made from a master on the device."""
        return self.placement.weights == "cast" and not self.has_adapters and self.dtype != torch.float32

    @property
    def rests_on_device(self) -> bool:
        """Whether all of it is always there."""
        return self.placement.state == "device" and not self.is_streamed and not self.is_cast

    @property
    def heavy_length(self) -> int:
        """Elements of the heavy weights when decoded."""
        return self.frozen.length if self.has_adapters else self.trained.length

    @property
    def streamed_bytes(self) -> int:
        """What is sent to the device for one use."""
        if self._nf4 is None:
            return self.heavy_length * self.dtype.itemsize
        vectors = self.frozen.length - self.frozen.decayed
        return self._packed_bytes(self._nf4) + vectors * self.dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        return self._nf4 is not None

    def bound(self, heavy: Tensor) -> Bound:
        """The block's tensors as views of its heavy weights on the device."""
        if self.has_adapters:
            borrowed = heavy if self.is_quantized else None
            return Bound(self.names, self.trained.views(self.light), self.frozen.views(heavy), borrowed)
        return Bound(self.names, self.trained.views(heavy), [])

    def decode(self, travelled: Tensor, out: Tensor | None) -> Tensor:
        """The heavy weights from what was sent: bytes in, the precision of computing out."""
        if self._nf4 is None:
            return travelled[: self.streamed_bytes].view(self.dtype)
        assert out is not None
        decoded, packed = out[: self.frozen.length], self._packed_bytes(self._nf4)
        matrices, vectors = decoded[: self.frozen.decayed], decoded[self.frozen.decayed :]
        self._dequantize(travelled[: self._nf4.total_bytes], matrices, self._nf4.lengths)
        vectors.copy_(travelled[packed : self.streamed_bytes].view(self.dtype))
        return decoded

    @torch.no_grad()
    def fill(self, source: WeightSource, staging: Tensor) -> None:
        """First weights. `staging` is a flat FP32 buffer on the device, large enough for the block."""
        trained = staging[: self.trained.length].zero_()
        frozen = staging[self.trained.length :][: self.frozen.length].zero_()
        tensors: Weights = {**self.trained.named(trained), **self.frozen.named(frozen)}
        source.fill(self.spec, tensors)
        self.state["master"].write(trained)
        if self._nf4 is not None:
            self._pack(self._nf4, frozen)
        elif self.has_adapters:
            self.heavy_home.view(self.dtype).copy_(frozen)
        self.copy_master()

    @torch.no_grad()
    def copy_master(self) -> None:
        """Brings the copies in the precision of computing up to date with the master."""
        if self.has_adapters:
            if self.light is not self.master:
                round_into(self.light, self.master)
        elif (copy := self.copy) is not None:
            round_into(copy, self.master)

    @property
    def copy(self) -> Tensor | None:
        """The heavy weights as a copy of the master, where there is one beside it."""
        if self.has_adapters or self.is_cast or self.is_split or self.dtype == torch.float32:
            return None
        return self.heavy_home.view(self.dtype)

    def _pack(self, nf4: FlatNf4, frozen: Tensor) -> None:
        matrices = [quantize(tensor) for tensor in self.frozen.views(frozen) if tensor.ndim > 1]
        packed = torch.zeros(nf4.total_bytes, dtype=torch.uint8, device=frozen.device)
        nf4.pack(matrices, packed)
        self.heavy_home[: nf4.total_bytes].copy_(packed)
        vectors = self.heavy_home[self._packed_bytes(nf4) :].view(self.dtype)
        vectors.copy_(frozen[self.frozen.decayed :])

    @staticmethod
    def _packed_bytes(nf4: FlatNf4) -> int:
        # What follows the codes begins where any element may begin.
        return -(-nf4.total_bytes // 256) * 256

    def _allocate_state(self) -> None:
        lengths = {"master": self.trained.length, "first": self.moments.first, "second": self.moments.second}
        state: Encoding = self._optimizer.state if self._optimizer.name == "adamw" else "fp32"
        encodings: dict[str, Encoding] = {
            "master": "split" if self.is_split else "fp32",
            "first": state,
            "second": state,
        }
        self.state: dict[Part, Flat] = {}
        for part in PARTS:
            held = Flat.lengths(encodings[part], lengths[part])
            tensors = tuple(self._state_buffer(part, length, dtype) for length, dtype in held)
            self.state[part] = Flat(encodings[part], tensors, roots=part == "second")

    def _state_buffer(self, part: Part, length: int, dtype: torch.dtype) -> Tensor:
        if self.placement.state == "device":
            return self._device.empty(length, dtype)
        # What layers compute with is transferred; states that pass through the device are, as a whole.
        computed_with = part == "master" and dtype == self.dtype
        return self._host(length, dtype, transferred=computed_with or self.placement.state == "link")

    def _allocate_gradient(self) -> Tensor:
        """Where the optimizer reads it: beside the state, or on the device if it is updated there."""
        length, on_host = self.trained.length, self.placement.state == "host"
        return self._device.host(length, self.dtype) if on_host else self._device.empty(length, self.dtype)

    def _allocate_weights(self) -> None:
        """`heavy_home`: where the heavy weights rest between uses, as bytes; empty when they are cast."""
        device, length = self._device, self.streamed_bytes
        # Adapters as layers compute with them. Reading a split master would keep a joined copy of it.
        self.light = device.empty(0, self.dtype)
        if self.has_adapters:
            is_exact = self.dtype == torch.float32
            self.light = self.master if is_exact else device.empty(self.trained.length, self.dtype)
        rests_on_device = self.placement.state == "device" and not self.is_streamed
        if self.is_cast:
            self.heavy_home = device.empty(0, torch.uint8)
        elif not self.has_adapters and (self.dtype == torch.float32 or self.is_split):
            self.heavy_home = self.state["master"].tensors[0].view(torch.uint8)
        elif rests_on_device:
            self.heavy_home = device.empty(length, torch.uint8)
        else:
            self.heavy_home = device.host(length, torch.uint8)

    def _host(self, length: int, dtype: torch.dtype, *, transferred: bool) -> Tensor:
        return self._device.host(length, dtype) if transferred else host_buffer(length, dtype, pinned=False)


def make_stores(
    model: BlockModel,
    source: WeightSource,
    placement: Placement,
    device: Device,
    dtype: torch.dtype,
    optimizer: OptimizerConfig,
    options: ExecutorOptions,
) -> list[BlockStore]:
    """Block by block: no more than one block's weights exist twice at any time."""
    block_placements = list(placement.blocks())
    assert len(block_placements) == len(model.blocks), "the placement belongs to another model"
    dequantize = _dequantize(device, options) if options.quantized else None
    staging: Tensor | None = None
    stores: list[BlockStore] = []
    passing = _passing_gradients(model, placement, device, dtype)
    for spec, block_placement in zip(model.blocks, block_placements, strict=True):
        is_layer = spec.kind not in {"embedding", "head"}
        store = BlockStore(
            spec,
            block_placement,
            device,
            dtype,
            optimizer=optimizer,
            dequantize=dequantize if is_layer else None,
            share_gradient=placement.share_gradients,
            passing_gradient=passing.get(len(stores)),
        )
        needed = store.trained.length + store.frozen.length
        if staging is None or len(staging) < needed:
            # Freed first: there may be no room for both at once.
            staging = None
            staging = device.empty(needed, torch.float32)
        store.fill(source, staging)
        stores.append(store)
    return stores


def _passing_gradients(
    model: BlockModel, placement: Placement, device: Device, dtype: torch.dtype
) -> dict[int, Tensor]:
    """By block: the buffers that gradients use in turn which are computed again for the update."""
    last = len(placement.layers)
    blocks = range(1 + last - placement.gradients_twice, 1 + last)
    if not blocks:
        return {}
    longest = max(Layout.of(model.blocks[index].trained).length for index in blocks)
    buffers = [device.host(longest, dtype) for _ in range(PASSING_GRADIENTS)]
    return {index: buffers[index % PASSING_GRADIENTS] for index in blocks}


def _dequantize(device: Device, options: ExecutorOptions) -> Dequantize:
    # Uncompiled it takes fifteen times as long; on a CPU nothing is decoded often enough to matter.
    if options.compiled and device.is_gpu:
        return torch.compile(dequantize_flat, dynamic=False)
    return dequantize_flat
