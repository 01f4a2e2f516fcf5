"""AdamW on the device: torch's fused kernel, with weight decay for matrices only.

State is named after parameters and the number of updates is one number, so that a checkpoint is a flat
set of tensors and torch's own state format stays inside this file.
"""

from typing import Any

import torch
from torch import Tensor

from gpubloom.plan import OptimizerConfig


class AdamW:
    """Decoupled weight decay; moments in FP32."""

    def __init__(self, parameters: dict[str, Tensor], config: OptimizerConfig) -> None:
        assert all(parameter.dtype == torch.float32 for parameter in parameters.values())
        self._parameters = parameters
        matrices = [parameter for parameter in parameters.values() if parameter.ndim > 1]
        vectors = [parameter for parameter in parameters.values() if parameter.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        self._torch = torch.optim.AdamW(
            groups,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.updates = 0
        # Moments exist from the start, so that state() has the same names before and after the first step.
        for parameter in parameters.values():
            self._torch.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def set_weight_decay(self, weight_decay: float) -> None:
        self._torch.param_groups[0]["weight_decay"] = weight_decay

    def step(self, lr: float) -> None:
        """One update from the gradients that the parameters carry."""
        for group in self._torch.param_groups:
            group["lr"] = lr
        self._torch.step()
        self._torch.zero_grad(set_to_none=True)
        self.updates += 1

    def state(self) -> dict[str, Tensor]:
        named = {}
        for name, parameter in self._parameters.items():
            named[f"{name}.first_moment"] = self._torch.state[parameter]["exp_avg"]
            named[f"{name}.second_moment"] = self._torch.state[parameter]["exp_avg_sq"]
        return named

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor], updates: int) -> None:
        for name, parameter in self._parameters.items():
            mine = self._torch.state[parameter]
            mine["exp_avg"].copy_(state[f"{name}.first_moment"])
            mine["exp_avg_sq"].copy_(state[f"{name}.second_moment"])
            mine["step"].fill_(updates)
        self.updates = updates
