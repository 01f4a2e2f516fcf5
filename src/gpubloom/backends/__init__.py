"""Other trainers behind the same config, run directory and Reporter: TRL, and TRL with Unsloth.

They get the batches that the engine's loader makes, so that what is trained, in which order, and when a run
is evaluated and saved does not depend on who trains. What they import takes seconds: `open_trainer` does it.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from gpubloom.plan.backends import available_backends
from gpubloom.traincard import Reporter

if TYPE_CHECKING:
    from gpubloom.backends.trl import TrlTrainer
    from gpubloom.engine.data import Dataset

__all__ = ["open_trainer"]


def open_trainer(
    config: TrainConfig,
    dataset: "Dataset",
    reporter: Reporter,
    stop: Callable[[], str | None] = lambda: None,
) -> "TrlTrainer":
    """The trainer that the config names, with its model loaded; ValueError when it cannot run here."""
    dataset.report(reporter)
    config = config.model_copy(update={"device": see_one_gpu(config.device)})
    if config.backend == "unsloth":
        # Unsloth replaces parts of these libraries when it is imported; too late, it only warns.
        early = [name for name in ("transformers", "trl", "peft") if name in sys.modules]
        if early and "unsloth" not in sys.modules:
            raise InputError(
                "unsloth_imported_late",
                f"Unsloth must be imported before {', '.join(early)}: start train.py in a new process.",
            )
        if getattr(dataset.train, "is_packed", False):
            # Its attention has a way of its own of telling where a document ends: documents that see each
            # other would be trained without anybody noticing.
            raise InputError(
                "packing_not_supported",
                "Backend unsloth does not support packing: set data.packing to false.",
            )
        from gpubloom.backends.unsloth import load_with_unsloth as load
    elif config.backend == "trl":
        found = next(each for each in available_backends() if each.name == "trl")
        if not found.available:
            raise InputError("backend_unavailable", f"Backend trl cannot run on this machine: {found.reason}")
        from gpubloom.backends.loading import load
    else:
        raise InputError(
            "wrong_backend",
            f"This trainer does not support backend {config.backend}: use gpubloom.engine.Trainer.",
        )
    from gpubloom.backends.trl import TrlTrainer

    return TrlTrainer(config, dataset, reporter, stop, load)


def see_one_gpu(device: str) -> str:
    """Hides all GPUs but the one to train on, and says what it is called then.

    A Trainer that sees several would split every batch over them. CUDA must not have been used before.
    """
    if device == "cpu":
        return device
    number = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(each) for each in range(number + 1)] if visible is None else visible.split(",")
    if number >= len(names):
        # Refused where the GPUs are counted.
        return device
    os.environ["CUDA_VISIBLE_DEVICES"] = names[number]
    return device.partition(":")[0]
