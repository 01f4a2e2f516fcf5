"""From a model folder or a config to a model."""

import json
from pathlib import Path
from typing import Any

from gpubloom.engine.models.hugging_face.blocks import HuggingFaceBlocks
from gpubloom.engine.models.hugging_face.structure import quiet_transformers

_CONFIG_FILE = "config.json"


def open_model(source: Path | dict[str, Any]) -> HuggingFaceBlocks:
    """The model of a local folder with a config.json, or of such a config itself. Reads no weights."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING

    source_name = "the config" if isinstance(source, dict) else str(source / _CONFIG_FILE)
    settings = source if isinstance(source, dict) else _read(source)
    settings = dict(settings)
    family = settings.pop("model_type", None)
    if family is None:
        raise ValueError(f"{source_name} does not say model_type.")
    # A folder that brings its own code is read as the family it names; its code is never run.
    settings.pop("auto_map", None)
    if family not in CONFIG_MAPPING:
        raise ValueError(f"{source_name} describes {family}, a family that transformers does not know.")
    try:
        with quiet_transformers():
            config = CONFIG_MAPPING[family].from_dict(settings)
    except (ValueError, TypeError, KeyError, AttributeError, StrictDataclassError) as problem:
        reason = " ".join(str(problem).split())
        raise ValueError(f"{source_name} describes {family}, which transformers refuses: {reason}") from None
    return HuggingFaceBlocks(config)


def _read(folder: Path) -> dict[str, Any]:
    try:
        settings = dict(json.loads((folder / _CONFIG_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as problem:
        raise ValueError(f"{folder} is not a model folder: {problem}.") from None
    return settings
