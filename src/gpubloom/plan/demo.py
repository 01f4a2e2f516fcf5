"""The demo: what is trained when nobody said what. A small model on text that is on every machine."""

import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def demo_fields(said: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Fields of a TrainConfig: about a minute on two free CPU cores, on Python's own sources.

    Rate and batch suit the small model of the demo; what is said about a model or a method has its own.
    """
    fields: dict[str, Any] = {
        "name": "demo",
        "max_steps": 450,
        "eval": {"every_steps": 100},
        "data": {"train_path": str(Path(sysconfig.get_path("stdlib")) / "*.py")},
    }
    if said.get("model") or said.get("method"):
        return fields
    return {**fields, "batch_size": 16, "learning_rate": 3e-3}
