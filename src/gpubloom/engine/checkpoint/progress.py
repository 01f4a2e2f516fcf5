"""Where a run stands, besides its weights and moments."""

from dataclasses import dataclass

import torch
from torch import Tensor

RANDOM_FILE = "training.safetensors"


@dataclass(frozen=True)
class Progress:
    """What training.json holds."""

    step: int
    updates: int
    tokens_seen: int
    loader: dict[str, int]
    data_fingerprint: str
    metrics: dict[str, float]
    loss_scale: dict[str, float]
    # Checkpoints from before there were examples do not say it.
    trained_tokens: int = 0


def random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random_state(random: dict[str, Tensor]) -> None:
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])
