"""How much a script computes, and how: batch, sequence, steps, epochs, number format, what it trains."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from gpubloom.plan.config import Method
from gpubloom.scripts.facts import Call, Loop
from gpubloom.scripts.requirements import Detected
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known, Symbol

_HF_ARGUMENTS = (
    "TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "ORPOConfig",
    "RewardConfig", "KTOConfig", "UnslothTrainingArguments", "SentenceTransformerTrainingArguments",
)  # fmt: skip
_LIGHTNING = ("Trainer", "Fabric")
_BATCH = (
    "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size", "train_batch_size",
    "batch_size", "batch_size_per_gpu", "bs", "batch",
)  # fmt: skip
_ACCUMULATION = (
    "gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "accumulation_steps",
    "grad_accum",
)  # fmt: skip
_SEQUENCE = (
    "block_size", "max_seq_length", "max_seq_len", "seq_len", "seq_length", "sequence_length",
    "context_length", "context_len", "ctx_len", "bptt", "max_length", "max_len", "model_max_length", "n_ctx",
)  # fmt: skip
_ITERATIONS = (
    "max_iters", "max_steps", "num_train_steps", "max_train_steps", "total_steps", "train_steps",
    "num_steps", "n_steps", "num_iterations", "n_iters", "total_iters", "iterations", "training_steps",
)  # fmt: skip
_EPOCHS = (
    "num_train_epochs", "max_epochs", "num_epochs", "n_epochs", "epochs",
)  # fmt: skip
_TRAINING_CALLS = {
    "backward",
    "train_step",
    "training_step",
    "apply_gradients",
    "train_on_batch",
    "train_epoch",
}
_HF_BATCH, _HF_EPOCHS = 8, 3

_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16", "mixed_bfloat16": "bf16",
    "float16": "fp16", "fp16": "fp16", "half": "fp16", "16-mixed": "fp16", "16-true": "fp16", "16": "fp16",
    "mixed_float16": "fp16", "float32": "fp32", "fp32": "fp32", "32": "fp32", "32-true": "fp32", "no": "fp32",
}  # fmt: skip
_SETTINGS = ("dtype", "precision", "mixed_precision", "compute_dtype", "torch_dtype", "param_dtype")
_FLAGS = ("bf16", "fp16")


def hf_arguments(script: Script) -> list[Call]:
    """The settings of a Hugging Face Trainer."""
    return list(script.calls(*_HF_ARGUMENTS))


def lightning_trainers(script: Script) -> list[Call]:
    if not script.imported("lightning", "pytorch_lightning"):
        return []
    return [call for call in script.calls(*_LIGHTNING) if not call.name.startswith("transformers.")]


def batch(script: Script) -> Detected[int] | None:
    hugging_face = hf_arguments(script)
    calls: list[tuple[Iterable[Call], tuple[str, ...], int | None]] = [
        (hugging_face, ("per_device_train_batch_size",), None),
        (_train_loaders(script), ("batch_size",), 1),
        (script.calls("fit"), ("batch_size",), None),
        (script.calls("batch"), ("batch_size",), 0),
    ]
    for some, names, position in calls[:3]:
        if (known := _first(script, some, names, position)) is not None:
            return detected(known)
    if hugging_face and not any(
        script.has_keyword(call, "per_device_train_batch_size") for call in hugging_face
    ):
        return _library_default(script, hugging_face[0], _HF_BATCH)
    if (known := _whole(script.values.setting(*_BATCH))) is not None:
        return detected(known)
    known = _first(script, *calls[3])
    if known is None and (fits := list(script.calls("fit"))) and script.imported("keras", "tensorflow"):
        return _library_default(script, fits[0], 32)
    return None if known is None else detected(known)


def _train_loaders(script: Script) -> list[Call]:
    """Loaders; one that shuffles, or whose data is called train, is the training's."""
    loaders = list(script.calls("DataLoader", "StatefulDataLoader"))
    return sorted(loaders, key=lambda call: not script.has_keyword(call, "shuffle"))


