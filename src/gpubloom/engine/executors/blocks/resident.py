"""ResidentExecutor: all blocks, gradients and optimizer state stay on one device.

Weights are FP32; with bf16 the blocks compute under autocast, which never touches the weights themselves.
It is the reference that every other placement must agree with.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.protocol import ExecutorState
from gpubloom.engine.hardware import Compute
from gpubloom.engine.models import TransformerLM
from gpubloom.engine.models.transformer import loss_of
from gpubloom.engine.optimizer import AdamW
from gpubloom.plan import OptimizerConfig


class ResidentExecutor:
    """Everything on one device."""

    def __init__(self, model: TransformerLM, optimizer: OptimizerConfig, compute: Compute) -> None:
        self._compute = compute
        self._model = model.to(compute.device)
        self._optimizer = AdamW(dict(self._model.named_parameters()), optimizer)
        self._clip_norm = optimizer.clip_norm

    def forward_backward(self, batch: Batch) -> Tensor:
        tokens_ABT, targets_ABT = self._to_device(batch)
        accumulation = len(tokens_ABT)
        loss = torch.zeros((), device=self._compute.device)
        for tokens_BT, targets_BT in zip(tokens_ABT, targets_ABT, strict=True):
            with self._compute.autocast():
                logits_BTV = self._model(tokens_BT)
            micro_loss = loss_of(logits_BTV, targets_BT) / accumulation
            micro_loss.backward()  # type: ignore[no-untyped-call]
            loss += micro_loss.detach()
        return loss

    def optimizer_step(self, lr: float) -> Tensor:
        limit = self._clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), limit)
        self._optimizer.step(lr)
        return norm

    def tune(self, *, weight_decay: float, clip_norm: float) -> None:
        self._optimizer.set_weight_decay(weight_decay)
        self._clip_norm = clip_norm

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        tokens_BT, targets_BT = (part.flatten(0, 1) for part in self._to_device(batch))
        with self._compute.autocast():
            logits_BTV = self._model(tokens_BT)
        loss = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="sum")
        return loss, (logits_BTV.argmax(-1) == targets_BT).sum()

    def state(self) -> ExecutorState:
        weights = {name: parameter.detach() for name, parameter in self._model.named_parameters()}
        return ExecutorState(weights, self._optimizer.state(), self._optimizer.updates)

    @torch.no_grad()
    def restore(self, state: ExecutorState) -> None:
        for name, parameter in self._model.named_parameters():
            parameter.copy_(state.weights[name])
        self._optimizer.restore(state.optimizer, state.updates)

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        device = self._compute.device
        return batch.tokens_ABT.to(device, non_blocking=True), batch.targets_ABT.to(device, non_blocking=True)
