"""ShardedExecutor: one training step over blocks that are sharded among processes (FSDP2).

Every process holds an equal part of each tensor's master, gradient and moments. A block's weights are
gathered when they are needed and released afterwards; gradients are reduced and scattered. Functions,
dropout, clipping and updates are those of the block executor, so the mathematics is the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from gpubloom.engine.data import Batch
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.executors.blocks.functions import HeadFunctions, LayerFunctions
from gpubloom.engine.executors.sharded.modules import BlockModule, EndModule, LayerModule
from gpubloom.engine.executors.step import (
    ExecutorOptions,
    StepMeasures,
    adamw_step,
    begins_of,
    gradient_factor,
    rows_of,
    tables_by_layer,
    text_batch,
)
from gpubloom.engine.hardware import Compute
from gpubloom.engine.loss import LossScale
from gpubloom.engine.models.blocks import BlockModel, Tables, TensorSpec, WeightSource
from gpubloom.engine.optimizer.device_adamw import DeviceAdamW
from gpubloom.engine.optimizer.host import AdamWStep, HostAdamW
from gpubloom.engine.parallel import Group
from gpubloom.engine.parallel.group import GroupLost, PeerFailed
from gpubloom.plan import OptimizerConfig
from gpubloom.plan.optimizer_config import OptimizerName
from gpubloom.plan.placement import Placement

# How gloo and NCCL name a process that is gone.
_SIGNS = ("connection", "gloo", "nccl", "socket", "timed out", "peer")


def meet_alone(device: torch.device) -> bool:
    """FSDP wants a group, also of one; True if there was none."""
    if dist.is_initialized():
        return False
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return True


@contextmanager
def connected(group: Group) -> Iterator[None]:
    """Around what FSDP sends by itself: a connection that breaks means that a process is gone."""
    try:
        yield
    except (GroupLost, PeerFailed, torch.OutOfMemoryError):
        raise
    except RuntimeError as problem:
        if group.size == 1 or not any(sign in str(problem).lower() for sign in _SIGNS):
            raise
        with group.in_words():
            raise


@dataclass
class ShardedTensor:
    """A trained tensor of which this process has the rows from `start` on: its master and both moments."""

    block: int
    spec: TensorSpec
    parameter: nn.Parameter
    master: Tensor
    first: Tensor
    second: Tensor
    start: int

    def whole(self, part: Tensor, mesh: DeviceMesh | None = None) -> Tensor:
        """Master, first, second or a copy of one of them, seen as a part of the whole tensor."""
        parameter = self.parameter
        assert isinstance(parameter, DTensor)
        return DTensor.from_local(
            part,
            mesh or parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )


class ShardedExecutor:
    """A model sharded among the processes of a group, each with a device of its own."""

    form: Literal["sharded"] = "sharded"

    def __init__(
        self,
        model: BlockModel,
        source: WeightSource,
        placement: Placement,
        optimizer: OptimizerConfig,
        compute: Compute,
        options: ExecutorOptions = ExecutorOptions(),  # noqa: B008 - frozen
    ) -> None:
        assert not options.quantized, "4-bit weights cannot be sharded"
        assert (optimizer.name, optimizer.state) == ("adamw", "fp32"), "others need whole blocks"
        self.model = model
        self.placement = placement
        self.group = options.group
        self.updates = 0
        self._optimizer = optimizer
        self._device = compute.device
        self._host_adamw = HostAdamW(options.threads)
        self._adamw = DeviceAdamW(compute.device, self._host_adamw, compiled=options.compiled)
        self._scale = LossScale(compute)
        self._clip_norm = optimizer.clip_norm
        self._weight_decay = optimizer.weight_decay
        self._owns_processes = meet_alone(compute.device) if options.group.size == 1 else False
        mesh = DeviceMesh(compute.device.type, torch.arange(options.group.size))
        # Checkpoints are written by another thread, whose messages must not meet those of a step.
        self.checkpoint_processes = dist.new_group(backend="gloo")
        self._modules = self._make_modules(compute.dtype, options)
        self._layers = self._modules[1 : 1 + len(placement.layers)]
        self._root = _sharded(self._modules, mesh, compute.dtype)
        self._root.to_empty(device=compute.device)
        self._fill(source)
        self.tensors = list(self._sharded_tensors())

    @property
    def optimizer_name(self) -> OptimizerName:
        return self._optimizer.name

    @property
    def optimizer_description(self) -> str:
        return self._host_adamw.description

    def forward_backward(self, batch: Batch) -> Tensor:
        """Mean loss over all targets of the step, on the device; leaves the step's gradient behind."""
        with connected(self.group):
            tokens_ABT, targets_ABT, tables = rows_of(batch, self.model, self._device)
            counted = torch.zeros((), dtype=torch.int64, device=self._device)
            for targets_BT in targets_ABT:
                counted += (targets_BT != IGNORED).sum()
            per_target = 1.0 / self.group.sum(counted).clamp(min=1).float()
            by_layer = self._by_layer(batch, tables, training=True)
            scale = per_target * self._scale.value
            loss = self._root("loss", tokens_ABT, tables, by_layer, targets_ABT, scale)
            loss.backward()
            return self.group.sum(loss.detach()) * per_target

    def optimizer_step(self, lr: float) -> Tensor:
        """Clips by global norm and updates this process's part; returns the norm before clipping."""
        norm = self._norm() * self._scale.inverse
        scale = gradient_factor(norm, self._clip_norm, self._scale.inverse)
        if self._scale.accepts(norm):
            self.updates += 1
            step = adamw_step(self._optimizer, lr, self._weight_decay, self.updates)
            self._update(step, scale)
        for tensor in self.tensors:
            tensor.parameter.grad = None
        return norm

    def tune(self, *, weight_decay: float, clip_norm: float) -> None:
        self._weight_decay = weight_decay
        self._clip_norm = clip_norm

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed loss and number of correct tokens, without a gradient; all processes ask together."""
        with connected(self.group):
            tokens_ABT, targets_ABT, tables = rows_of(batch, self.model, self._device)
            by_layer = self._by_layer(batch, tables, training=False)
            found: tuple[Tensor, Tensor] = self._root("evaluate", tokens_ABT, tables, by_layer, targets_ABT)
            return found

    @torch.no_grad()
    def next_logits(self, tokens_1T: Tensor, length: int) -> Tensor:
        """Logits (1, V) of what follows the first `length` tokens; all processes ask together."""
        batch = text_batch(tokens_1T)
        with connected(self.group):
            tokens_ABT, _, tables = rows_of(batch, self.model, self._device)
            by_layer = self._by_layer(batch, tables, training=False)
            found: Tensor = self._root("logits", tokens_ABT, tables, by_layer, length - 1)
            return found

    def last_step(self) -> Callable[[], StepMeasures] | None:
        return None

    @property
    def loss_scale(self) -> dict[str, float]:
        return self._scale.state()

    def continue_from(self, updates: int, loss_scale: dict[str, float]) -> None:
        """Continue from a state that was loaded into `tensors`: restores its counters."""
        self.updates = updates
        self._scale.restore(loss_scale)

    def close(self) -> None:
        if self._owns_processes and dist.is_initialized():
            dist.destroy_process_group()

    def _by_layer(self, batch: Batch, tables: list[Tables], *, training: bool) -> list[list[Tables]]:
        return tables_by_layer(
            self.model,
            tables,
            begins_of(batch, self.group),
            layers=len(self._layers),
            updates=self.updates,
            training=training,
            device=self._device,
        )

    @torch.no_grad()
    def _norm(self) -> Tensor:
        """Of the whole gradient: every process adds up its part, then all parts are added up."""
        squares = torch.zeros(len(self._modules), device=self._device)
        for tensor in self.tensors:
            if (gradient := _local(tensor.parameter.grad)) is not None:
                squares[tensor.block] += torch.linalg.vector_norm(gradient, dtype=torch.float32).square()
        return self.group.sum(squares).sum().sqrt()

    def _update(self, step: AdamWStep, scale: Tensor) -> None:
        for tensor in self.tensors:
            gradient = _local(tensor.parameter.grad)
            if gradient is None or not gradient.numel():
                continue
            # Matrices decay, vectors do not.
            decays = len(tensor.spec.shape) > 1
            self._adamw.update(
                tensor.master.view(-1),
                tensor.first.view(-1),
                tensor.second.view(-1),
                gradient.reshape(-1),
                None,
                step if decays else replace(step, weight_decay=0.0),
                scale,
            )

    def _make_modules(self, dtype: torch.dtype, options: ExecutorOptions) -> list[BlockModule]:
        model, chunk = self.model, self.placement.loss_chunk_tokens
        block_placements = list(self.placement.blocks())
        assert len(block_placements) == len(model.blocks), "the placement belongs to another model"
        functions: dict[str, LayerFunctions] = {}
        modules: list[BlockModule] = []
        for spec, block_placement in zip(model.blocks, block_placements, strict=True):
            if spec.kind in {"embedding", "head"}:
                names = BlockModule(spec, dtype).names
                head = HeadFunctions(model, names, compiled=options.compiled)
                modules.append(EndModule(model, spec, dtype, head, chunk))
                continue
            if spec.kind not in functions:
                functions[spec.kind] = LayerFunctions(
                    model,
                    spec.kind,
                    BlockModule(spec, dtype).names,
                    compiled=options.compiled and spec.kind not in model.eager_kinds,
                )
            modules.append(LayerModule(spec, dtype, functions[spec.kind], keep=block_placement.keep))
        return modules

    @torch.no_grad()
    def _fill(self, source: WeightSource) -> None:
        """First weights, block by block: no more than one whole block exists at any time."""
        for module in self._modules:
            specs = (*module.trained, *module.frozen)
            whole = {spec.name: torch.zeros(spec.shape, device=self._device) for spec in specs}
            source.fill(module.spec, whole)
            for spec in specs:
                block_placement = _local(module.parameter(spec.name))
                assert block_placement is not None
                start = self._start(spec)
                block_placement.copy_(whole[spec.name][start : start + len(block_placement)])

    def _sharded_tensors(self) -> Iterator[ShardedTensor]:
        for block, module in enumerate(self._modules):
            for spec in module.trained:
                parameter = module.parameter(spec.name)
                master = _local(parameter.detach())
                assert master is not None
                first, second = torch.zeros_like(master), torch.zeros_like(master)
                yield ShardedTensor(block, spec, parameter, master, first, second, self._start(spec))

    def _start(self, spec: TensorSpec) -> int:
        """The first row that is this process's own; all have equally many but for the last ones."""
        rows = spec.shape[0]
        return min(rows, self.group.rank * -(-rows // self.group.size))


class _Root(nn.Module):
    """All blocks in forward order."""

    def __init__(self, modules: list[BlockModule]) -> None:
        super().__init__()
        self.embedding = modules[0]
        is_head = modules[-1].spec.kind == "head"
        self.layers = nn.ModuleList(modules[1:-1] if is_head else modules[1:])
        self.head = modules[-1] if is_head else None

    def forward(
        self,
        part: str,
        tokens_ABT: list[Tensor],
        tables: list[Tables],
        by_layer: list[list[Tables]],
        *targets: Any,
    ) -> Any:
        x_ABTD = self.embedding("embed", tokens_ABT, tables)
        for layer, layer_tables in zip(self.layers, by_layer, strict=True):
            x_ABTD = layer(x_ABTD, layer_tables)
        return (self.head or self.embedding)(part, x_ABTD, *targets)


def _sharded(modules: list[BlockModule], mesh: DeviceMesh, dtype: torch.dtype) -> nn.Module:
    root = _Root(modules)
    # Masters stay FP32 and are rounded before they are gathered; gradients are summed in FP32.
    rounded = MixedPrecisionPolicy(
        param_dtype=None if dtype == torch.float32 else dtype,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    for module in (*modules, root):
        # The backward pass begins with the head: giving it back before would be for nothing.
        again = module is not root.head and module is not root
        fully_shard(module, mesh=mesh, mp_policy=rounded, reshard_after_forward=again)
        assert isinstance(module, FSDPModule)
        # Losses are already divided by the targets of all processes: gradients are summed, not averaged.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return root


def _local(tensor: Tensor | None) -> Tensor | None:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
