"""Whether a model's architecture can be trained, by what its config.json and its weights are.

A model is refused when it is no causal language model, when its weights are quantized, or when only code of
its own could run it, never because of its name. Which families need no code of their own is read from the
installed transformers without importing it; where transformers is not installed (a server), that question is
left to the machine that trains.
"""

import ast
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from gpubloom.errors import InputError
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import FAMILIES, decoder_shape
from gpubloom.plan.structure import must_be_causal, tensor_shapes

Severity = Literal["error", "warning", "note"]
# Called with code, severity and sentence of each finding.
Tell = Callable[[str, Severity, str], None]

_TABLE = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"


def check_architecture(folder: Path, config: dict[str, Any], tell: Tell) -> DecoderShape | None:
    """The shape of the model; None, and a finding that says why, when it cannot be trained."""
    family = str(config.get("model_type"))
    if not _can_be_built(folder, config, family, tell):
        return None
    if config.get("quantization_config"):
        method = config["quantization_config"]
        name = method.get("quant_method", "unknown") if isinstance(method, dict) else method
        tell(
            "quantized",
            "error",
            f"The weights are already quantized ({name}): start from the unquantized model; qlora makes its "
            "own 4-bit copy.",
        )
        return None
    try:
        return decoder_shape(config, {} if family in FAMILIES else tensor_shapes(folder))
    except KeyError as missing:
        tell("config_incomplete", "error", f"{missing.args[0]} is missing in config.json.")
    except (TypeError, ValueError, LookupError, ZeroDivisionError) as problem:
        tell("config_incomplete", "error", f"config.json does not describe a model: {problem}.")
    return None


def _can_be_built(folder: Path, config: dict[str, Any], family: str, tell: Tell) -> bool:
    own_code = "auto_map" in config or any(folder.glob("*.py"))
    known = causal_families()
    if family not in FAMILIES:
        try:
            must_be_causal(config)
        except InputError as problem:
            tell("architecture_unknown", "error", str(problem))
            return False
        if known and family not in known:
            code = "remote_code" if own_code else "architecture_unknown"
            needs = " The model requires its own code, which GPU Bloom never runs." if own_code else ""
            tell(
                code,
                "error",
                f"The installed transformers has no causal language model of type {family!r}.{needs} Choose "
                "a model that transformers supports.",
            )
            return False
    if own_code:
        tell(
            "remote_code",
            "warning",
            f"The model has its own code, which is not run; the model is loaded as {family}.",
        )
    return True


@cache
def causal_families() -> frozenset[str]:
    """The types that the installed transformers can build; empty where it is not installed."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        return frozenset()
    file = Path(package.origin).parent / "models" / "auto" / "modeling_auto.py"
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(name, "id", "") == _TABLE for name in node.targets):
            return frozenset(_first_of_pairs(node.value))
    return frozenset()


def _first_of_pairs(node: ast.expr) -> set[str]:
    return {
        str(pair.elts[0].value)
        for pair in ast.walk(node)
        if isinstance(pair, ast.Tuple) and pair.elts and isinstance(pair.elts[0], ast.Constant)
    }
