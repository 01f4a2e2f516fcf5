"""The shape of a new model of any size: a ladder of widths and depths like Llama's.

The rule: the width is a step of the ladder, and the feed-forward width is 8/3 of it. Of all widths the one is
taken whose depth comes closest to the aspect ratio (width / depth) that models of this size have: 64 at 125
million parameters, 128 from 8 billion on. Where a whole number of layers misses the size by more than 2 %,
the feed-forward width makes up for it. Embeddings count: the size is that of the whole model.
"""

import math
import re
from functools import lru_cache
from typing import Any

from gpubloom.errors import InputError
from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.limits import MAX_LAYERS, MAX_PARAMETERS
from gpubloom.plan.shapes import PRESETS, SHAPES, ModelShape, model_config

# In billions of parameters: the sizes that the rule is made for.
SMALLEST, LARGEST = 0.001, 10_000.0
# Below this the named presets are close enough, and known to train well.
_WORDS_BELOW = 0.01
# Heads are 64 wide, and 128 wide from this width on; steps keep the number of heads divisible.
_WIDE = 2_048
_WIDTHS = (
    *range(64, 1_024, 64),
    *range(1_024, 2_048, 128),
    *range(2_048, 4_096, 512),
    *range(4_096, 8_192, 1_024),
    *range(8_192, 65_537, 2_048),
)
_FEWEST_LAYERS = 2
_MOST_KV_HEADS = 8
_TOLERANCE = 0.02
# Larger models have an output matrix of their own.
_TIED_BELOW = 4e9
# Of a size that no well-known model has: a vocabulary as large models have it.
_VOCABULARY = 151_936
_NAME = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[mb])")
_UNITS = {"m": 1e-3, "b": 1.0}


def preset_for(billions: float) -> str:
    """The preset for a model of this size: a named one of about this size, or one that the ladder makes."""
    named = size_name(billions)
    if named in PRESETS:
        return named
    words = {name: shape.parameters / 1e9 for name, shape in PRESETS.items() if not name[0].isdigit()}
    nearest = min(words, key=lambda name: abs(math.log(words[name] / billions)))
    is_close = abs(words[nearest] / billions - 1) <= _TOLERANCE
    return nearest if is_close or billions < _WORDS_BELOW else size_name(min(billions, LARGEST))


def size_name(billions: float) -> str:
    """A size as presets are called: 130b, 1.5b, 125m."""
    return f"{_plain(billions)}b" if billions >= 1 else f"{_plain(billions * 1_000)}m"


def billions_in(name: str) -> float | None:
    """The size that a name like 130b or 450m stands for; None for a word and for sizes beyond the ladder."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    billions = float(match["number"]) * _UNITS[match["unit"]]
    return billions if SMALLEST <= billions <= LARGEST else None


def preset_shape(name: str, vocab_size: int) -> ModelShape:
    """The shape of a preset. KeyError: there is no such preset."""
    if name not in PRESETS and (billions := billions_in(name)) is not None:
        return ladder_shape(billions * 1e9, vocab_size)
    return PRESETS[name]


def preset_label(name: str, vocab_size: int = 257) -> str:
    """A preset as forms show it; sizes are written like 125M, names as they are."""
    shape = preset_shape(name, vocab_size)
    title = name.upper() if name[0].isdigit() else name
    return f"{title} · {shape.layers} layers, {shape.hidden_size:,} wide"


@lru_cache(maxsize=512)
def ladder_shape(parameters: float, vocab_size: int) -> ModelShape:
    """A Llama-like model with about this many parameters, its embeddings among them."""
    found = [shape for width in _WIDTHS if (shape := _of_width(width, parameters, vocab_size)) is not None]
    if not found:
        # The vocabulary alone is larger than the size: the narrowest model is nearest to it.
        return _shape(_WIDTHS[0], _FEWEST_LAYERS, None, parameters, vocab_size)
    wanted = _aspect_ratio(parameters)
    # First those of the right size; of these the one with the usual proportions.
    return min(
        found,
        key=lambda shape: (
            abs(shape.parameters / parameters - 1) > _TOLERANCE,
            abs(math.log(shape.hidden_size / shape.layers / wanted)),
        ),
    )


def _of_width(width: int, parameters: float, vocab_size: int) -> ModelShape | None:
    one = _shape(width, 1, None, parameters, vocab_size)
    ends = one.parameters - one.layer_parameters
    layers = round((parameters - ends) / one.layer_parameters)
    layers = min(layers, (MAX_PARAMETERS - ends) // one.layer_parameters)
    if layers < _FEWEST_LAYERS or layers > MAX_LAYERS:
        return None
    shape = _shape(width, layers, None, parameters, vocab_size)
    missing = parameters - shape.parameters
    if abs(missing) <= _TOLERANCE * parameters:
        return shape
    step = 16 if width < 1_024 else 256
    ffn = shape.ffn_size + round(missing / (3 * width * layers) / step) * step
    return _shape(width, layers, ffn, parameters, vocab_size) if ffn > 0 else None


def _shape(width: int, layers: int, ffn: int | None, parameters: float, vocab_size: int) -> ModelShape:
    heads = width // (128 if width >= _WIDE else 64)
    context = 1_024 if parameters < 0.3e9 else 2_048 if parameters < 1e9 else 4_096
    return ModelShape(
        vocab_size=vocab_size,
        hidden_size=width,
        layers=layers,
        heads=heads,
        kv_heads=math.gcd(heads, _MOST_KV_HEADS) if heads > _MOST_KV_HEADS else heads,
        ffn_size=ffn or -(-width * 8 // 3 // 256) * 256,
        context_length=context,
        tie_embeddings=parameters < _TIED_BELOW,
        rope_theta=500_000.0 if context >= 4_096 else 10_000.0,
    )


def _aspect_ratio(parameters: float) -> float:
    return min(128.0, 64 * math.exp(math.log(parameters / 0.125e9) / 6))


def _plain(number: float) -> str:
    # Four digits say more than any rule of thumb; no exponent, which a name does not have.
    return f"{float(f'{number:.4g}'):.10f}".rstrip("0").rstrip(".")


def named_config(name: str) -> dict[str, Any]:
    """The config.json of a well-known model by its full name or by its size (`qwen2.5-7b`, `7b`).

    A size that no well-known model has answers what a machine can hold: `130b`.
    """
    wanted = name.casefold()
    for known, config in SHAPES.items():
        if wanted in {known, known.rpartition("-")[2]}:
            return config
    if (billions := billions_in(wanted)) is not None:
        shape = ladder_shape(billions * 1e9, _VOCABULARY)
        return model_config(
            "llama",
            shape.hidden_size,
            shape.layers,
            shape.heads,
            shape.kv_heads,
            shape.ffn_size,
            shape.vocab_size,
            tied=shape.tie_embeddings,
        )
    raise InputError(
        "unknown_shape",
        f"Unknown shape {name!r}; available: any size such as 13b or 450m, {', '.join(SHAPES)}.",
    )


def named_shape(name: str) -> DecoderShape:
    return decoder_shape(named_config(name))
