"""What is computed with a block's weights: forward, backward, and the loss with its gradient.

Pure functions of tensors, one set per kind of block. Compiled, each is traced with its backward pass into one
graph: what the backward pass does not need (a layer's last projection, when it is computed again) falls away.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor

from gpubloom.engine.compile_cache import compile_program
from gpubloom.engine.loss import has_fused_gradient, loss_and_gradient, summed_cross_entropy
from gpubloom.engine.models.blocks import BlockModel, Tables

# Setting of torch: programs with a backward pass of our own (engine/models) are kept between processes too.
# What it computes is part of the program that the cache knows it by.
_CACHE_FUNCTIONS = "autograd_cache_allow_custom_autograd_functions"

Tensors = Sequence[Tensor]
Gradients = tuple[Tensor, ...]


class Bound:
    """A block's weights on the device: trained and frozen tensors in the order of their layouts.

    `borrowed` is a buffer that the next block's weights are decoded into; whoever binds this block again
    finds the same values there again.
    """

    def __init__(
        self, names: Sequence[str], trained: Tensors, frozen: Tensors, borrowed: Tensor | None = None
    ) -> None:
        self.names = names
        self.trained = list(trained)
        self.frozen = list(frozen)
        self.borrowed = borrowed


class Kept:
    """One layer's activations, waiting for the backward pass."""

    def __init__(self, y_BTD: Tensor, inputs: Tensors) -> None:
        self._y_BTD = y_BTD
        self._inputs = list(inputs)

    def backward(self, grad_BTD: Tensor) -> Gradients:
        """Gradients of the input and of the trained weights. Can be called once."""
        return torch.autograd.grad(_given(self._y_BTD, grad_BTD), self._inputs)


class LayerFunctions:
    """A decoder layer of one kind."""

    def __init__(self, model: BlockModel, kind: str, names: Sequence[str], *, compiled: bool) -> None:
        self._model = model
        self._kind = kind
        self._names = list(names)
        self._forward = compile_program(self._layer) if compiled else self._layer
        self._keep = Saving(self._layer) if compiled else self._layer
        self._backward: Callable[..., Gradients] = self._recompute
        if compiled:
            self._backward = Traced(self._recompute)

    @torch.no_grad()
    def forward(self, bound: Bound, x_BTD: Tensor, tables: Tables) -> Tensor:
        out: Tensor = self._forward(bound.trained, bound.frozen, x_BTD, tables)
        return out

    def forward_kept(self, bound: Bound, x_BTD: Tensor, tables: Tables) -> tuple[Tensor, Kept]:
        """The output, and what its backward pass needs."""
        with torch.enable_grad(), _keeping_positions_in(bound.borrowed):
            x_BTD = x_BTD.detach().requires_grad_()
            trained = [weight.detach().requires_grad_() for weight in bound.trained]
            y_BTD = self._keep(trained, bound.frozen, x_BTD, tables)
        return y_BTD.detach(), Kept(y_BTD, [x_BTD, *trained])

    def backward(self, bound: Bound, x_BTD: Tensor, tables: Tables, grad_BTD: Tensor) -> Gradients:
        """Computes the layer again; gradients of the input and of the trained weights."""
        return self._backward(bound.trained, bound.frozen, x_BTD, tables, grad_BTD)

    def _layer(self, trained: Tensors, frozen: Tensors, x_BTD: Tensor, tables: Tables) -> Tensor:
        weights = dict(zip(self._names, (*trained, *frozen), strict=True))
        return self._model.layer(self._kind, weights, x_BTD, tables)

    def _recompute(
        self, trained: Tensors, frozen: Tensors, x_BTD: Tensor, tables: Tables, grad_BTD: Tensor
    ) -> Gradients:
        with torch.enable_grad():
            x_BTD = x_BTD.detach().requires_grad_()
            trained = [weight.detach().requires_grad_() for weight in trained]
            y_BTD = self._layer(trained, frozen, x_BTD, tables)
        return torch.autograd.grad(_given(y_BTD, grad_BTD), [x_BTD, *trained])


