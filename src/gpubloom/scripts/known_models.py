"""Models by name: parameters, and the shape where they are decoders that `plan` knows.

Counts are those that the models' publishers state. A name that is not here may still say its size: "…-7B".
"""

import re
from dataclasses import dataclass
from typing import Any

from gpubloom.plan import DecoderShape
from gpubloom.plan.families import decoder_shape


@dataclass(frozen=True)
class KnownModel:
    """`config` is a config.json's worth of sizes; None for what is no decoder."""

    parameters: int
    config: dict[str, Any] | None = None
    # Operations of one forward pass over one example, for models that do not read tokens.
    operations: float | None = None

    @property
    def shape(self) -> DecoderShape | None:
        return None if self.config is None else decoder_shape(self.config)


def _gpt2(layers: int, heads: int, hidden: int) -> KnownModel:
    config = {
        "model_type": "gpt2", "n_layer": layers, "n_head": heads, "n_embd": hidden,
        "vocab_size": 50_257, "n_positions": 1_024, "num_attention_heads": heads,
    }  # fmt: skip
    return KnownModel(decoder_shape(config).parameters, config)


def _llama(
    family: str,
    hidden: int,
    layers: int,
    heads: int,
    kv: int,
    ffn: int,
    vocabulary: int,
    tied: bool,
    **more: Any,
) -> KnownModel:
    config = {
        "model_type": family, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": ffn,
        "vocab_size": vocabulary, "tie_word_embeddings": tied, **more,
    }  # fmt: skip
    return KnownModel(decoder_shape(config).parameters, config)


_LLAMA_2_7B = _llama("llama", 4_096, 32, 32, 32, 11_008, 32_000, tied=False)
_LLAMA_2_13B = _llama("llama", 5_120, 40, 40, 40, 13_824, 32_000, tied=False)
_LLAMA_3_8B = _llama("llama", 4_096, 32, 32, 8, 14_336, 128_256, tied=False)
_LLAMA_3_70B = _llama("llama", 8_192, 80, 64, 8, 28_672, 128_256, tied=False)
_MISTRAL_7B = _llama("mistral", 4_096, 32, 32, 8, 14_336, 32_000, tied=False)

