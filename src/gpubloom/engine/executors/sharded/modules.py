"""The blocks of a model as modules that FSDP2 shards; the block executor's functions run in them.

A block's module holds its tensors as parameters and computes all micro-batches of a step in one call, so that
its weights are gathered once for the forward and once for the backward pass, and its gradient is summed among
processes once. What is computed, and that a layer is computed again, is the block executor's: only where
tensors live differs.

Shape letters: A micro-batches, B rows, T positions, D hidden size, N positions of any rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gpubloom.engine.executors.blocks.functions import Bound, HeadFunctions, Kept, LayerFunctions
from gpubloom.engine.executors.step import chunks, pieces
from gpubloom.engine.models.blocks import BlockModel, BlockSpec, Tables
from gpubloom.engine.models.layout import Layout


class BlockModule(nn.Module):
    """One block. Frozen tensors are parameters that need no gradient."""

    def __init__(self, spec: BlockSpec, dtype: torch.dtype) -> None:
        super().__init__()
        self.spec = spec
        self.trained, self.frozen = Layout.of(spec.trained).tensors, Layout.of(spec.frozen).tensors
        for tensor in self.trained:
            self._hold(tensor.name, torch.empty(tensor.shape, device="meta"), trained=True)
        for tensor in self.frozen:
            self._hold(tensor.name, torch.empty(tensor.shape, dtype=dtype, device="meta"), trained=False)

    @property
    def names(self) -> list[str]:
        return [tensor.name for tensor in (*self.trained, *self.frozen)]

    def parameter(self, name: str) -> nn.Parameter:
        """As FSDP has it at this moment: this process's part, or within a call the whole."""
        return cast(nn.Parameter, getattr(self, _key(name)))

    def tensors(self) -> list[Tensor]:
        return [self.parameter(name) for name in self.names]

    def _hold(self, name: str, tensor: Tensor, *, trained: bool) -> None:
        self.register_parameter(_key(name), nn.Parameter(tensor, requires_grad=trained))

    def _bound(self, tensors: Sequence[Tensor]) -> Bound:
        # Plain tensors: a compiled function would take each parameter for a constant of its own.
        plain = [tensor.detach() for tensor in tensors]
        return Bound(self.names, plain[: len(self.trained)], plain[len(self.trained) :])


class LayerModule(BlockModule):
    """A decoder layer; with `keep` its activations are kept, otherwise it is computed again."""

    def __init__(self, spec: BlockSpec, dtype: torch.dtype, functions: LayerFunctions, *, keep: bool) -> None:
        super().__init__(spec, dtype)
        self.functions = functions
        self.keep = keep

    def forward(self, x_ABTD: list[Tensor], tables: list[Tables]) -> list[Tensor]:
        if not torch.is_grad_enabled():
            bound = self._bound(self.tensors())
            pairs = zip(x_ABTD, tables, strict=True)
            return [self.functions.forward(bound, x_BTD, table) for x_BTD, table in pairs]
        run = cast(Callable[..., tuple[Tensor, ...]], _RunLayer.apply)
        return list(run(self, tables, *x_ABTD, *self.tensors()))


class EndModule(BlockModule):
    """Embedding or head, or both when they share a block. `forward` is told which of them is meant."""

    def __init__(
        self, model: BlockModel, spec: BlockSpec, dtype: torch.dtype, head: HeadFunctions, chunk: int
    ) -> None:
        super().__init__(spec, dtype)
        self.model = model
        self.head = head
        self.chunk = chunk

    def forward(self, part: str, *inputs: Any) -> Any:
        match part:
            case "embed":
                return self._embed(*inputs)
            case "loss":
                return self._loss(*inputs)
            case "logits":
                return self._logits(*inputs)
            case _:
                return self._evaluate(*inputs)

    def _embed(self, tokens_ABT: list[Tensor], tables: list[Tables]) -> list[Tensor]:
        weights = dict(zip(self.names, self.tensors(), strict=True))
        pairs = zip(tokens_ABT, tables, strict=True)
        return [self.model.embed(weights, tokens_BT, table) for tokens_BT, table in pairs]

    def _loss(self, x_ABTD: list[Tensor], targets_ABT: list[Tensor], scale: Tensor) -> Tensor:
        run = cast(Callable[..., Tensor], _RunHead.apply)
        return run(self, targets_ABT, scale, *x_ABTD, *self.tensors())

    def _logits(self, x_ABTD: list[Tensor], position: int) -> Tensor:
        return self.head.logits(self._bound(self.tensors()), x_ABTD[0][:, position])

    def _evaluate(self, x_ABTD: list[Tensor], targets_ABT: list[Tensor]) -> tuple[Tensor, Tensor]:
        bound = self._bound(self.tensors())
        loss = torch.zeros((), device=x_ABTD[0].device)
        correct = torch.zeros((), dtype=torch.int64, device=x_ABTD[0].device)
        for x_ND, targets_N in chunks(x_ABTD, targets_ABT, self.chunk):
            chunk_loss, chunk_correct = self.head.evaluate(bound, x_ND, targets_N)
            loss += chunk_loss
            correct += chunk_correct
        return loss, correct


