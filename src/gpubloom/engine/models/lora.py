"""LoRA: a model whose weights are frozen, with small trained matrices beside its linear layers.

y = base(x) + scale · B(A(x)), in training with dropout before A if that is asked for. Works on every model
that keeps its layers as modules in `templates`: the linear modules of a copy of each template get A and B as
children, so that names stay those of Hugging Face and PEFT.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from gpubloom.engine.models.blocks import BlockModel, BlockSpec, Tables, TensorSpec, Weights, WeightSource
from gpubloom.engine.models.dropout import Dropout, leave_out, salt_of
from gpubloom.engine.models.weight_sources import generator_for
from gpubloom.errors import InputError

_A, _B = "lora_A.weight", "lora_B.weight"
_DRAW = "lora_draw"


class TemplatedModel(BlockModel, Protocol):
    """A model whose `layer` runs `templates[kind]`, a module on the meta device."""

    templates: dict[str, nn.Module]


@dataclass(frozen=True)
class LoraSettings:
    """`targets` are ends of linear modules' paths, such as q_proj; `all-linear` is every one in a layer."""

    rank: int
    alpha: float
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise InputError("invalid_lora", f"The LoRA rank must be at least 1, not {self.rank}.")
        if self.targets != "all-linear" and not self.targets:
            raise InputError("invalid_lora", "LoRA needs at least one target, such as q_proj, or all-linear.")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def wants(self, path: str) -> bool:
        if self.targets == "all-linear":
            return True
        return any(path == target or path.endswith(f".{target}") for target in self.targets)


def with_lora(model: BlockModel, settings: LoraSettings, seed: int = 0) -> "LoraBlocks":
    """The model with adapters; ValueError when a target names nothing. `seed` is that of dropout."""
    if not hasattr(model, "templates"):
        raise TypeError(f"{type(model).__name__} does not support LoRA: it has no layer templates.")
    return LoraBlocks(cast(TemplatedModel, model), settings, seed)


class LoraBlocks:
    """A model of which only adapters are trained. Blocks without adapters are frozen as a whole."""

    def __init__(self, base: TemplatedModel, settings: LoraSettings, seed: int = 0) -> None:
        self.base = base
        self.settings = settings
        self.dropout = Dropout(settings.dropout, seed) if settings.dropout else None
        self.tied = base.tied
        self.notes: tuple[str, ...] = getattr(base, "notes", ())
        self.eager_kinds: frozenset[str] = getattr(base, "eager_kinds", frozenset())
        linear = _linear_paths(base.templates)
        self.targets = tuple(sorted(path for path in linear if settings.wants(path)))
        if settings.targets != "all-linear":
            self._refuse_idle_targets(settings.targets, linear)
        self.templates = {kind: _adapted(layer, settings) for kind, layer in base.templates.items()}
        self._draws = {
            kind: [name for name, _ in layer.named_buffers() if name.endswith(f".{_DRAW}")]
            for kind, layer in self.templates.items()
        }
        # The same model in all but its templates: `layer` runs whatever stands there.
        self._adapted = copy.copy(base)
        self._adapted.templates = self.templates
        self.blocks = tuple(self._block(block) for block in base.blocks)

    def parameter_name(self, block: BlockSpec, tensor: TensorSpec) -> str:
        return self.base.parameter_name(block, tensor)

    def tables(
        self, tokens_BT: Tensor, documents_BT: Tensor | None, most_per_row: int | None = None
    ) -> Tables:
        return self.base.tables(tokens_BT, documents_BT, most_per_row)

    def embed(self, weights: Weights, tokens_BT: Tensor, tables: Tables) -> Tensor:
        return self.base.embed(weights, tokens_BT, tables)

    def layer(self, kind: str, weights: Weights, x_BTD: Tensor, tables: Tables) -> Tensor:
        if self.dropout is not None:
            *tables_of_base, draw = tables
            tables = tuple(tables_of_base)
            weights = {**weights, **dict.fromkeys(self._draws[kind], draw)}
        return self._adapted.layer(kind, weights, x_BTD, tables)

    def logits(self, weights: Weights, x_ND: Tensor) -> Tensor:
        return self.base.logits(weights, x_ND)

    def base_block(self, block: BlockSpec) -> BlockSpec:
        """The block as the model without adapters has it."""
        return BlockSpec(block.name, block.kind, block.frozen)

    def merged(self, block: BlockSpec, weights: Weights) -> Iterator[tuple[str, Tensor]]:
        """A block's tensors by their names in a model folder, adapters added in: W + scale · B·A in fp32."""
        for tensor in block.frozen:
            weight = weights[tensor.name]
            path = tensor.name.removesuffix(".weight")
            if f"{path}.{_A}" in weights:
                change = weights[f"{path}.{_B}"].float() @ weights[f"{path}.{_A}"].float()
                if is_transposed(self.templates[block.kind].get_submodule(path)):
                    change = change.T
                weight = (weight.float() + self.settings.scale * change).to(weight.dtype)
            yield self.parameter_name(block, tensor), weight

    def _block(self, block: BlockSpec) -> BlockSpec:
        if block.kind not in self.templates:
            return BlockSpec(block.name, block.kind, (), (*block.trained, *block.frozen))
        adapters = tuple(
            TensorSpec(name, tuple(parameter.shape))
            for name, parameter in self.templates[block.kind].named_parameters()
            if name.endswith((f".{_A}", f".{_B}"))
        )
        return BlockSpec(block.name, block.kind, adapters, (*block.trained, *block.frozen))

    def _refuse_idle_targets(self, targets: tuple[str, ...], linear: set[str]) -> None:
        for target in targets:
            if not any(path == target or path.endswith(f".{target}") for path in linear):
                choices = ", ".join(sorted({path.rpartition(".")[2] for path in linear}))
                raise InputError(
                    "unknown_lora_target",
                    f"LoRA target {target} is not a linear layer of this model; available layers: {choices}.",
                )


