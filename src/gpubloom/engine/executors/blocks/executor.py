"""BlockExecutor: one training step over blocks that live anywhere.

Forward through all blocks, the loss with its gradient chunk by chunk, backward through all blocks; a block
runs all micro-batches while its weights are on the device. Where weights, states and activations live is the
placement's business and never changes a result. `LayerInputs` holds the inputs of layers that are recomputed.

Shape letters: A micro-batches, B rows, T positions, D hidden size, N positions of any rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.executors.blocks.background_compile import BackgroundCompile, CompileJob
from gpubloom.engine.executors.blocks.device import Device, Mark, Timeline
from gpubloom.engine.executors.blocks.functions import (
    HeadFunctions,
    Kept,
    LayerFunctions,
    gradients_or_zeros,
)
from gpubloom.engine.executors.blocks.gradients import GradientFlow, Sum
from gpubloom.engine.executors.blocks.snapshot import MOMENTS, WEIGHTS, Part, Snapshot
from gpubloom.engine.executors.blocks.step_graph import WARM_UP, StepGraph
from gpubloom.engine.executors.blocks.store import make_stores
from gpubloom.engine.executors.blocks.updates import Updates
from gpubloom.engine.executors.blocks.weights import WeightFlow
from gpubloom.engine.executors.step import (
    ExecutorOptions,
    StepInputs,
    StepMeasures,
    adamw_step,
    begins_of,
    chunks,
    draws_of,
    gradient_factor,
    pieces,
    rows_of,
    text_batch,
)
from gpubloom.engine.hardware import Compute
from gpubloom.engine.host_memory import release_torch_pinned
from gpubloom.engine.loss import LossScale
from gpubloom.engine.models.blocks import BlockModel, Tables, WeightSource
from gpubloom.engine.optimizer.block_update import BlockUpdate
from gpubloom.engine.optimizer.host import AdamWStep
from gpubloom.plan import OptimizerConfig
from gpubloom.plan.memory import EVALUATION_TOKENS, PASSING_GRADIENTS, RECORDED_EVALUATION_TOKENS
from gpubloom.plan.optimizer_config import OptimizerName
from gpubloom.plan.placement import Placement


class LayerInputs:
    """One step's inputs; each layer's are a list over micro-batches."""

    def __init__(self, device: Device, *, offload: bool) -> None:
        self._device = device
        self._offload = offload
        self._here: dict[int, list[Tensor]] = {}
        self._arriving: dict[int, Mark] = {}
        self._away: dict[int, list[Tensor]] = {}
        self._stored: list[int] = []
        self._again: dict[int, list[Tensor]] = {}

    def put(self, layer: int, inputs: Sequence[Tensor]) -> None:
        if not self._offload:
            self._here[layer] = list(inputs)
            return
        if layer not in self._away:
            # Host memory is found once and used in every step.
            self._away[layer] = [
                self._device.host(each.numel(), each.dtype).view(each.shape) for each in inputs
            ]
        lane = self._device.copy_out
        lane.wait(self._device.compute.mark())
        with lane.active():
            for away, each in zip(self._away[layer], inputs, strict=True):
                away.copy_(each, non_blocking=True)
                lane.borrows(each)
        self._arriving[layer] = lane.mark()
        self._stored.append(layer)

    def take(self, layer: int, *, is_needed_again: bool = False) -> list[Tensor]:
        """A layer's inputs, once; in the reverse order of `put`."""
        if not self._offload and is_needed_again:
            self._again[layer] = list(self._here[layer])
        if self._offload:
            self._fetch(layer)
            self._stored.remove(layer)
            self._device.compute.wait(self._arriving.pop(layer))
            if self._stored:
                self._fetch(self._stored[-1])
        return self._here.pop(layer)

    def take_again(self, layer: int) -> list[Tensor]:
        """The inputs of a layer that were taken with `is_needed_again`."""
        if self._offload:
            # They are still in host memory: that is written in the next forward pass.
            self._arriving[layer] = self._device.copy_out.mark()
            self._fetch(layer)
            self._device.compute.wait(self._arriving.pop(layer))
            return self._here.pop(layer)
        return self._again.pop(layer)

    def _fetch(self, layer: int) -> None:
        if layer in self._here:
            return
        lane = self._device.copy_in
        lane.wait(self._arriving[layer])
        with lane.active():
            found = [
                torch.empty(away.shape, dtype=away.dtype, device=self._device.torch)
                for away in self._away[layer]
            ]
            for each, away in zip(found, self._away[layer], strict=True):
                each.copy_(away, non_blocking=True)
                self._device.compute.borrows(each)
        self._here[layer] = found
        self._arriving[layer] = lane.mark()


