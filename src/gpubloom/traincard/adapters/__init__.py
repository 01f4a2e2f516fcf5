"""TrainCard for training frameworks: one file each.

    from gpubloom.traincard.adapters import HFTrainCardCallback

Nothing heavy is imported until a name is asked for: each framework's file imports that framework only.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpubloom.traincard.adapters.accelerate import TrainCardTracker
    from gpubloom.traincard.adapters.hugging_face import HFTrainCardCallback
    from gpubloom.traincard.adapters.lightning import LightningTrainCardCallback
    from gpubloom.traincard.adapters.loop import Track

__all__ = ["HFTrainCardCallback", "LightningTrainCardCallback", "Track", "TrainCardTracker"]

_FILES = {
    "HFTrainCardCallback": "hugging_face",
    "LightningTrainCardCallback": "lightning",
    "TrainCardTracker": "accelerate",
    "Track": "loop",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FILES[name]}"), name)