# By the last part of the name, in small letters; endings such as -instruct are cut off before looking.
MODELS: dict[str, KnownModel] = {
    "gpt2": _gpt2(12, 12, 768),
    "gpt2-medium": _gpt2(24, 16, 1_024),
    "gpt2-large": _gpt2(36, 20, 1_280),
    "gpt2-xl": _gpt2(48, 25, 1_600),
    "distilgpt2": _gpt2(6, 12, 768),
    "tinyllama-1.1b": _llama("llama", 2_048, 22, 32, 4, 5_632, 32_000, tied=False),
    "llama-2-7b": _LLAMA_2_7B,
    "llama-2-13b": _LLAMA_2_13B,
    "llama-2-70b": _llama("llama", 8_192, 80, 64, 8, 28_672, 32_000, tied=False),
    "meta-llama-3-8b": _LLAMA_3_8B,
    "meta-llama-3.1-8b": _LLAMA_3_8B,
    "llama-3-8b": _LLAMA_3_8B,
    "llama-3.1-8b": _LLAMA_3_8B,
    "meta-llama-3-70b": _LLAMA_3_70B,
    "llama-3.1-70b": _LLAMA_3_70B,
    "llama-3.3-70b": _LLAMA_3_70B,
    "llama-3.2-1b": _llama("llama", 2_048, 16, 32, 8, 8_192, 128_256, tied=True, head_dim=64),
    "llama-3.2-3b": _llama("llama", 3_072, 28, 24, 8, 8_192, 128_256, tied=True, head_dim=128),
    "mistral-7b": _MISTRAL_7B,
    "qwen2.5-0.5b": _llama("qwen2", 896, 24, 14, 2, 4_864, 151_936, tied=True),
    "qwen2.5-1.5b": _llama("qwen2", 1_536, 28, 12, 2, 8_960, 151_936, tied=True),
    "qwen2.5-3b": _llama("qwen2", 2_048, 36, 16, 2, 11_008, 151_936, tied=True),
    "qwen2.5-7b": _llama("qwen2", 3_584, 28, 28, 4, 18_944, 152_064, tied=False),
    "qwen2.5-14b": _llama("qwen2", 5_120, 48, 40, 8, 13_824, 152_064, tied=False),
    "qwen2.5-32b": _llama("qwen2", 5_120, 64, 40, 8, 27_648, 152_064, tied=False),
    "smollm2-135m": _llama("llama", 576, 30, 9, 3, 1_536, 49_152, tied=True),
    "smollm2-360m": _llama("llama", 960, 32, 15, 5, 2_560, 49_152, tied=True),
    "smollm2-1.7b": _llama("llama", 2_048, 24, 32, 32, 8_192, 49_152, tied=True),
    "phi-2": KnownModel(2_780_000_000),
    "gpt-neo-125m": KnownModel(125_000_000),
    "gpt-j-6b": KnownModel(6_050_000_000),
    "bert-base-uncased": KnownModel(109_500_000),
    "bert-base-cased": KnownModel(108_300_000),
    "bert-large-uncased": KnownModel(335_100_000),
    "distilbert-base-uncased": KnownModel(66_400_000),
    "roberta-base": KnownModel(124_600_000),
    "roberta-large": KnownModel(355_400_000),
    "deberta-v3-base": KnownModel(184_000_000),
    "xlm-roberta-base": KnownModel(278_000_000),
    "t5-small": KnownModel(60_500_000),
    "t5-base": KnownModel(222_900_000),
    "t5-large": KnownModel(737_700_000),
    "flan-t5-base": KnownModel(247_600_000),
    "flan-t5-large": KnownModel(783_200_000),
    "all-minilm-l6-v2": KnownModel(22_700_000),
    "whisper-tiny": KnownModel(37_800_000),
    "whisper-small": KnownModel(241_700_000),
    "whisper-large-v3": KnownModel(1_543_000_000),
    "wav2vec2-base": KnownModel(95_000_000),
    "stable-diffusion-v1-4": KnownModel(1_066_000_000),
    "stable-diffusion-v1-5": KnownModel(1_066_000_000),
    "stable-diffusion-2-1": KnownModel(1_290_000_000),
    "stable-diffusion-xl-base-1.0": KnownModel(3_470_000_000),
    "resnet18": KnownModel(11_700_000, operations=3.6e9),
    "resnet34": KnownModel(21_800_000, operations=7.3e9),
    "resnet50": KnownModel(25_600_000, operations=8.2e9),
    "resnet101": KnownModel(44_500_000, operations=15.7e9),
    "resnet152": KnownModel(60_200_000, operations=23.1e9),
    "vgg16": KnownModel(138_400_000, operations=31e9),
    "mobilenet_v2": KnownModel(3_500_000, operations=0.6e9),
    "mobilenetv2": KnownModel(3_500_000, operations=0.6e9),
    "efficientnet_b0": KnownModel(5_300_000, operations=0.8e9),
    "efficientnetb0": KnownModel(5_300_000, operations=0.8e9),
    "convnext_tiny": KnownModel(28_600_000, operations=9e9),
    "vit_tiny_patch16_224": KnownModel(5_700_000, operations=2.2e9),
    "vit_small_patch16_224": KnownModel(22_100_000, operations=9.2e9),
    "vit_base_patch16_224": KnownModel(86_600_000, operations=35e9),
    "vit_large_patch16_224": KnownModel(304_300_000, operations=123e9),
    "vit-base-patch16-224": KnownModel(86_600_000, operations=35e9),
    "vit-base-patch16-224-in21k": KnownModel(86_400_000, operations=35e9),
    "vit_b_16": KnownModel(86_600_000, operations=35e9),
    "clip-vit-base-patch32": KnownModel(151_300_000, operations=9e9),
}
_ENDINGS = re.compile(r"-(hf|instruct|chat|base|it|bnb|4bit|8bit|unsloth|gguf|fp16|bf16|v\d+(\.\d+)?)(?=-|$)")
_SIZE = re.compile(r"(?:^|[-_])(\d{1,4}(?:\.\d{1,3})?)([bm])(?=$|[-_])", re.IGNORECASE)
_UNITS = {"b": 1_000_000_000, "m": 1_000_000}
_LONGEST_NAME = 200


def known_model(name: str) -> KnownModel | None:
    """By its id on a hub or in a library: "openai-community/gpt2-large", "resnet50"."""
    if len(name) > _LONGEST_NAME:
        return None
    last = name.rstrip("/").rpartition("/")[2].casefold().partition(".")[0]
    full = name.rstrip("/").rpartition("/")[2].casefold()
    for candidate in (full, _ENDINGS.sub("", full), last, _ENDINGS.sub("", last)):
        if candidate in MODELS:
            return MODELS[candidate]
    return None


def size_in_name(name: str) -> int | None:
    """7,000,000,000 of "my-model-7B"."""
    if len(name) > _LONGEST_NAME:
        return None
    found = _SIZE.search(name.rpartition("/")[2])
    return None if found is None else int(float(found[1]) * _UNITS[found[2].casefold()])
