"""AdamW on the device: torch's fused kernel, with weight decay for matrices only.

The functional form of torch's optimizer is used: its class would load torch's compiler, which costs more
than a second at the start of every run. State is named after parameters and the number of updates is one
number, so that a checkpoint is a flat set of tensors.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from gpubloom.plan import OptimizerConfig


@dataclass
class _Group:
    """Parameters that share a weight decay, with their state in the same order."""

    weight_decay: float
    parameters: list[Tensor] = field(default_factory=list)
    first_moments: list[Tensor] = field(default_factory=list)
    second_moments: list[Tensor] = field(default_factory=list)
    counts: list[Tensor] = field(default_factory=list)

    def add(self, parameter: Tensor) -> None:
        self.parameters.append(parameter)
        self.first_moments.append(torch.zeros_like(parameter, requires_grad=False))
        self.second_moments.append(torch.zeros_like(parameter, requires_grad=False))
        self.counts.append(torch.zeros((), device=parameter.device))

    def gradients(self) -> list[Tensor]:
        found = [parameter.grad for parameter in self.parameters]
        assert all(gradient is not None for gradient in found)
        return [gradient for gradient in found if gradient is not None]


class AdamW:
    """Decoupled weight decay; moments in FP32."""

    def __init__(self, parameters: dict[str, Tensor], config: OptimizerConfig) -> None:
        assert all(parameter.dtype == torch.float32 for parameter in parameters.values())
        self._config = config
        self._matrices = _Group(config.weight_decay)
        self._vectors = _Group(0.0)
        self._places: dict[str, tuple[_Group, int]] = {}
        self.updates = 0
        for name, parameter in parameters.items():
            group = self._matrices if parameter.ndim > 1 else self._vectors
            self._places[name] = group, len(group.parameters)
            group.add(parameter)

    def set_weight_decay(self, weight_decay: float) -> None:
        self._matrices.weight_decay = weight_decay

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One update from the gradients that the parameters carry, which are dropped."""
        for group in (self._matrices, self._vectors):
            adamw(
                group.parameters,
                group.gradients(),
                group.first_moments,
                group.second_moments,
                [],
                group.counts,
                fused=True,
                amsgrad=False,
                beta1=self._config.beta1,
                beta2=self._config.beta2,
                lr=lr,
                weight_decay=group.weight_decay,
                eps=self._config.eps,
                maximize=False,
            )
            for parameter in group.parameters:
                parameter.grad = None
        self.updates += 1

    def state(self) -> dict[str, Tensor]:
        named = {}
        for name, (group, index) in self._places.items():
            named[f"{name}.first_moment"] = group.first_moments[index]
            named[f"{name}.second_moment"] = group.second_moments[index]
        return named

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], updates: int) -> None:
        for name, (group, index) in self._places.items():
            group.first_moments[index].copy_(state[f"{name}.first_moment"])
            group.second_moments[index].copy_(state[f"{name}.second_moment"])
            group.counts[index].fill_(updates)
        self.updates = updates
