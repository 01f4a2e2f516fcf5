"""The check after an export: the same questions, answered before and after, and how far logits moved."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from gpubloom.datasets import Mapping, RowProblem, Source, detect, sample, to_example
from gpubloom.engine.exporting.gguf import GgufTensor, read_back
from gpubloom.engine.generate import TextModel
from gpubloom.engine.hardware import Compute
from gpubloom.engine.llama_folder import CONFIG_FILE
from gpubloom.engine.models.hugging_face.structure import quiet_transformers
from gpubloom.engine.pretrained_text import PretrainedText, load_pretrained_text
from gpubloom.engine.serving.answers import Answer, Wanted
from gpubloom.engine.serving.model_registry import BESIDES_BYTES, count_weights, free_bytes, load_text
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.hub.weight_index import check_model_folder
from gpubloom.plan.rope import scaling_beside

_ANSWER_TOKENS = 48
_LOGIT_TOKENS = 256
_FROM_DATA = 3
_LONGEST_PROMPT = 400
_USUAL = ("What can you do?", "Tell me something about the sea.", "Once upon a time")


@dataclass(frozen=True)
class Answers:
    """What a model says to some prompts, and its logits for the first of them."""

    texts: tuple[str, ...]
    logits_TV: Tensor


@dataclass
class Replay:
    """The comparison, as it stands in a result."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    largest_logit_difference: float | None = None
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "replay": self.rows,
            "same": sum(row["same"] for row in self.rows),
            "of": len(self.rows),
            "largest_logit_difference": self.largest_logit_difference,
        }


def compare(prompts: Sequence[str], before: Answers, after: Answers) -> Replay:
    rows = [
        {"prompt": prompt, "before": old, "after": new, "same": old == new}
        for prompt, old, new in zip(prompts, before.texts, after.texts, strict=True)
    ]
    return Replay(rows, float((before.logits_TV - after.logits_TV).abs().max()))


def answers_before(
    found: ResolvedModel, prompts: Sequence[str], compute: Compute, keep_going: Callable[[], None]
) -> Answers:
    """What was trained says: an adapter over its base, in four bits if it was trained so."""
    return _ask(load_text(found, compute), PromptFormatter.of(found), prompts, keep_going)


def answers_after(
    folder: Path,
    found: ResolvedModel,
    prompts: Sequence[str],
    compute: Compute,
    keep_going: Callable[[], None],
) -> Answers:
    """What an exported folder says, read back from disk by transformers."""
    exported = ResolvedModel(folder, found.base if found.is_adapter else None, config=found.config)
    alone = ResolvedModel(folder, config=found.config) if not exported.is_adapter else exported
    model = load_pretrained_text(
        folder, base=alone.base, compute=compute, four_bit=alone.is_adapter and found.four_bit
    )
    return _ask(model, PromptFormatter.of(alone), prompts, keep_going)


def answers_of_gguf(
    file: Path,
    planned: list[GgufTensor],
    found: ResolvedModel,
    prompts: Sequence[str],
    compute: Compute,
    keep_going: Callable[[], None],
) -> Answers:
    """What a GGUF file's tensors say, decoded and computed by transformers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    home = found.base if found.is_adapter and found.base is not None else found.folder
    make: Callable[..., Any] = AutoModelForCausalLM.from_config
    check_model_folder(home)
    with quiet_transformers():
        config = AutoConfig.from_pretrained(
            home / CONFIG_FILE,
            local_files_only=True,
            trust_remote_code=False,
            **(scaling_beside(found.folder) if found.is_adapter else {}),
        )
        model = make(config, dtype=torch.float32)
    with torch.no_grad():
        for name, values in read_back(file, planned):
            keep_going()
            cast(Tensor, model.get_parameter(name)).copy_(values)
    text = PretrainedText(model.to(compute.device, compute.dtype))
    return _ask(text, PromptFormatter.of(found), prompts, keep_going)


def why_not_replayed(found: ResolvedModel, compute: Compute) -> str | None:
    """A sentence when the memory that is free does not hold the model a second time."""
    home = found.base if found.is_adapter and found.base is not None else found.folder
    needed = count_weights(home) * compute.dtype.itemsize + BESIDES_BYTES
    free = free_bytes(compute.device)
    if needed <= free:
        return None
    return (
        f"Answers before and after the export were not compared: the comparison needs {needed / 1e9:.1f} GB "
        f"of memory, and {free / 1e9:.1f} GB are free."
    )


def choose_prompts(asked: Sequence[str], found: ResolvedModel) -> tuple[str, ...]:
    """Those asked for, else some of the data that was trained on, else a few of everyday."""
    return tuple(asked) or _from_data(found) or _USUAL


def _from_data(found: ResolvedModel) -> tuple[str, ...]:
    data = None if found.config is None else found.config.data
    if data is None or data.kind != "examples" or data.train_path is None:
        return ()
    try:
        source = Source.open(Path(data.train_path).expanduser(), encoding=data.encoding)
        mapping = Mapping.by_hand(dict(data.columns)) if data.columns else detect(sample(source)).mapping
        if mapping is None:
            return ()
        prompts = []
        for row in islice(source.rows(), 50):
            if row.values is None:
                continue
            try:
                prompts.append(_question(to_example(row.values, mapping)))
            except RowProblem:
                continue
    except ValueError:
        # The data may be gone; the usual questions do as well.
        return ()
    return tuple(dict.fromkeys(prompt for prompt in prompts if prompt))[:_FROM_DATA]


def _question(example: Any) -> str:
    """The last thing that was said before the model's first answer, or the beginning of a text."""
    if example.text is not None:
        return str(example.text)[:40].strip()
    question = ""
    for message in example.messages:
        if message.role == "assistant":
            break
        if message.role == "user":
            question = str(message.content)
    return question[:_LONGEST_PROMPT].strip()


def _ask(
    model: TextModel, formatter: PromptFormatter, prompts: Sequence[str], keep_going: Callable[[], None]
) -> Answers:
    tokens = [_tokens(formatter, prompt) for prompt in prompts]
    texts = []
    for prompt in tokens:
        keep_going()
        texts.append("".join(Answer(model, formatter, prompt, Wanted(_ANSWER_TOKENS))))
    first = torch.tensor([tokens[0][:_LOGIT_TOKENS]], device=next(model.parameters()).device)
    with torch.inference_mode():
        logits_TV = model(first, model.new_cache())[0].float().cpu()
    del model
    # The next model needs the room.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return Answers(tuple(texts), logits_TV)


def _tokens(formatter: PromptFormatter, prompt: str) -> list[int]:
    if formatter.template is None:
        return formatter.completion(prompt)
    return formatter.chat([{"role": "user", "content": prompt}])