def accumulation(script: Script) -> Detected[int] | None:
    some = [*hf_arguments(script), *lightning_trainers(script), *script.calls("Accelerator")]
    known = _first(script, some, ("gradient_accumulation_steps", "accumulate_grad_batches"))
    known = known or _whole(script.values.setting(*_ACCUMULATION))
    return None if known is None else detected(known)


def sequence(script: Script) -> Detected[int] | None:
    known = _first(script, script.calls(*_HF_ARGUMENTS, "SFTTrainer"), ("max_length", "max_seq_length"))
    known = known or _whole(script.values.setting(*_SEQUENCE))
    if known is None:
        some = script.calls("tokenizer", "encode_plus", "from_pretrained")
        known = _first(script, some, ("max_length", "max_seq_length"))
    if known is not None:
        return detected(known)
    configs = list(script.calls("SFTConfig"))
    return _library_default(script, configs[0], 1_024) if configs else None


def epochs(script: Script) -> Detected[int] | None:
    hugging_face, lightning = hf_arguments(script), lightning_trainers(script)
    call_sites: list[tuple[Iterable[Call], tuple[str, ...]]] = [
        (hugging_face, ("num_train_epochs",)),
        (lightning, ("max_epochs",)),
        (script.calls("fit", "fine_tune"), ("epochs", "nb_epoch")),
    ]
    for some, names in call_sites:
        if (known := _first(script, some, names)) is not None:
            return detected(known)
    said = any(
        script.has_keyword(call, name) for call in hugging_face for name in ("num_train_epochs", "max_steps")
    )
    if hugging_face and not said:
        return _library_default(script, hugging_face[0], _HF_EPOCHS)
    for loop in _range_loops(script):
        if "epoch" in loop.target.casefold() and (known := _range_end(script, loop)) is not None:
            return detected(known)
    known = _whole(script.values.setting(*_EPOCHS))
    return None if known is None else detected(known)


def iterations(script: Script) -> Detected[int] | None:
    known = _max_steps(script, [*hf_arguments(script), *lightning_trainers(script)])
    known = known or _whole(script.values.setting(*_ITERATIONS))
    if known is not None:
        return detected(known)
    micro_batches = script.values.setting(*_ACCUMULATION)
    for loop in _range_loops(script):
        if not _trains(loop) or loop.outer is not None or "epoch" in loop.target.casefold():
            continue
        known = _range_end(script, loop)
        # A loop over micro-batches is part of one step.
        if known is not None and (micro_batches is None or known.value != micro_batches.value):
            return detected(known)
    return None


def _max_steps(script: Script, some: list[Call]) -> Known | None:
    return _first(script, some, ("max_steps",))


def _range_loops(script: Script) -> list[Loop]:
    """Loops over range(…), tqdm(range(…)) and the like; those that train first."""
    loops = [loop for facts in script.files for loop in facts.loops]
    return sorted(loops, key=lambda loop: not _trains(loop))


def _trains(loop: Loop) -> bool:
    return any(call.tail in _TRAINING_CALLS for call in loop.calls)


def _range_end(script: Script, loop: Loop) -> Known | None:
    node: Any = loop.over
    for _ in range(3):
        function = getattr(
            getattr(node, "func", None), "id", getattr(getattr(node, "func", None), "attr", "")
        )
        arguments = getattr(node, "args", [])
        if function in {"range", "trange"} and arguments:
            end = script.values.of(arguments[-1 if len(arguments) < 3 else 1], loop.source)
            start = script.values.of(arguments[0], loop.source) if len(arguments) > 1 else None
            if end is None or not isinstance(end.value, int | float):
                return None
            first = start.value if start is not None and isinstance(start.value, int) else 0
            line = loop.source.evidence(loop.line)
            lines = (line, *(each for each in end.evidence if each != line))
            return _whole(Known(end.value - first, lines[:4], end.sure))
        if not arguments:
            return None
        node = arguments[0]
    return None


