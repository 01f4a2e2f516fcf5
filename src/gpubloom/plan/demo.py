"""The demo: what is trained when nobody said what. A small model on text that is on every machine."""

import sysconfig
from pathlib import Path
from typing import Any


def demo_fields() -> dict[str, Any]:
    """Fields of a TrainConfig: about a minute on two free CPU cores, on Python's own sources."""
    return {
        "name": "demo",
        "max_steps": 450,
        "batch_size": 16,
        "learning_rate": 3e-3,
        "eval": {"every_steps": 100},
        "data": {"train_path": str(Path(sysconfig.get_path("stdlib")) / "*.py")},
    }
