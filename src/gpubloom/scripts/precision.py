"""In which numbers a script computes, and what of the model it trains."""

from collections.abc import Iterator
from typing import Literal

from gpubloom.scripts.requirements import Detected
from gpubloom.scripts.script import Script, detected
from gpubloom.scripts.values import Known, Symbol
from gpubloom.scripts.workload import hf_arguments, lightning_trainers

_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16", "mixed_bfloat16": "bf16",
    "float16": "fp16", "fp16": "fp16", "half": "fp16", "16-mixed": "fp16", "16-true": "fp16", "16": "fp16",
    "mixed_float16": "fp16", "float32": "fp32", "fp32": "fp32", "32": "fp32", "32-true": "fp32", "no": "fp32",
}  # fmt: skip
_SETTINGS = ("dtype", "precision", "mixed_precision", "compute_dtype", "torch_dtype", "param_dtype")
_FLAGS = ("bf16", "fp16")


def dtype(script: Script) -> Detected[str] | None:
    """fp32, bf16 or fp16."""
    for known in _said(script):
        word = known.value.tail if isinstance(known.value, Symbol) else str(known.value)
        if (name := _DTYPES.get(word.casefold())) is not None:
            return detected(Known(name, known.evidence, known.sure))
    for call in script.calls("GradScaler", "half", "autocast"):
        if call.tail != "half" or not call.node.args:
            reason = f"What {call.tail} is for." if call.tail != "autocast" else "autocast's default on GPUs."
            return Detected(value="fp16", confidence="derived", evidence=script.evidence(call), reason=reason)
    return None


def _said(script: Script) -> Iterator[Known]:
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


def method(script: Script) -> Detected[Literal["full", "lora", "qlora"]] | None:
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
