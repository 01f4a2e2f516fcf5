"""Which model a script trains, how large it is, and its shape where it is a decoder."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from gpubloom.plan import DecoderShape
from gpubloom.plan.families import decoder_shape
from gpubloom.plan.limits import MAX_HIDDEN_SIZE, MAX_LAYERS, MAX_VOCAB_SIZE
from gpubloom.scripts.facts import Call
from gpubloom.scripts.known_models import KnownModel, known_model, size_in_name
from gpubloom.scripts.requirements import Detected
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known

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
            reason = f"The name {name.value} says so."
            found = Detected[int](value=size, confidence="derived", evidence=name.evidence, reason=reason)
            return ModelSize(names, found, kind="decoder")
    return ModelSize(names, _counted(script))


def _known_size(names: tuple[Detected[str], ...], name: Detected[str], known: KnownModel) -> ModelSize:
    found = Detected[int](
        value=known.parameters, confidence="derived", evidence=name.evidence,
        reason=f"What {name.value} is known to have.",
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
        reason = f"{layers.value} layers of width {hidden.value}, without what lies around them."
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
    reason = f"{layers.value} layers of width {hidden.value}, {vocabulary:,} tokens{assumed}."
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
        reason=f"{len(lines)} layers whose sizes are written down"
        + (", each counted once." if in_loop else "."),
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