class LoraWeights:
    """First weights of a model with adapters: a base, and adapters that are new or were saved before."""

    def __init__(
        self, model: LoraBlocks, base: WeightSource, seed: int, adapters: Mapping[str, Tensor] | None = None
    ) -> None:
        """`adapters` by their names in a model folder, as `read_adapter` gives them."""
        self._model = model
        self._base = base
        self._seed = seed
        self._adapters = adapters
        if adapters is not None:
            _refuse_other_adapters(model, adapters)

    @torch.no_grad()
    def fill(self, block: BlockSpec, tensors: Weights) -> None:
        self._base.fill(
            self._model.base_block(block), {spec.name: tensors[spec.name] for spec in block.frozen}
        )
        for spec in block.trained:
            target = tensors[spec.name]
            if self._adapters is not None:
                target.copy_(self._adapters[self._model.parameter_name(block, spec)])
            elif spec.name.endswith(f".{_A}"):
                generator = generator_for(self._seed, f"{block.name}.{spec.name}", target.device)
                nn.init.kaiming_uniform_(target, a=math.sqrt(5), generator=generator)
            else:
                target.zero_()


def is_transposed(module: nn.Module) -> bool:
    """GPT-2's linear modules keep their matrix as (in, out)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or is_transposed(module)


def _linear_paths(templates: Mapping[str, nn.Module]) -> set[str]:
    return {
        path
        for template in templates.values()
        for path, module in template.named_modules()
        if _is_linear(module)
    }


def _adapted(template: nn.Module, settings: LoraSettings) -> nn.Module:
    adapted = copy.deepcopy(template)
    targets = [
        (path, module)
        for path, module in adapted.named_modules()
        if _is_linear(module) and settings.wants(path)
    ]
    for path, module in targets:
        outputs, inputs = cast(Tensor, module.weight).shape
        if is_transposed(module):
            outputs, inputs = inputs, outputs
        with torch.device("meta"):
            module.lora_A = nn.Linear(inputs, settings.rank, bias=False)
            module.lora_B = nn.Linear(settings.rank, outputs, bias=False)
        module.lora_scale = settings.scale
        module.lora_salt = None
        if settings.dropout:
            # Its place among the weights that a call brings along.
            module.register_buffer(_DRAW, torch.empty(0, device="meta"), persistent=False)
            module.lora_salt = salt_of(path)
        module.register_forward_hook(_add)
    return adapted


def _add(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + lora_up(module, lora_down(module, inputs[0]))


def has_adapter(module: nn.Module) -> bool:
    return hasattr(module, "lora_A")


def has_dropout(module: nn.Module) -> bool:
    """Whether the adapter of a module leaves out some of its inputs."""
    return getattr(module, "lora_salt", None) is not None


def lora_down(module: Any, x: Tensor) -> Tensor:
    """What an adapter's first matrix makes of the input."""
    if has_dropout(module):
        x = leave_out(x, module.lora_draw, module.lora_salt)
    low: Tensor = module.lora_A(x)
    return low


def lora_up(module: Any, low: Tensor) -> Tensor:
    """What an adapter adds to the output."""
    # Scaled where it is narrow: one pass less over the output, and over its gradient.
    change: Tensor = module.lora_B(module.lora_scale * low)
    return change


def _refuse_other_adapters(model: LoraBlocks, adapters: Mapping[str, Tensor]) -> None:
    for block in model.blocks:
        for spec in block.trained:
            name = model.parameter_name(block, spec)
            if name not in adapters:
                raise InputError(
                    "adapter_mismatch", f"The adapter has no tensor {name}, which this model requires."
                )
            if tuple(adapters[name].shape) != spec.shape:
                found = tuple(adapters[name].shape)
                raise InputError(
                    "adapter_mismatch",
                    f"The adapter's tensor {name} has size {found} instead of {spec.shape}.",
                )