class _RunLayer(torch.autograd.Function):
    """A layer over all micro-batches; its backward pass sums the gradients of its weights in FP32."""

    @staticmethod
    def forward(ctx: Any, module: LayerModule, tables: list[Tables], *tensors: Tensor) -> tuple[Tensor, ...]:
        inputs, weights = tensors[: len(tables)], tensors[len(tables) :]
        bound = module._bound(weights)
        ctx.module, ctx.tables, ctx.kept = module, tables, None
        pairs = zip(inputs, tables, strict=True)
        if not module.keep:
            ctx.save_for_backward(*tensors)
            return tuple(module.functions.forward(bound, x_BTD.detach(), table) for x_BTD, table in pairs)
        found = [module.functions.forward_kept(bound, x_BTD, table) for x_BTD, table in pairs]
        ctx.kept = [kept for _, kept in found]
        return tuple(y_BTD for y_BTD, _ in found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_ABTD: Tensor) -> tuple[Tensor | None, ...]:
        module, kept = ctx.module, cast(list[Kept] | None, ctx.kept)
        total = _Sum(module, several=len(grad_ABTD) > 1)
        inputs: list[Tensor] = []
        for number, grad_BTD in enumerate(grad_ABTD):
            if kept is not None:
                found = kept[number].backward(grad_BTD)
                kept[number] = None  # type: ignore[call-overload]
            else:
                saved = ctx.saved_tensors
                bound = module._bound(saved[len(ctx.tables) :])
                found = module.functions.backward(bound, saved[number].detach(), ctx.tables[number], grad_BTD)
            inputs.append(found[0])
            total.add(found[1:])
        return None, None, *inputs, *total.gradients()


class _RunHead(torch.autograd.Function):
    """Summed loss of all positions; the gradient of scale · loss is found with it, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, module: EndModule, targets_ABT: list[Tensor], scale: Tensor, *tensors: Tensor
    ) -> Tensor:
        x_ABTD, weights = list(tensors[: len(targets_ABT)]), tensors[len(targets_ABT) :]
        bound = module._bound(weights)
        loss = torch.zeros((), device=scale.device)
        grad_ABTD = [torch.empty_like(x_BTD) for x_BTD in x_ABTD]
        total = _Sum(module, several=True)
        size = module.chunk
        rows = zip(chunks(x_ABTD, targets_ABT, size), pieces(grad_ABTD, size), strict=True)
        for (x_ND, targets_N), grad_ND in rows:
            chunk_loss, chunk_grad_ND, *gradients = module.head.loss(bound, x_ND, targets_N, scale)
            loss += chunk_loss
            grad_ND.copy_(chunk_grad_ND)
            total.add(gradients)
        ctx.found = (*grad_ABTD, *total.gradients())
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The loss is what the backward pass begins with: its own gradient is one.
        found, ctx.found = ctx.found, None
        return None, None, None, *found


class _Sum:
    """Gradients of a block's trained tensors over micro-batches: FP32, rounded once."""

    def __init__(self, module: BlockModule, *, several: bool) -> None:
        self._module = module
        self._several = several
        self._total: list[Tensor] = []
        self._dtypes: list[torch.dtype] = []

    def add(self, gradients: Sequence[Tensor]) -> None:
        if not self._total:
            self._dtypes = [gradient.dtype for gradient in gradients]
            # Copies where more is added: two tensors may have been given one gradient.
            self._total = [g.to(torch.float32, copy=True) if self._several else g for g in gradients]
            return
        for total, gradient in zip(self._total, gradients, strict=True):
            total.add_(gradient)

    def gradients(self) -> list[Tensor | None]:
        rounded: list[Tensor | None] = [
            total.to(dtype) for total, dtype in zip(self._total, self._dtypes, strict=True)
        ]
        return [*rounded, *(None for _ in self._module.frozen)]


def _key(name: str) -> str:
    """A module's parameters have no dots in their names."""
    return "tensor_" + name.replace(".", "_dot_")