def purpose(script: Script) -> Detected[Literal["train", "infer", "other"]]:
    trains = {
        "backward", "fit", "train", "apply_gradients", "value_and_grad", "train_step", "fit_transform",
        "fine_tune", "training_step", "train_on_batch", "train_epoch",
    }  # fmt: skip
    infers = {"generate", "predict", "pipeline", "no_grad", "inference_mode", "eval", "encode", "chat"}
    for facts in script.files:
        for call in facts.calls:
            # `model.train()` switches a mode; `trainer.train()` trains.
            if call.tail == "train" and call.name.split(".")[0] in {"model", "self", "net", "unet"}:
                continue
            if call.tail in trains and not call.name.startswith(("re.", "os.")):
                return Detected(value="train", confidence="derived", evidence=script.evidence(call))
    for command in script.commands:
        if command.words[0] in {"torchrun", "accelerate", "deepspeed"}:
            return Detected(value="train", confidence="derived", evidence=(command.evidence,))
    for call in script.calls(*infers):
        return Detected(value="infer", confidence="derived", evidence=script.evidence(call))
    return Detected(value="other", confidence="assumed", reason="The script neither trains nor uses a model.")


def _first(
    script: Script, some: Iterable[Call], names: tuple[str, ...], position: int | None = None
) -> Known | None:
    for call in some:
        if (known := _whole(script.keyword(call, *names, position=position))) is not None:
            return known
    return None


def _whole(known: Known | None) -> Known | None:
    """A positive number of things; 1e5 is one."""
    if known is None or isinstance(known.value, bool) or not isinstance(known.value, int | float):
        return None
    if not 0 < known.value < 1e15:
        return None
    return Known(max(1, round(known.value)), known.evidence, known.sure)


def _library_default(script: Script, call: Call, value: int) -> Detected[int]:
    return Detected(
        value=value,
        confidence="derived",
        evidence=script.evidence(call),
        reason=f"The default value of {call.tail}.",
    )


def dtype(script: Script) -> Detected[str] | None:
    """fp32, bf16 or fp16."""
    for known in _precision_values(script):
        word = known.value.tail if isinstance(known.value, Symbol) else str(known.value)
        if (name := _DTYPES.get(word.casefold())) is not None:
            return detected(Known(name, known.evidence, known.sure))
    for call in script.calls("GradScaler", "half", "autocast"):
        if call.tail != "half" or not call.node.args:
            reason = (
                f"{call.tail} is used with fp16."
                if call.tail != "autocast"
                else "The default of autocast on GPUs."
            )
            return Detected(value="fp16", confidence="derived", evidence=script.evidence(call), reason=reason)
    return None


def _precision_values(script: Script) -> Iterator[Known]:
    """Everything that may name a number format, the most telling first."""
    flags = [(flag, script.keyword(call, flag)) for call in hf_arguments(script) for flag in _FLAGS]
    yield from _switched_on(flags)
    for some, names in (
        (lightning_trainers(script), ("precision",)),
        (script.calls("Accelerator"), ("mixed_precision",)),
        (script.calls("autocast"), ("dtype",)),
        (script.calls("from_pretrained", "LLM"), ("torch_dtype", "dtype")),
    ):
        for call in some:
            if (known := script.keyword(call, *names)) is not None:
                yield known
    for call in script.calls("set_global_policy", "set_policy"):
        if (known := script.keyword(call, "policy", position=0)) is not None:
            yield known
    yield from _switched_on([(flag, script.values.setting(flag)) for flag in _FLAGS])
    for name in _SETTINGS:
        if (known := script.values.setting(name)) is not None:
            yield known


def _switched_on(flags: list[tuple[str, Known | None]]) -> Iterator[Known]:
    for flag, known in flags:
        if known is not None and known.value is True:
            yield Known(flag, known.evidence, known.sure)


def method(script: Script) -> Detected[Method] | None:
    """Whether adapters are trained; None when the script has none."""
    adapters = next(
        iter(script.calls("LoraConfig", "get_peft_model", "prepare_model_for_kbit_training")), None
    )
    if adapters is None:
        return None
    evidence = script.evidence(adapters)
    for call in script.calls("BitsAndBytesConfig", "from_pretrained"):
        known = script.keyword(call, "load_in_4bit")
        if known is not None and known.value is True:
            return Detected(value="qlora", confidence="stated", evidence=(*evidence, *known.evidence[:1]))
    return Detected(value="lora", confidence="stated", evidence=evidence)