@dataclass(frozen=True)
class _SecondBackward:
    """What the last layers need to compute their gradients again: the loss's gradient, and their tables."""

    grad_ABTD: list[Tensor]
    tables: dict[int, list[Tables]]


class BlockExecutor:
    """A model on one device, placed as the plan says."""

    form: Literal["block"] = "block"

    def __init__(
        self,
        model: BlockModel,
        source: WeightSource,
        placement: Placement,
        optimizer: OptimizerConfig,
        compute: Compute,
        options: ExecutorOptions = ExecutorOptions(),  # noqa: B008 - frozen
        compiling: BackgroundCompile | None = None,
    ) -> None:
        """`compiling`: the run begins uncompiled and switches to what that process compiles."""
        self.model = model
        self.placement = placement
        self._optimizer = optimizer
        self._options = options
        self.updates = 0
        self.device = Device(compute.device)
        self.timeline = Timeline(self.device)
        self._update = BlockUpdate(
            optimizer, compute.device, threads=options.threads, compiled=options.compiled
        )
        self.stores = make_stores(model, source, placement, self.device, compute.dtype, optimizer, options)
        self._updates = Updates(self.stores, self.device, self._update, self.timeline)
        self.weights = WeightFlow(self.stores, self.device, self._updates, self.timeline, placement.slots)
        self._layers = range(1, 1 + len(placement.layers))
        self._twice = self._layers[len(self._layers) - placement.gradients_twice :]
        assert all(
            (block.state, block.keep) == ("host", False)
            for block in placement.layers[len(self._layers) - len(self._twice) :]
        ), "gradients that are computed twice are those of recomputed layers in host memory"
        self._second_backward: _SecondBackward | None = None
        self.gradients = GradientFlow(
            self.stores,
            self.device,
            self.timeline,
            several=options.accumulation > 1 or options.group.size > 1,
            group=options.group,
            measured_only=frozenset(self._twice),
        )
        self._inputs = LayerInputs(self.device, offload=placement.offload_inputs)
        self._scale = LossScale(compute)
        self._head = 0 if model.tied else len(self.stores) - 1
        self._use_functions(compiled=options.compiled)
        # Stays when training switches to layers that were compiled aside: batches may have other shapes.
        self._evaluating_functions = self._layer_functions
        self._sampling_functions: dict[str, LayerFunctions] = {}
        self._compiling = compiling
        # Until this update torch may try kernels, for which it pins host memory.
        self._warm_until = WARM_UP
        self._stepping = False
        self._last: tuple[list[tuple[Mark, Mark]], float, int, int] | None = None
        self._clip_norm = optimizer.clip_norm
        self._weight_decay = optimizer.weight_decay
        self._graph = StepGraph(options.say) if self._may_be_recorded() else None
        # Buffers are zeroed by the compute lane; from here on other lanes write to them.
        self.device.compute.mark().wait_on_host()

    @property
    def optimizer_name(self) -> OptimizerName:
        return self._optimizer.name

    @property
    def optimizer_description(self) -> str:
        return self._update.description

    def forward_backward(self, batch: Batch) -> Tensor:
        """Mean loss over all targets of the step, on the device; leaves the step's gradient behind."""
        self._end_step()
        self._stepping = True
        inputs = self._inputs_of(batch, training=True)
        self._switch_if_planned()
        if self._graph is not None:
            return self._graph.forward_backward(inputs, self._forward_backward)
        return self._forward_backward(inputs)

    def _forward_backward(self, inputs: StepInputs) -> Tensor:
        tokens_ABT, targets_ABT, tables = inputs.tokens_ABT, inputs.targets_ABT, inputs.tables
        by_layer = dict(zip(self._layers, inputs.by_layer(len(self._layers)), strict=True))
        self.weights.begin([0, *self._layers, self._head, *reversed(self._layers), 0])
        kept: dict[int, list[Kept]] = {}
        x_ABTD = self._embed(tokens_ABT, tables)
        if self._compiling is not None and not self._compiling.is_ordered:
            self._compiling.order(self._compile_job(x_ABTD[0], by_layer))
            self._switch_if_planned()
        for index in self._layers:
            x_ABTD = self._forward(index, x_ABTD, by_layer[index], kept)
        head_sum = self._open(self._head)
        loss, grad_ABTD = self._loss(x_ABTD, targets_ABT, head_sum)
        del x_ABTD
        if self._twice:
            tables_again = {index: by_layer[index] for index in self._twice}
            self._second_backward = _SecondBackward(list(grad_ABTD), tables_again)
        for index in reversed(self._layers):
            grad_ABTD = self._backward(index, grad_ABTD, by_layer[index], kept)
        self._embedding_backward(tokens_ABT, tables, grad_ABTD, head_sum if self.model.tied else None)
        return loss

    def optimizer_step(self, lr: float) -> Tensor:
        """Clips by global norm and orders the update; returns the norm before clipping, on the device."""
        # Of other optimizers a recorded update would keep the learning rate.
        if self._graph is not None and self._graph.is_used and self._optimizer.name == "adamw":
            self.updates += 1
            step = adamw_step(self._optimizer, lr, self._weight_decay, self.updates)
            self._updates.wait_until_unneeded()
            self._update.prepare(step, self.device.torch)
            return self._graph.update(lambda: self._clip_and_update(step))
        norm = self.gradients.norm() * self._scale.inverse
        scale = gradient_factor(norm, self._clip_norm, self._scale.inverse)
        if self._scale.accepts(norm):
            self.updates += 1
            step = adamw_step(self._optimizer, lr, self._weight_decay, self.updates)
            order_later = self._updates.order(step, scale, frozenset(self._twice))
            self._compute_gradients_again(order_later)
            self.weights.forget()
            if self.device.is_gpu and self.updates <= self._warm_until:
                release_torch_pinned()
        elif self.placement.share_gradients:
            # The gradient that is not used has overwritten weights in host memory.
            self.settle()
            self.weights_changed()
        return norm

    def _compute_gradients_again(self, order: Callable[[int], None]) -> None:
        """The norm is known: gradients that nobody kept go from here to their updates.

        From the last layer down, so that each layer still has the weights of this step.
        """
        again, self._second_backward = self._second_backward, None
        if again is None:
            return
        self.weights.begin(list(reversed(self._twice)))
        grad_ABTD, self.gradients.measured_only = again.grad_ABTD, frozenset()
        for index in reversed(self._twice):
            if index + PASSING_GRADIENTS in self._twice:
                # Layers share these buffers in turn: this one needs the buffer of that layer.
                self._updates.wait(index + PASSING_GRADIENTS)
            grad_ABTD = self._backward(index, grad_ABTD, again.tables[index], {}, again=True)
            order(index)
        self.gradients.measured_only = frozenset(self._twice)

    def _clip_and_update(self, step: AdamWStep) -> Tensor:
        """All on the device, and without loss scaling."""
        norm = self.gradients.norm()
        self._updates.order(step, gradient_factor(norm, self._clip_norm, 1.0))
        return norm

    def last_step(self) -> Callable[[], StepMeasures] | None:
        if self._last is None or not self.device.is_gpu:
            return None
        waits, blocked, bytes_in, bytes_out = self._last
        return lambda: StepMeasures.of(self.timeline.seconds(waits), blocked, bytes_in, bytes_out)

    def tune(self, *, weight_decay: float, clip_norm: float) -> None:
        if self._graph is not None and (weight_decay, clip_norm) != (self._weight_decay, self._clip_norm):
            self._graph.forget()
        self._weight_decay = weight_decay
        self._clip_norm = clip_norm

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed loss and number of correct tokens, without a gradient."""
        self._end_step()
        inputs = self._inputs_of(batch, training=False)
        targets_ABT, by_layer = inputs.targets_ABT, [[], *inputs.by_layer(len(self._layers))]
        self.weights.begin([0, *self._layers, self._head])
        x_ABTD = self._embed(inputs.tokens_ABT, inputs.tables)
        for index in self._layers:
            functions = self._evaluating_functions[self.stores[index].spec.kind]
            with self.weights.use(index) as bound:
                x_ABTD = [
                    functions.forward(bound, x_BTD, table)
                    for x_BTD, table in zip(x_ABTD, by_layer[index], strict=True)
                ]
        loss = torch.zeros((), device=self.device.torch)
        correct = torch.zeros((), dtype=torch.int64, device=self.device.torch)
        with self.weights.use(self._head) as bound:
            # Uncompiled, and beside the memory of a recorded step.
            most = RECORDED_EVALUATION_TOKENS if self._graph is not None else EVALUATION_TOKENS
            size = min(most, self.placement.loss_chunk_tokens)
            for x_ND, targets_N in chunks(x_ABTD, targets_ABT, size):
                chunk_loss, chunk_correct = self._head_functions.evaluate(bound, x_ND, targets_N)
                loss += chunk_loss
                correct += chunk_correct
        return loss, correct

    @torch.no_grad()
    def next_logits(self, tokens_1T: Tensor, length: int) -> Tensor:
        """Logits (1, V) of what follows the first `length` tokens; what stands behind them does not count."""
        self._end_step()
        inputs = self._inputs_of(text_batch(tokens_1T), training=False)
        by_layer = [[], *inputs.by_layer(len(self._layers))]
        self.weights.begin([0, *self._layers, self._head])
        (x_1TD,) = self._embed(inputs.tokens_ABT, inputs.tables)
        for index in self._layers:
            kind = self.stores[index].spec.kind
            if kind not in self._sampling_functions:
                # Uncompiled: a few short texts are not worth the time to compile their shape.
                self._sampling_functions[kind] = LayerFunctions(
                    self.model, kind, self.stores[index].names, compiled=False
                )
            with self.weights.use(index) as bound:
                x_1TD = self._sampling_functions[kind].forward(bound, x_1TD, by_layer[index][0])
        with self.weights.use(self._head) as bound:
            return self._head_functions.logits(bound, x_1TD[:, length - 1])

    def settle(self) -> None:
        """Wait until all updates are done and copied back, so that the state can be read."""
        self._updates.settle()

    def snapshot(self, buffer_bytes: int, streams: Sequence[Sequence[Part]] = (WEIGHTS, MOMENTS)) -> Snapshot:
        """A snapshot of the current state, which other threads read while training continues."""
        self.weights.send_home()
        snapshot = Snapshot(
            self.stores, self.device, self._updates.so_far(), buffer_bytes=buffer_bytes, streams=streams
        )
        self._updates.may_change = snapshot.wait_for
        return snapshot

    @property
    def loss_scale(self) -> dict[str, float]:
        return self._scale.state()

    def continue_from(self, updates: int, loss_scale: dict[str, float]) -> None:
        """Continue from a state that was loaded into the stores: restores its counters."""
        self.updates = updates
        self._warm_until = updates + WARM_UP
        self._scale.restore(loss_scale)
        self.weights_changed()

    def close(self) -> None:
        """End the thread that updates host memory, after its last update. The executor is then unusable."""
        if self._compiling is not None:
            self._compiling.close()
        self._updates.settle()
        self._updates.close()

    def weights_changed(self) -> None:
        """Update all copies of the weights after the masters were written."""
        for store in self.stores:
            store.copy_master()
        self.weights.forget()

    def _end_step(self) -> None:
        """Keep the measurements of the step. What was measured between steps is dropped."""
        waits, flow, gradients = self.timeline.end_step(), self.weights, self.gradients
        # Marks of a step are all reached when the next step's loss is.
        if self._stepping:
            self._last = (waits, flow.seconds_blocked, flow.bytes_sent, gradients.bytes_sent)
        self._stepping = False
        flow.seconds_blocked, flow.bytes_sent, gradients.bytes_sent = 0.0, 0, 0

    def _use_functions(self, *, compiled: bool) -> None:
        kinds = {self.stores[index].spec.kind: self.stores[index].names for index in self._layers}
        self._layer_functions = {
            kind: LayerFunctions(
                self.model, kind, names, compiled=compiled and kind not in self.model.eager_kinds
            )
            for kind, names in kinds.items()
        }
        self._head_functions = HeadFunctions(self.model, self.stores[self._head].names, compiled=compiled)

    def _compile_job(self, x_BTD: Tensor, by_layer: dict[int, list[Tables]]) -> CompileJob:
        tables = {self.stores[index].spec.kind: by_layer[index][0] for index in self._layers}
        return CompileJob.of(
            self.model,
            [self.stores[index] for index in self._layers],
            self.stores[self._head],
            x_BTD,
            tables,
            self.placement.loss_chunk_tokens,
            self._updates.program(adamw_step(self._optimizer, 1.0, self._weight_decay, 1)),
        )

    def _switch_if_planned(self) -> None:
        """Use compiled programs from this step on, if the plan says so; waits until they are ready."""
        if self._compiling is None or (switches_at := self._compiling.switches_at(self.updates + 1)) is None:
            return
        self._compiling = None
        if switches_at:
            self._warm_until = self.updates + WARM_UP
            self._use_functions(compiled=True)
            self._update.use_compiled()
            if self._graph is not None:
                self._graph.forget()

    def _inputs_of(self, batch: Batch, *, training: bool) -> StepInputs:
        draws = draws_of(
            self.model,
            begins_of(batch, self._options.group),
            layers=len(self._layers),
            updates=self.updates,
            training=training,
            device=self.device.torch,
        )
        return StepInputs(*rows_of(batch, self.model, self.device.torch), draws)

    def _may_be_recorded(self) -> bool:
        """Whether a step runs on the device alone, without a synchronization with the host."""
        return (
            self.device.is_gpu
            and self.placement.cuda_graph
            and self._update.may_be_recorded
            and self._options.group.size == 1
            and not self._scale.state()
            and not self.placement.offload_inputs
            and all(store.rests_on_device for store in self.stores)
        )

    @torch.no_grad()
    def _embed(self, tokens_ABT: Sequence[Tensor], tables: Sequence[Tables]) -> list[Tensor]:
        with self.weights.use(0) as bound:
            weights = dict(zip(bound.names, (*bound.trained, *bound.frozen), strict=True))
            return [
                self.model.embed(weights, tokens_BT, table)
                for tokens_BT, table in zip(tokens_ABT, tables, strict=True)
            ]

    def _forward(
        self, index: int, x_ABTD: list[Tensor], tables: Sequence[Tables], kept: dict[int, list[Kept]]
    ) -> list[Tensor]:
        store = self.stores[index]
        functions = self._layer_functions[store.spec.kind]
        with self.weights.use(index) as bound, self.timeline.span(self.device.compute, "forward", index):
            pairs = zip(x_ABTD, tables, strict=True)
            if not store.placement.keep:
                self._inputs.put(index, x_ABTD)
                return [functions.forward(bound, x_BTD, table) for x_BTD, table in pairs]
            outputs = [functions.forward_kept(bound, x_BTD, table) for x_BTD, table in pairs]
            kept[index] = [each for _, each in outputs]
            return [y_BTD for y_BTD, _ in outputs]

    def _loss(
        self, x_ABTD: Sequence[Tensor], targets_ABT: Sequence[Tensor], head_sum: Sum | None
    ) -> tuple[Tensor, list[Tensor]]:
        counted = torch.zeros((), dtype=torch.int64, device=self.device.torch)
        for targets_BT in targets_ABT:
            counted += (targets_BT != IGNORED).sum()
        per_target = 1.0 / self._options.group.sum(counted).clamp(min=1).float()
        scale = per_target * self._scale.value
        loss = torch.zeros((), device=self.device.torch)
        grad_ABTD = [torch.empty_like(x_BTD) for x_BTD in x_ABTD]
        span = self.timeline.span(self.device.compute, "loss", self._head)
        with self.weights.use(self._head) as bound, span:
            size = self.placement.loss_chunk_tokens
            rows = zip(chunks(x_ABTD, targets_ABT, size), pieces(grad_ABTD, size), strict=True)
            for (x_ND, targets_N), grad_ND in rows:
                chunk_loss, chunk_grad_ND, *gradients = self._head_functions.loss(
                    bound, x_ND, targets_N, scale
                )
                loss += chunk_loss
                grad_ND.copy_(chunk_grad_ND)
                if head_sum is not None:
                    head_sum.add(gradients)
        if head_sum is not None and not self.model.tied:
            head_sum.close()
        return self._options.group.sum(loss) * per_target, grad_ABTD

    def _backward(
        self,
        index: int,
        grad_ABTD: list[Tensor],
        tables: Sequence[Tables],
        kept: dict[int, list[Kept]],
        *,
        again: bool = False,
    ) -> list[Tensor]:
        store = self.stores[index]
        functions = self._layer_functions[store.spec.kind]
        total = self._open(index)
        with self.weights.use(index) as bound, self.timeline.span(self.device.compute, "backward", index):
            activations = kept.pop(index, None)
            inputs: list[Tensor] = []
            if again:
                inputs = self._inputs.take_again(index)
            elif activations is None:
                inputs = self._inputs.take(index, is_needed_again=index in self._twice)
            for number, table in enumerate(tables):
                grad_BTD, grad_ABTD[number] = grad_ABTD[number], None  # type: ignore[call-overload]
                if activations is not None:
                    found = activations.pop(0).backward(grad_BTD)
                else:
                    found = functions.backward(bound, inputs.pop(0), table, grad_BTD)
                grad_ABTD[number] = found[0]
                if total is not None:
                    total.add(found[1:])
                del found, grad_BTD
        if total is not None:
            total.close()
        return grad_ABTD

    def _embedding_backward(
        self,
        tokens_ABT: Sequence[Tensor],
        tables: Sequence[Tables],
        grad_ABTD: list[Tensor],
        head_sum: Sum | None,
    ) -> None:
        total = head_sum or self._open(0)
        with self.weights.use(0) as bound:
            if total is None:
                return
            for tokens_BT, table, grad_BTD in zip(tokens_ABT, tables, grad_ABTD, strict=True):
                with torch.enable_grad():
                    trained = [weight.detach().requires_grad_() for weight in bound.trained]
                    weights = dict(zip(bound.names, (*trained, *bound.frozen), strict=True))
                    x_BTD = self.model.embed(weights, tokens_BT, table)
                total.add(gradients_or_zeros(x_BTD, trained, grad_BTD))
        total.close()

    def _open(self, index: int) -> Sum | None:
        return self.gradients.open(index) if self.stores[index].trained.length else None
