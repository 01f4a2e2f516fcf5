"""Which models can be written as GGUF, before an export begins.

GPU Bloom writes the families below itself. Others need llama.cpp's own converter, which an operator installs
(BLOOM_GGUF_CONVERTER, or on the PATH). The server asks here too: nothing heavy is imported.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError

CONVERTER_VARIABLE = "BLOOM_GGUF_CONVERTER"
_CONVERTER_NAME = "convert_hf_to_gguf.py"
# Family to llama.cpp's architecture.
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_KNOWN_SCALING = ("default", "linear", "yarn", "llama3")


def find_converter() -> Path | None:
    """The script that BLOOM_GGUF_CONVERTER names, or one on the PATH."""
    named = os.environ.get(CONVERTER_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise InputError(
                "converter_not_found",
                f"{CONVERTER_VARIABLE} is set to {named}, but this file does not exist.",
            )
        return Path(named)
    found = shutil.which(_CONVERTER_NAME)
    return None if found is None else Path(found)


def rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary settings of a config.json; transformers 5 calls them rope_parameters."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def scaling_of(config: Mapping[str, Any]) -> str:
    rope = rope_of(config)
    return str(rope.get("rope_type") or rope.get("type") or "default")


def why_not_written(config: Mapping[str, Any]) -> str | None:
    """Why GPU Bloom itself cannot write this model as GGUF; None: it can."""
    family = str(config.get("model_type"))
    if family not in ARCHITECTURES:
        return (
            f"GPU Bloom cannot write models of type {family} as GGUF (it writes {', '.join(ARCHITECTURES)})."
        )
    if (scaling := scaling_of(config)) not in _KNOWN_SCALING:
        return f"llama.cpp does not support the RoPE scaling {scaling} of this model."
    return None


def why_no_gguf(config: Mapping[str, Any]) -> str | None:
    """Why a GGUF file cannot be made here, and what to do; None: it can."""
    reason = why_not_written(config)
    if reason is None or find_converter() is not None:
        return None
    return (
        f"{reason} For other models, set {CONVERTER_VARIABLE} to llama.cpp's {_CONVERTER_NAME}, or put that "
        "script on the PATH."
    )