class HeadFunctions:
    """Final norm, projection and loss of a chunk of positions."""

    def __init__(self, model: BlockModel, names: Sequence[str], *, compiled: bool) -> None:
        self._model = model
        self._names = list(names)
        self._chunk: Callable[..., Gradients] = (
            Traced(self._loss_and_gradient) if compiled else (self._loss_and_gradient)
        )

    def loss(self, bound: Bound, x_ND: Tensor, targets_N: Tensor, scale: Tensor) -> Gradients:
        """Summed loss of the chunk, and gradients of scale · loss: of the input, of the trained weights."""
        return self._chunk(bound.trained, bound.frozen, x_ND, targets_N, scale)

    @torch.no_grad()
    def evaluate(self, bound: Bound, x_ND: Tensor, targets_N: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss, and how many of the targets were the likeliest token."""
        logits_NV = self._logits(bound.trained, bound.frozen, x_ND)
        return summed_cross_entropy(logits_NV, targets_N), (logits_NV.argmax(-1) == targets_N).sum()

    @torch.no_grad()
    def logits(self, bound: Bound, x_ND: Tensor) -> Tensor:
        return self._logits(bound.trained, bound.frozen, x_ND)

    def _logits(self, trained: Tensors, frozen: Tensors, x_ND: Tensor) -> Tensor:
        return self._model.logits(dict(zip(self._names, (*trained, *frozen), strict=True)), x_ND)

    def _loss_and_gradient(
        self, trained: Tensors, frozen: Tensors, x_ND: Tensor, targets_N: Tensor, scale: Tensor
    ) -> Gradients:
        with torch.enable_grad():
            x_ND = x_ND.detach().requires_grad_()
            trained = [weight.detach().requires_grad_() for weight in trained]
            logits_NV = self._logits(trained, frozen, x_ND)
        used = [x_ND, *trained]
        # A tied head's block also holds what only the embedding uses, such as learned positions.
        if has_fused_gradient(logits_NV):
            loss, grad_NV = loss_and_gradient(logits_NV.detach(), targets_N, scale)
            return loss, *gradients_or_zeros(logits_NV, used, grad_NV)
        with torch.enable_grad():
            loss = summed_cross_entropy(logits_NV, targets_N)
            scaled = loss * scale
        return loss.detach(), *gradients_or_zeros(scaled, used)


class Traced:
    """A function that calls autograd, compiled: traced to one graph of plain operations per set of shapes."""

    def __init__(self, function: Callable[..., Gradients]) -> None:
        self._function = function
        self._graphs: dict[tuple[Any, ...], Callable[..., Gradients]] = {}

    def __call__(self, *arguments: Any) -> Gradients:
        key = tuple(_shapes(argument) for argument in arguments)
        graph = self._graphs.get(key)
        if graph is None:
            # Loaded here: it brings torch's compiler, which an eager run never pays for.
            from torch.fx.experimental.proxy_tensor import make_fx

            # A method would be counted as having one argument more.
            def plain(arguments: tuple[Any, ...]) -> Gradients:
                return self._function(*arguments)

            with torch.no_grad():
                traced = make_fx(plain, tracing_mode="fake")(arguments)
            graph = self._graphs[key] = compile_program(traced)
        with torch.no_grad():
            return graph(arguments)


class Saving:
    """A function whose backward pass follows later, compiled so that it saves little.

    By default torch also saves what a backward pass could make again from other saved tensors without a
    matrix product. Making it again costs about one percent; a third more layers can keep their activations.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = compile_program(function)
        self._seen: set[tuple[Any, ...]] = set()

    def __call__(self, *arguments: Any) -> Tensor:
        key = tuple(_shapes(argument) for argument in arguments)
        if key in self._seen:
            return cast(Tensor, self._function(*arguments))
        self._seen.add(key)
        import torch._functorch.config as partitioner

        settings = {"ban_recompute_materialized_backward": False}
        if hasattr(partitioner, _CACHE_FUNCTIONS):
            settings[_CACHE_FUNCTIONS] = True
        with partitioner.patch(settings):
            return cast(Tensor, self._function(*arguments))


def _keeping_positions_in(borrowed: Tensor | None) -> AbstractContextManager[object]:
    """Saves a weight in a borrowed buffer as its place there, not as its value of this moment."""
    if borrowed is None:
        return nullcontext()
    storage = borrowed.untyped_storage().data_ptr()

    def save(tensor: Tensor) -> object:
        if tensor.untyped_storage().data_ptr() != storage:
            return tensor
        return tensor.shape, tensor.stride(), tensor.storage_offset()

    def find(saved: Any) -> Tensor:
        return saved if isinstance(saved, Tensor) else torch.as_strided(borrowed, *saved)

    return torch.autograd.graph.saved_tensors_hooks(save, find)


def gradients_or_zeros(y: Tensor, inputs: Tensors, gradient: Tensor | None = None) -> list[Tensor]:
    """Gradients of all inputs; zeros for those that y does not depend on."""
    y = y if gradient is None else _given(y, gradient)
    found: Sequence[Tensor | None] = torch.autograd.grad(y, list(inputs), allow_unused=True)
    return [
        torch.zeros_like(each) if gradient is None else gradient
        for each, gradient in zip(inputs, found, strict=True)
    ]


def _given(y: Tensor, gradient: Tensor) -> Tensor:
    """A number whose gradient towards y is the given one.

    torch.autograd.grad compares the shape of a gradient that it is given by sympy: 500 modules to import,
    which an uncompiled run needs for nothing else.
    """
    with torch.enable_grad():
        return cast(Tensor, _Given.apply(y, gradient))  # type: ignore[no-untyped-call]


class _Given(torch.autograd.Function):
    """See `_given`."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        # Nobody reads it.
        return y.new_empty(())

    @staticmethod
    def backward(ctx: Any, one: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def _shapes(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return tuple(argument.shape)
    return tuple(_shapes(part) for part in argument)
