"""Which model a script trains, how large it is, and its shape where it is a decoder.

Models that are known by name have the parameter counts that their publishers state, and the shape where they
are decoders that `plan` knows. A name that is not known may still say its size: "…-7B".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from gpubloom.plan import DecoderShape
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.limits import MAX_HIDDEN_SIZE, MAX_LAYERS, MAX_VOCAB_SIZE
from gpubloom.scripts.facts import Call
from gpubloom.scripts.requirements import Detected
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known


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


_LOADERS = {
    "from_pretrained", "create_model", "pipeline", "SentenceTransformer", "load_model",
    "get_model", "LLM", "from_preset",
}  # fmt: skip
# These load something beside the model.
_NOT_MODELS = (
    "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor", "ImageProcessor", "Config", "Scheduler",
)  # fmt: skip
_NAME_SETTINGS = (
    "model_name_or_path", "model_name", "model_id", "base_model", "pretrained_model_name_or_path",
    "model_path", "checkpoint", "model_checkpoint",
)  # fmt: skip
_LAYERS = (
    "n_layer", "n_layers", "num_layers", "num_hidden_layers", "depth", "num_decoder_layers",
)  # fmt: skip
_HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads", "nhead", "heads")
_HIDDEN = (
    "n_embd", "n_embed", "d_model", "hidden_size", "dim", "emb_dim", "embed_dim", "embedding_dim",
)  # fmt: skip
_VOCABULARY = ("vocab_size", "n_vocab", "num_tokens")
_FFN = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "dim_feedforward", "mlp_dim")
_KV = ("num_key_value_heads", "n_kv_heads", "n_kv_head", "num_kv_heads")
_CONTEXT = ("block_size", "n_positions", "max_position_embeddings", "max_seq_len", "context_length")
_RECURRENT = {"LSTM", "GRU", "RNN"}
_IMAGES = {"patch_size", "image_size", "img_size", "in_channels", "in_chans"}
_ASSUMED_VOCABULARY = 50_304
# Character models of nanoGPT's datasets.
_SMALL_VOCABULARIES = {"shakespeare_char": 65, "enwik8": 205, "text8": 27}


@dataclass(frozen=True)
class ModelSize:
    """What was found. `names` are models by name; `shape` is set for decoders."""

    names: tuple[Detected[str], ...] = ()
    parameters: Detected[int] | None = None
    shape: DecoderShape | None = None
    # Operations of a forward pass over one example, where a library's model is known by name.
    operations: float | None = None
    kind: str = "unknown"  # decoder, image or unknown


def model_size(script: Script) -> ModelSize:
    names = _names(script)
    described = _described(script)
    if described is not None and not any(_is_pretrained(name) for name in names):
        return (
            described
            if not names
            else ModelSize(names, described.parameters, described.shape, kind=described.kind)
        )
    for name in names:
        if (known := known_model(name.value)) is not None:
            return _known_size(names, name, known)
    for name in names:
        if (size := size_in_name(name.value)) is not None:
            reason = f"The name {name.value} contains the size."
            found = Detected[int](value=size, confidence="derived", evidence=name.evidence, reason=reason)
            return ModelSize(names, found, kind="decoder")
    return ModelSize(names, _counted(script))


def _known_size(names: tuple[Detected[str], ...], name: Detected[str], known: KnownModel) -> ModelSize:
    found = Detected[int](
        value=known.parameters, confidence="derived", evidence=name.evidence,
        reason=f"The known size of {name.value}.",
    )  # fmt: skip
    kind = "decoder" if known.config else "image" if known.operations else "unknown"
    return ModelSize(names, found, known.shape, known.operations, kind)


def _is_pretrained(name: Detected[str]) -> bool:
    return known_model(name.value) is not None or size_in_name(name.value) is not None


def _names(script: Script) -> tuple[Detected[str], ...]:
    found: dict[str, Detected[str]] = {}

    def add(known: Known | None) -> None:
        if known is not None and isinstance(known.value, str) and 1 < len(known.value) < 200:
            found.setdefault(known.value, detected(known))

    for call in script.calls(*_LOADERS):
        owner = call.name.rpartition(".")[0].rpartition(".")[2]
        if owner.endswith(_NOT_MODELS):
            continue
        keywords = ("pretrained_model_name_or_path", "model_name", "model", "model_name_or_path")
        add(script.keyword(call, *keywords, position=None if call.tail == "pipeline" else 0))
    for call in script.calls("Trainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer", "RewardTrainer"):
        add(script.keyword(call, "model"))
    for call in _library_models(script):
        known = Known(call.tail, script.evidence(call))
        if known_model(call.tail.casefold()) is not None:
            add(known)
    for name in _NAME_SETTINGS:
        known_setting = script.values.setting(name)
        if known_setting is not None and _looks_like_a_model(known_setting.value):
            add(known_setting)
    return tuple(found.values())


def _library_models(script: Script) -> Iterator[Call]:
    yield from script.calls_of("torchvision.models.", "keras.applications.", "tensorflow.keras.applications.")
    yield from (call for call in script.calls_of("models.") if script.imported("torchvision"))


def _looks_like_a_model(value: Any) -> bool:
    if not isinstance(value, str) or value.endswith((".pt", ".pth", ".ckpt", ".h5", ".keras", ".bin")):
        return False
    return known_model(value) is not None or ("/" in value and not value.startswith((".", "/", "~")))


def _described(script: Script) -> ModelSize | None:
    """A transformer whose sizes are written down: in one call, or as settings."""
    for call in script.calls(*_sized_calls(script)):
        own_layers = script.keyword(call, *_LAYERS)
        own_hidden = script.keyword(call, *_HIDDEN) or script.values.setting(*_HIDDEN)
        if _is_size(own_layers, MAX_LAYERS) and _is_size(own_hidden, MAX_HIDDEN_SIZE):
            return _transformer(script, call)
    layers, hidden = script.values.setting(*_LAYERS), script.values.setting(*_HIDDEN)
    if _is_size(layers, MAX_LAYERS) and _is_size(hidden, MAX_HIDDEN_SIZE):
        return _transformer(script, None)
    return None


def _sized_calls(script: Script) -> set[str]:
    """Calls that are given a number of layers by name."""
    return {
        call.tail
        for facts in script.files
        for call in facts.calls
        if call.tail not in _RECURRENT and any(keyword.arg in _LAYERS for keyword in call.node.keywords)
    }


def _transformer(script: Script, call: Call | None) -> ModelSize | None:
    def size(names: tuple[str, ...], most: int) -> Known | None:
        given = script.keyword(call, *names) if call is not None else None
        known = given if _is_size(given, most) else script.values.setting(*names)
        return known if _is_size(known, most) else None

    layers, hidden = size(_LAYERS, MAX_LAYERS), size(_HIDDEN, MAX_HIDDEN_SIZE)
    assert layers is not None
    assert hidden is not None
    heads, ffn = size(_HEADS, 1_024), size(_FFN, 1_000_000)
    evidence = tuple({line: None for known in (layers, hidden) for line in known.evidence})
    given = {keyword.arg for keyword in call.node.keywords} if call is not None else script.values.names()
    width = ffn.value if ffn else 4 * hidden.value
    if _IMAGES & given and not set(_VOCABULARY) & given:
        count = layers.value * (4 * hidden.value**2 + 2 * hidden.value * width)
        reason = f"{layers.value} layers of width {hidden.value}, without embeddings and head."
        found = Detected[int](value=int(count), confidence="derived", evidence=evidence, reason=reason)
        return ModelSize(parameters=found, kind="image")
    vocabulary, assumed = _vocabulary(script, size(_VOCABULARY, MAX_VOCAB_SIZE))
    kv = size(_KV, 1_024)
    gated = kv is not None or (call is not None and "Llama" in call.tail)
    context = size(_CONTEXT, 1_000_000)
    shape = _shape(
        layers.value, hidden.value, heads.value if heads else max(1, hidden.value // 64),
        vocabulary, width, context.value if context else 1_024, kv.value if kv else None, gated=gated,
    )  # fmt: skip
    if shape is None:
        return None
    reason = f"{layers.value} layers of width {hidden.value}, vocabulary of {vocabulary:,} tokens{assumed}."
    found = Detected(
        value=shape.parameters,
        confidence="assumed" if assumed else "derived",
        evidence=evidence,
        reason=reason,
    )
    return ModelSize(parameters=found, shape=shape, kind="decoder")


def _vocabulary(script: Script, known: Known | None) -> tuple[int, str]:
    dataset = script.values.setting("dataset", "dataset_name")
    if dataset is not None and dataset.value in _SMALL_VOCABULARIES and not (known and known.sure):
        return _SMALL_VOCABULARIES[dataset.value], ""
    return (known.value, "") if known is not None else (_ASSUMED_VOCABULARY, " (assumed)")


def _shape(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    ffn: int,
    context: int,
    kv: int | None,
    *,
    gated: bool,
) -> DecoderShape | None:
    config: dict[str, Any] = {"vocab_size": vocabulary, "num_attention_heads": heads}
    if gated:
        config |= {
            "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers,
            "num_key_value_heads": kv or heads, "intermediate_size": ffn,
        }  # fmt: skip
    else:
        config |= {
            "model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads,
            "n_inner": ffn, "n_positions": context,
        }  # fmt: skip
    try:
        return decoder_shape(config)
    except (ValueError, KeyError, ZeroDivisionError):
        return None


def _counted(script: Script) -> Detected[int] | None:
    """Layers of torch.nn with sizes that can be told; those made in a loop count once."""
    total, lines, in_loop = 0, [], False
    for call in script.calls("Linear", "Conv2d", "Conv1d", "Embedding", "LSTM", "GRU", "LazyLinear"):
        if (count := _layer_parameters(script, call)) is not None:
            total += count
            in_loop |= call.in_loop
            lines.append(call.source.evidence(call.line))
    if total < 1_000:
        return None
    return Detected(
        value=total,
        confidence="derived",
        evidence=tuple(lines[:6]),
        reason=f"{len(lines)} layers with sizes in the script" + (", each counted once." if in_loop else "."),
    )


def _layer_parameters(script: Script, call: Call) -> int | None:
    def number(position: int, *names: str) -> int | None:
        known = script.keyword(call, *names, position=position)
        return known.value if _is_size(known, 10_000_000) else None  # type: ignore[union-attr]

    match call.tail:
        case "Linear":
            sizes = [number(0, "in_features"), number(1, "out_features")]
        case "Embedding":
            sizes = [number(0, "num_embeddings"), number(1, "embedding_dim")]
        case "Conv1d" | "Conv2d":
            power = 2 if call.tail == "Conv2d" else 1
            kernel = number(2, "kernel_size")
            sizes = [number(0, "in_channels"), number(1, "out_channels"), kernel and kernel**power]
        case "LSTM" | "GRU":
            inputs, hidden = number(0, "input_size"), number(1, "hidden_size")
            layers = number(2, "num_layers") or 1
            gates = 4 if call.tail == "LSTM" else 3
            sizes = [gates, hidden, hidden and inputs and inputs + hidden + 2 * hidden * (layers - 1)]
        case _:
            return None
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _is_size(known: Known | None, most: int) -> bool:
    return (
        known is not None
        and isinstance(known.value, int)
        and not isinstance(known.value, bool)
        and 0 < known.value <= most
    )
