"""Well-known model sizes by name, for planning and measuring without a model folder.

Each is a config.json as Hugging Face writes it, so that `model.random_weights` can train one, too.
"""

from typing import Any

from gpubloom.plan.decoder import DecoderShape
from gpubloom.plan.families import decoder_shape


def _config(
    family: str, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, *, tied: bool
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": tied,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": _config("qwen2", 896, 24, 14, 2, 4_864, 151_936, tied=True),
    "qwen2.5-1.5b": _config("qwen2", 1_536, 28, 12, 2, 8_960, 151_936, tied=True),
    "qwen2.5-3b": _config("qwen2", 2_048, 36, 16, 2, 11_008, 151_936, tied=True),
    "qwen2.5-7b": _config("qwen2", 3_584, 28, 28, 4, 18_944, 152_064, tied=False),
    "llama3-8b": _config("llama", 4_096, 32, 32, 8, 14_336, 128_256, tied=False),
    "qwen2.5-14b": _config("qwen2", 5_120, 48, 40, 8, 13_824, 152_064, tied=False),
    "qwen2.5-32b": _config("qwen2", 5_120, 64, 40, 8, 27_648, 152_064, tied=False),
    "llama3-70b": _config("llama", 8_192, 80, 64, 8, 28_672, 128_256, tied=False),
    "qwen2.5-72b": _config("qwen2", 8_192, 80, 64, 8, 29_568, 152_064, tied=False),
    # No model of these sizes is meant: they answer what a machine can hold.
    "120b": _config("llama", 12_288, 76, 96, 8, 32_768, 151_936, tied=False),
    "130b": _config("llama", 12_288, 82, 96, 8, 32_768, 151_936, tied=False),
}


def named_config(name: str) -> dict[str, Any]:
    """By full name or by size alone: `qwen2.5-7b`, `7b`."""
    wanted = name.casefold()
    for known, config in SHAPES.items():
        if wanted in {known, known.rpartition("-")[2]}:
            return config
    raise ValueError(f"There is no shape {name!r}; there are {', '.join(SHAPES)}.")


def named_shape(name: str) -> DecoderShape:
    return decoder_shape(named_config(name))
